"""The scenarios of the original's own checkpoint tests, with nodes that have workspaces of their own."""

from __future__ import annotations

import shutil

import numpy as np
import pytest

from jobcore import (
    BlobReference,
    CheckpointManager,
    CheckpointWarning,
    Job,
    JobRunner,
    LocalSession,
    MultiNodeCheckpointManager,
    Node,
    SaveFailurePolicy,
    Task,
    TaskGroup,
    UploadTaskGroupBuilder,
    epoch_limiter,
    ops,
)
from jobs import TOTALS, summing_job, total


def single(prefix):
    return CheckpointManager(prefix, "trainer_0")


def multi(prefix):
    return MultiNodeCheckpointManager(prefix)


@pytest.mark.parametrize("make", [single, multi])
def test_train_then_resume_from_each_epoch(tmp_path, make):
    job = summing_job(0).compile(LocalSession)
    with LocalSession() as session:
        assert JobRunner(job, make(tmp_path)).train(session) == 4
        assert total(session, "trainer_0") == TOTALS[4]
    for k in range(1, 5):
        manager = make(tmp_path)
        with LocalSession() as session:
            runner = JobRunner(job, manager, resume_from_epoch=k)
            # Also for k = 4: the run had ended, so no fifth epoch runs.
            assert runner.train(session) == 4
            assert [e.epoch for e in runner.result.epochs] == list(range(k + 1, 5))
            assert total(session, "trainer_0") == TOTALS[4]
    with LocalSession() as session:
        for k in range(1, 5):
            session.run(manager.load(k))
            assert total(session, "trainer_0") == TOTALS[k]


def test_names_of_databases(tmp_path):
    job = summing_job(0, 1, 2).compile(LocalSession)
    manager = multi(tmp_path)
    manager.init(job.nodes_to_checkpoint())
    for i in range(3):
        assert manager.get_ckpt_db_name(f"trainer_{i}", 5) == str(tmp_path / f"trainer_{i}.5")
    assert manager.get_ckpt_db_name("nobody", 5) is None


def test_each_node_keeps_its_own_blobs_and_a_part_of_them_can_be_loaded(tmp_path):
    job = summing_job(0, 1, 2)
    with LocalSession() as session:
        assert JobRunner(job, multi(tmp_path)).train(session) == 4
        for i in range(3):
            # Neither outputs, nor timers, nor a list of names: just what the init group made.
            assert session.workspace(f"trainer_{i}").blob_names() == ["val", "cursor", "total"]
        assert session.workspace().blob_names() == []

    for epoch in range(1, 5):
        with LocalSession() as session:
            manager = multi(tmp_path)
            runner = JobRunner(summing_job(1, 2), manager)
            assert runner.load_blobs_from_checkpoints(["total", "nothing"], epoch, session)
            for i in (1, 2):
                assert session.workspace(f"trainer_{i}").blob_names() == ["total"]
                assert session.workspace(f"trainer_{i}").fetch("total") == TOTALS[epoch]
                assert manager.last_partial_load[f"trainer_{i}"].found == ("total",)
                assert manager.last_partial_load[f"trainer_{i}"].missing == ("nothing",)
    with LocalSession() as session:
        assert not JobRunner(summing_job(1, 2), multi(tmp_path)).load_blobs_from_checkpoints(
            ["total"], 5, session
        )
        assert not JobRunner(summing_job(7), multi(tmp_path)).load_blobs_from_checkpoints(
            ["total"], 4, session
        )


class CopyingBuilder(UploadTaskGroupBuilder):
    def __init__(self, target):
        self.target = target

    def build(self, epoch, checkpoint_manager):
        with TaskGroup() as group:
            for node in checkpoint_manager.history().get(epoch).nodes:
                source = checkpoint_manager.get_ckpt_db_path(node, epoch)
                Task(step=self.copier(source, self.target / node), node=node)
        return group

    @staticmethod
    def copier(source, target):
        def copy(workspace):
            shutil.copy(source, target)

        return copy


def test_upload_after_the_last_epoch(tmp_path):
    target = tmp_path / "upload"
    target.mkdir()
    runner = JobRunner(
        summing_job(0, 1, 2), multi(tmp_path / "run"), upload_task_group_builder=CopyingBuilder(target)
    )
    assert list(target.iterdir()) == []
    with LocalSession() as session:
        assert runner.train(session) == 4
    assert sorted(path.name for path in target.iterdir()) == ["trainer_0", "trainer_1", "trainer_2"]


def test_saves_that_fail_under_the_warning_policy(tmp_path):
    (tmp_path / "file").write_text("no directory can be made below a file")
    runner = JobRunner(
        summing_job(0, 1, 2), multi(tmp_path / "file" / "run"), on_save_failure=SaveFailurePolicy.warn()
    )
    with (
        LocalSession() as session,
        pytest.warns(CheckpointWarning, match=r"could not be saved|cannot be written"),
    ):
        assert runner.train(session) == 4
    assert [save.status for save in runner.result.saves] == ["failed"] * 5
    assert runner.result.status == "completed"


@pytest.mark.parametrize(
    "policy", [None, SaveFailurePolicy.raise_at_once(), SaveFailurePolicy.raise_after(2)]
)
def test_a_directory_that_cannot_be_written_ends_the_run_before_any_epoch(tmp_path, policy):
    (tmp_path / "file").write_text("")
    runner = JobRunner(summing_job(0), multi(tmp_path / "file" / "run"), on_save_failure=policy)
    with LocalSession() as session, pytest.raises(OSError, match="expected a writable run directory"):
        runner.train(session)
    assert runner.result.epochs == []
    assert runner.result.status == "failed"


def test_nets_of_ops_train_and_download_without_a_manager():
    with Job() as job:
        with job.init_group, Task():
            for name in ("input1", "input2", "output", "download"):
                ops.ConstantFill([], [name], shape=[8], value=1.0)
        with Task():
            ops.Add(["input1", "input2"], ["output"])
        with job.download_group, Task():
            ops.Copy(["output"], ["download"])
        epoch_limiter(job, 1)
    with LocalSession() as session:
        assert JobRunner(job).train(session) == 1
        for name in ("output", "download"):
            np.testing.assert_array_equal(session.workspace().fetch(name), np.full(8, 2.0))


def test_one_session_and_one_manager_serve_many_runs(tmp_path):
    job, manager = summing_job(0).compile(LocalSession), multi(tmp_path)
    with LocalSession() as session:
        assert JobRunner(job, manager).train(session) == 4
        for k in range(1, 5):
            assert JobRunner(job, manager, resume_from_epoch=k).train(session) == 4
            assert total(session, "trainer_0") == TOTALS[4]
        assert session.workspace("trainer_0").blob_names() == ["val", "cursor", "total"]


def test_a_stop_condition_may_be_a_blob_that_a_sibling_task_writes():
    with Job() as job, Node("trainer"):

        @job.init_group.task
        def init(ws):
            ws.feed("n", 0)

        @job.epoch_group.task
        def work(ws):
            ws.feed("n", int(ws.fetch("n")) + 1)
            ws.feed("enough", int(ws.fetch("n")) >= 3)

        job.add_stop_condition(BlobReference("enough"))
    with LocalSession() as session:
        assert JobRunner(job).train(session) == 3
