"""A run whose epochs are written while the next ones train: the same epochs, and no failure is lost."""

from __future__ import annotations

import errno
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore import (
    CheckpointManager,
    CheckpointWarning,
    Job,
    JobRunner,
    LocalSession,
    MultiNodeCheckpointManager,
    RunEvent,
    SaveFailurePolicy,
    Workspace,
    epoch_limiter,
)
from jobcore.errors import SaveError, SaveTimeoutError, TaskGroupError
from jobcore.store import syncing
from jobs import TOTALS, counting_job, summing_job, total


def database_of(fd: int) -> str:
    """Name of the database that a descriptor writes; empty for claims, records and directories."""
    name = Path(f"/proc/self/fd/{fd}").readlink().name
    return name if ".zarr.zip." in name else ""


def test_it_ends_with_the_epochs_of_a_run_that_waits(tmp_path: Path) -> None:
    epochs = {}
    for background in (False, True):
        manager = MultiNodeCheckpointManager(tmp_path / str(background), background=background)
        runner = JobRunner(summing_job(0, 1), manager)
        assert runner.train(LocalSession()) == 4
        assert [save.status for save in runner.result.saves] == ["saved"] * 5
        assert all(save.size_bytes > 0 and save.seconds > 0 for save in runner.result.saves)
        history = manager.history()
        epochs[background] = [
            {node: (entry.size_bytes, entry.blobs) for node, entry in history.get(epoch).nodes.items()}
            for epoch in history.epochs
        ]
    assert epochs[True] == epochs[False]
    assert len(epochs[True]) == 5


@pytest.mark.parametrize("epoch", [0, 2, 4])
def test_every_epoch_resumes_to_its_own_state(epoch: int, tmp_path: Path) -> None:
    manager = MultiNodeCheckpointManager(tmp_path, background=True)
    JobRunner(summing_job(0), manager).train(LocalSession())
    session = LocalSession()
    JobRunner(summing_job(0), MultiNodeCheckpointManager(tmp_path, background=True), epoch).train(session)
    assert total(session, "trainer_0") == TOTALS[4]
    session = LocalSession()
    manager = MultiNodeCheckpointManager(tmp_path)
    job = summing_job(0).compile(LocalSession)
    session.run(job.setup_group)
    session.run(manager.init(job.nodes_to_checkpoint(), retrieve_from_epoch=epoch))
    session.run(manager.load(epoch))
    assert total(session, "trainer_0") == TOTALS[epoch]


def test_the_next_epoch_trains_while_one_is_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sync of epoch 1 waits for a step of epoch 2."""
    trained, sync = threading.Event(), syncing.sync_file
    seen: list[bool] = []
    job = counting_job(3)

    @job.epoch_group.task
    def train(ws: Workspace) -> None:
        if len(seen) == 1:
            assert manager.history().epochs == (0,)
            trained.set()
        seen.append(True)

    def wait(fd: int) -> None:
        if "local.1." in database_of(fd):
            assert trained.wait(30)
        sync(fd)

    monkeypatch.setattr(syncing, "sync_file", wait)
    manager = CheckpointManager(tmp_path, background=True)
    JobRunner(job, manager).train(LocalSession())
    assert trained.is_set()
    assert manager.history().epochs == (0, 1, 2, 3)


def failing_at(monkeypatch: pytest.MonkeyPatch, *numbers: int) -> None:
    """Syncs of databases fail, counted from 1."""
    count, lock, sync = [0], threading.Lock(), syncing.sync_file

    def fail(fd: int) -> None:
        if database_of(fd):
            with lock:
                count[0] += 1
                number = count[0]
            if number in numbers:
                raise OSError(errno.EIO, "Input/output error")
        sync(fd)

    monkeypatch.setattr(syncing, "sync_file", fail)


def test_a_failed_save_is_in_the_result_and_the_run_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_at(monkeypatch, 2)
    manager = CheckpointManager(tmp_path, background=True)
    runner = JobRunner(counting_job(3), manager)
    with pytest.warns(CheckpointWarning, match=r"epoch 1 could not be saved \(write\): .*Input/output error"):
        assert runner.train(LocalSession()) == 3
    assert [save.status for save in runner.result.saves] == ["saved", "failed", "saved", "saved"]
    assert manager.history().epochs == (0, 2, 3)
    assert not list(tmp_path.glob("local.1.*"))


def test_a_run_never_ends_well_without_its_last_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_at(monkeypatch, 4)
    runner = JobRunner(counting_job(3), CheckpointManager(tmp_path, background=True))
    with pytest.warns(CheckpointWarning), pytest.raises(SaveError, match="Input/output error"):
        runner.train(LocalSession())
    assert runner.result.status == "failed"
    assert runner.result.epochs[-1].save.status == "failed"


def test_the_policy_ends_the_run_after_the_epoch_that_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing_at(monkeypatch, 2)
    runner = JobRunner(
        counting_job(9),
        CheckpointManager(tmp_path, background=True),
        on_save_failure=SaveFailurePolicy.raise_at_once(),
    )
    with pytest.warns(CheckpointWarning), pytest.raises(SaveError) as caught:
        runner.train(LocalSession())
    assert any("the run ends by" in note for note in caught.value.__notes__)
    assert any("was saved in the background" in note for note in caught.value.__notes__)


def test_an_epoch_that_fails_lets_the_save_before_it_end(tmp_path: Path) -> None:
    job = counting_job(5)

    @job.epoch_group.task
    def fail(ws: Workspace) -> None:
        if int(ws.fetch("count")) >= 2:
            raise RuntimeError("mine")

    manager = CheckpointManager(tmp_path, background=True)
    runner = JobRunner(job, manager)
    with pytest.raises(TaskGroupError, match="mine"):
        runner.train(LocalSession())
    assert manager.history().epochs == (0, 1)
    assert [save.status for save in runner.result.saves] == ["saved", "saved"]


def test_an_interrupt_lets_the_save_end(tmp_path: Path) -> None:
    with Job() as job:

        @job.init_group.task
        def init(ws: Workspace) -> None:
            ws.feed("count", 0)

        @job.epoch_group.task
        def interrupt(ws: Workspace) -> None:
            ws.feed("count", int(ws.fetch("count")) + 1)
            if int(ws.fetch("count")) >= 2:
                raise KeyboardInterrupt

        epoch_limiter(job, 5)
    manager = CheckpointManager(tmp_path, background=True)
    runner = JobRunner(job, manager)
    with pytest.raises(KeyboardInterrupt):
        runner.train(LocalSession())
    assert runner.result.status == "interrupted"
    assert manager.history().epochs == (0, 1)


def test_what_observers_are_told(tmp_path: Path) -> None:
    events: list[RunEvent] = []
    runner = JobRunner(
        counting_job(2), CheckpointManager(tmp_path, background=True), observers=[events.append]
    )
    runner.train(LocalSession())
    told = [
        (event.kind, event.epoch)
        for event in events
        if event.kind in ("save_staged", "save_finished", "epoch_started", "stopped")
    ]
    assert told == [
        ("save_staged", 0),
        ("epoch_started", 1),
        ("save_finished", 0),
        ("save_staged", 1),
        ("epoch_started", 2),
        ("save_finished", 1),
        ("save_staged", 2),
        ("save_finished", 2),
        ("stopped", 2),
    ]


def test_blobs_change_in_place_while_they_are_written(tmp_path: Path) -> None:
    """Bound arrays, changed by every step, are saved as they were at the end of their epoch."""
    weights = np.zeros(200_000)
    job = counting_job(4)

    @job.init_group.task
    def bind(ws: Workspace) -> None:
        ws.bind("weights", weights)

    @job.epoch_group.task
    def train(ws: Workspace) -> None:
        weights[:] = int(ws.fetch("count")) + 1

    manager = CheckpointManager(tmp_path, background=True)
    JobRunner(job, manager).train(LocalSession())
    from jobcore import load

    for epoch in range(1, 5):
        stored = load(manager.get_ckpt_db_path("local", epoch), names=["weights", "count"])
        assert len(set(stored["weights"])) == 1


def test_by_hand_commit_waits_and_a_commit_in_the_background_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gate, sync = threading.Event(), syncing.sync_file

    def wait(fd: int) -> None:
        if database_of(fd):
            assert gate.wait(30)
        sync(fd)

    session = LocalSession()
    manager = CheckpointManager(tmp_path, background=True)
    session.workspace("local").feed("w", np.arange(5))
    session.run(manager.init())
    monkeypatch.setattr(syncing, "sync_file", wait)
    session.run(manager.save(0))
    pending = manager.commit_in_background(0)
    with pytest.raises(SaveTimeoutError, match=r"epoch 0 to be committed within 0\.01 s"):
        pending.wait(0.01)
    assert manager.history().epochs == ()
    gate.set()
    assert pending.wait(30).epoch == 0
    session.run(manager.save(1))
    assert manager.commit(1).epoch == 1
    assert manager.history().epochs == (0, 1)
    stats: dict[str, Any] = {}
    manager.collect_checkpoint_stats(stats)
    assert len(stats) == 1
