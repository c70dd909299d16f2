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

_numbers = count()


class Saves:
    """Saves of one state under ever new names; the one before is removed, or emptied if it is a directory.

    The files of a directory stay until the end: for a minute or more ext4 takes no inode that was just removed, and
    looks at each of them whenever a file is made beside them, which takes longer than all else.
    """

    def __init__(self, folder: Path, name: str, db_type: str = "zarr.zip", **options: Any) -> None:
        self.arrays, self.options = state(name), options
        self._folder, self._db_type = folder, db_type

    def before(self) -> None:
        self.path = self._folder / f"{next(_numbers)}.{self._db_type}"

    def __call__(self) -> None:
        jobcore.save(self.path, self.arrays, **self.options)

    def after(self) -> None:
        if self.path.is_dir():
            limits.empty_files(self.path)
        else:
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
    size = nbytes(saves.arrays)
    saves.before()
    saves()
    sizes = [path.stat().st_size for path in saves.path.rglob("*") if path.is_file()]
    saves.after()
    two_s: list[float] = []
    many_s: list[float] = []

    def others() -> None:
        two_s.append(limits.buffered_write(folder, size, 2))
        many_s.append(limits.many_files(folder, sizes))

    benchmark.group = f"save-fast-directory, {name}"
    ours_s = alternate(benchmark, saves, others, before=saves.before, after=saves.after)
    keep(benchmark, "save-fast-directory", name, ratios(ours_s, two_s), limit_s=two_s)
    alike = ratios(ours_s, many_s)
    keep(benchmark, "save-fast-directory", f"{name}, as many files", alike, bounded=False, limit_s=many_s)


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
