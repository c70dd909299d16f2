"""Whatever call of a run fails or is the last: earlier epochs stay, the new one is whole or absent, and it goes on."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fault_tools import check, drive
from faults.layer import ONLY_LINUX

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason=ONLY_LINUX)

CALLS = {"open", "pread", "pwrite", "ftruncate", "fdatasync", "renameat2", "fsync", "close", "opendir"}
WAYS = {"well", "error", "death"}


def test_a_few_faults_of_an_epoch(tmp_path: Path) -> None:
    check(drive("epoch", tmp_path, "--most", "1", "--names", "pwrite,fdatasync,renameat2"), 25, CALLS, WAYS)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(
    ("scenario", "most", "points"), [("epoch", 4, 250), ("run", 2, 130), ("run_background", 2, 130)]
)
def test_every_call(scenario: str, most: int, points: int, tmp_path: Path) -> None:
    check(drive(scenario, tmp_path, "--most", str(most)), points, CALLS, WAYS)


@pytest.mark.exhaustive
@pytest.mark.timeout(1200)
def test_an_epoch_in_folders(tmp_path: Path) -> None:
    calls = {"open", "mkdir", "pwrite", "fsync", "renameat2", "close"}
    check(drive("epoch", tmp_path, "--container", "zarr", "--most", "1"), 70, calls, WAYS)


def test_removing_what_a_failed_save_left(tmp_path: Path) -> None:
    check(drive("discard", tmp_path), 14, {"opendir", "unlink"}, {"error", "death"})


def test_removing_what_died_with_its_process(tmp_path: Path) -> None:
    check(drive("sweep", tmp_path), 40, {"opendir", "unlink", "open", "pread"}, WAYS)


@pytest.mark.exhaustive
def test_removing_folders(tmp_path: Path) -> None:
    check(drive("sweep", tmp_path, "--container", "zarr", "--most", "3"), 60, {"unlink", "rmdir"}, WAYS)
