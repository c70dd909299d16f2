"""Files and directories while they are made and when they go: names, room, writing, removing, sizes."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat

from jobcore._fast.descriptor import Descriptor

__all__ = [
    "absolute",
    "check_room",
    "close_quietly",
    "create_temporary",
    "remove",
    "remove_quietly",
    "temporary_name",
    "tree_size",
    "write_all",
]

_MOST = 1 << 30  # macOS refuses to write or read 2 GiB at once


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
        `path` is empty, or no file can have that name.
    """
    text = os.fspath(path)
    if not isinstance(text, str):
        raise TypeError(f"expected a path as text, found {type(text).__qualname__}")
    if not text:
        raise ValueError("expected a path, found the empty text")
    try:
        wrong = "a NUL in it" if b"\0" in os.fsencode(text) else ""
    except UnicodeEncodeError as error:
        wrong = f"a character that no file name can have: {error.reason}"
    if wrong:
        raise ValueError(f"expected a path, found {text!r:.120} with {wrong}")
    if text[0] == "/" and text[-1] != "/" and "//" not in text and "/." not in text:
        return text  # as it is already, and every save asks a few times
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
    folder, slash, name = os.fspath(path).rpartition("/")
    # File systems take 255 bytes for a name; the addition must not make a good final name a bad one.
    stem = name if len(name) < 57 else os.fsencode(name)[:230].decode(errors="ignore")
    return f"{folder}{slash}.{stem}.{os.getpid()}.{os.urandom(4).hex()}.tmp"


def create_temporary(path: str | os.PathLike[str]) -> tuple[Descriptor, str]:
    """Create the temporary file for a final path.

    Parameters
    ----------
    path
        The final path.

    Returns
    -------
    tuple of Descriptor and str
        The file, open for writing and closed on exec, and the temporary path.

    Raises
    ------
    OSError
        The directory is missing or may not be written.
    """
    name = temporary_name(path)
    try:
        return Descriptor(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o644), name
    except OSError:
        raise
    except BaseException:
        remove_quietly(name)  # an interrupt comes after the call, whose result nobody gets
        raise


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
    try:
        shutil.rmtree(place)
    except OSError as error:
        if error.errno not in (errno.EMFILE, errno.ENFILE):
            raise
        # It keeps a descriptor open for each level. What could not be written for want of one must not stay for it.
        for folder, folders, names in os.walk(place, topdown=False):
            for name in names:
                os.unlink(f"{folder}/{name}")  # noqa: PTH108
            for name in folders:
                os.rmdir(f"{folder}/{name}")  # noqa: PTH106
        os.rmdir(place)  # noqa: PTH106


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
