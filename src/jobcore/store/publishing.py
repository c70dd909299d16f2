"""Giving finished files their names, in one step and without replacing; files that appear whole or not at all."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import os
from collections.abc import Callable, Sequence
from functools import cache
from typing import Protocol

from jobcore.store import files, syncing
from jobcore.store.refusals import REFUSED, warn_once

__all__ = [
    "NewFile",
    "Part",
    "publish",
    "publish_together",
    "replace",
    "take_back",
    "write_new_file",
]

_LINKS_REFUSED = REFUSED | {errno.EPERM, errno.EMLINK}
_ATTEMPTS = 100
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
    for left in reversed(range(_ATTEMPTS)):
        # Others may replace or remove it between the look and the step: then it is looked at again.
        if not os.path.lexists(target):
            try:
                publish(source, target)
                return False
            except FileExistsError:
                if left:
                    continue
                raise
        exchange = _exclusive_rename()
        code = errno.ENOSYS if exchange is None else exchange(os.fsencode(source), os.fsencode(target), True)
        if code != errno.ENOENT or not left:
            break
    if code in REFUSED:
        raise OSError(
            code,
            "the file system cannot exchange two directories in one step; remove the old one first",
            target,
        )
    if code:
        raise OSError(code, os.strerror(code), target)
    return True


def take_back(temporary: str | os.PathLike[str], final: str | os.PathLike[str]) -> bool:
    """Remove what :func:`publish` may have given its name before it failed or was interrupted.

    Parameters
    ----------
    temporary, final
        As they were given to it.

    Returns
    -------
    bool
        Whether it is not there, under its final name, any more. What has that name and is another's is left alone.
    """
    try:
        # Of the two names a link makes, the temporary one may be there still; a rename leaves none.
        if not os.path.samestat(os.lstat(temporary), os.lstat(final)):
            return True
    except FileNotFoundError:
        if os.path.lexists(temporary):
            return True
    except OSError:
        return False
    try:
        files.remove(final)
    except FileNotFoundError:
        return True
    except OSError:
        return False
    return True


class Part(Protocol):
    """One of several files that are published together."""

    final: str

    @property
    def unsynced(self) -> int:
        """Descriptor of its file, whose data are to be forced to the disk; -1 when they have been."""

    def learn_synced(self, error: OSError | None) -> None:
        """Learn that they have been, or raise what that failed with."""

    def publish(self) -> None:
        """Give it its name."""

    def settle(self) -> None:
        """Learn that the directory has been synced."""

    def withdraw(self) -> bool:
        """Remove it, whatever name it has; return whether its final name is free of it."""


def publish_together(
    parts: Sequence[Part], directory: str, *, before: Callable[[], object], apart: bool = False
) -> None:
    """Force several files to the disk, and give them their names: all of them, or none.

    Data are forced to the disk together, before any of them gets a name. The names are given in order, and the
    directory is synced once for all. So the last one, by which the others are found, may after a power cut be there
    without them, on a file system that does not keep the order of names, as long as this has not returned.

    Parameters
    ----------
    parts
        All in one directory.
    directory
        Path of it.
    before
        Called when the data are safe, before the first name; what it raises is passed on.
    apart
        Whether the names of all others are safe before the last one is given, which takes one more sync.

    Raises
    ------
    FileExistsError
        Something has one of the names.
    OSError
        The file system failed. All parts were withdrawn, unless the last one cannot be removed: then all stay, whole.
    """
    *others, last = parts
    try:
        late = [part for part in parts if part.unsynced >= 0]
        for part, error in zip(late, syncing.sync_files([part.unsynced for part in late]), strict=True):
            part.learn_synced(error)
        before()
        for part in others:
            part.publish()
        if apart and others:
            syncing.sync_directory(directory)
        last.publish()
        syncing.sync_directory(directory)
    except BaseException:
        # The last one first: it must never be seen without the others.
        gone = last.withdraw()
        for part in others:
            if gone:
                part.withdraw()
            else:
                part.settle()
        raise
    for part in parts:
        part.settle()


class NewFile:
    """A small file that has been written under a temporary name.

    Parameters
    ----------
    path
        The final path.
    data
        All of its content.

    Raises
    ------
    OSError
        It could not be written; nothing is left behind.

    Notes
    -----
    A :class:`Part`.
    """

    def __init__(self, path: str | os.PathLike[str], data: bytes) -> None:
        self.final = files.absolute(path)
        self._synced = self._naming = False
        self._file, self._temporary = files.create_temporary(self.final)
        try:
            files.write_all(self._file.number, data, 0)
        except BaseException:
            self.withdraw()
            raise

    @property
    def unsynced(self) -> int:
        """Its descriptor, until :meth:`learn_synced`."""
        return -1 if self._synced else self._file.number

    def learn_synced(self, error: OSError | None) -> None:
        """Learn that its data are on the disk, or raise what that failed with."""
        if error is not None:
            raise error
        self._synced = True

    def publish(self) -> None:
        """Give it its name."""
        self._file.close()
        self._naming = True
        publish(self._temporary, self.final)

    def settle(self) -> None:
        """Learn that the directory has been synced."""

    def withdraw(self) -> bool:
        """Remove it, whatever name it has; return whether its final name is free of it. May be repeated."""
        self._file.close_quietly()
        naming, self._naming = self._naming, False
        gone = not naming or take_back(self._temporary, self.final)
        files.remove_quietly(self._temporary)
        return gone


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
    file = NewFile(path, data)
    if durable:
        publish_together([file], os.path.dirname(file.final), before=_nothing)  # noqa: PTH120 - paths are plain text here
        return
    try:
        file.publish()
    except BaseException:
        file.withdraw()
        raise


def _nothing() -> None:
    return None


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
