"""Giving finished files their names, in one step and without replacing; files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable
from functools import cache

from jobcore.store import files, syncing
from jobcore.store.refusals import REFUSED, warn_once

__all__ = [
    "publish",
    "replace",
    "write_new_file",
]

_LINKS_REFUSED = REFUSED | {errno.EPERM, errno.EMLINK}
_AT_FDCWD = -100
_RENAME_NOREPLACE = 1
_RENAME_EXCHANGE = 2
_RENAME_EXCL = 4
_RENAME_SWAP = 2


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
        if code not in REFUSED:
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
    if code in REFUSED:
        raise OSError(
            code,
            "the file system cannot exchange two directories in one step; remove the old one first",
            target,
        )
    if code:
        raise OSError(code, os.strerror(code), target)
    return True


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
    final = files.absolute(path)
    fd, temporary = files.create_temporary(final)
    try:
        try:
            files.write_all(fd, data, 0)
            if durable:
                syncing.sync_file(fd)
        finally:
            os.close(fd)
        publish(temporary, final)
    except BaseException:
        files.remove_quietly(temporary)
        raise
    if durable:
        try:
            syncing.sync_directory(os.path.dirname(final))  # noqa: PTH120
        except BaseException:
            files.remove_quietly(
                final
            )  # it may or may not survive a power cut, so it must not be there at all
            raise


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
