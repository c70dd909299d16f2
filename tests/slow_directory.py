"""A second reader of the database in a directory, written from docs/reference/format.md alone and in no hurry.

It takes a whole directory apart, asserts every MUST of the document, and gives the tensors and the raw bytes of
everything else.
"""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import numpy as np

from slow_reader import WIDTHS, decoded, document, dtype_of, is_new, key_of, with_aliases


def crc32c(data: bytes) -> int:
    register = 0xFFFFFFFF
    for byte in data:
        register ^= byte
        for _ in range(8):
            register = register >> 1 ^ (0x82F63B78 if register & 1 else 0)
    return register ^ 0xFFFFFFFF


def take_apart(path: Path) -> tuple[dict[str, Any], dict[str, bytes], str]:
    """Section 8: the root, all other files by key, and the digest."""
    found = {str(p.relative_to(path)): p for p in path.rglob("*")}
    assert {key for key, p in found.items() if p.is_dir()} == {
        key.split("/")[0] for key in found if "/" in key
    }
    assert not any(p.is_symlink() for p in found.values())
    data = {key: p.read_bytes() for key, p in found.items() if p.is_file()}
    root = data.pop("zarr.json")
    head = b'{"zarr_format":3,"node_type":"group","attributes":{"jobcore":{"sha256":"'
    assert root.startswith(head)
    at = len(head)
    digest = hashlib.sha256(root[:at] + b"0" * 64 + root[at + 64 :]).hexdigest()
    assert root[at : at + 65].decode() == digest + '"'
    return json.loads(root), data, f"sha256:{digest}"


def read(path: Path) -> tuple[dict[str, Any], dict[str, tuple[str, Any]], str]:
    """Give the header, kind and value of each blob, and the digest."""
    root, left, digest = take_apart(path)
    header = root["attributes"]["jobcore"]
    table = header.pop("blobs")
    assert (header["format"], header["container"]) == (3 if is_new(table) else 2, "zarr")
    assert len(table["name"]) == len(table["spec"]) == len(set(table["name"]))
    checksums, hashes, sizes = iter(table["crc32c"]), iter(table["hash"]), iter(table.get("size", []))
    blobs = {}
    for name, index in zip(table["name"], table["spec"], strict=True):
        kind, dtype, shape, data_type, item_bytes, chunk_rows, *codecs = table["specs"][index]
        stored = [*shape, item_bytes] if item_bytes else shape
        rest = stored[1:]
        count = 0 if 0 in stored else -(-stored[0] // chunk_rows) if stored else 1
        raw = b""
        for chunk in range(count):
            data = left.pop(f"{key_of(name)}/c" + (f".{chunk}" + ".0" * len(rest) if stored else ""))
            body, tail = data[:-4], data[-4:]
            assert crc32c(body) == next(checksums) == int.from_bytes(tail, "little")
            assert len(bytes.fromhex(next(hashes))) == 16
            raw += decoded(
                body, codecs, chunk_rows * int(np.prod(rest, dtype=int)) * WIDTHS[data_type], sizes
            )
        needed = int(np.prod(stored, dtype=int)) * WIDTHS[data_type]
        assert not any(raw[needed:])
        implied = document(name, kind, dtype, stored, data_type, item_bytes, chunk_rows, *codecs)
        implied["codecs"].append({"name": "crc32c"})
        assert json.loads(left.pop(f"{key_of(name)}/zarr.json")) == implied
        value = (
            np.frombuffer(raw[:needed], dtype_of(dtype)).reshape(shape) if kind == "tensor" else raw[:needed]
        )
        blobs[name] = (kind, value)
    assert not left
    assert next(checksums, next(hashes, next(sizes, None))) is None
    return header, with_aliases(table, blobs), digest
