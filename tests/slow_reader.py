"""A second reader of the checkpoint database, written from docs/reference/format.md alone and in no hurry.

It shares no code with the library. It takes a whole file apart, byte for byte, asserts every MUST of the document, and
gives the tensors and the raw bytes of everything else.
"""

from __future__ import annotations

import hashlib
import json
import struct
import zlib
from collections.abc import Iterator, Sequence
from typing import Any

import numcodecs
import numpy as np

WIDTHS = {"bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "float16": 2, "int32": 4, "uint32": 4}
WIDTHS |= {"float32": 4, "int64": 8, "uint64": 8, "float64": 8, "complex64": 8, "complex128": 16}
WINDOWS = ["con", "prn", "aux", "nul", *(f"{stem}{n}" for stem in ("com", "lpt") for n in range(10))]


def key_of(name: str) -> str:
    """Section 1."""
    parts = []
    for byte in name.encode():
        char = chr(byte)
        if char in "abcdefghijklmnopqrstuvwxyz0123456789_-.":
            parts.append(char)
        elif char in "ABCDEFGHIJKLMNOPQRSTUVWXYZ":
            parts.append("~" + char.lower())
        else:
            parts.append(f"={byte:02x}")
    if len(parts[0]) == 1 and (
        name.startswith((".", "__")) or name == "zarr.json" or name.split(".")[0] in WINDOWS
    ):
        parts[0] = f"={ord(parts[0]):02x}"
    if parts[-1] == ".":
        parts[-1] = "=2e"
    key = "".join(parts)
    if len(key) <= 200:
        return key
    head = ""
    for part in parts:
        if len(head) + len(part) > 160:
            break
        head += part
    return head + "==" + hashlib.sha256(name.encode()).hexdigest()[:32]


def take_apart(data: bytes) -> tuple[dict[str, Any], list[tuple[str, int, bytes]], str, int]:
    """Section 7: the root, the entries as key, place of the payload and payload, the digest, and the version."""
    comment = data[-81:]
    assert comment[:17] in (b"jobcore 1 sha256=", b"jobcore 3 sha256=")
    end = struct.unpack("<4sHHHHLLH", data[-103:-81])
    assert end[:3] == (b"PK\5\6", 0, 0)
    assert end[3] == end[4]
    assert end[7] == 81
    count, size, start = end[4:7]
    after = len(data) - 103
    if count == 0xFFFF or size == 0xFFFFFFFF or start == 0xFFFFFFFF:
        locator = struct.unpack("<4sLQL", data[after - 20 : after])
        assert locator == (b"PK\6\7", 0, after - 76, 1)
        wide = struct.unpack("<4sQHHLLQQQQ", data[after - 76 : after - 20])
        assert wide[:7] == (b"PK\6\6", 44, 0x032D, 45, 0, 0, wide[7])
        narrow = count, size, start
        count, size, start = wide[7:]
        assert narrow == (min(count, 0xFFFF), min(size, 0xFFFFFFFF), min(start, 0xFFFFFFFF))
        after -= 76
    assert start + size == after
    digest = hashlib.sha256(data[start:-81]).hexdigest()
    assert comment[17:].decode() == digest
    entries, offset, at = [], 0, start
    for _ in range(count):
        fields = struct.unpack("<4s6H3L5H2L", data[at : at + 46])
        signature, made, needed, flags, method, time, date, crc32, stored, length, keys, extra = fields[:12]
        assert (signature, made, flags, method, time, date) == (b"PK\1\2", 0x032D, 0, 0, 0, 0x21)
        assert stored == length
        assert fields[12:16] == (0, 0, 0, 0x81A40000)
        key = data[at + 46 : at + 46 + keys].decode("ascii")
        numbers = [length, length, fields[16]]
        wide_at = [i for i, value in enumerate(numbers) if value == 0xFFFFFFFF]
        if wide_at:
            more = data[at + 46 + keys : at + 46 + keys + extra]
            assert struct.unpack("<HH", more[:4]) == (1, 8 * len(wide_at))
            for i, value in zip(wide_at, struct.unpack(f"<{len(wide_at)}Q", more[4:]), strict=True):
                numbers[i] = value
        else:
            assert extra == 0
        assert needed == (45 if wide_at else 20)
        assert numbers[2] == offset
        length = numbers[0]
        payload = offset + local_header(data, offset, key, length, crc32)
        body = data[payload : payload + length]
        assert zlib.crc32(body) == crc32
        entries.append((key, payload, body))
        offset = payload + length
        at += 46 + keys + extra
    assert at == start + size
    assert offset == start
    key, _, body = entries.pop()
    assert key == "zarr.json"
    return json.loads(body), entries, f"sha256:{digest}", int(comment[8:9])


def local_header(data: bytes, offset: int, key: str, length: int, crc32: int) -> int:
    """Check a local header, and give its length."""
    wide = length >= 0xFFFFFFFF
    narrow = 0xFFFFFFFF if wide else length
    expected = struct.pack(
        "<4sHHHHHLLLH", b"PK\3\4", 45 if wide else 20, 0, 0, 0, 0x21, crc32, narrow, narrow, len(key)
    )
    assert data[offset : offset + 28] == expected
    (extra,) = struct.unpack("<H", data[offset + 28 : offset + 30])
    assert data[offset + 30 : offset + 30 + len(key)] == key.encode()
    fields = data[offset + 30 + len(key) : offset + 30 + len(key) + extra]
    if wide:
        assert fields[:20] == struct.pack("<HHQQ", 1, 16, length, length)
        fields = fields[20:]
    padding = len(fields) - 4
    assert 1 <= padding <= 64
    assert fields == b"JC" + struct.pack("<H", padding) + bytes(padding)
    total = 30 + len(key) + extra
    assert (offset + total) % 64 == 0
    return total


def dtype_of(text: Any) -> np.dtype[Any]:
    """Section 3."""
    if isinstance(text, dict) and "base" in text:
        return np.dtype((dtype_of(text["base"]), tuple(text["shape"])))
    if isinstance(text, dict):
        return np.dtype({**text, "formats": [dtype_of(item) for item in text["formats"]]})
    if text[0] in "<>|":
        return np.dtype(text)
    import ml_dtypes

    return np.dtype(getattr(ml_dtypes, text))


def read(data: bytes) -> tuple[dict[str, Any], dict[str, tuple[str, Any]], str]:
    """Give the header, kind and value of each blob, and the digest."""
    root, entries, digest, version = take_apart(data)
    assert {key: root[key] for key in ("zarr_format", "node_type")} == {
        "zarr_format": 3,
        "node_type": "group",
    }
    header = root["attributes"]["jobcore"]
    table = header.pop("blobs")
    assert header["format"] == version == (3 if is_new(table) else 1)
    assert len(table["name"]) == len(table["spec"]) == len(set(table["name"]))
    left = iter(entries)
    places, checksums, sizes = iter(table["place"]), iter(table["crc32"]), iter(table.get("size", []))
    blobs = {}
    for name, index in zip(table["name"], table["spec"], strict=True):
        kind, dtype, shape, data_type, item_bytes, chunk_rows, *codecs = table["specs"][index]
        stored = [*shape, item_bytes] if item_bytes else shape
        rest = stored[1:]
        count = 0 if 0 in stored else -(-stored[0] // chunk_rows) if stored else 1
        raw = b""
        for chunk in range(count):
            key, place, body = next(left)
            assert key == f"{key_of(name)}/c" + (f".{chunk}" + ".0" * len(rest) if stored else "")
            assert place == next(places)
            assert zlib.crc32(body) == next(checksums)
            raw += decoded(
                body, codecs, chunk_rows * int(np.prod(rest, dtype=int)) * WIDTHS[data_type], sizes
            )
        needed = int(np.prod(stored, dtype=int)) * WIDTHS[data_type]
        assert not any(raw[needed:])
        raw = raw[:needed]
        key, _, body = next(left)
        assert key == f"{key_of(name)}/zarr.json"
        implied = document(name, kind, dtype, stored, data_type, item_bytes, chunk_rows, *codecs)
        assert json.loads(body) == implied
        if kind == "tensor":
            blobs[name] = (kind, np.frombuffer(raw, dtype_of(dtype)).reshape(shape))
        else:
            assert (data_type, dtype) == (("int64", "<i8") if kind == "counter" else ("uint8", "|u1"))
            assert len(shape) == (0 if kind == "counter" else 1)
            blobs[name] = (kind, raw)
    for iterator in (left, places, checksums, sizes):
        assert next(iterator, None) is None
    return header, with_aliases(table, blobs), digest


def is_new(table: dict[str, Any]) -> bool:
    """Whether a table has something that version 3 brought."""
    assert ("size" in table) == any(len(spec) > 6 for spec in table["specs"])
    return "size" in table or "alias" in table


def decoded(body: bytes, codecs: list[Any], nbytes: int, sizes: Iterator[int]) -> bytes:
    """Section 3.1."""
    for row in codecs:
        (codec,) = row
        assert len(body) == next(sizes)
        assert 1 <= len(body) <= nbytes + nbytes // 256 + 1024
        given = codec["configuration"]
        if codec["name"] == "zstd":
            assert list(given) == ["level", "checksum"]
            body = bytes(numcodecs.Zstd().decode(body))
        else:
            assert list(given) == ["cname", "clevel", "shuffle", "typesize", "blocksize"]
            assert [int.from_bytes(body[at : at + 4], "little") for at in (4, 12)] == [nbytes, len(body)]
            body = bytes(numcodecs.Blosc().decode(body))
    assert len(body) == nbytes
    return body


def with_aliases(table: dict[str, Any], blobs: dict[str, tuple[str, Any]]) -> dict[str, tuple[str, Any]]:
    """Section 4.3: all blobs in the order in which they were given."""
    assert table.get("alias", [1])
    found = list(blobs.items())
    for name, base, kind, dtype, shape, offset, strides, position in table.get("alias", []):
        assert name not in blobs
        assert kind == "tensor"
        memory = blobs[table["name"][base]][1].tobytes()
        found.insert(position, (name, (kind, np.ndarray(shape, dtype_of(dtype), memory, offset, strides))))
    return dict(found)


def document(
    name: str,
    kind: str,
    dtype: Any,
    stored: list[int],
    data_type: str,
    item_bytes: int,
    chunk_rows: int,
    codecs: Sequence[Any] = (),
) -> dict[str, Any]:
    """Section 4.1."""
    codec: dict[str, Any] = {"name": "bytes"}
    if WIDTHS[data_type] > 1:
        big = isinstance(dtype, str) and dtype[0] == ">" and not item_bytes
        codec["configuration"] = {"endian": "big" if big else "little"}
    fill: Any = 0
    if data_type == "bool":
        fill = False
    elif data_type.startswith("float"):
        fill = "NaN"
    elif data_type.startswith("complex"):
        fill = ["NaN", "NaN"]
    names = [
        f"d{n}" + (f"_{stored[: i + 1].count(n)}" if n in stored[:i] else "") for i, n in enumerate(stored)
    ]
    chunk_shape = [max(1, n) for n in [chunk_rows, *stored[1:]]] if stored else []
    return {
        "zarr_format": 3,
        "node_type": "array",
        "shape": stored,
        "data_type": data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": chunk_shape}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": fill,
        "codecs": [codec, *codecs],
        "dimension_names": names,
        "attributes": {"jobcore": {"name": name, "kind": kind, "dtype": dtype}},
    }
