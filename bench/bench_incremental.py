"""An epoch in which one chunk in twenty changed, in a directory beside the epoch before, against a full save of S1."""

from __future__ import annotations

import shutil
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import jobcore
from jobcore.store import ChunkPolicy, write_database
from rounds import alternate, keep, ratios
from states import MiB, State, nbytes, same, state

CHUNK = 4 * MiB
CHUNKS = ChunkPolicy(CHUNK, CHUNK)


def change(arrays: State, start: int) -> None:
    """Change one chunk in twenty: rows of S1, whole arrays of S2, other ones for each start."""
    number = start
    for array in arrays.values():
        rows = min(len(array), CHUNK // (array.nbytes // len(array)))
        for low in range(0, len(array), rows):
            if number % 20 == 0:
                array.view("u4")[low : low + rows] ^= start
            number += 1


def written_bytes() -> int | None:
    """Bytes that this process sent to the disk so far, where the kernel counts them."""
    try:
        lines = Path("/proc/self/io").read_text().splitlines()
    except OSError:
        return None
    return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))


class Epochs:
    """Epochs that share what did not change with the one before."""

    def __init__(self, folder: Path, name: str) -> None:
        self.arrays, self.shares = state(name), list[float]()
        self._paths = (folder / f"epoch{number}.zarr" for number in count())
        self.base = next(self._paths)
        self._changed = 0
        write_database(self.base, self.arrays, db_type="zarr", chunks=CHUNKS)

    def before(self) -> None:
        self.path = next(self._paths)
        self._changed += 1
        change(self.arrays, self._changed)
        self._written = written_bytes()

    def __call__(self) -> None:
        write_database(self.path, self.arrays, db_type="zarr", chunks=CHUNKS, base=self.base)

    def after(self) -> None:
        if self._written is not None:
            self.shares.append(((written_bytes() or 0) - self._written) / nbytes(self.arrays))
        shutil.rmtree(self.base)
        self.base = self.path


@pytest.mark.parametrize("name", ["S1", "S2"])
def bench_epoch(benchmark: Any, folder: Path, name: str) -> None:
    benchmark.group = f"incremental, {name}"
    whole, numbers = {key: array.copy() for key, array in state("S1").items()}, count()
    epochs = Epochs(folder, name)
    full_s: list[float] = []

    def full() -> None:
        path = folder / f"full{next(numbers)}.zarr.zip"
        begin = perf_counter()
        jobcore.save(path, whole)
        full_s.append(perf_counter() - begin)
        path.unlink()

    ours_s = alternate(benchmark, epochs, full, before=epochs.before, after=epochs.after)
    keep(benchmark, "incremental-time", name, ratios(ours_s, full_s), limit_s=full_s)
    keep(benchmark, "incremental-bytes", name, epochs.shares[-len(ours_s) :] if ours_s else [])
    assert same(jobcore.load(epochs.base), epochs.arrays)
    shutil.rmtree(epochs.base)
    state.cache_clear()  # its values are no longer those that others expect
