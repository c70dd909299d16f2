"""The plain writer of the ``zarr.zip`` container: one pass over the data, in order, by ``pwrite``.

The checksum of a payload stands in the header before it. Small entries are put together in memory first; the
header of a large one is written after its payload, into the room left for it, so that each piece is read from
memory once, while it is in the processor's cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from jobcore._fast.crc import crc32 as crc32_of
from jobcore.store import files
from jobcore.store.container import Content, Written
from jobcore.store.layout import Spec, bytes_of
from jobcore.store.metadata import ArrayDocuments, dump_root
from jobcore.store.names import escape
from jobcore.store.zipformat import ROOT_KEY, Entry, build_index, header_bytes, local_header

__all__ = ["ZipOutput", "ZipWriter"]

_BATCH = 1 << 20
_LARGE = 1 << 18
_PIECE = 1 << 20
_GATHER = 1 << 22  # bytes copied at a time from memory that is not contiguous
_ZEROS = bytes(1 << 16)


class ZipOutput:
    """A new database in one file.

    Parameters
    ----------
    final
        Absolute path that it will have.
    durable
        Whether it will be synced.
    """

    def __init__(self, final: str, *, durable: bool) -> None:
        self._durable = durable
        fd, self.temporary = files.create_temporary(final)
        self._writer = ZipWriter(fd)

    def write(self, content: Content) -> Written:
        """Write everything."""
        table, out = content.table, self._writer
        documents = ArrayDocuments(table.specs)
        for blob, (name, array) in enumerate(zip(content.names, content.arrays, strict=True)):
            spec = table.spec_of(blob)
            key = escape(name)
            for chunk in range(spec.chunks):
                place, crc32 = out.add_chunk(
                    spec.chunk_key(key, chunk), spec.chunk_bytes, _pieces(array, spec, chunk)
                )
                table.place.append(place)
                table.crc32.append(crc32)
            out.add_document(f"{key}/zarr.json", documents.document(name, table.spec[blob]))
        return Written(*out.finish(dump_root(content.header, table)))

    def sync(self) -> None:
        """Force the file to the disk."""
        self._writer.sync()

    def close(self) -> None:
        """Close the file."""
        self._writer.close()


def _pieces(array: np.ndarray[Any, Any], spec: Spec, chunk: int) -> Iterator[memoryview]:
    low, high = spec.row_range(chunk)
    if array.flags.c_contiguous:
        flat = bytes_of(array)
        yield flat[low * spec.row_bytes : high * spec.row_bytes]
    else:
        step = max(1, _GATHER // spec.row_bytes)
        for at in range(low, high, step):
            rows = np.ascontiguousarray(array[at : min(at + step, high)])
            yield bytes_of(rows)
    missing = (spec.chunk_rows - (high - low)) * spec.row_bytes
    while missing > 0:
        yield memoryview(_ZEROS)[:missing]
        missing -= len(_ZEROS)


class ZipWriter:
    """Writes one database into a new file.

    Parameters
    ----------
    fd
        Descriptor of an empty file, open for writing; it is closed by :meth:`close`.

    Notes
    -----
    Not thread-safe: one thread writes one database.
    """

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._entries: list[Entry] = []
        self._batch = bytearray()
        self._end = 0  # offset at which the next entry starts; the batch ends here

    def add_chunk(self, key: str, size: int, pieces: Iterable[memoryview]) -> tuple[int, int]:
        """Write a chunk.

        Parameters
        ----------
        key
            Its key.
        size
            Its size, in bytes.
        pieces
            Its bytes, in order; `size` of them altogether.

        Returns
        -------
        tuple of int and int
            Offset of its first byte in the file, and its CRC-32.
        """
        if size < _LARGE:
            return self._add_small(key, b"".join(pieces))
        self._flush()
        offset = self._end
        head = header_bytes(key, offset, size)
        at, crc32 = offset + head, 0
        for piece in pieces:
            for begin in range(0, len(piece), _PIECE):
                part = piece[begin : begin + _PIECE]
                crc32 = crc32_of(part, crc32)
                files.write_all(self._fd, part, at)
                at += len(part)
        entry = Entry(key, offset, size, crc32)
        files.write_all(self._fd, local_header(entry), offset)
        self._entries.append(entry)
        self._end = at
        return offset + head, crc32

    def add_document(self, key: str, data: bytes) -> None:
        """Write a metadata document.

        Parameters
        ----------
        key
            Its key.
        data
            Its text.
        """
        self._add_small(key, data)

    def finish(self, root: bytes) -> tuple[str, int]:
        """Write the root document and the index.

        Parameters
        ----------
        root
            The root document.

        Returns
        -------
        tuple of str and int
            Digest, and size of the file in bytes.
        """
        self._add_small(ROOT_KEY, root)
        index, digest = build_index(self._entries, self._end)
        self._batch += index
        self._end += len(index)
        self._flush()
        return digest, self._end

    def sync(self) -> None:
        """Force everything to the disk."""
        files.sync_file(self._fd)

    def close(self) -> None:
        """Close the file."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _add_small(self, key: str, data: bytes) -> tuple[int, int]:
        crc32 = crc32_of(data)
        entry = Entry(key, self._end, len(data), crc32)
        head = local_header(entry)
        self._entries.append(entry)
        self._batch += head
        self._batch += data
        place = self._end + len(head)
        self._end = place + len(data)
        if len(self._batch) >= _BATCH:
            self._flush()
        return place, crc32

    def _flush(self) -> None:
        if self._batch:
            files.write_all(self._fd, self._batch, self._end - len(self._batch))
            self._batch = bytearray()
