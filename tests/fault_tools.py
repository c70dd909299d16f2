"""Starts the programs into which the fault-injecting layer is preloaded; see ``faults/``."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from faults.layer import Call, preloaded

_DRIVER = Path(__file__).parent / "faults" / "driver.py"


def drive(scenario: str, folder: Path, *options: str) -> dict[str, Any]:
    """Let each call of a scenario fail in each way, and return what the driver found."""
    summary: dict[str, Any] = _run(scenario, folder, *options)
    return summary


def trace(scenario: str, folder: Path, *options: str) -> list[Call]:
    """Return the calls of a scenario that is not disturbed."""
    return [Call(**call) for call in _run(scenario, folder, "--trace", *options)]


def check(summary: dict[str, Any], points: int, calls: set[str], words: set[str]) -> None:
    """See that a driver found nothing wrong, and that it has tried things.

    Parameters
    ----------
    points
        The least number of faults.
    calls
        Names of calls that the scenario must have made.
    words
        Ways in which points must have ended.
    """
    assert not summary["problems"], "\n".join(summary["problems"][:10])
    assert summary["points"] >= points
    assert calls <= set(summary["calls"]), summary["calls"]
    assert words <= set(summary["ends"]), summary["ends"]
    # A fault for which there was no call proves nothing; a few calls are made in some runs and not in others.
    assert summary["ends"].get("no such call", 0) <= 0.05 * summary["points"], summary["ends"]


def _run(scenario: str, folder: Path, *options: str) -> Any:
    place = folder / "work"
    done = subprocess.run(
        [sys.executable, str(_DRIVER), scenario, str(place), *options],
        env=preloaded(),
        capture_output=True,
        text=True,
    )
    point = place.with_suffix(".point")
    told = f"{point.read_text() if point.exists() else 'before the first point'}\n{done.stderr}"
    assert done.returncode == 0, f"{scenario} ended with {done.returncode} at: {told}"
    return json.loads(done.stdout)
