"""Directories that others replace or remove while they are written or read: no false damage, and no mixture."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore import inspect, load, save, verify
from jobcore.errors import CheckpointNotFoundError, FormatError, ReadError
from jobcore.store import files, open_database, publishing
from jobcore.store.dirreader import DirectoryReader


def put(path: Path, value: int) -> None:
    save(path, {name: np.full(9, value) for name in "abc"}, overwrite=True, durable=False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    put(tmp_path / "x.zarr", 1)
    return tmp_path / "x.zarr"


class Meddler:
    """Does something the first few times that it is asked to."""

    def __init__(self, path: Path, times: int = 1) -> None:
        self.path, self.left, self.value = path, times, 1

    def replace(self, *_: Any) -> None:
        if self.left:
            self.left -= 1
            self.value += 1
            put(self.path, self.value)


@pytest.mark.parametrize("into", [False, True])
def test_a_load_gives_all_of_one_of_the_databases(into: bool, path: Path) -> None:
    meddler = Meddler(path, times=3)
    arrays = {name: np.zeros(9, int) for name in "abc"} if into else None
    loaded = load(path, iter("abc"), into=arrays, report=meddler.replace)
    assert {name: set(array.tolist()) for name, array in loaded.items()} == {name: {4} for name in "abc"}


def test_verify_sees_no_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meddler, foreign = Meddler(path), DirectoryReader._foreign

    def late(self: DirectoryReader, table: Any) -> Iterator[Any]:
        meddler.replace()
        return foreign(self, table)

    monkeypatch.setattr(DirectoryReader, "_foreign", late)
    assert verify(path).ok
    assert meddler.left == 0


def test_opening_it_finds_the_new_one(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    meddler, read_root = Meddler(path), DirectoryReader._read_root

    def late(self: DirectoryReader) -> bytes:
        meddler.replace()
        return read_root(self)

    monkeypatch.setattr(DirectoryReader, "_read_root", late)
    assert len(inspect(path).blobs) == 3
    assert meddler.left == 0


def test_who_holds_it_open_is_told_the_reason(path: Path) -> None:
    with open_database(path) as database:
        put(path, 2)
        for read in (
            lambda: database.load(),
            lambda: database.read("a"),
            lambda: database.read("a", slice(2)),
        ):
            with pytest.raises(ReadError, match="replaced or removed") as caught:
                read()
            assert caught.value.errno == errno.ESTALE
            assert isinstance(caught.value.__cause__, FormatError)


def test_what_is_removed_is_not_found(path: Path) -> None:
    with pytest.raises(CheckpointNotFoundError):
        load(path, report=lambda _: files.remove(path))


def test_what_is_replaced_without_end_is_given_up(path: Path) -> None:
    with pytest.raises(ReadError, match="replaced or removed"):
        load(path, report=Meddler(path, times=1000).replace)


def test_damage_stays_damage(path: Path) -> None:
    (path / "b" / "c.0").unlink()
    with pytest.raises(FormatError, match="blob 'b', chunk 0"):
        load(path)
    assert not verify(path).ok


def test_what_appears_at_the_last_moment_is_replaced_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, publish = tmp_path / "x.zarr", publishing.publish
    meddler = Meddler(path)

    def late(temporary: str, final: str) -> None:
        monkeypatch.setattr(publishing, "publish", publish)
        meddler.replace()
        publish(temporary, final)

    monkeypatch.setattr(publishing, "publish", late)
    put(path, 7)
    assert meddler.left == 0
    assert load(path)["a"][0] == 7
    assert list(tmp_path.iterdir()) == [path]


def test_what_goes_at_the_last_moment_is_not_missed(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    exclusive = publishing._exclusive_rename()
    assert exclusive is not None
    gone = False

    def rename(source: bytes, target: bytes, exchange: bool = False) -> int:
        nonlocal gone
        if exchange and not gone:
            gone = True
            files.remove(os.fsdecode(target))
        code: int = exclusive(source, target, exchange)
        return code

    monkeypatch.setattr(publishing, "_exclusive_rename", lambda: rename)
    put(path, 7)
    assert gone
    assert load(path)["a"][0] == 7
