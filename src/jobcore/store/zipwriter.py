"""The writer of the ``zarr.zip`` container: the whole file is laid out by native code, and written as it is made.

A small database is put together in memory and written by one call. A large one is a stream of aligned blocks that
native threads write, around the page cache where it is to be durable. A snapshot is the file itself, made in an
arena, from where it is written later; where chunks are to be encoded, which takes long, it is a copy of the arrays.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from jobcore._fast.arena import Arena
from jobcore._fast.chunk import BlockWriter, allocate
from jobcore._fast.image import ZipImage
from jobcore.store import arenas, files, syncing
from jobcore.store.container import Content, Written
from jobcore.store.dirstage import Copies
from jobcore.store.documents import ArrayDocuments, native_specs, spec_rows
from jobcore.store.encoding import EncodedChunks
from jobcore.store.layout import Spec, gathered
from jobcore.store.metadata import extra_columns
from jobcore.store.names import escape
from jobcore.store.refusals import note_slower
from jobcore.store.workers import giving_way
from jobcore.store.zipformat import index_end, wide_from

__all__ = ["ZipOutput", "ZipSnapshot", "bound"]

_SMALL = 4 << 20  # a database up to this size, in bytes, is written by one call
_BLOCK = 4 << 20
_BLOCKS = 8
_FEW_BLOCKS = 4  # where other memory is needed for chunks that are encoded
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
        self._copies: Copies | None = None
        self._file, self.temporary = files.create_temporary(final)

    @property
    def descriptor(self) -> int:
        """Descriptor of the file."""
        return self._file.number

    def stage(self, content: Content) -> None:
        """Make the file in memory, or copy the arrays where it takes long to make it."""
        if content.table.has_codecs:
            self._copies = Copies(content.arrays)
            content.arrays = self._copies.arrays
            return
        self._snapshot = ZipSnapshot(content)

    def write(self, content: Content) -> Written:
        """Write everything, from the snapshot when there is one."""
        snapshot = self._snapshot
        if snapshot is not None:
            size = snapshot.written.size_bytes
            files.check_room(self.temporary, size)
            self._allocate(size)
            direct = self._durable and size > _SMALL
            self._note(
                "direct writes", snapshot.arena.write_to(self.descriptor, size, _STEP, _THREADS, direct)
            )
            self._free()
            return snapshot.written
        most, plain = bound(content), _plain_bytes(content)
        files.check_room(self.temporary, plain)
        if most <= _SMALL:
            with arenas.taken(most) as arena:
                written = fill(arena, content)
                arena.write_to(self.descriptor, written.size_bytes, _SMALL, 1, direct=False)
            return written
        self._allocate(plain)
        blocks = _FEW_BLOCKS if content.table.has_codecs else _BLOCKS
        writer = BlockWriter(self.descriptor, _BLOCK, blocks, _THREADS, self._durable)
        try:
            written = fill(writer, content)
            writer.finish()
        finally:
            writer.close()
        self._note("direct writes", writer.refused)
        return written

    def sync(self) -> None:
        """Force the file to the disk."""
        syncing.sync_file(self.descriptor)

    def close(self) -> None:
        """Close the file."""
        self._free()
        self._file.close()

    def _allocate(self, nbytes: int) -> None:
        # Only for direct writes: the page cache allocates when it writes, and does so well.
        if self._durable and nbytes > _SMALL:
            self._note("allocation", allocate(self.descriptor, nbytes))

    def _note(self, what: str, code: int) -> None:
        note_slower(self.descriptor, self.temporary, what, code)

    def _free(self) -> None:
        snapshot, self._snapshot = self._snapshot, None
        if snapshot is not None:
            snapshot.close()
        copies, self._copies = self._copies, None
        if copies is not None:
            copies.close()


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
    image = ZipImage(native_specs(table.specs), sink, escape, wide_from())
    if table.has_codecs:
        _add_encoded(image, content)
    else:
        _add_plain(image, content, 0, len(content.names))
    image.copy(_THREADS)
    head, tail = content.root
    image.root(head, spec_rows(table.specs), tail, extra_columns(table))
    with image.index() as directory:
        end, digest = index_end(directory, image.entries, image.end, content.header.format)
    return Written(digest, image.finish(end))


def _add_plain(image: ZipImage, content: Content, start: int, stop: int) -> None:
    table = content.table
    while (start := image.add(content.names, content.arrays, table.spec, start, stop)) < stop:
        image.add_gathered(
            content.names[start], table.spec[start], _gatherer(content.arrays[start], table.spec_of(start))
        )
        start += 1


def _add_encoded(image: ZipImage, content: Content) -> None:
    table = content.table
    table.size = []
    encoded = [spec.codecs != () for spec in table.specs]
    start = 0
    with EncodedChunks(table, content.arrays) as chunks:
        for blob, index in enumerate(table.spec):
            if encoded[index]:
                _add_plain(image, content, start, blob)
                table.size += image.add_encoded(content.names[blob], index, chunks.of(blob))
                start = blob + 1
        _add_plain(image, content, start, len(content.names))


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
        # Beside payload and document: up to three numbers of the table for each chunk, and one for each blob.
        each = spec.chunks * (spec.stored_bound + 52 + 2 * _suffix(spec)) + len(head) + len(tail) + 32
        total += count * each
    total += sum(map(len, content.root)) + len(spec_rows(table.specs)) + len(extra_columns(table))
    # A key takes up to 12 bytes for a character of its name, but no more than 200; it stands in two headers for
    # each entry. The name stands in the document and in the table, up to 6 bytes for a character.
    keys = min(200 * (entries - 1), 12 * names * max((spec.chunks + 1 for spec in table.specs), default=1))
    return total + 12 * names + 2 * keys + entries * (30 + 20 + 4 + 64 + 46 + 28 + 2 * 16)


def _plain_bytes(content: Content) -> int:
    """Give the bytes of the arrays that are stored as they are; how many others take is known only at the end."""
    if not content.table.has_codecs:
        return sum(array.nbytes for array in giving_way(content.arrays))
    pairs = zip(content.table.spec, content.arrays, strict=True)
    return sum(array.nbytes for index, array in pairs if not content.table.specs[index].codecs)


def _suffix(spec: Spec) -> int:
    return 24 + 2 * len(spec.stored_shape)


def _gatherer(array: np.ndarray[Any, Any], spec: Spec) -> Callable[[int], Iterator[memoryview]]:
    def pieces(chunk: int) -> Iterator[memoryview]:
        low, high = spec.row_range(chunk)
        return gathered(array[low:high])

    return pieces
