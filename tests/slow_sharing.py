"""Arrays that are views of others in plain Python: each compared with each, by the addresses of their bytes."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]


def find_shared(arrays: list[Array]) -> list[tuple[int, int, int]]:
    for array in arrays:
        if not isinstance(array, np.ndarray):
            raise TypeError("expected arrays")
    spans = [np.lib.array_utils.byte_bounds(array) for array in arrays]
    some = [at for at, array in enumerate(arrays) if array.nbytes]
    plain = [at for at in some if arrays[at].flags.c_contiguous]
    bases = [
        at
        for at in plain
        if not any(_covers(spans, other, at) and (spans[other] != spans[at] or other < at) for other in plain)
    ]
    found = []
    for at in some:
        around = [base for base in bases if base != at and _covers(spans, base, at)]
        if around:
            base = max(around, key=lambda other: spans[other][0])
            found.append((at, base, _address(arrays[at]) - spans[base][0]))
        elif at not in plain:
            twins = [other for other in some if other < at and _layout(arrays[other]) == _layout(arrays[at])]
            found += [(at, twins[0], 0)] if twins else []
    return found


def _covers(spans: list[tuple[int, int]], one: int, other: int) -> bool:
    (low, high), (begin, end) = spans[one], spans[other]
    return low <= begin and end <= high


def _address(array: Array) -> int:
    address: int = array.__array_interface__["data"][0]
    return address


def _layout(array: Array) -> tuple[object, ...]:
    steps = [(n, step if n > 1 else 0) for n, step in zip(array.shape, array.strides, strict=True)]
    return _address(array), array.itemsize, tuple(steps)


def fitting_arrays(
    into: dict[str, Any],
    names: list[str],
    spec: list[int],
    forms: list[tuple[tuple[int, ...], np.dtype[Any]]],
) -> list[Array] | None:
    if into.keys() != set(names):
        return None
    arrays: list[Array] = []
    for name, index in zip(names, spec, strict=True):
        array = into[name]
        if type(array) is not np.ndarray or (array.shape, array.dtype) != forms[index]:
            return None
        if not (array.flags.c_contiguous and array.flags.writeable):
            return None
        if any(np.shares_memory(array, other) for other in arrays):
            return None
        arrays.append(array)
    return arrays
