"""Whatever read of a load fails, ends early, or brings other bits: the values are exact, or the error says where."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from fault_tools import check, drive
from faults.layer import ONLY_LINUX

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason=ONLY_LINUX)

CALLS = {"open", "stat", "pread", "close"}
WAYS = {"well", "error", "death"}


@pytest.mark.parametrize("scenario", ["load", "load_mapping", "load_workspace"])
def test_a_few_faults(scenario: str, tmp_path: Path) -> None:
    check(drive(scenario, tmp_path, "--most", "1"), 20, CALLS, WAYS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", ["load", "load_mapping", "load_workspace"])
def test_every_read(scenario: str, tmp_path: Path) -> None:
    check(drive(scenario, tmp_path), 200, CALLS, WAYS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("scenario", ["load", "load_mapping", "load_workspace"])
def test_a_folder(scenario: str, tmp_path: Path) -> None:
    check(drive(scenario, tmp_path, "--container", "zarr", "--most", "4"), 60, CALLS, WAYS)
