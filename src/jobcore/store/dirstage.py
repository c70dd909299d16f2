"""Copies of arrays that are saved later, in memory that is kept for the next save.

Fresh memory costs more than the copy into it. There is no lock, as for arenas: a signal handler may save in the middle
of this.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from jobcore.store import arenas
from jobcore.store.layout import bytes_of
from jobcore.store.workers import THREADS, each

__all__ = ["Copies"]

_ALIGNMENT = 64
_PIECE = 16 << 20
_WORTH_THREADS = 4 << 20
_kept: list[mmap.mmap] = []  # changed only by single steps of the interpreter


class Copies:
    """Copies of arrays.

    Parameters
    ----------
    arrays
        What is copied.

    Attributes
    ----------
    arrays
        The copies, each contiguous in C order; nobody may use them after :meth:`close`.

    Raises
    ------
    MemoryError
        They do not fit into memory.
    """

    def __init__(self, arrays: list[np.ndarray[Any, Any]]) -> None:
        places = []
        end = 0
        for array in arrays:
            places.append(end)
            end += -(-array.nbytes // _ALIGNMENT) * _ALIGNMENT
        self._memory: mmap.mmap | None = _take(max(end, 1))
        self.arrays = [
            np.ndarray(array.shape, array.dtype, self._memory, place)
            for array, place in zip(arrays, places, strict=True)
        ]
        try:
            each(self._works(arrays), THREADS if end >= _WORTH_THREADS else 1)
        except BaseException:
            self.close()
            raise

    def _works(self, arrays: list[np.ndarray[Any, Any]]) -> Iterator[Callable[[], None]]:
        for copy, array in zip(self.arrays, arrays, strict=True):
            if not array.flags.c_contiguous:
                yield partial(np.copyto, copy, array)
                continue
            into, source = (np.frombuffer(bytes_of(one), np.uint8) for one in (copy, array))
            for at in range(0, len(source), _PIECE):
                yield partial(np.copyto, into[at : at + _PIECE], source[at : at + _PIECE])

    def close(self) -> None:
        """Give the memory back. More than once is harmless."""
        memory, self._memory = self._memory, None
        self.arrays = []
        if memory is not None:
            _kept.append(memory)
            # The largest is kept. Others are freed with the last view of them.
            for extra in sorted(_kept, key=len)[:-1]:
                with contextlib.suppress(ValueError):  # somebody else was quicker
                    _kept.remove(extra)


def _take(nbytes: int) -> mmap.mmap:
    with contextlib.suppress(IndexError):  # there is none, or somebody else was quicker
        while len(memory := _kept.pop()) < nbytes:
            pass  # too small: keeping it beside the new one would double the memory
        return memory
    arenas.release()
    try:
        memory = mmap.mmap(-1, nbytes)
    except OSError as error:
        raise MemoryError(f"expected {nbytes} bytes of memory for copies, found none: {error}") from error
    if hasattr(mmap, "MADV_HUGEPAGE"):
        try:
            memory.madvise(mmap.MADV_HUGEPAGE)
        except OSError:  # a kernel without huge pages
            return memory
    return memory


arenas.share_with(_kept.clear)
if hasattr(os, "register_at_fork"):
    # Memory of its own: what a child wrote here its parent would see, for both have the same pages.
    os.register_at_fork(after_in_child=_kept.clear)
