"""Several files forced to the disk at once, against one after the other."""

from __future__ import annotations

import errno
import os
import threading
import warnings
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

import slow_file_sync
from jobcore._fast.file_sync import sync_files
from jobcore.store import refusals, syncing
from native_build import run_program


@pytest.fixture
def fds(tmp_path: Path) -> Iterator[list[int]]:
    with ExitStack() as stack:
        files = [
            stack.enter_context((tmp_path / str(number)).open("wb", buffering=0)) for number in range(40)
        ]
        for file in files:
            file.write(b"x" * 5000)
        yield [file.fileno() for file in files]


@pytest.mark.parametrize("count", [0, 1, 2, 7, 8, 9, 40])
def test_each_file_has_its_own_answer(fds: list[int], count: int) -> None:
    r, w = os.pipe()
    try:
        mixed = [*fds[:count], 1 << 20, w, *fds[:2]]
        assert (
            sync_files(mixed)
            == slow_file_sync.sync_files(mixed)
            == [0] * count + [errno.EBADF, errno.EINVAL, 0, 0]
        )
        assert sync_files(fds[:count]) == [0] * count
    finally:
        os.close(r)
        os.close(w)


def test_no_thread_is_left(fds: list[int]) -> None:
    before = threading.active_count(), len(list(Path("/dev/fd").iterdir()))
    for _ in range(50):
        sync_files(fds[:3])
    assert (threading.active_count(), len(list(Path("/dev/fd").iterdir()))) == before


def test_a_slow_disk_gets_all_at_once_and_a_quick_one_in_turn(tmp_path: Path) -> None:
    run_program("syncs", tmp_path)


def test_what_is_no_descriptor_is_refused(fds: list[int]) -> None:
    with pytest.raises(TypeError):
        sync_files([fds[0], "1"])
    with pytest.raises(OverflowError):
        sync_files([1 << 40])


@pytest.mark.parametrize("count", [1, 2])
def test_a_failure_is_told_and_a_refusal_is_a_warning(
    fds: list[int], count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(refusals, "_warned", set())
    good = fds[: count - 1]
    found = syncing.sync_files([*good, 1 << 20])
    assert found[:-1] == [None] * len(good)
    assert isinstance(found[-1], OSError)
    assert found[-1].errno == errno.EBADF
    r, w = os.pipe()
    try:
        with pytest.warns(RuntimeWarning, match="the file system refuses fsync"):
            assert syncing.sync_files([*good, w]) == [None] * count
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert syncing.sync_files([*good, w]) == [None] * count
    finally:
        os.close(r)
        os.close(w)
