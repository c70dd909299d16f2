"""Whatever call of a save fails, is short, is interrupted or is the last: the new database is whole or absent.

See ``faults/scenarios.py`` for what is done and looked at, and ``faults/driver.py`` for the faults of each call.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fault_tools import check, drive
from faults.layer import ONLY_LINUX

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason=ONLY_LINUX)

WAYS = {"well", "error", "death"}
DURABLE = {"pwrite", "fdatasync", "fsync", "ftruncate", "close"}


def test_a_few_faults_of_a_small_database(tmp_path: Path) -> None:
    check(drive("save_small", tmp_path, "--most", "1"), 40, {*DURABLE, "renameat2"}, WAYS)


def test_a_few_faults_of_a_large_database(tmp_path: Path) -> None:
    check(drive("save", tmp_path, "--most", "1"), 50, {*DURABLE, "renameat2", "setfl"}, WAYS)


@pytest.mark.parametrize("container", ["zarr.zip", "zarr"])
def test_a_few_faults_of_one_that_is_encoded(container: str, tmp_path: Path) -> None:
    options = ("--container", container, "--most", "1", "--names", "fdatasync,renameat2")
    check(drive("save_encoded", tmp_path, *options), 4, {"renameat2"}, WAYS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("container", ["zarr.zip", "zarr"])
def test_one_that_is_encoded(container: str, tmp_path: Path) -> None:
    options = ("--container", container, "--most", "2")
    check(drive("save_encoded", tmp_path, *options), 50, {"pwrite", "renameat2"}, WAYS)


@pytest.mark.parametrize(
    ("scenario", "names"), [("overwrite", "rename,fsync"), ("save_async", "fdatasync,renameat2")]
)
def test_a_few_faults_of_others(scenario: str, names: str, tmp_path: Path) -> None:
    check(drive(scenario, tmp_path, "--most", "1", "--names", names), 5, DURABLE, WAYS)


def test_a_few_faults_of_a_folder(tmp_path: Path) -> None:
    options = ("--container", "zarr", "--most", "1", "--names", "mkdir,fsync,renameat2,link")
    check(drive("save_linked", tmp_path, *options), 10, {"mkdir", "link", "fsync", "renameat2"}, WAYS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", ["save_small", "save"])
def test_a_new_database(scenario: str, tmp_path: Path) -> None:
    check(drive(scenario, tmp_path), 60, {*DURABLE, "renameat2"}, WAYS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", ["save_small", "save", "overwrite"])
def test_one_that_is_not_durable(scenario: str, tmp_path: Path) -> None:
    summary = drive(scenario, tmp_path, "--not-durable")
    check(summary, 50, {"pwrite", "close"}, WAYS)
    assert not {name for name in summary["calls"] if "sync" in name}


@pytest.mark.exhaustive
def test_one_that_replaces_another(tmp_path: Path) -> None:
    check(drive("overwrite", tmp_path), 60, {*DURABLE, "rename"}, WAYS)


@pytest.mark.exhaustive
def test_one_that_is_read_back(tmp_path: Path) -> None:
    check(drive("save_verified", tmp_path, "--most", "8"), 100, {*DURABLE, "pread", "renameat2"}, WAYS)


@pytest.mark.exhaustive
def test_one_that_is_written_in_the_background(tmp_path: Path) -> None:
    check(drive("save_async", tmp_path), 60, {*DURABLE, "renameat2"}, WAYS)


@pytest.mark.exhaustive
@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("scenario", "calls"),
    [
        ("save", {"mkdir", "pwrite", "fsync", "renameat2"}),
        ("overwrite", {"mkdir", "pwrite", "fsync", "renameat2", "unlink", "rmdir"}),
        ("save_linked", {"mkdir", "link", "pwrite", "fsync", "renameat2"}),
    ],
)
def test_a_folder(scenario: str, calls: set[str], tmp_path: Path) -> None:
    check(drive(scenario, tmp_path, "--container", "zarr", "--most", "2"), 80, calls, WAYS)
