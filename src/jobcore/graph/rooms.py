"""Arrays that grow at the end without being copied each time.

The rows of a column are the first ones of a larger array, its *room*. More rows go behind them, where no view shows
anything yet, so that whoever reads the rows that were there before is not disturbed.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["extended"]

# By how much a room is larger than what it is made for.
_GROWTH = 1.4

_lock = threading.Lock()
# How many rows of a room were ever given out, by the id of the room, and a reference that knows when it goes.
_rooms: dict[int, tuple[weakref.ref[NDArray[Any]], int]] = {}


def extended(old: NDArray[Any], new: NDArray[Any]) -> NDArray[Any]:
    """Return the rows of `old` and those of `new` behind them; of one row shape, with dtypes that promote.

    Returns
    -------
    numpy.ndarray
        In C order. It shares memory with `old` where that has room behind it, and with nothing else.
    """
    rows, wanted = len(old), len(old) + len(new)
    dtype = np.promote_types(old.dtype, new.dtype)
    room = _claim(old, rows, wanted) if old.dtype == dtype else None
    if room is None:
        room = np.empty((max(wanted, int(rows * _GROWTH)), *old.shape[1:]), dtype)
        room[:rows] = old
        _keep(room, wanted)
    room[rows:wanted] = new
    return room[:wanted]


def _claim(old: NDArray[Any], rows: int, wanted: int) -> NDArray[Any] | None:
    """Return the room of `old` if the rows behind it are free, and take them."""
    base: object = old
    while isinstance(base, np.ndarray):
        with _lock:
            known = _rooms.get(id(base))
            if known is not None:
                # A copy of the blob may have gone on from the same rows: then they are no longer free.
                if known[1] != rows or wanted > len(base) or not _begins(base, old):
                    return None
                _rooms[id(base)] = (known[0], wanted)
                return base
        base = base.base
    return None


def _begins(room: NDArray[Any], rows: NDArray[Any]) -> bool:
    return (
        room.__array_interface__["data"][0] == rows.__array_interface__["data"][0]
        and room.dtype == rows.dtype
        and room.shape[1:] == rows.shape[1:]
        and rows.flags.c_contiguous
    )


def _keep(room: NDArray[Any], used: int) -> None:
    number = id(room)

    def forget(_: object) -> None:
        # No lock: this may run at any moment, in a thread that holds it. Nobody has the room, so nobody looks for it.
        _rooms.pop(number, None)

    with _lock:
        _rooms[number] = (weakref.ref(room, forget), used)
