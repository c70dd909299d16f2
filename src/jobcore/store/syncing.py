"""Forcing data and names to the disk, by the best call that the system has."""

from __future__ import annotations

import ctypes
import os
import re
import sys
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from functools import cache

from jobcore._fast import file_sync
from jobcore._fast.descriptor import Descriptor
from jobcore.store.refusals import REFUSED, tolerated

__all__ = [
    "open_directory",
    "sync_directory",
    "sync_file",
    "sync_file_system",
    "sync_files",
]


def sync_file(fd: int) -> None:
    """Force the data of a file to the disk.

    Parameters
    ----------
    fd
        File descriptor.

    Raises
    ------
    OSError
        The disk failed; what it holds is then unknown, and a second call proves nothing.
    """
    if sys.platform == "darwin":
        import fcntl

        # fsync there hands the data to the drive only, which may still lose it with the power.
        with tolerated("F_FULLFSYNC", REFUSED):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        with tolerated("fsync", REFUSED):
            os.fsync(fd)
        return
    with tolerated("fsync", REFUSED):
        os.fdatasync(fd)


def sync_files(descriptors: Sequence[int]) -> list[OSError | None]:
    """Force the data of several files to the disk, in about the time that one takes.

    Parameters
    ----------
    descriptors
        File descriptors.

    Returns
    -------
    list of OSError or None
        What each of them failed with, as :func:`sync_file` would have raised it.
    """
    if len(descriptors) == 1 or sys.platform == "darwin":
        return [_failure_of(sync_file, fd) for fd in descriptors]
    return [_failure_of(_judge, code) for code in file_sync.sync_files(descriptors)]


def _judge(code: int) -> None:
    if code:
        with tolerated("fsync", REFUSED):
            raise OSError(code, os.strerror(code))


def _failure_of(call: Callable[[int], None], argument: int) -> OSError | None:
    try:
        call(argument)
    except OSError as error:
        return error
    return None


def open_directory(path: str | os.PathLike[str]) -> Descriptor:
    """Open a directory for :func:`sync_directory`.

    Parameters
    ----------
    path
        The directory.

    Returns
    -------
    Descriptor
        The directory, open.

    Raises
    ------
    OSError
        It is missing, no directory, or may not be read.
    """
    return Descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


def sync_directory(path: str | os.PathLike[str] | int) -> None:
    """Force the names in a directory to the disk; only then does a published file survive a power cut.

    Parameters
    ----------
    path
        The directory, or a descriptor of it.

    Raises
    ------
    OSError
        The disk failed.
    """
    opened = nullcontext(path) if isinstance(path, int) else open_directory(path)
    with opened as fd, tolerated("fsync of a directory", REFUSED):
        os.fsync(fd)


def sync_file_system(fd: int) -> bool:
    """Force everything that was written to a file system to the disk, by one call.

    Parameters
    ----------
    fd
        Descriptor of anything on it, opened before what is to be synced was written.

    Returns
    -------
    bool
        Whether the system has such a call that also tells of errors; if not, nothing was done.

    Raises
    ------
    OSError
        The disk failed.
    """
    call = _sync_file_system()
    if call is None:
        return False
    code = call(fd)
    if code in REFUSED:
        return False
    if code:
        raise OSError(code, os.strerror(code))
    return True


@cache
def _sync_file_system() -> Callable[[int], int] | None:
    """Find the call of this system that syncs one file system and reports what failed since it was opened."""
    libc = ctypes.CDLL(None, use_errno=True)
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    # Before Linux 5.8 the call reported no errors of the disk.
    if not hasattr(libc, "syncfs") or release is None or (int(release[1]), int(release[2])) < (5, 8):
        return None

    def sync_linux(fd: int) -> int:
        return ctypes.get_errno() if libc.syncfs(fd) else 0

    return sync_linux
