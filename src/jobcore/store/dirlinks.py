"""What a new directory database may share with an earlier one: hard links to files that hold the same bytes.

A link costs no bytes and lives on when the earlier database is deleted. Whatever keeps a file from being linked
only makes it be written: another file system, the limit of links, an earlier database that is damaged or gone.
"""

from __future__ import annotations

import contextlib
import errno
import os

from jobcore.errors import JobcoreError
from jobcore.store import refusals
from jobcore.store.dirformat import TRAILER
from jobcore.store.dirreader import DirectoryReader
from jobcore.store.metadata import Table
from jobcore.store.names import escape
from jobcore.store.parsing import parse_root

__all__ = ["Base", "open_base"]

_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
# The next file would meet the same: no links at all between these two.
_NEVER = {errno.EXDEV, errno.EPERM, errno.EACCES, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.EROFS}


def open_base(path: str | None) -> Base | None:
    """Open the database that files may be shared with.

    Parameters
    ----------
    path
        Its absolute path, or ``None`` for none.

    Returns
    -------
    Base or None
        ``None`` where there is nothing to share, of which a warning tells the reason.
    """
    if path is None:
        return None
    try:
        reader = DirectoryReader(path)
        try:
            _, table = parse_root(reader.root(), path)
            return Base(reader, table)
        except BaseException:
            reader.close()
            raise
    except (JobcoreError, OSError) as error:
        refusals.warn_once(
            path, f"nothing can be shared with an earlier database, all is written anew: {error}"
        )
        return None


class Base:
    """An earlier database, open to be linked to.

    Parameters
    ----------
    reader
        Open reader of it, closed by :meth:`close`.
    table
        Its table.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, reader: DirectoryReader, table: Table) -> None:
        self._reader = reader
        self._usable = True
        self._documents = {escape(name) for name in table.names}
        self._chunks: dict[tuple[str, int], tuple[str, int]] = {}
        for blob, name in enumerate(table.names):
            spec, key = table.spec_of(blob), escape(name)
            for chunk in range(spec.chunks):
                at = table.first[blob] + chunk
                same = (table.hash[at], table.stored_bytes(blob, chunk))
                self._chunks[same] = (spec.chunk_key(key, chunk), table.crc32c[at])

    def close(self) -> None:
        """Close the database."""
        self._reader.close()

    def link_chunk(self, digest: str, nbytes: int, directory: int, key: str) -> tuple[int, int] | None:
        """Link the file of an equal chunk into a new database.

        Parameters
        ----------
        digest
            128-bit hash of the chunk as it is stored, in hex digits.
        nbytes
            Its size as it is stored, in bytes.
        directory
            Descriptor of the new database.
        key
            Where in it the chunk goes.

        Returns
        -------
        tuple of int and int, or None
            Descriptor of the file and CRC-32C of the chunk; ``None`` when there is no such file or it is not
            what the table says, and nothing was linked.
        """
        found = self._chunks.get((digest, nbytes))
        if found is None:
            return None
        source, crc32c = found
        fd = self._link(source, directory, key)
        if fd is None:
            return None
        # The hash stands for the bytes; size and last bytes tell a file that was written over since.
        if _size(fd) == nbytes + TRAILER and _read(fd, TRAILER, nbytes) == crc32c.to_bytes(TRAILER, "little"):
            return fd, crc32c
        _undo(fd, directory, key)
        return None

    def link_document(self, node: str, document: bytes, directory: int) -> int | None:
        """Link the document of a blob into a new database, if it is equal.

        Parameters
        ----------
        node
            Key of the blob.
        document
            What its document must be.
        directory
            Descriptor of the new database.

        Returns
        -------
        int or None
            Descriptor of the file; ``None`` when nothing was linked.
        """
        if node not in self._documents:
            return None
        key = f"{node}/zarr.json"
        fd = self._link(key, directory, key)
        if fd is None:
            return None
        if _read(fd, len(document) + 1, 0) == document:
            return fd
        _undo(fd, directory, key)
        return None

    def _link(self, source: str, directory: int, key: str) -> int | None:
        if not self._usable:
            return None
        linked = False
        try:
            os.link(source, key, src_dir_fd=self._reader.fd, dst_dir_fd=directory, follow_symlinks=False)
            linked = True
            return os.open(key, _READ, dir_fd=directory)
        except OSError as error:
            if linked:
                os.unlink(key, dir_fd=directory)
            elif error.errno in _NEVER:
                self._usable = False
                path = self._reader.path
                refusals.warn_once(
                    path, f"{path}: no hard links to it ({error.strerror}); unchanged chunks are written anew"
                )
            return None


def _size(fd: int) -> int:
    try:
        return os.fstat(fd).st_size
    except OSError:
        return -1


def _read(fd: int, size: int, at: int) -> bytes:
    try:
        return os.pread(fd, size, at)
    except OSError:  # a sector that cannot be read: the chunk is written anew
        return b""


def _undo(fd: int, directory: int, key: str) -> None:
    with contextlib.suppress(OSError):
        os.close(fd)
    os.unlink(key, dir_fd=directory)
