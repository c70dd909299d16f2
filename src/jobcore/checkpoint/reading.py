"""Reading with patience: a file that cannot be read now is tried again, and told apart from one that is damaged."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TypeVar

from jobcore.checkpoint.damage import mishap_of
from jobcore.errors import FormatError, ReadError
from jobcore.runtime import sleep

__all__ = ["ANOTHER_EPOCH", "PAUSES_S", "is_there", "patiently"]

_T = TypeVar("_T")

# Long enough for a server that changes over or a cable that is plugged in again, short enough to be waited for.
PAUSES_S: Sequence[float] = (0.1, 0.4, 1.6)

# What else can be done where one epoch cannot be read: for `instead`.
ANOTHER_EPOCH = ", or give resume_from_epoch the number of an earlier one"

# What may be over in a moment: the disk or the network, or a table of the system that is full. Rights are not.
_PASSING = {
    getattr(errno, name)
    for name in (
        "EAGAIN",
        "EBUSY",
        "ECONNABORTED",
        "ECONNREFUSED",
        "ECONNRESET",
        "EHOSTDOWN",
        "EHOSTUNREACH",
        "EINTR",
        "EIO",
        "EMFILE",
        "ENETDOWN",
        "ENETRESET",
        "ENETUNREACH",
        "ENFILE",
        "ENOBUFS",
        "ENOMEM",
        "ENOTCONN",
        "EREMOTEIO",
        "ESTALE",
        "ETIMEDOUT",
    )
    if hasattr(errno, name)
}


def patiently(
    path: str | os.PathLike[str],
    read: Callable[[], _T],
    pauses_s: Sequence[float] | None = None,
    *,
    instead: str = "",
) -> _T:
    """Read something; where the system fails in a way that may pass, read it again after a pause.

    Parameters
    ----------
    path
        What is read, for the error.
    read
        Reads it from the beginning.
    pauses_s
        Seconds to wait before each further attempt, `PAUSES_S` by default. The pauses end when the task is cancelled.
    instead
        What else can be done, for the hint.

    Returns
    -------
    object
        What `read` returned.

    Raises
    ------
    ReadError
        It cannot be read now; the last error of `read` is the cause.
    Exception
        Whatever else `read` raises, such as what damage is told by: at once.
    """
    left = list(PAUSES_S if pauses_s is None else pauses_s)
    attempts = 0
    while True:
        attempts += 1
        try:
            return read()
        except (FormatError, OSError) as error:
            mishap = mishap_of(error)
            if mishap is None:
                raise
            if not left or mishap.errno not in _PASSING:
                raise _unread(path, error, mishap, attempts, instead) from error
        sleep(left.pop(0))


def is_there(path: str | os.PathLike[str]) -> bool:
    """Tell whether something is there.

    Raises
    ------
    ReadError
        That cannot be told: it may not be looked at, or cannot be now.
    """
    try:
        patiently(path, Path(path).stat)
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _unread(
    path: str | os.PathLike[str], error: Exception, mishap: OSError, attempts: int, instead: str
) -> ReadError:
    reason = mishap.strerror or str(mishap)
    place = os.fspath(path)
    told = (
        error.message if isinstance(error, FormatError) else f"{place}: expected to read it, found: {reason}"
    )
    raised = ReadError(
        f"{told}; tried {attempts} times" if attempts > 1 else told,
        hint=f"it may be whole: mend its rights, its disk or the network, and start again{instead}",
    )
    raised.errno, raised.strerror, raised.filename = mishap.errno, reason, place
    return raised
