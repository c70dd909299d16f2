"""Copies of arrays that are saved later, in memory that is kept for the next save.

Fresh memory costs more than the copy into it.
"""

from __future__ import annotations

import mmap
import os
import threading
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import numpy as np

from jobcore.store.layout import bytes_of
from jobcore.store.workers import THREADS, each

__all__ = ["Copies"]

_ALIGNMENT = 64
_PIECE = 16 << 20
_WORTH_THREADS = 4 << 20
_lock = threading.Lock()  # guards _kept
_kept: list[mmap.mmap] = []


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
            with _lock:
                # The largest is kept. Others are freed with the last view of them.
                _kept.append(memory)
                _kept.sort(key=len)
                del _kept[:-1]


def _take(nbytes: int) -> mmap.mmap:
    with _lock:
        if _kept and len(_kept[-1]) >= nbytes:
            return _kept.pop()
        # Too small: keeping it beside the new one would double the memory.
        _kept.clear()
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


def _forget() -> None:
    # A child must not wait for a thread that it does not have.
    global _lock
    _lock = threading.Lock()
    _kept.clear()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)
