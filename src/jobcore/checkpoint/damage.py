"""Damage or mishap: whether an error says that stored bytes are gone or wrong.

For damage an older epoch may do, and the newer ones are given up. A file that cannot be read now, that this process may
not open, or that a newer version wrote, may be whole: going on from an older epoch would throw good ones away.
"""

from __future__ import annotations

import errno

from jobcore.errors import FormatError, JobcoreError, ReadError, VersionError

__all__ = ["is_damage", "mishap_of"]

# A name that is gone or that something else has, and what a file system says whose own checksums are wrong. A plain
# EIO is not among them: it is a bad sector at times, and a cable, a controller or a server at others.
_LOST = {
    errno.EBADMSG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    getattr(errno, "EUCLEAN", errno.EBADMSG),
}


def is_damage(error: BaseException) -> bool:
    """Tell whether `error`, raised by a reader, means that the bytes it wanted are lost."""
    if isinstance(error, VersionError | ReadError):
        return False
    if isinstance(error, FormatError):
        cause = error.__cause__
        return is_damage(cause) if isinstance(cause, OSError) else not isinstance(cause, MemoryError)
    return isinstance(error, OSError) and error.errno in _LOST


def mishap_of(error: BaseException) -> OSError | None:
    """Return the error of the system for which `error` was raised, if the bytes may be there all the same.

    Returns
    -------
    OSError or None
        None when it is damage, or nothing of the system's, or was told by an error of our own already.
    """
    if isinstance(error, JobcoreError) and not isinstance(error, FormatError):
        return None
    found = error.__cause__ if isinstance(error, FormatError) else error
    if isinstance(found, MemoryError):
        found = OSError(errno.ENOMEM, str(found) or "not enough memory")
    return found if isinstance(found, OSError) and not is_damage(error) else None
