"""Whether arrays that are to be filled share memory, so that one would overwrite the other."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any, cast

import numpy as np

__all__ = ["covers_itself", "overlaps"]

_WORK = 100_000
_FEW = 16
#: First address of an array, the one after its last, and its number.
_Range = tuple[int, int, int]


def overlaps(arrays: Sequence[np.ndarray[Any, Any]]) -> Iterator[tuple[int, int, bool]]:
    """Find arrays that share memory.

    Only arrays whose ranges of addresses meet are compared element by element, so that this is cheap for any
    number of arrays that lie apart. Interleaved views, such as the columns of a matrix, do not overlap, and very many
    of them are cheap too.

    Parameters
    ----------
    arrays
        The arrays.

    Yields
    ------
    tuple of int, int and bool
        Index of an array, of one before it in memory that it overlaps, and whether the two are the very same
        memory in the same shape and data type. One pair for each array at most.
    """
    if len({*map(id, arrays)}) == len(arrays) and all(array.flags.owndata for array in arrays):
        return
    ranges = sorted((*_range(array), at) for at, array in enumerate(arrays) if array.size)
    for cluster in _clusters(ranges):
        for lane in _lanes(arrays, cluster):
            yield from _sweep(arrays, lane)


def _clusters(ranges: list[_Range]) -> Iterator[list[_Range]]:
    """Part ranges, in order, where no one goes on."""
    begin, end = 0, 0
    for number, (low, high, _) in enumerate(ranges):
        if low >= end and number > begin:
            yield ranges[begin:number]
            begin = number
        end = max(end, high)
    if ranges:
        yield ranges[begin:]


def _lanes(arrays: Sequence[np.ndarray[Any, Any]], cluster: list[_Range]) -> Iterator[list[_Range]]:
    """Part arrays that all go by steps of one length, or of multiples of it, and never meet for they begin apart."""
    step = 0
    for _, _, at in cluster if len(cluster) > _FEW else ():
        array = arrays[at]
        step = math.gcd(
            step, *(stride for n, stride in zip(array.shape, array.strides, strict=True) if n > 1)
        )
    starts = (
        sorted((low % step, low % step + arrays[at].itemsize, (low, high, at)) for low, high, at in cluster)
        if step
        else []
    )
    # An element that reaches into the next step may meet any other.
    if not starts or max(stop for _, stop, _ in starts) > step:
        yield cluster
        return
    lane: list[_Range] = []
    end = 0
    for start, stop, one in starts:
        if start >= end and lane:
            yield sorted(lane)
            lane = []
        lane.append(one)
        end = max(end, stop)
    yield sorted(lane)


def _sweep(arrays: Sequence[np.ndarray[Any, Any]], ranges: list[_Range]) -> Iterator[tuple[int, int, bool]]:
    open_: list[tuple[int, int]] = []
    for low, high, at in ranges:
        open_ = [(end, other) for end, other in open_ if end > low]
        same = False
        for _, other in open_:
            same = _is_same(arrays[at], arrays[other])
            if same or _meet(arrays[at], arrays[other]):
                yield at, other, same
                break
        if not same:
            # Very many names for one array would otherwise be compared each with each.
            open_.append((high, at))


def covers_itself(array: np.ndarray[Any, Any]) -> bool:
    """Tell whether several elements of an array may lie at one place, as in a broadcast or sliding view."""
    if array.flags.c_contiguous or array.flags.f_contiguous:
        return False
    reach = array.itemsize
    for step, length in sorted(
        (abs(step), n) for n, step in zip(array.shape, array.strides, strict=True) if n > 1
    ):
        if step < reach:
            return True
        reach += step * (length - 1)
    return False


def _range(array: np.ndarray[Any, Any]) -> tuple[int, int]:
    low = high = array.__array_interface__["data"][0]
    if array.flags.c_contiguous:
        return low, low + array.nbytes
    for length, step in zip(array.shape, array.strides, strict=True):
        if step < 0:
            low += step * (length - 1)
        else:
            high += step * (length - 1)
    return low, high + array.itemsize


def _is_same(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return (
        one.shape == other.shape
        and one.strides == other.strides
        and one.dtype == other.dtype
        and one.__array_interface__["data"][0] == other.__array_interface__["data"][0]
    )


def _meet(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    try:
        # The types that NumPy declares leave out that any number of steps may be given.
        return np.shares_memory(one, other, max_work=cast(Any, _WORK))
    except np.exceptions.TooHardError:
        return True
