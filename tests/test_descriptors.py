"""Descriptors that nothing leaves open."""

from __future__ import annotations

import contextlib
import os
import random
import signal
from pathlib import Path
from types import FrameType
from typing import Any

import pytest

import slow_descriptor
from jobcore._fast.descriptor import Descriptor

BOTH = pytest.mark.parametrize("kind", [Descriptor, slow_descriptor.Descriptor])


class Interrupted(BaseException):
    """What the handler of the signal raises."""


def open_ones() -> int:
    return len(os.listdir("/dev/fd"))  # noqa: PTH208 - the folder is no ordinary one


@BOTH
def test_it_is_closed_once_and_knows_it(tmp_path: Path, kind: Any) -> None:
    before = open_ones()
    file = kind(tmp_path / "x", os.O_WRONLY | os.O_CREAT, 0o600)
    assert os.fstat(file.number).st_size == 0
    file.close()
    assert file.number == -1
    other = kind(tmp_path / "x", os.O_RDONLY)
    # It has the same number, most likely: it must not be closed by the one that had it before.
    file.close()
    file.close_quietly()
    assert os.fstat(other.number).st_size == 0
    del other
    with kind(tmp_path, os.O_RDONLY) as folder, kind("x", os.O_RDONLY, dir_fd=folder) as number:
        assert os.fstat(number).st_size == 0
    assert open_ones() == before


@BOTH
def test_a_failure_of_the_close_is_told_and_it_is_closed_all_the_same(tmp_path: Path, kind: Any) -> None:
    file = kind(tmp_path / "x", os.O_WRONLY | os.O_CREAT)
    os.close(file.number)
    with pytest.raises(OSError, match="Bad file descriptor"):
        file.close()
    assert file.number == -1
    quiet = kind(tmp_path / "x", os.O_RDONLY)
    os.close(quiet.number)
    quiet.close_quietly()
    with pytest.raises(FileNotFoundError):
        kind(tmp_path / "none", os.O_RDONLY)


def test_no_interruption_leaves_one_open(tmp_path: Path) -> None:
    def interrupt(number: int, frame: FrameType | None) -> None:
        raise Interrupted

    path, rng = tmp_path / "x", random.Random(1)
    path.touch()
    before, came = open_ones(), 0
    handler = signal.signal(signal.SIGALRM, interrupt)
    try:
        for _ in range(3000):
            with contextlib.suppress(Interrupted):
                try:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-6, 60e-6))
                    with Descriptor(path, os.O_RDONLY):
                        pass
                    Descriptor(path, os.O_RDONLY)
                except Interrupted:
                    came += 1
                finally:
                    signal.setitimer(signal.ITIMER_REAL, 0)
    finally:
        signal.signal(signal.SIGALRM, handler)
    assert came
    assert open_ones() == before
