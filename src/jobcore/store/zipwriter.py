"""The writer of the ``zarr.zip`` container: the whole file is laid out by native code, and written as it is made.

A small database is put together in memory and written by one call. A large one is a stream of aligned blocks that
native threads write, around the page cache where it is to be durable. A snapshot is the file itself, made in an
arena, from where it is written later.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jobcore._fast.chunk import BlockWriter, allocate
from jobcore._fast.image import Arena, ZipImage
from jobcore.store import arenas, files
from jobcore.store.container import Content, Written
from jobcore.store.layout import Spec, bytes_of
from jobcore.store.metadata import ArrayDocuments, dumps, native_specs, root_frame
from jobcore.store.names import escape
from jobcore.store.zipformat import index_end, wide_from

__all__ = ["ZipOutput", "ZipSnapshot", "bound"]

_GATHER = 1 << 19  # bytes copied at a time from memory that is not contiguous; short, for the GIL is held
_SMALL = 4 << 20  # a database up to this size, in bytes, is written by one call
_BLOCK = 4 << 20
_BLOCKS = 8
_THREADS = min(2, os.cpu_count() or 1)
_STEP = 8 << 20


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
        self._snapshot: ZipSnapshot | None = None
        self._fd, self.temporary = files.create_temporary(final)

    def stage(self, content: Content) -> None:
        """Make the file in memory."""
        self._snapshot = ZipSnapshot(content)

    def write(self, content: Content) -> Written:
        """Write everything, from the snapshot when there is one."""
        snapshot = self._snapshot
        if snapshot is not None:
            size = snapshot.written.size_bytes
            files.check_room(self.temporary, size)
            self._allocate(size)
            snapshot.arena.write_to(self._fd, size, _STEP, _THREADS, self._durable and size > _SMALL)
            self._free()
            return snapshot.written
        most = bound(content)
        files.check_room(self.temporary, sum(array.nbytes for array in content.arrays))
        if most <= _SMALL:
            with arenas.taken(most) as arena:
                written = fill(arena, content)
                arena.write_to(self._fd, written.size_bytes, _SMALL, 1, direct=False)
            return written
        self._allocate(sum(array.nbytes for array in content.arrays))
        writer = BlockWriter(self._fd, _BLOCK, _BLOCKS, _THREADS, self._durable)
        try:
            written = fill(writer, content)
            writer.finish()
        finally:
            writer.close()
        return written

    def sync(self) -> None:
        """Force the file to the disk."""
        files.sync_file(self._fd)

    def close(self) -> None:
        """Close the file."""
        self._free()
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def _allocate(self, nbytes: int) -> None:
        # Only for direct writes: the page cache allocates when it writes, and does so well.
        if self._durable and nbytes > _SMALL:
            allocate(self._fd, nbytes)

    def _free(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()


class ZipSnapshot:
    """A database in memory, as it will be in its file; the blobs may change as soon as it is made.

    Parameters
    ----------
    content
        What it holds.

    Raises
    ------
    MemoryError
        It does not fit into memory.
    """

    def __init__(self, content: Content) -> None:
        self.arena: Arena = arenas.take(bound(content))
        try:
            self.written = fill(self.arena, content)
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Give the memory back. More than once is harmless."""
        arena = self.__dict__.pop("arena", None)
        if arena is not None:
            arenas.give(arena)


def fill(sink: BlockWriter | Arena, content: Content) -> Written:
    """Lay a database out.

    Parameters
    ----------
    sink
        Where its bytes go.
    content
        What it holds.

    Returns
    -------
    Written
        Its digest and size.
    """
    table = content.table
    image = ZipImage(native_specs(table), sink, escape, wide_from())
    at, count = 0, len(content.names)
    while (at := image.add(content.names, content.arrays, table.spec, at)) < count:
        image.add_gathered(
            content.names[at], table.spec[at], _gatherer(content.arrays[at], table.spec_of(at))
        )
        at += 1
    image.copy(_THREADS)
    head, tail = root_frame(content.header)
    image.root(head, dumps([spec.to_json() for spec in table.specs]), tail)
    with image.index() as directory:
        end, digest = index_end(directory, image.entries, image.end)
    return Written(digest, image.finish(end))


def bound(content: Content) -> int:
    """Give a size, in bytes, that the file does not exceed."""
    table = content.table
    frames = ArrayDocuments(table.specs).frames
    blobs = Counter(table.spec)
    names = sum(map(len, content.names))
    entries, total = 1, 1 << 16
    for index, (spec, (head, tail)) in enumerate(zip(table.specs, frames, strict=True)):
        count = blobs[index]
        entries += count * (spec.chunks + 1)
        # Beside payload and document: two numbers of the table for each chunk, and one for each blob.
        each = spec.chunks * (spec.chunk_bytes + 32 + 2 * _suffix(spec)) + len(head) + len(tail) + 32
        total += count * each + len(dumps(spec.to_json()))
    header = root_frame(content.header)
    total += sum(map(len, header))
    # A key takes up to 12 bytes for a character of its name, but no more than 200; it stands in two headers for
    # each entry. The name stands in the document and in the table, up to 6 bytes for a character.
    keys = min(200 * (entries - 1), 12 * names * max((spec.chunks + 1 for spec in table.specs), default=1))
    return total + 12 * names + 2 * keys + entries * (30 + 20 + 4 + 64 + 46 + 28 + 2 * 16)


def _suffix(spec: Spec) -> int:
    return 24 + 2 * len(spec.stored_shape)


def _gatherer(array: np.ndarray[Any, Any], spec: Spec) -> Callable[[int], Iterator[memoryview]]:
    def pieces(chunk: int) -> Iterator[memoryview]:
        low, high = spec.row_range(chunk)
        step = max(1, _GATHER // spec.row_bytes)
        for at in range(low, high, step):
            yield bytes_of(np.ascontiguousarray(array[at : min(at + step, high)]))

    return pieces
