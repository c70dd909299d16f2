"""The writer of the ``zarr`` container: a directory with one file for each chunk.

Where there is an earlier database each chunk is hashed first, and if that has one of the same hash its file is linked.
All others are written, by several threads, and what is written is never written to again.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from jobcore._fast.chunk_file import ChunkFiles
from jobcore._fast.descriptor import Descriptor
from jobcore._fast.hash128 import Hash128, hash128
from jobcore.store import files, syncing
from jobcore.store.container import Content, Written
from jobcore.store.dirformat import ROOT, seal_root, size_of
from jobcore.store.dirlinks import Base, open_base
from jobcore.store.dirstage import Copies
from jobcore.store.documents import ArrayDocuments
from jobcore.store.encoding import Budget, cost_of, encoded_chunk
from jobcore.store.layout import bytes_of, gathered
from jobcore.store.names import escape
from jobcore.store.workers import THREADS, each

__all__ = ["DirectoryOutput"]

_SHARED = 1 << 18  # blobs of several chunks are shared out among threads from this size on, in bytes
_GATHERED = 1 << 20  # chunks up to this size are put together at once, in bytes
_ZEROS = bytes(1 << 16)
_FEW = 256  # files up to this number stay open, to be synced one by one
_ENCODING_BYTES = 48 << 20  # memory for chunks that are being encoded
_MODE = 0o444  # a tool that wrote in place would change every database that has the chunk


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
        self._directory: Descriptor | None = None
        self._files: ChunkFiles | None = None
        self._copies: Copies | None = None
        self.temporary = files.temporary_name(final)
        try:
            os.mkdir(self.temporary)  # noqa: PTH102 - paths are plain text here
            # Opened before anything is written: so it hears of every error of the disk from here on.
            self._directory = syncing.open_directory(self.temporary)
            self._files = ChunkFiles(self.directory, _MODE)
        except FileExistsError:
            raise  # it is another's
        except BaseException:
            self.close()
            files.remove_quietly(self.temporary)
            raise

    @property
    def descriptor(self) -> int:
        """-1: there are several files."""
        return -1

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
        self._keep = self._durable and chunks + len(table.names) < _few()
        base = open_base(self._base)
        try:
            each(_Filler(self, content, base).works(), THREADS)
        finally:
            if base is not None:
                base.close()
        if "" in table.hash:
            # Whatever kept a thread from its work: without a root this is no database, and gets no name.
            raise RuntimeError(
                f"{self.temporary}: expected all of {chunks} chunks to be written, found number "
                f"{table.hash.index('')} missing"
            )
        root, digest = seal_root(content.header, table)
        self.file(ROOT, root)
        return Written(digest, size_of(content.header, table, len(root)))

    def sync(self) -> None:
        """Force all files, and the names in all folders, to the disk."""
        if not self._keep and syncing.sync_file_system(self.directory):
            return
        if self._keep:
            each((partial(syncing.sync_file, fd) for fd in self._open), 2 * THREADS)
        else:
            each(self._sync_later(), 2 * THREADS)
        for folder in self._folders:
            syncing.sync_directory(f"{self.temporary}/{folder}")
        syncing.sync_directory(self.directory)

    def close(self) -> None:
        """Close all files."""
        if self._copies is not None:
            self._copies.close()
        while self._open:
            files.close_quietly(self._open.pop())
        self._files = None  # the number of the descriptor may be another's from here on
        if self._directory is not None:
            self._directory.close_quietly()

    @property
    def directory(self) -> int:
        """Descriptor of the directory."""
        return -1 if self._directory is None else self._directory.number

    def folder(self, key: str) -> None:
        """Make the folder of a blob."""
        assert self._files is not None
        self._files.folder(key)
        self._folders.append(key)

    def file(self, key: str, data: bytes) -> None:
        """Write a new file."""
        assert self._files is not None
        if self._keep:
            # In one step of the interpreter: an interrupt between the file and the note of it would leave it open.
            self._open.extend(map(self._files.file, (key,), (data,), (True,)))
        else:
            self._files.file(key, data)

    def chunk(self, key: str, data: memoryview | bytes, zeros: int) -> tuple[int, str]:
        """Write the file of a chunk that ends in zeros, and give its CRC-32C and its hash."""
        assert self._files is not None
        found, digest, fd = self._files.chunk(key, data, zeros, self._keep)
        self.done_with(fd)
        return found, digest.hex()

    def chunk_in_pieces(self, key: str, array: np.ndarray[Any, Any], zeros: int) -> tuple[int, str]:
        """Write the file of a chunk whose array is not contiguous; as `chunk`."""
        assert self._files is not None
        found, digest, fd = self._files.chunk_in_pieces(key, gathered(array), array.nbytes, zeros, self._keep)
        self.done_with(fd)
        return found, digest.hex()

    def done_with(self, fd: int) -> None:
        """Keep a file for the sync, or close it; -1 stands for one that is closed."""
        if fd < 0:
            return
        if self._keep:
            self._open.append(fd)
        else:
            os.close(fd)

    def _sync_later(self) -> Iterator[Callable[[], None]]:
        for folder in ("", *self._folders):
            place = os.path.join(self.temporary, folder)  # noqa: PTH118 - paths are plain text here
            for name in os.listdir(place):  # noqa: PTH208
                path = f"{place}/{name}"
                if folder or name == ROOT:
                    yield partial(_sync_path, path)


def _few() -> int:
    # No more than a part of what the process may have open: the default of macOS is 256.
    most, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return _FEW if most == resource.RLIM_INFINITY else min(_FEW, most // 4)


def _sync_path(path: str) -> None:
    with Descriptor(path, os.O_RDONLY | os.O_CLOEXEC) as fd:
        syncing.sync_file(fd)


class _Filler:
    """Writes the blobs of a database, or links what it can; the table gets checksums and hashes."""

    def __init__(self, out: DirectoryOutput, content: Content, base: Base | None) -> None:
        self._out = out
        self._content = content
        self._base = base
        self._documents = ArrayDocuments(content.table.specs, content.header.container)
        self._encoding = Budget(_ENCODING_BYTES)

    def works(self) -> Iterator[Callable[[], None]]:
        """Give everything that is to be done, in pieces that may be done at the same time."""
        table = self._content.table
        for blob in range(len(table.names)):
            spec = table.spec_of(blob)
            if spec.chunks <= 1 or spec.chunks * spec.chunk_bytes < _SHARED:
                yield partial(self._blob, blob)
                continue
            node = self._begin(blob)
            for chunk in range(spec.chunks):
                yield partial(self._chunk, blob, node, chunk)

    def _blob(self, blob: int) -> None:
        node = self._begin(blob)
        for chunk in range(self._content.table.spec_of(blob).chunks):
            self._chunk(blob, node, chunk)

    def _begin(self, blob: int) -> str:
        """Make the folder and the document of a blob, and give its key."""
        content, out = self._content, self._out
        table, name = content.table, content.names[blob]
        node = escape(name)
        document = self._documents.document(name, table.spec[blob])
        out.folder(node)
        linked = None if self._base is None else self._base.link_document(node, document, out.directory)
        if linked is None:
            out.file(f"{node}/zarr.json", document)
        else:
            out.done_with(linked)
        return node

    def _chunk(self, blob: int, node: str, chunk: int) -> None:
        content = self._content
        spec, array = content.table.spec_of(blob), content.arrays[blob]
        if spec.codecs:
            with self._encoding.taken(cost_of(spec, array)):
                self._put_encoded(blob, node, chunk, encoded_chunk(spec, array, chunk))
            return
        low, high = spec.row_range(chunk)
        zeros = (spec.chunk_rows - (high - low)) * spec.row_bytes
        if not array.flags.c_contiguous:
            if spec.chunk_bytes > _GATHERED:
                self._put_pieces(blob, node, chunk, array[low:high], zeros)
            else:
                self._put(blob, node, chunk, bytes_of(np.ascontiguousarray(array[low:high])), zeros)
            return
        self._put(blob, node, chunk, bytes_of(array)[low * spec.row_bytes : high * spec.row_bytes], zeros)

    def _put(self, blob: int, node: str, chunk: int, image: memoryview, zeros: int) -> None:
        table, out = self._content.table, self._out
        at, size = table.first[blob] + chunk, len(image) + zeros
        key = table.spec_of(blob).chunk_key(node, chunk)
        if self._base is not None and self._link(at, hash128(image, zeros).hex(), size, key):
            return
        # The hash must be that of the file, or a later epoch would be linked to bytes that it does not have. So it is
        # made anew of what is written, whatever other threads do to the array meanwhile.
        table.crc32c[at], table.hash[at] = out.chunk(key, image, zeros)

    def _put_pieces(self, blob: int, node: str, chunk: int, array: np.ndarray[Any, Any], zeros: int) -> None:
        """Put a chunk together piece by piece: one row of it may be most of the state."""
        table, out = self._content.table, self._out
        at, size = table.first[blob] + chunk, array.nbytes + zeros
        key = table.spec_of(blob).chunk_key(node, chunk)
        if self._base is not None and self._link(at, _hash_of(array, zeros), size, key):
            return
        table.crc32c[at], table.hash[at] = out.chunk_in_pieces(key, array, zeros)

    def _put_encoded(self, blob: int, node: str, chunk: int, data: bytes) -> None:
        table, out = self._content.table, self._out
        at = table.first[blob] + chunk
        table.size[table.first_size[blob] + chunk] = len(data)
        key = table.spec_of(blob).chunk_key(node, chunk)
        if self._base is not None and self._link(at, hash128(data).hex(), len(data), key):
            return
        table.crc32c[at], table.hash[at] = out.chunk(key, data, 0)

    def _link(self, at: int, digest: str, size: int, key: str) -> bool:
        """Link the file of an equal chunk of the earlier database, if it has one."""
        assert self._base is not None
        linked = self._base.link_chunk(digest, size, self._out.directory, key)
        if linked is None:
            return False
        fd, self._content.table.crc32c[at] = linked
        self._content.table.hash[at] = digest
        self._out.done_with(fd)
        return True


def _hash_of(array: np.ndarray[Any, Any], zeros: int) -> str:
    whole = Hash128(array.nbytes + zeros)
    for piece in gathered(array):
        whole.update(piece)
    while zeros > 0:
        whole.update(_ZEROS[:zeros])
        zeros -= len(_ZEROS)
    return whole.digest().hex()
