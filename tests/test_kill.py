"""SIGKILL at any moment, then the same command again: the end is that of a run never killed, bit for bit."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import jobcore
from faults.layer import preloaded
from jobcore.checkpoint import CommitLog, RunDirectory
from kill_process import CALLS

PROCESS = Path(__file__).with_name("kill_process.py")
NODES = ("trainer_0", "trainer_1")
LAST = 5

# Each place with the number of times that an undisturbed run of two nodes comes by it at least.
PLACES = {"init": 1, "epoch": 5, "write": 19, "sync": 38, "publish": 19, "published": 19, "record": 6}


def command(run: Path, *extra: str) -> list[str]:
    return [sys.executable, str(PROCESS), str(run), "--nodes", "2", *extra]


def final_state(run: Path) -> dict[str, object]:
    record = CommitLog(RunDirectory.at(run, "zarr.zip")).read().get(LAST)
    state: dict[str, object] = {}
    for node, entry in record.nodes.items():
        loaded = jobcore.load(run / entry.file)
        state[f"{node}/rng"] = loaded.pop("rng").bit_generator.state
        state[f"{node}/epochs"] = loaded.pop("epochs").retrieve()
        state.update({f"{node}/{name}": np.asarray(value).tobytes() for name, value in loaded.items()})
    return state


def check_what_counts(run: Path) -> None:
    """Every epoch that exists is whole on every node, and no file of a failed save counts."""
    history = CommitLog(RunDirectory.at(run, "zarr.zip")).read()
    assert history.faults == ()
    assert history.epochs == tuple(range(len(history.epochs)))
    for record in history.records:
        assert sorted(record.nodes) == sorted(NODES)
        for entry in record.nodes.values():
            report = jobcore.verify(run / entry.file)
            assert report.ok, report.faults


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory):
    run = tmp_path_factory.mktemp("undisturbed") / "run"
    begin = time.monotonic()
    subprocess.run(command(run), check=True, capture_output=True)
    return final_state(run), time.monotonic() - begin


def finish(run: Path, expected: dict[str, object]) -> None:
    check_what_counts(run)
    done = subprocess.run(command(run), check=True, capture_output=True, text=True)
    assert "resumed from" in done.stdout
    check_what_counts(run)
    assert final_state(run) == expected
    assert not [path.name for path in run.iterdir() if path.name.endswith(".tmp")]


def chosen_moments() -> list[str]:
    generator = random.Random(20)
    # Each place once, and more of those with many moments: ten in all.
    places = [*PLACES, "write", "publish", "published"]
    if sys.platform != "linux":  # the layer that puts a death into a system call is not there
        places = [place for place in places if place not in CALLS]
    return [f"{place}:{generator.randint(1, PLACES[place])}" for place in places]


@pytest.mark.slow
@pytest.mark.parametrize("moment", chosen_moments())
def test_killed_at_a_place(tmp_path, undisturbed, moment):
    run = tmp_path / "run"
    env = preloaded() if moment.partition(":")[0] in CALLS else None
    killed = subprocess.run(command(run, "--die-at", moment), check=False, capture_output=True, env=env)
    assert killed.returncode == -signal.SIGKILL, killed.stderr.decode()
    finish(run, undisturbed[0])


@pytest.mark.slow
@pytest.mark.parametrize("by", ["SIGINT", "SIGTERM", "SIGHUP"])
@pytest.mark.parametrize("moment", ["epoch:3", "publish:9"])
def test_other_signals_never_make_a_part_of_an_epoch_count(tmp_path, undisturbed, by, moment):
    run = tmp_path / "run"
    ended = subprocess.run(command(run, "--die-at", moment, "--by", by), check=False, capture_output=True)
    assert ended.returncode != 0
    history = CommitLog(RunDirectory.at(run, "zarr.zip")).read()
    assert history.epochs == tuple(range(3 if moment.startswith("epoch") else len(history.epochs)))
    finish(run, undisturbed[0])


@pytest.mark.slow
def test_killed_again_and_again_at_random_times(tmp_path, undisturbed):
    expected, seconds = undisturbed
    generator = random.Random(7)
    run = tmp_path / "run"
    kills = 0
    while kills < 10:
        process = subprocess.Popen(command(run), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            process.wait(timeout=generator.uniform(0.3, 1.1) * seconds)
        except subprocess.TimeoutExpired:
            process.kill()
        kills += process.wait() == -signal.SIGKILL
        if run.exists():
            check_what_counts(run)
            if process.returncode == 0:
                assert final_state(run) == expected
                run = tmp_path / f"run{kills}"
    finish(run, expected)
