"""Loads, every byte checked, beside plain reads of as many bytes."""

from __future__ import annotations

import mmap
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import jobcore
import limits
from rounds import alternate, keep, ratios
from states import LARGE, State, empty, nbytes, same, state


class Loads:
    """A database of one state, and a plain file of as many bytes."""

    def __init__(self, folder: Path, name: str) -> None:
        self.name, self.arrays = name, state(name)
        self.path, self.plain = folder / f"{name}.zarr.zip", folder / f"{name}.plain"
        jobcore.save(self.path, self.arrays)
        limits.fill(self.plain, nbytes(self.arrays))
        self.found: State = {}

    def measure(
        self,
        benchmark: Any,
        row: str,
        load: Callable[[], State],
        limit: Callable[[], float],
        before: Callable[[], object] = lambda: None,
    ) -> None:
        """Measure a load in turn with its limit; ``before`` is called before each of the two."""
        benchmark.group = f"{row}, {self.name}"
        limit_s: list[float] = []

        def other() -> None:
            before()
            limit_s.append(limit())

        def ours() -> None:
            self.found = load()

        def after() -> None:
            assert self.found.keys() == self.arrays.keys()
            self.found = {}

        ours_s = alternate(benchmark, ours, other, before=before, after=after)
        keep(benchmark, row, self.name, ratios(ours_s, limit_s), limit_s=limit_s)

    def close(self) -> None:
        self.path.unlink()
        self.plain.unlink()


@pytest.fixture(scope="module", params=LARGE)
def loads(request: pytest.FixtureRequest, folder: Path) -> Iterator[Loads]:
    found = Loads(folder, request.param)
    yield found
    found.close()


def bench_in_place(benchmark: Any, loads: Loads) -> None:
    into = empty(loads.name)
    loads.measure(
        benchmark, "load", lambda: jobcore.load(loads.path, into=into), lambda: limits.read(loads.plain)
    )
    assert same(into, loads.arrays)


def bench_new(benchmark: Any, loads: Loads) -> None:
    room = nbytes(loads.arrays) * 9 // 8

    def take_and_free() -> None:
        # A machine under a hypervisor may have handed back what has been free for some seconds. Whoever touches it
        # first waits for it, which takes longer than the load; so both sides start with memory that was just freed.
        memory = limits.huge(room)
        memory[:: mmap.PAGESIZE] = 1

    loads.measure(
        benchmark,
        "load-new",
        lambda: jobcore.load(loads.path),
        lambda: limits.read_fresh(loads.plain),
        take_and_free,
    )


def bench_cold(benchmark: Any, loads: Loads) -> None:
    into = empty(loads.name)

    def evict() -> None:
        limits.evict(loads.path)
        limits.evict(loads.plain)

    loads.measure(
        benchmark,
        "load-cold",
        lambda: jobcore.load(loads.path, into=into),
        lambda: limits.read(loads.plain, limits.cold_threads(loads.plain)),
        evict,
    )


def bench_many(benchmark: Any, folder: Path) -> None:
    loads = Loads(folder, "S3")
    size = loads.path.stat().st_size
    same_size = limits.fill(folder / "S3.same", size)
    plain_s: list[float] = []
    alone_s: list[float] = []
    made_s: list[float] = []

    def others() -> None:
        plain_s.append(limits.read(same_size, 1))
        alone_s.append(limits.read(loads.plain, 1))
        made_s.append(limits.create_arrays(loads.arrays))

    benchmark.group = "many-load, S3"
    ours_s = alternate(benchmark, lambda: jobcore.load(loads.path), others)
    spent_s = [ours - made for ours, made in zip(ours_s, made_s, strict=False)]
    keep(benchmark, "many-load", "S3", ratios(spent_s, plain_s), limit_s=plain_s, made_s=made_s, bytes=size)
    alone = ratios(spent_s, alone_s)
    keep(benchmark, "many-load", "S3, file of the data alone", alone, bounded=False, limit_s=alone_s)
    same_size.unlink()
    loads.close()
