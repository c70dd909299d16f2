"""Damage or mishap: whether an error says that stored bytes are gone or wrong.

For damage an older epoch may do, and the newer ones are given up. A file that this process may not open, or
cannot open now, or that a newer version wrote, may be whole: going on from an older epoch would throw good ones away.
"""

from __future__ import annotations

import errno

from jobcore.errors import FormatError, VersionError

__all__ = ["is_damage"]

# A sector that cannot be read, a broken file system, a name that is gone or that something else has.
_LOST = {
    errno.EIO,
    errno.EBADMSG,
    errno.ENOENT,
    errno.ENOTDIR,
    errno.EISDIR,
    getattr(errno, "EUCLEAN", errno.EIO),
}


def is_damage(error: BaseException) -> bool:
    """Tell whether `error`, raised by a reader, means that the bytes it wanted are lost."""
    if isinstance(error, VersionError):
        return False
    if isinstance(error, FormatError):
        return not isinstance(error.__cause__, OSError) or is_damage(error.__cause__)
    return isinstance(error, OSError) and error.errno in _LOST
