"""The plain writer of the ``zarr.zip`` container: one pass over the data, in order, by ``pwrite``.

The checksum of a payload stands in the header before it. Small entries are put together in memory first; the
header of a large one is written after its payload, into the room left for it, so that each piece is read from
memory once, while it is in the processor's cache.
"""

from __future__ import annotations

import os
from collections.abc import Iterable

from jobcore._fast.crc import crc32 as crc32_of
from jobcore.store import files
from jobcore.store.zipformat import ROOT_KEY, Entry, build_index, header_bytes, local_header

__all__ = ["ZipWriter"]

_BATCH = 1 << 20
_LARGE = 1 << 18
_PIECE = 1 << 20


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
