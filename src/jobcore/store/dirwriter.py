"""The writer of the ``zarr`` container: a directory with one file for each chunk.

Each chunk is hashed first. If the earlier database has one of that hash, its file is linked; all others are
written, by several threads, and what is written is never written to again.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from jobcore._fast.crc32c import crc32c
from jobcore._fast.hash128 import hash128
from jobcore.store import files, syncing
from jobcore.store.container import Content, Written
from jobcore.store.dirformat import ROOT, TRAILER, seal_root, size_of
from jobcore.store.dirlinks import Base, open_base
from jobcore.store.dirstage import Copies
from jobcore.store.documents import ArrayDocuments
from jobcore.store.encoding import Budget, cost_of, encoded_chunk
from jobcore.store.layout import bytes_of
from jobcore.store.names import escape
from jobcore.store.workers import THREADS, each

__all__ = ["DirectoryOutput"]

_PIECE = 1 << 20
_LARGE = 1 << 18  # blobs from this size on are shared out among threads by chunks, in bytes
_COPIED = 1 << 20  # chunks up to this size are copied before they are looked at, in bytes
_FEW = 256  # files up to this number stay open, to be synced one by one
_ENCODING_BYTES = 48 << 20  # memory for chunks that are being encoded
_MODE = 0o444  # a tool that wrote in place would change every database that has the chunk
_ZEROS = memoryview(bytes(_PIECE))
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC


class DirectoryOutput:
    """A new database in a directory.

    Parameters
    ----------
    final
        Absolute path that it will have.
    durable
        Whether it will be synced.
    base
        Path of an earlier database, to whose files those of unchanged chunks are linked.

    Raises
    ------
    OSError
        The directory above may not be written.
    """

    def __init__(self, final: str, *, durable: bool, base: str | None = None) -> None:
        self._durable = durable
        self._base = base
        self._open: list[int] = []  # files that wait to be synced; appending needs no lock
        self._folders: list[str] = []
        self._keep = False
        self._fd = -1
        self._copies: Copies | None = None
        self.temporary = files.temporary_name(final)
        os.mkdir(self.temporary)  # noqa: PTH102 - paths are plain text here
        try:
            # Opened before anything is written: so it hears of every error of the disk from here on.
            self._fd = syncing.open_directory(self.temporary)
        except BaseException:
            files.remove_quietly(self.temporary)
            raise

    def stage(self, content: Content) -> None:
        """Copy what may change."""
        self._copies = Copies(content.arrays)
        content.arrays = self._copies.arrays

    def write(self, content: Content) -> Written:
        """Write everything."""
        table = content.table
        chunks = table.first[-1]
        table.crc32c, table.hash = [0] * chunks, [""] * chunks
        table.size = [0] * table.first_size[-1] if table.has_codecs else []
        self._keep = self._durable and chunks + len(table.names) < _FEW
        base = open_base(self._base)
        try:
            each(_Filler(self, content, base).works(), THREADS)
        finally:
            if base is not None:
                base.close()
        root, digest = seal_root(content.header, table)
        self.create(ROOT, root)
        return Written(digest, size_of(content.header, table, len(root)))

    def sync(self) -> None:
        """Force all files, and the names in all folders, to the disk."""
        if not self._keep and syncing.sync_file_system(self._fd):
            return
        if self._keep:
            each((partial(syncing.sync_file, fd) for fd in self._open), 2 * THREADS)
        else:
            each(self._sync_later(), 2 * THREADS)
        for folder in self._folders:
            syncing.sync_directory(f"{self.temporary}/{folder}")
        syncing.sync_directory(self._fd)

    def close(self) -> None:
        """Close all files."""
        if self._copies is not None:
            self._copies.close()
        while self._open:
            files.close_quietly(self._open.pop())
        fd, self._fd = self._fd, -1
        if fd >= 0:
            files.close_quietly(fd)

    @property
    def directory(self) -> int:
        """Descriptor of the directory."""
        return self._fd

    def folder(self, key: str) -> None:
        """Make the folder of a blob."""
        os.mkdir(key, dir_fd=self._fd)
        self._folders.append(key)

    def create(self, key: str, data: bytes) -> None:
        """Write a new file."""
        fd = os.open(key, _CREATE, _MODE, dir_fd=self._fd)
        with self.done_with(fd):
            files.write_all(fd, data, 0)

    def create_large(self, key: str, data: memoryview, zeros: int) -> int:
        """Write a new file of a chunk that ends in zeros, and give its CRC-32C."""
        fd = os.open(key, _CREATE, _MODE, dir_fd=self._fd)
        with self.done_with(fd):
            found = 0
            for begin in range(0, len(data), _PIECE):
                part = data[begin : begin + _PIECE]
                found = crc32c(part, found)
                files.write_all(fd, part, begin)
            # Zeros that are not written read as such.
            for begin in range(0, zeros, _PIECE):
                found = crc32c(_ZEROS[: zeros - begin], found)
            files.write_all(fd, found.to_bytes(TRAILER, "little"), len(data) + zeros)
        return found

    def hash_of(self, key: str) -> bytes:
        """Give the hash of a chunk as it was written."""
        fd = os.open(key, os.O_RDONLY | os.O_CLOEXEC, dir_fd=self._fd)
        with open(fd, "rb") as file:  # noqa: PTH123 - it is a descriptor
            return hash128(memoryview(file.read())[:-TRAILER])

    @contextlib.contextmanager
    def done_with(self, fd: int) -> Iterator[None]:
        """Keep a file for the sync, or close it."""
        good = False
        try:
            yield
            good = True
        finally:
            if good and self._keep:
                self._open.append(fd)
            elif good:
                os.close(fd)
            else:
                files.close_quietly(fd)

    def _sync_later(self) -> Iterator[Callable[[], None]]:
        for folder in ("", *self._folders):
            place = os.path.join(self.temporary, folder)  # noqa: PTH118 - paths are plain text here
            for name in os.listdir(place):  # noqa: PTH208
                path = f"{place}/{name}"
                if folder or name == ROOT:
                    yield partial(_sync_path, path)


def _sync_path(path: str) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        syncing.sync_file(fd)
    finally:
        files.close_quietly(fd)


class _Filler:
    """Writes the blobs of a database, or links what it can; the table gets checksums and hashes."""

    def __init__(self, out: DirectoryOutput, content: Content, base: Base | None) -> None:
        self._out = out
        self._content = content
        self._base = base
        self._documents = ArrayDocuments(content.table.specs, content.header.container)
        self._gathering = threading.Lock()  # held while a large chunk is put together: one at a time
        self._encoding = Budget(_ENCODING_BYTES)
        self._local = threading.local()

    def works(self) -> Iterator[Callable[[], None]]:
        """Give everything that is to be done, in pieces that may be done at the same time."""
        table = self._content.table
        for blob in range(len(table.names)):
            spec = table.spec_of(blob)
            if spec.chunks * spec.chunk_bytes < _LARGE:
                yield partial(self._small_blob, blob)
                continue
            self._begin(blob)
            for chunk in range(spec.chunks):
                yield partial(self._chunk, blob, chunk)

    def _small_blob(self, blob: int) -> None:
        self._begin(blob)
        for chunk in range(self._content.table.spec_of(blob).chunks):
            self._chunk(blob, chunk)

    def _begin(self, blob: int) -> None:
        content, out = self._content, self._out
        table, name = content.table, content.names[blob]
        key = escape(name)
        document = self._documents.document(name, table.spec[blob])
        out.folder(key)
        linked = None if self._base is None else self._base.link_document(key, document, out.directory)
        if linked is None:
            out.create(f"{key}/zarr.json", document)
        else:
            with out.done_with(linked):
                pass

    def _chunk(self, blob: int, chunk: int) -> None:
        content = self._content
        spec, array = content.table.spec_of(blob), content.arrays[blob]
        if spec.codecs:
            with self._encoding.taken(cost_of(spec, array)):
                self._put_encoded(blob, chunk, encoded_chunk(spec, array, chunk))
            return
        low, high = spec.row_range(chunk)
        zeros = (spec.chunk_rows - (high - low)) * spec.row_bytes
        if not array.flags.c_contiguous:
            with self._gathering if spec.chunk_bytes > _COPIED else contextlib.nullcontext():
                self._put(blob, chunk, bytes_of(np.ascontiguousarray(array[low:high])), zeros)
            return
        self._put(blob, chunk, bytes_of(array)[low * spec.row_bytes : high * spec.row_bytes], zeros)

    def _put(self, blob: int, chunk: int, image: memoryview, zeros: int) -> None:
        table, out = self._content.table, self._out
        at, size = table.first[blob] + chunk, len(image) + zeros
        key = table.spec_of(blob).chunk_key(escape(table.names[blob]), chunk)
        if self._base is not None and self._link(at, hash128(image, zeros).hex(), size, key):
            return
        # The hash must be that of the file, or a later epoch would be linked to bytes that it does not have. A copy
        # cannot change between the hash and the write, whatever other threads do. What is too large to be copied is
        # hashed once more after it.
        if len(image) <= _COPIED:
            image = self._copy(image)
        before = hash128(image, zeros)
        if size < _LARGE:
            data = bytes(image) + bytes(zeros)
            table.crc32c[at] = found = crc32c(data)
            out.create(key, data + found.to_bytes(TRAILER, "little"))
        else:
            table.crc32c[at] = out.create_large(key, image, zeros)
            if len(image) > _COPIED and hash128(image, zeros) != before:
                before = out.hash_of(key)
        table.hash[at] = before.hex()

    def _put_encoded(self, blob: int, chunk: int, data: bytes) -> None:
        table, out = self._content.table, self._out
        at = table.first[blob] + chunk
        table.size[table.first_size[blob] + chunk] = len(data)
        key = table.spec_of(blob).chunk_key(escape(table.names[blob]), chunk)
        digest = hash128(data).hex()
        if self._base is not None and self._link(at, digest, len(data), key):
            return
        table.hash[at] = digest
        if len(data) < _LARGE:
            table.crc32c[at] = found = crc32c(data)
            out.create(key, data + found.to_bytes(TRAILER, "little"))
        else:
            table.crc32c[at] = out.create_large(key, memoryview(data), 0)

    def _link(self, at: int, digest: str, size: int, key: str) -> bool:
        """Link the file of an equal chunk of the earlier database, if it has one."""
        assert self._base is not None
        linked = self._base.link_chunk(digest, size, self._out.directory, key)
        if linked is None:
            return False
        fd, self._content.table.crc32c[at] = linked
        with self._out.done_with(fd):
            self._content.table.hash[at] = digest
        return True

    def _copy(self, image: memoryview) -> memoryview:
        """Copy a chunk into a buffer that its thread uses again and again."""
        buffer: memoryview | None = getattr(self._local, "buffer", None)
        if buffer is None:
            buffer = self._local.buffer = memoryview(bytearray(_COPIED))
        copy = buffer[: len(image)]
        copy[:] = image
        return copy
