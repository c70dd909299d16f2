"""Arenas that are kept for the next save.

Fresh memory costs more than the copy into it. So what a save has used is kept, and saves of one size after another
take no new memory.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager

from jobcore._fast.arena import Arena

__all__ = ["give", "release", "take", "taken"]

_SMALL = 16 << 20
_lock = threading.Lock()  # guards _kept
_kept: list[Arena] = []


def take(nbytes: int) -> Arena:
    """Take an arena for one save, a kept one where it is large enough.

    Parameters
    ----------
    nbytes
        How much is needed at least, in bytes.

    Returns
    -------
    Arena
        For the caller alone, who gives it back by :func:`give`.

    Raises
    ------
    MemoryError
        There is no such address space.
    """
    with _lock:
        fitting = [arena for arena in _kept if arena.nbytes >= nbytes]
        if fitting:
            best = min(fitting, key=lambda arena: arena.nbytes)
            # A large arena that is busy with a small save would make the next large one take another.
            if nbytes > _SMALL or best.nbytes <= 2 * _SMALL:
                _kept.remove(best)
                return best
        if nbytes > _SMALL:
            # Too small for what is saved now: keeping them beside the new one would double the memory.
            for arena in [arena for arena in _kept if arena.nbytes > 2 * _SMALL]:
                _kept.remove(arena)
                arena.close()
    return Arena(max(nbytes, 1))


def give(arena: Arena) -> None:
    """Give an arena back; one small and one large one are kept, the largest of each."""
    with _lock:
        _kept.append(arena)
        for low, high in ((0, 2 * _SMALL), (2 * _SMALL, 1 << 63)):
            alike = sorted((a for a in _kept if low < a.nbytes <= high), key=lambda a: a.nbytes)
            for extra in alike[:-1]:
                _kept.remove(extra)
                extra.close()


@contextmanager
def taken(nbytes: int) -> Iterator[Arena]:
    """Take an arena for as long as the context lasts."""
    arena = take(nbytes)
    try:
        yield arena
    finally:
        give(arena)


def release() -> None:
    """Give all kept memory back to the system."""
    with _lock:
        while _kept:
            _kept.pop().close()


def _forget() -> None:
    # A child does not have the memory, and must not wait for a thread that it does not have either.
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
