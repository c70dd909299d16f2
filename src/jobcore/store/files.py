"""Files that appear whole or not at all: temporary names, syncing, and publishing without replacing.

Where a file system refuses a call that only makes things safer or quicker (``fsync`` on some network file
systems, the flags of ``renameat2``), the next best way is taken and said once.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
import re
import secrets
import shutil
import stat
import sys
import warnings
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

__all__ = [
    "absolute",
    "check_room",
    "create_temporary",
    "open_directory",
    "publish",
    "remove",
    "replace",
    "sync_directory",
    "sync_file",
    "sync_file_system",
    "temporary_name",
    "tree_size",
    "warn_once",
    "write_all",
    "write_new_file",
]

# What a file system answers that does not know a call or a flag, as opposed to one that failed.
_REFUSED = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOTTY}
_LINKS_REFUSED = _REFUSED | {errno.EPERM, errno.EMLINK}
_MOST = 1 << 30  # macOS refuses to write or read 2 GiB at once
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_RENAME_EXCL = 4
_RENAME_SWAP = 2
_warned: set[str] = set()


def absolute(path: str | os.PathLike[str]) -> str:
    """Make a path absolute, once, so that a later change of the working directory changes nothing.

    Parameters
    ----------
    path
        A path; ``~`` stands for the home directory.

    Returns
    -------
    str
        The absolute path.

    Raises
    ------
    TypeError
        `path` is no text and no ``PathLike`` of text.
    ValueError
        `path` is empty.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"expected a path as text, found {type(text).__qualname__}")
    if not text:
        raise ValueError("expected a path, found the empty text")
    return os.path.abspath(os.path.expanduser(text))  # noqa: PTH100, PTH111 - Path would keep ".." in it


def temporary_name(path: str | os.PathLike[str]) -> str:
    """Give a name in the same directory under which a file can be written before it is published.

    Parameters
    ----------
    path
        The final path.

    Returns
    -------
    str
        ``.<final name>.<pid>.<random>.tmp`` beside it; never the same twice.
    """
    final = Path(path)
    # File systems take 255 bytes for a name; the addition must not make a good final name a bad one.
    stem = final.name.encode()[:230].decode(errors="ignore")
    return str(final.with_name(f".{stem}.{os.getpid()}.{secrets.token_hex(4)}.tmp"))


def create_temporary(path: str | os.PathLike[str]) -> tuple[int, str]:
    """Create the temporary file for a final path.

    Parameters
    ----------
    path
        The final path.

    Returns
    -------
    tuple of int and str
        File descriptor, open for writing and closed on exec, and the temporary path.

    Raises
    ------
    OSError
        The directory is missing or may not be written.
    """
    name = temporary_name(path)
    return os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), name


def check_room(path: str, nbytes: int) -> None:
    """Refuse what cannot fit, before anything is written.

    Parameters
    ----------
    path
        A path on the file system.
    nbytes
        How much is about to be written, in bytes.

    Raises
    ------
    OSError
        With ``ENOSPC``: less is free.
    """
    try:
        found = os.statvfs(os.path.dirname(path))  # noqa: PTH120 - paths are plain text here
    except OSError:
        return
    free = (found.f_bfree if os.geteuid() == 0 else found.f_bavail) * found.f_frsize
    # Some file systems know no number, and say that none is free of none.
    if found.f_blocks and nbytes > free:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), path)


def write_all(fd: int, data: bytes | bytearray | memoryview, offset: int) -> None:
    """Write all of `data` at an offset, however many calls it takes.

    Parameters
    ----------
    fd
        File descriptor.
    data
        Contiguous bytes.
    offset
        Where in the file, in bytes.

    Raises
    ------
    OSError
        A write failed, or wrote nothing.
    """
    view = memoryview(data)
    while view:
        # An interrupted call is repeated by the interpreter itself, after the signal's handler has run.
        count = os.pwrite(fd, view[:_MOST], offset)
        if count <= 0:
            raise OSError(errno.EIO, "a write of more than no bytes wrote none")
        view = view[count:]
        offset += count


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
        with _tolerated("F_FULLFSYNC", _REFUSED):
            fcntl.fcntl(fd, fcntl.F_FULLFSYNC)
            return
        with _tolerated("fsync", _REFUSED):
            os.fsync(fd)
        return
    with _tolerated("fsync", _REFUSED):
        os.fdatasync(fd)


def open_directory(path: str | os.PathLike[str]) -> int:
    """Open a directory for :func:`sync_directory`.

    Parameters
    ----------
    path
        The directory.

    Returns
    -------
    int
        File descriptor.

    Raises
    ------
    OSError
        It is missing, no directory, or may not be read.
    """
    return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)


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
    fd = path if isinstance(path, int) else open_directory(path)
    try:
        with _tolerated("fsync of a directory", _REFUSED):
            os.fsync(fd)
    finally:
        if fd is not path:
            close_quietly(fd)


def publish(temporary: str | os.PathLike[str], final: str | os.PathLike[str]) -> None:
    """Give a finished file its final name, and never replace what has that name already.

    Parameters
    ----------
    temporary, final
        Paths in one directory.

    Raises
    ------
    FileExistsError
        Something has the final name; nothing was changed.
    OSError
        The file system failed; nothing was changed.
    """
    source, target = os.fspath(temporary), os.fspath(final)
    exclusive = _exclusive_rename()
    if exclusive is not None:
        code = exclusive(os.fsencode(source), os.fsencode(target))
        if code == 0:
            return
        if code not in _REFUSED:
            raise OSError(code, os.strerror(code), target)
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno not in _LINKS_REFUSED:
            raise
        _publish_with_claim(source, target)
        return
    # The file has its name; that the temporary one is still there too harms nobody.
    with contextlib.suppress(OSError):
        os.unlink(source)  # noqa: PTH108 - one style of call with os.link


def replace(temporary: str | os.PathLike[str], final: str | os.PathLike[str]) -> bool:
    """Give a finished file or directory its final name in one step, whatever has that name already.

    Parameters
    ----------
    temporary, final
        Paths in one directory.

    Returns
    -------
    bool
        Whether what was replaced is now under the temporary name, to be removed once the new one is safe.

    Raises
    ------
    OSError
        The file system failed, or cannot exchange a directory for another in one step; nothing was changed.
    """
    source, target = os.fspath(temporary), os.fspath(final)
    if not os.path.isdir(source):  # noqa: PTH112 - one style of call in this file
        os.replace(source, target)  # noqa: PTH105
        return False
    if not os.path.lexists(target):
        publish(source, target)
        return False
    exchange = _exclusive_rename()
    code = errno.ENOSYS if exchange is None else exchange(os.fsencode(source), os.fsencode(target), True)
    if code in _REFUSED:
        raise OSError(
            code,
            "the file system cannot exchange two directories in one step; remove the old one first",
            target,
        )
    if code:
        raise OSError(code, os.strerror(code), target)
    return True


def _publish_with_claim(source: str, target: str) -> None:
    # Neither an exclusive rename nor links: a file that only one process can create keeps others away
    # between the look and the rename.
    warn_once("claim", f"{target}: no exclusive rename and no links here; a claim file is used")
    claim = os.path.join(os.path.dirname(target), f".{os.path.basename(target)}.claim")  # noqa: PTH118, PTH119, PTH120
    try:
        os.close(os.open(claim, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644))
    except FileExistsError as error:
        raise FileExistsError(
            errno.EEXIST, "another process publishes this file, or died while it did; remove the claim", claim
        ) from error
    try:
        if os.path.lexists(target):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), target)
        os.rename(source, target)  # noqa: PTH104 - one style of call with os.link
    finally:
        os.unlink(claim)  # noqa: PTH108


def write_new_file(path: str | os.PathLike[str], data: bytes, durable: bool = True) -> None:
    """Write a small file that is complete or absent, and never replaces another.

    Parameters
    ----------
    path
        The final path.
    data
        All of its content.
    durable
        Whether to force it to the disk before and after it gets its name.

    Raises
    ------
    FileExistsError
        Something has that name.
    OSError
        It could not be written; nothing is left behind.
    """
    final = absolute(path)
    fd, temporary = create_temporary(final)
    try:
        try:
            write_all(fd, data, 0)
            if durable:
                sync_file(fd)
        finally:
            os.close(fd)
        publish(temporary, final)
    except BaseException:
        remove_quietly(temporary)
        raise
    if durable:
        try:
            sync_directory(os.path.dirname(final))  # noqa: PTH120
        except BaseException:
            remove_quietly(final)  # it may or may not survive a power cut, so it must not be there at all
            raise


def close_quietly(fd: int) -> None:
    """Close a descriptor that was only read from: nothing can be lost, so an error says nothing of interest."""
    with contextlib.suppress(OSError):
        os.close(fd)


def remove_quietly(path: str) -> None:
    """Remove a file or tree while another error is on its way, which must not be hidden by a second one."""
    with contextlib.suppress(OSError):
        remove(path)


def remove(path: str | os.PathLike[str]) -> None:
    """Remove a file, or a directory with all that is in it.

    Parameters
    ----------
    path
        The file or directory.

    Raises
    ------
    OSError
        It is not there, or could not be removed; of a directory, a part may be gone.

    Notes
    -----
    A directory gets a temporary name first: nobody ever sees half of it under its own.
    """
    place = os.fspath(path)
    if not stat.S_ISDIR(os.lstat(place).st_mode):
        os.unlink(place)  # noqa: PTH108 - one style of call in this file
        return
    if not os.path.basename(place).startswith("."):  # noqa: PTH119
        hidden = temporary_name(place)
        os.rename(place, hidden)  # noqa: PTH104
        place = hidden
    shutil.rmtree(place)


def tree_size(path: str | os.PathLike[str]) -> int:
    """Give the size of a file, or of all files in a directory, in bytes.

    Raises
    ------
    OSError
        It is not there, or cannot be read.
    """
    place = os.fspath(path)
    found = os.stat(place)  # noqa: PTH116 - one style of call in this file
    if not stat.S_ISDIR(found.st_mode):
        return found.st_size
    total = 0
    folders = [place]
    while folders:
        with os.scandir(folders.pop()) as entries:
            for entry in entries:
                if entry.is_dir(follow_symlinks=False):
                    folders.append(entry.path)
                else:
                    total += entry.stat(follow_symlinks=False).st_size
    return total


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
    if code in _REFUSED:
        return False
    if code:
        raise OSError(code, os.strerror(code))
    return True


@contextlib.contextmanager
def _tolerated(what: str, codes: set[int]) -> Any:
    try:
        yield
    except OSError as error:
        if error.errno not in codes:
            raise
        warn_once(what, f"the file system refuses {what} ({error.strerror}); going on without it")


def warn_once(what: str, message: str) -> None:
    """Warn of something the first time it happens; `what` tells one thing from another."""
    if what not in _warned:
        _warned.add(what)
        warnings.warn(message, RuntimeWarning, stacklevel=4)


@cache
def _exclusive_rename() -> Callable[..., int] | None:
    """Find the call of this system that renames, and fails where the target exists or exchanges the two."""
    libc = ctypes.CDLL(None, use_errno=True)
    if hasattr(libc, "renameat2"):

        def rename_linux(source: bytes, target: bytes, exchange: bool = False) -> int:
            flags = ctypes.c_uint(_RENAME_EXCHANGE if exchange else _RENAME_NOREPLACE)
            failed = libc.renameat2(_AT_FDCWD, source, _AT_FDCWD, target, flags)
            return ctypes.get_errno() if failed else 0

        return rename_linux
    if hasattr(libc, "renamex_np"):

        def rename_macos(source: bytes, target: bytes, exchange: bool = False) -> int:
            flags = ctypes.c_uint(_RENAME_SWAP if exchange else _RENAME_EXCL)
            failed = libc.renamex_np(source, target, flags)
            return ctypes.get_errno() if failed else 0

        return rename_macos
    return None


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
