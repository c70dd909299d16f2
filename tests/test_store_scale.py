"""Many blobs in one file, opened by few reads."""

from __future__ import annotations

import os
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore.store import inspect, load, save, verify

COUNT = 20_000


@pytest.fixture(scope="module")
def many(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("many") / "x.zarr.zip"
    save(path, {f"layer{number}/w": np.full(4, number, "i4") for number in range(COUNT)}, durable=False)
    return path


def test_very_many_blobs_come_back(many: Path) -> None:
    found = load(many)
    assert len(found) == COUNT
    assert all(found[f"layer{number}/w"].tolist() == [number] * 4 for number in (0, 1, 999, COUNT - 1))
    assert all(int(array[0]) == number for number, array in enumerate(found.values()))
    report = verify(many)
    assert report.ok
    assert report.blobs == COUNT
    with zipfile.ZipFile(many) as file:
        assert len(file.namelist()) == 2 * COUNT + 1
    assert [path.name for path in many.parent.iterdir()] == [many.name]


@pytest.mark.parametrize("count", [0, 3, COUNT])
def test_a_database_is_opened_by_at_most_two_reads_of_its_end(
    count: int, many: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = many
    if count != COUNT:
        path = tmp_path / "x"
        save(path, {f"b{number}": np.zeros(100_000) for number in range(count)}, durable=False)
    preadv = os.preadv
    reads: list[int] = []

    def counted(fd: int, buffers: Any, offset: int) -> int:
        done = preadv(fd, buffers, offset)
        reads.append(done)
        return done

    monkeypatch.setattr(os, "preadv", counted)
    assert len(inspect(path).blobs) == count
    assert len(reads) <= 2
    assert count == COUNT or sum(reads) <= 1 << 16


def test_a_few_blobs_of_many_are_read_alone(many: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    total = 0

    def counted(fd: int, buffers: Any, offset: int) -> int:
        nonlocal total
        done = preadv(fd, buffers, offset)
        total += done
        return done

    index = inspect(many)
    monkeypatch.setattr(os, "preadv", counted)
    inspect(many)
    opening, total = total, 0
    names = [index.blobs[number].name for number in (5, 6, 10_000)]
    assert list(load(many, names)) == names
    assert total - opening < 10_000


@pytest.mark.slow
def test_more_than_a_million_blobs_come_back(tmp_path: Path) -> None:
    path, count = tmp_path / "x.zarr.zip", 1_300_000
    written = save(path, {f"b{number}": number for number in range(count)}, durable=False)
    assert written.blobs == count
    assert load(path, names=["b0", f"b{count - 1}"])[f"b{count - 1}"] == count - 1
    found = load(path)
    assert len(found) == count
    assert np.array_equal(np.fromiter(found.values(), "i8", count), np.arange(count))
