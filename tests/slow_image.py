"""The slow twin of the native zip image: the same file, entry by entry, in plain Python."""

from __future__ import annotations

import zlib
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np

from jobcore.store.container import Content
from jobcore.store.documents import ArrayDocuments
from jobcore.store.layout import Spec
from jobcore.store.metadata import dump_root
from jobcore.store.names import escape
from jobcore.store.zipformat import ROOT_KEY, Entry, build_index, local_header


class SlowZip:
    """Puts one database together in memory."""

    def __init__(self) -> None:
        self.entries: list[Entry] = []
        self.data = bytearray()

    def add(self, key: str, payload: bytes) -> tuple[int, int]:
        entry = Entry(key, len(self.data), len(payload), zlib.crc32(payload))
        self.entries.append(entry)
        self.data += local_header(entry)
        place = len(self.data)
        self.data += payload
        return place, entry.crc32

    def finish(self, root: bytes, version: int = 1) -> str:
        self.add(ROOT_KEY, root)
        index, digest = build_index(self.entries, len(self.data), version)
        self.data += index
        return digest


def slow_database(content: Content) -> tuple[bytes, str]:
    """The whole file and its digest."""
    table, out = content.table, SlowZip()
    documents = ArrayDocuments(table.specs)
    for blob, (name, array) in enumerate(zip(content.names, content.arrays, strict=True)):
        spec, key = table.spec_of(blob), escape(name)
        for chunk in range(spec.chunks):
            payload = _chunk(array, spec, chunk)
            if spec.codecs:
                payload = encoded(spec, payload)
                table.size.append(len(payload))
            place, crc32 = out.add(spec.chunk_key(key, chunk), payload)
            table.place.append(place)
            table.crc32.append(crc32)
        out.add(f"{key}/zarr.json", documents.document(name, table.spec[blob]))
    digest = out.finish(dump_root(content.header, table), content.header.format)
    return bytes(out.data), digest


def _chunk(array: np.ndarray[Any, Any], spec: Spec, chunk: int) -> bytes:
    low, high = spec.row_range(chunk)
    rows = array if not array.shape else array[low:high] if not spec.item_bytes or len(spec.shape) else array
    return rows.tobytes().ljust(spec.chunk_bytes, b"\0")


def encoded(spec: Spec, payload: bytes) -> bytes:
    """What the codec of numcodecs makes of a chunk, in one thread."""
    ((name, given),) = ((codec["name"], codec["configuration"]) for codec in spec.codecs)
    if name == "zstd":
        return bytes(numcodecs.Zstd(given["level"]).encode(payload))
    shuffle = ["noshuffle", "shuffle", "bitshuffle"].index(given["shuffle"])
    elements = np.frombuffer(payload, f"V{given['typesize']}")
    return bytes(numcodecs.Blosc(given["cname"], given["clevel"], shuffle).encode(elements))


def build(path: Path, entries: Any, root: bytes) -> None:
    """A file of any entries, with a true index and digest round them."""
    out = SlowZip()
    for key, data in entries:
        out.add(key, data)
    out.finish(root)
    path.write_bytes(out.data)
