"""File systems that do not know a call which only makes things safer or quicker.

``fsync`` on some network file systems, the flags of ``renameat2``: the next best way is taken and said once. What is
less safe without a call is a warning; what is only slower is a line in the log, for nobody can be asked to mend it.
"""

from __future__ import annotations

import contextlib
import errno
import logging
import os
import warnings
from typing import Any

__all__ = ["REFUSED", "note_slower", "tolerated", "warn_once"]

_log = logging.getLogger("jobcore.store")

# What a file system answers that does not know a call or a flag, as opposed to one that failed.
REFUSED = {errno.EINVAL, errno.ENOSYS, errno.EOPNOTSUPP, errno.ENOTSUP, errno.ENOTTY}
_warned: set[str] = set()
_noted: set[tuple[int, str]] = set()  # device and call; adding twice at once says it twice, and no more


@contextlib.contextmanager
def tolerated(what: str, codes: set[int]) -> Any:
    """Go on after an error of `codes`, and say so the first time; `what` names the call."""
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


def note_slower(fd: int, path: str, what: str, code: int) -> None:
    """Log that writing goes on without a call that only makes it quicker, once for each file system.

    Parameters
    ----------
    fd, path
        The file that is written.
    what
        The call, for people.
    code
        The errno with which it was refused; 0 does nothing.
    """
    if code == 0:
        return
    device = os.fstat(fd).st_dev
    if (device, what) not in _noted:
        _noted.add((device, what))
        place = os.path.dirname(path)  # noqa: PTH120 - paths are plain text here
        _log.info(
            "%s: the file system refuses %s (%s); saves go on without, and may take longer",
            place,
            what,
            os.strerror(code),
        )
