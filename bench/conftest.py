"""What the suites share: a folder for the data, and a word on what is measured."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from peers import MISSING, PEERS
from states import ROUNDS, SCALE


def pytest_report_header() -> list[str]:
    lines = [f"jobcore bench: scale {SCALE:g}, {ROUNDS} rounds, data in {_root()}"]
    if MISSING:
        lines.append(f"jobcore bench: not installed, so not compared: {', '.join(MISSING)}")
    return lines


def pytest_benchmark_update_machine_info(config: pytest.Config, machine_info: dict[str, Any]) -> None:
    names = ["numpy", *sorted({need for peer in PEERS.values() for need in peer.needs})]
    versions = {}
    for name in names:
        with contextlib.suppress(metadata.PackageNotFoundError):
            versions[name] = metadata.version(name.replace(".", "-"))
    machine_info["jobcore"] = {
        "scale": SCALE,
        "rounds": ROUNDS,
        "versions": versions,
        "memory_gib": _memory_gib(),
    }


def _memory_gib() -> float:
    return round(os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 2**30, 1)


def _root() -> Path:
    return Path(os.environ.get("JOBCORE_BENCH_DIR", tempfile.gettempdir()))


@pytest.fixture(scope="session")
def folder() -> Iterator[Path]:
    """A folder on the disk that is measured, ``JOBCORE_BENCH_DIR``; what is in it is removed in the end."""
    _root().mkdir(parents=True, exist_ok=True)
    found = Path(tempfile.mkdtemp(prefix="jobcore-bench-", dir=_root()))
    yield found
    shutil.rmtree(found)
