"""Arenas that are kept for the next save.

Fresh memory costs more than the copy into it. So what a save has used is kept, and saves of one size after another
take no new memory.

There is no lock: a signal handler or a finalizer may save in the middle of what the same thread does here, and would
wait for itself. Whoever takes an arena out of the list has it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from jobcore._fast.arena import Arena

__all__ = ["give", "release", "share_with", "take", "taken"]

_SMALL = 16 << 20
_MOST = 1 << 63
_kept: list[Arena] = []  # changed only by single steps of the interpreter
_others: list[Callable[[], object]] = []  # what gives back memory that is kept elsewhere


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
    # A large arena that is busy with a small save would make the next large one take another.
    most = _MOST if nbytes > _SMALL else 2 * _SMALL
    for arena in _by_size():
        if nbytes <= arena.nbytes <= most and _is_ours(arena):
            return arena
    if nbytes > _SMALL:
        # Too small for what is saved now: keeping them beside the new one would double the memory.
        for arena in _by_size():
            if arena.nbytes > 2 * _SMALL and _is_ours(arena):
                arena.close()
        for give_back in _others:
            give_back()
    return Arena(max(nbytes, 1))


def give(arena: Arena) -> None:
    """Give an arena back; one small and one large one are kept, the largest of each."""
    _kept.append(arena)
    for low, high in ((0, 2 * _SMALL), (2 * _SMALL, _MOST)):
        alike = [kept for kept in _by_size() if low < kept.nbytes <= high]
        for extra in alike[:-1]:
            if _is_ours(extra):
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
    for arena in _by_size():
        if _is_ours(arena):
            arena.close()


def share_with(give_back: Callable[[], object]) -> None:
    """Have a function called, from now on, before a large arena is made: it gives back what is kept for other saves.

    A process that saves in two ways would keep memory for the whole state twice.
    """
    _others.append(give_back)


def _by_size() -> list[Arena]:
    return sorted(_kept, key=lambda arena: arena.nbytes)


def _is_ours(arena: Arena) -> bool:
    """Take an arena out of the list, unless somebody else was quicker."""
    try:
        _kept.remove(arena)
    except ValueError:
        return False
    return True


if hasattr(os, "register_at_fork"):
    # A child does not have the memory.
    os.register_at_fork(after_in_child=_kept.clear)
