"""A file that several threads read by position, and that the last of them closes."""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobcore._fast.descriptor import Descriptor
from jobcore.errors import CheckpointNotFoundError, ClosedError, FormatError
from jobcore.store.forking import renew_in_child
from jobcore.store.identify import a_directory

__all__ = ["OpenFile"]

_MOST = 1 << 30  # macOS refuses to read 2 GiB at once


class OpenFile:
    """A database in one file, open for reading.

    Parameters
    ----------
    path
        Absolute path.

    Attributes
    ----------
    path, size_bytes
        Path and size.

    Raises
    ------
    CheckpointNotFoundError
        There is no such file.
    FormatError
        It is no file, or cannot be read.

    Notes
    -----
    Thread-safe. Whatever uses the descriptor does so inside of :meth:`in_use`. Bytes that cannot be read are a
    ``FormatError``.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        # Guards _users and _closing. A finalizer may close it in the middle of a load, in the same thread.
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")
        self._users = 0
        self._closing = False
        # Of a database that nobody closed it is closed when that goes.
        self._file, self.size_bytes = _open(path)

    @property
    def fd(self) -> int:
        """Descriptor of the file; -1 once it is closed."""
        return self._file.number

    def close(self) -> None:
        """Close the file; reads that are under way in other threads end first. Twice is harmless."""
        with self._lock:
            self._closing = True
            self._close_unused()

    def _close_unused(self) -> None:
        if self._closing and self._users == 0:
            self._file.close_quietly()

    @contextmanager
    def in_use(self) -> Iterator[None]:
        """Keep the file open while the context lasts."""
        # A descriptor closed under a reader may be another file's by its next read.
        with self._lock:
            # Counted before it is looked at: from then on nobody closes it, also in the middle of this.
            self._users += 1
        try:
            if self._closing:
                raise ClosedError(f"{self.path}: expected an open database, found one that was closed")
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._close_unused()

    def room(self, offset: int, size: int) -> bytearray:
        """Give memory for bytes that are to be read."""
        try:
            return bytearray(size)
        except (MemoryError, OverflowError) as error:
            raise self.unreadable(offset, size, "it does not fit into memory") from error

    def pread(self, offset: int, size: int) -> bytearray:
        """Read exactly so many bytes from a place on."""
        buffer = self.room(offset, size)
        self.pread_into(memoryview(buffer), offset)
        return buffer

    def pread_into(self, buffer: memoryview, offset: int) -> None:
        """Fill memory from a place on."""
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self.fd, [buffer[done : done + _MOST]], offset + done)
            except OSError as error:
                # A sector that cannot be read is damage like any other: an older epoch may still be whole.
                text = error.strerror or str(error)
                raise self.unreadable(offset + done, len(buffer) - done, text) from error
            if count == 0:
                raise self.unreadable(offset + done, len(buffer) - done, "the file ends before")
            done += count

    def unreadable(self, offset: int, size: int, reason: str) -> FormatError:
        """Make the error for bytes that cannot be read."""
        return FormatError(
            f"{self.path}: expected {size} bytes at {offset}, which could not be read: {reason}",
            path=self.path,
            place="file",
        )


def _open(path: str) -> tuple[Descriptor, int]:
    try:
        # Without O_NONBLOCK a pipe would be waited for until somebody writes into it.
        file = Descriptor(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        found = os.fstat(file.number)
    except FileNotFoundError as error:
        raise _not_found(path) from error
    except OSError as error:
        if error.errno == errno.ENOTDIR:
            raise _not_found(path) from error
        raise FormatError(
            f"{path}: expected a file that can be read: {error.strerror or error}", path=path, place="file"
        ) from error
    if stat.S_ISREG(found.st_mode):
        return file, found.st_size
    if stat.S_ISDIR(found.st_mode):
        raise a_directory(path)
    raise FormatError(f"{path}: expected a file, found a device, pipe or socket", path=path, place="file")


def _not_found(path: str) -> CheckpointNotFoundError:
    error = CheckpointNotFoundError(f"{path}: expected a database, found no such file")
    error.errno, error.filename = errno.ENOENT, path
    return error
