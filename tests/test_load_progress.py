"""A load that is watched, and what it reads."""

from __future__ import annotations

import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore import Workspace
from jobcore.store import containers, inspect, load, open_database, progress
from jobcore.store.progress import Meter
from load_tools import MODEL, save_model


@pytest.fixture(params=containers.known_types())
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / f"m.{request.param}"


@pytest.fixture
def path(place: Path) -> Path:
    return save_model(place)


def test_progress_comes_to_its_end_and_never_goes_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    load(path, progress=lambda *step: steps.append(step))
    total = steps[-1][1]
    with open_database(path) as database:
        assert total == sum(blob.nbytes for blob in database.info.blobs)
    assert steps[-1] == (total, total)
    monkeypatch.setattr(progress, "_FIRST", 1)
    monkeypatch.setattr(progress, "_MOST", 1)
    fine: list[int] = []
    into = {"net/enc/w": np.zeros((3, 4)), "net/dec/w": np.zeros((4, 2), "f4")}
    load(path, list(into), into, progress=lambda done, _: fine.append(done))
    assert fine == [32, 64, 96, 128]
    assert into["net/enc/w"].tolist() == MODEL["net/enc/w"].tolist()
    steps.clear()
    load(path, [], progress=lambda *step: steps.append(step))
    assert steps == [(0, 0)]


def test_an_exception_of_progress_ends_a_load(path: Path) -> None:
    def stop(_done: int, _total: int) -> None:
        raise InterruptedError("enough")

    ws = Workspace()
    with pytest.raises(InterruptedError, match="enough"):
        load(path, into=ws, progress=stop)
    assert ws.blob_names() == []


class Part:
    """A blob of ten chunks of 32 MiB."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def chunk_range(self) -> tuple[int, int]:
        return 0, 10

    def chunk_bytes(self) -> int:
        return 32 << 20

    def bytes_in(self, first: int, stop: int) -> int:
        return (stop - first) << 25

    def target(self, first: int, stop: int) -> Any:
        return (stop - first) * self.seconds


@pytest.mark.parametrize(("seconds", "calls", "lines"), [(0.001, 7, 0), (0.4, 10, 0), (4.0, 10, 3)])
def test_a_slow_load_is_seen_more_often_and_in_the_log(
    seconds: float, calls: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    seen: list[int] = []

    def read(targets: Any) -> None:
        now[0] += sum(targets)

    caplog.set_level(logging.INFO, "jobcore.store")
    Meter("some/path", 10 << 25, lambda done, _: seen.append(done), lambda: now[0]).read(
        [Part(seconds)], read
    )
    assert len(seen) <= calls
    assert seen[-1] == 10 << 25
    assert all(two - one <= 256 << 20 for one, two in zip([0, *seen], seen, strict=False))
    assert [record.levelname for record in caplog.records] == ["INFO"] * lines
    assert lines == 0 or "some/path: loaded 100663296 of 335544320 bytes" in caplog.text


def test_a_load_that_only_the_log_watches(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "jobcore.store"):
        assert list(load(path)) == list(MODEL)


def test_opening_and_listing_needs_few_small_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    for name in ("read", "pread", "preadv", "readv"):
        call = getattr(os, name)

        def count(*args: Any, call: Any = call) -> Any:
            found = call(*args)
            sizes.append(found if isinstance(found, int) else len(found))
            return found

        monkeypatch.setattr(os, name, count)
    assert [blob.name for blob in inspect(path).blobs] == list(MODEL)
    assert 1 <= len(sizes) <= 3
    assert sum(sizes) < 1 << 17
