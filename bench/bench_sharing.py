"""Finding arrays that share memory: what it adds to a save, against sorting as many addresses in NumPy.

Every save pays for the first case, in which nothing is shared. ``ns each`` in the extra information is for one array,
at the median. A load into arrays of one's own asks whether they lie apart, and whether each is what is stored: against
asking NumPy for shape and dtype of each.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest

from jobcore._fast.sharing import find_shared, fitting_arrays

COUNT = 20_000
SMALL = 500  # when the benchmark runs as a test

Arrays = list[np.ndarray[Any, Any]]


def apart(count: int) -> Arrays:
    return [np.zeros(64, "f4") for _ in range(count)]


def rows(count: int) -> Arrays:
    whole = np.zeros((count, 64), "f4")
    return [*whole[1:], whole]


def transposed(count: int) -> Arrays:
    return [array.reshape(8, 8).T for array in apart(count)]


def sort_addresses(arrays: Arrays) -> object:
    return np.argsort(np.array([array.__array_interface__["data"][0] for array in arrays], np.uint64))


@pytest.mark.benchmark(group="sharing")
@pytest.mark.parametrize("make", [apart, rows, transposed])
@pytest.mark.parametrize("who", ["jobcore", "peer: addresses sorted by NumPy", "limit: a copy of the list"])
def bench_find(
    benchmark: Any, request: pytest.FixtureRequest, make: Callable[[int], Arrays], who: str
) -> None:
    count = COUNT if request.config.getoption("benchmark_enable") else SMALL
    arrays = make(count)
    random.Random(0).shuffle(arrays)
    work = {"jobcore": find_shared, "limit: a copy of the list": list}.get(who, sort_addresses)
    benchmark.group = f"sharing: {count:,} arrays, {make.__name__}"
    found: Any = benchmark(partial(work, arrays))
    if who == "jobcore":
        assert len(found) == (count - 1 if make is rows else 0)
    if benchmark.stats is not None:
        benchmark.extra_info["ns each"] = round(benchmark.stats.stats.median / count * 1e9)


def shapes_and_dtypes(into: dict[str, Any], names: list[str], spec: list[int], forms: list[Any]) -> object:
    return all((into[name].shape, into[name].dtype) == forms[i] for name, i in zip(names, spec, strict=True))


@pytest.mark.benchmark(group="destinations")
@pytest.mark.parametrize("make", [apart, rows])
@pytest.mark.parametrize("who", ["jobcore", "peer: shapes and dtypes in Python"])
def bench_fitting(
    benchmark: Any, request: pytest.FixtureRequest, make: Callable[[int], Arrays], who: str
) -> None:
    count = COUNT if request.config.getoption("benchmark_enable") else SMALL
    into = {f"{i}": array for i, array in enumerate(make(count)[: count - 1])}
    random.Random(0).shuffle(names := list(into))
    work: Callable[..., Any] = fitting_arrays if who == "jobcore" else shapes_and_dtypes
    forms = [((64,), np.dtype("f4"))]
    benchmark.group = f"destinations: {count:,} arrays, {make.__name__}"
    assert benchmark(partial(work, into, names, [0] * len(names), forms))
    if benchmark.stats is not None:
        benchmark.extra_info["ns each"] = round(benchmark.stats.stats.median / count * 1e9)
