"""Saves that return when all is written: durable ones beside the disk's limit, others beside the page cache's."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from itertools import count
from pathlib import Path
from typing import Any

import pytest

import jobcore
import limits
from rounds import alternate, keep, ratios
from states import LARGE, nbytes, state


class Saves:
    """Saves of one state under ever new names; the one before is removed."""

    def __init__(self, folder: Path, name: str, db_type: str = "zarr.zip", **options: Any) -> None:
        self.arrays, self.options = state(name), options
        self._paths = (folder / f"{number}.{db_type}" for number in count())

    def before(self) -> None:
        self.path = next(self._paths)

    def __call__(self) -> None:
        jobcore.save(self.path, self.arrays, **self.options)

    def after(self) -> None:
        remove(self.path)


def remove(path: Path) -> None:
    shutil.rmtree(path) if path.is_dir() else path.unlink()


def measure(benchmark: Any, row: str, case: str, saves: Saves, limit: Callable[[], float]) -> None:
    benchmark.group = f"{row}, {case}"
    limit_s: list[float] = []
    ours_s = alternate(
        benchmark, saves, lambda: limit_s.append(limit()), before=saves.before, after=saves.after
    )
    keep(benchmark, row, case, ratios(ours_s, limit_s), limit_s=limit_s)


@pytest.mark.parametrize("name", LARGE)
def bench_durable(benchmark: Any, folder: Path, name: str) -> None:
    saves = Saves(folder, name)
    limits.best_way(folder)
    measure(benchmark, "save", name, saves, lambda: limits.direct_write(folder, nbytes(saves.arrays)))


@pytest.mark.parametrize("name", LARGE)
def bench_not_durable(benchmark: Any, folder: Path, name: str) -> None:
    saves = Saves(folder, name, durable=False)
    measure(benchmark, "save-fast", name, saves, lambda: limits.buffered_write(folder, nbytes(saves.arrays)))


@pytest.mark.parametrize("name", LARGE)
def bench_not_durable_directory(benchmark: Any, folder: Path, name: str) -> None:
    saves = Saves(folder, name, "zarr", durable=False)
    measure(
        benchmark,
        "save-fast-directory",
        name,
        saves,
        lambda: limits.buffered_write(folder, nbytes(saves.arrays), 2),
    )


def bench_many_durable(benchmark: Any, folder: Path) -> None:
    saves = Saves(folder, "S3")
    saves.before()
    saves()
    size = saves.path.stat().st_size
    saves.after()
    plain_s: list[float] = []
    made_s: list[float] = []
    alone_s: list[float] = []

    def others() -> None:
        plain_s.append(limits.buffered_write(folder, size, durable=True))
        alone_s.append(limits.buffered_write(folder, nbytes(saves.arrays), durable=True))
        made_s.append(limits.create_arrays(saves.arrays))

    benchmark.group = "many-save, S3"
    ours_s = alternate(benchmark, saves, others, before=saves.before, after=saves.after)
    spent_s = [ours - made for ours, made in zip(ours_s, made_s, strict=False)]
    keep(benchmark, "many-save", "S3", ratios(spent_s, plain_s), limit_s=plain_s, made_s=made_s, bytes=size)
    alone = ratios(spent_s, alone_s)
    keep(benchmark, "many-save", "S3, file of the data alone", alone, bounded=False, limit_s=alone_s)
