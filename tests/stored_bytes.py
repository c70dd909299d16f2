"""Changing what is stored of a blob, with all checksums made true again: what only decoding can find out."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

from jobcore._fast.crc32c import crc32c
from jobcore._fast.hash128 import hash128
from jobcore.store.documents import dumps
from slow_image import SlowZip
from store_cases import parts_of


def replace_stored(path: Path, key: str, data: bytes, size: int | None = None) -> None:
    """Put other bytes in the place of an encoded chunk; the table says that they have `size` bytes."""
    if path.is_dir():
        _replace_in_directory(path, key, data, size)
    else:
        _replace_in_zip(path, key, data, size)


def _numbers(table: Any) -> dict[str, tuple[int, int]]:
    """For the first chunk of each blob its number among all chunks, and among those that are encoded."""
    found = {}
    chunk = encoded = 0
    for name, index in zip(table["name"], table["spec"], strict=True):
        found[name] = chunk, encoded
        _, _, shape, _, _, rows, *codecs = table["specs"][index]
        count = -(-shape[0] // rows) if shape else 1
        chunk += count
        encoded += count if codecs else 0
    return found


def _replace_in_zip(path: Path, key: str, data: bytes, size: int | None) -> None:
    entries, root = parts_of(path)
    table = root["attributes"]["jobcore"]["blobs"]
    table["place"], table["crc32"] = [], []
    out = SlowZip()
    for name, payload in entries:
        place, crc32 = out.add(name, data if name == key else payload)
        if not name.endswith("zarr.json"):
            table["place"].append(place)
            table["crc32"].append(crc32)
    table["size"][_numbers(table)[key.partition("/")[0]][1]] = len(data) if size is None else size
    out.finish(dumps(root), 3)
    path.write_bytes(out.data)


def _replace_in_directory(path: Path, key: str, data: bytes, size: int | None) -> None:
    root = json.loads((path / "zarr.json").read_bytes())
    inner = root["attributes"]["jobcore"]
    table = inner["blobs"]
    chunk, encoded = _numbers(table)[key.partition("/")[0]]
    table["crc32c"][chunk] = crc32c(data)
    table["hash"][chunk] = hash128(data).hex()
    table["size"][encoded] = len(data) if size is None else size
    inner["sha256"] = "0" * 64
    text = dumps(root)
    digest = hashlib.sha256(text).hexdigest().encode()
    for name, content in (
        (key, data + crc32c(data).to_bytes(4, "little")),
        ("zarr.json", text.replace(b"0" * 64, digest, 1)),
    ):
        (path / name).unlink()
        (path / name).write_bytes(content)
