"""A lock for any blob: ops that change a blob by more than one look and one write take it."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from jobcore.workspace import Blob

__all__ = ["lock_of", "locked"]

_COUNT = 64

# A few locks for all blobs, told apart by where the blob is in memory: a blob carries no lock of its own, so that what
# is locked can be any kind, and is stored in a checkpoint like any other. Two blobs that share one wait for each other
# at times, and nothing worse: no op takes two of these locks but by `locked`, which does so in one order.
_locks: list[threading.Lock] = []


def _renew() -> None:
    _locks[:] = [threading.Lock() for _ in range(_COUNT)]


_renew()
# A child of fork has none of the threads that may have held them.
os.register_at_fork(after_in_child=_renew)


def lock_of(blob: Blob) -> threading.Lock:
    """Return the lock of one blob, the same in whatever workspace the blob is seen from."""
    # A blob's memory begins at a multiple of 16 at least.
    return _locks[(id(blob) >> 4) % _COUNT]


@contextmanager
def locked(*blobs: Blob) -> Iterator[None]:
    """Hold the locks of several blobs."""
    numbers = sorted({(id(blob) >> 4) % _COUNT for blob in blobs})
    held = []
    try:
        for number in numbers:
            lock = _locks[number]
            lock.acquire()
            held.append(lock)
        yield
    finally:
        for lock in reversed(held):
            lock.release()
