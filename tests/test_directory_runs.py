"""Runs whose databases are directories: what an epoch shares with the one before, and that none needs another."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import jobcore
from cli_tools import jc
from jobcore import CheckpointWarning, Job, JobRunner, LocalSession, MultiNodeCheckpointManager, Workspace
from jobcore.checkpoint import CommitLog, RunDirectory
from jobcore.errors import BuildError
from jobcore.store import files, verify
from jobs import TOTALS, summing_job, total


def manager(run: Path, **options: bool) -> MultiNodeCheckpointManager:
    return MultiNodeCheckpointManager(run, db_type="zarr", **options)


def databases(run: Path) -> list[Path]:
    """The databases that count, by epoch."""
    history = CommitLog(RunDirectory.at(run, "zarr")).read()
    return [run / entry.file for record in history.records for entry in record.nodes.values()]


def train(run: Path, resume: int | str | None = None, **options: bool) -> tuple[JobRunner, int]:
    runner = JobRunner(summing_job(0), manager(run, **options), resume)
    session = LocalSession()
    runner.train(session)
    return runner, total(session, "trainer_0")


@pytest.mark.parametrize("background", [False, True])
def test_epochs_share_what_did_not_change(tmp_path: Path, background: bool) -> None:
    runner, found = train(tmp_path, background=background)
    assert found == TOTALS[4]
    assert [save.status for save in runner.result.saves] == ["saved"] * 5
    assert [path.name for path in databases(tmp_path)] == [f"trainer_0.{n}.1.zarr" for n in range(5)]
    for path, expected in zip(databases(tmp_path), TOTALS, strict=True):
        assert verify(path).ok
        assert jobcore.load(path, ["total"])["total"].tolist() == [expected]
    # Data that stay as they are have one file for all epochs; what moves has one for each.
    assert {(path / "val" / "c.0").stat().st_nlink for path in databases(tmp_path)} == {5}
    assert {(path / "total" / "c.0").stat().st_nlink for path in databases(tmp_path)} == {1}


@pytest.mark.parametrize("epoch", [0, 2, "latest"])
def test_a_run_resumes_and_shares_with_the_epoch_that_it_came_from(tmp_path: Path, epoch: int | str) -> None:
    train(tmp_path)
    first = databases(tmp_path)[0]
    runner, found = train(tmp_path, epoch)
    assert found == TOTALS[4]
    assert runner.result.resumed_from == (4 if epoch == "latest" else epoch)
    assert all(verify(path).ok for path in databases(tmp_path))
    for path in databases(tmp_path):
        assert (path / "val" / "c.0").samefile(first / "val" / "c.0")


@pytest.mark.parametrize("gone", range(5))
def test_any_epoch_can_go_without_harm_to_the_others(tmp_path: Path, gone: int) -> None:
    train(tmp_path)
    there = databases(tmp_path)
    files.remove(there.pop(gone))
    assert all(verify(path).ok for path in there)
    for path, expected in zip(there, TOTALS[:gone] + TOTALS[gone + 1 :], strict=True):
        assert jobcore.load(path)["total"].tolist() == [expected]


def test_a_run_may_change_from_one_container_to_the_other(tmp_path: Path) -> None:
    JobRunner(summing_job(0), MultiNodeCheckpointManager(tmp_path)).train(LocalSession())
    _, found = train(tmp_path, 2)
    assert found == TOTALS[4]
    assert [path.suffix for path in databases(tmp_path)] == [".zip"] * 3 + [".zarr"] * 2
    session = LocalSession()
    JobRunner(summing_job(0), MultiNodeCheckpointManager(tmp_path), 3).train(session)
    assert total(session, "trainer_0") == TOTALS[4]
    assert [path.suffix for path in databases(tmp_path)] == [".zip"] * 3 + [".zarr", ".zip"]


@pytest.mark.parametrize("content", ["damaged", "another epoch"])
def test_what_another_container_left_of_an_epoch_is_not_loaded(tmp_path: Path, content: str) -> None:
    """Which of two files of one epoch counts is what its record says, not what is found first."""
    train(tmp_path)
    newest = databases(tmp_path)[-1]
    left = newest.with_name(newest.name + ".zip")
    if content == "damaged":
        left.write_bytes(b"PK")
    else:
        jobcore.store.write_database(left, {"total": np.array([1])}, db_type="zarr.zip")
    for container in ("zarr", "zarr.zip"):
        runner = JobRunner(summing_job(0), MultiNodeCheckpointManager(tmp_path, db_type=container), "latest")
        session = LocalSession()
        runner.train(session)
        assert runner.result.resumed_from == 4
        assert total(session, "trainer_0") == TOTALS[4]


@pytest.mark.parametrize("part", ["zarr.json", "total/c.0", "total/zarr.json", "val/c.0", ""])
@pytest.mark.parametrize("how", ["gone", "damaged"])
def test_a_damaged_epoch_is_passed_over(tmp_path: Path, part: str, how: str) -> None:
    train(tmp_path)
    newest = databases(tmp_path)[-1]
    place = newest / part
    if how == "damaged" and place.is_file():
        data = bytearray(place.read_bytes())
        data[len(data) // 2] ^= 1
        place.unlink()
        place.write_bytes(data)
    else:
        files.remove(place)
    with pytest.warns(CheckpointWarning) as caught:
        runner, found = train(tmp_path, "latest")
    assert runner.result.resumed_from == 3
    assert found == TOTALS[4]
    assert any(newest.name in str(warning.message) for warning in caught)


def test_left_overs_are_swept_at_the_next_start(tmp_path: Path) -> None:
    train(tmp_path)
    there = databases(tmp_path)
    (tmp_path / "epoch.4.1.json").unlink()
    unfinished = tmp_path / ".trainer_0.5.1.zarr.4711.5e0c3d1a.tmp"
    (unfinished / "val").mkdir(parents=True)
    (unfinished / "val" / "c.0").write_bytes(b"half")
    mine = tmp_path / "mine.9.1.zarr"
    mine.mkdir()
    (mine / "notes.txt").touch()
    train(tmp_path, "latest")
    assert not unfinished.exists()
    assert not there[-1].exists()
    assert (mine / "notes.txt").exists()
    assert all(verify(path).ok for path in databases(tmp_path))


def test_what_a_failed_save_wrote_is_discarded(tmp_path: Path) -> None:
    train(tmp_path)
    log = CommitLog(RunDirectory.at(tmp_path, "zarr"))
    claim = log.claim("run", None)
    again = RunDirectory.at(tmp_path, "zarr").database("trainer_0", 7, claim.generation)
    jobcore.store.write_database(again, {"w": 1}, db_type="zarr")
    before = sorted(tmp_path.iterdir())
    log.discard(claim, 7)
    assert [path.name for path in before if not path.exists()] == [again.name]
    assert not [path for path in tmp_path.iterdir() if path.name.endswith(".tmp")]


PROGRAM = """
import os, signal, sys
import jobcore
from jobcore.store import dirwriter
from jobs import summing_job

left = int(sys.argv[2])
real = dirwriter.ChunkFiles

class ChunkFiles:
    def __init__(self, *place):
        self.files = real(*place)
        self.folder = self.files.folder

    def file(self, key, data, keep=False):
        self.count(key, data)
        return self.files.file(key, data, keep)

    def chunk(self, key, data, zeros=0, keep=False):
        self.count(key, data)
        return self.files.chunk(key, data, zeros, keep)

    def count(self, key, data):
        global left
        left -= 1
        if left == 0:
            self.files.file(key, data[: len(data) // 2])
            os.kill(os.getpid(), signal.SIGKILL)

dirwriter.ChunkFiles = ChunkFiles
manager = jobcore.MultiNodeCheckpointManager(sys.argv[1], db_type="zarr")
jobcore.JobRunner(summing_job(0), manager, "latest").train(jobcore.LocalSession())
"""


@pytest.mark.parametrize("moment", [3, 7, 10, 14, 19])
def test_a_run_that_was_killed_while_it_saved_goes_on(tmp_path: Path, moment: int) -> None:
    run = tmp_path / "run"
    arguments = [sys.executable, "-c", PROGRAM, str(run), str(moment)]
    found = os.pathsep.join(str(Path(place).absolute()) for place in sys.path)
    done = subprocess.run(arguments, env=os.environ | {"PYTHONPATH": found}, check=False)
    assert done.returncode == -signal.SIGKILL
    there = databases(run)
    assert all(verify(path).ok for path in there)
    _, total_found = train(run, "latest")
    assert total_found == TOTALS[4]
    assert len(databases(run)) == 5
    assert databases(run)[: len(there)] == there
    assert all(verify(path).ok for path in databases(run))
    assert not [path.name for path in run.iterdir() if path.name.endswith(".tmp")]


def test_large_blobs_of_which_little_changes(tmp_path: Path) -> None:
    with Job() as job:

        @job.init_group.task
        def init(ws: Workspace) -> None:
            for layer in range(20):
                ws.feed(f"layer{layer}", np.full(1 << 15, layer, "f4"))

        @job.epoch_group.task
        def tune(ws: Workspace) -> None:
            ws.feed("layer19", ws.fetch("layer19") + 1)

        jobcore.epoch_limiter(job, 3)
    JobRunner(job, manager(tmp_path)).train(LocalSession())
    for one, two in zip(databases(tmp_path), databases(tmp_path)[1:], strict=False):
        kept = {path.stat().st_ino for path in one.rglob("*") if path.is_file()}
        new = sum(p.stat().st_size for p in two.rglob("*") if p.is_file() and p.stat().st_ino not in kept)
        assert new <= 0.06 * files.tree_size(two)


def test_the_commands_take_directories(tmp_path: Path) -> None:
    train(tmp_path)
    newest = databases(tmp_path)[-1]
    assert re.match(r" +0 .*\n", jc("ls", str(tmp_path)).stdout.split("\n", 1)[1])
    assert "note:" not in jc("ls", str(tmp_path)).stdout
    shown = jc("show", str(newest)).stdout
    assert "2 (zarr)" in shown
    assert "total" in shown
    assert jc("verify", str(newest)).stdout.startswith("ok: ")
    assert "5 of 5 databases ok" in jc("verify", str(tmp_path)).stdout
    (newest / "val" / "c.0").unlink()
    assert "val/c.0: blob 'val', chunk 0: expected the file" in jc("verify", str(newest), status=1).stdout
    assert "epoch 4 cannot be loaded" in jc("ls", tmp_path).stdout


def test_an_unknown_container_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(
        (BuildError, ValueError), match=r"expected db_type to be one of \['zarr', 'zarr.zip'\]"
    ):
        MultiNodeCheckpointManager(tmp_path, db_type="zar")
