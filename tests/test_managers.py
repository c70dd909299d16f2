"""Checkpoint managers, used by hand."""

from __future__ import annotations

import os

import numpy as np
import pytest

import jobcore
from jobcore import CheckpointManager, Job, JobRunner, LocalSession, MultiNodeCheckpointManager
from jobcore.errors import BuildError, NotRunError
from jobs import counting_job


class TestManagers:
    def test_nodes_are_checked_early(self, tmp_path):
        with pytest.raises(BuildError, match="expected at least one node"):
            MultiNodeCheckpointManager(tmp_path).init([])
        with pytest.raises(BuildError, match="expected the one node 'a', found"):
            CheckpointManager(tmp_path, "a").init(["a", "b"])
        with pytest.raises(BuildError, match="more than once"):
            MultiNodeCheckpointManager(tmp_path).init(["a", "a"])
        with pytest.raises(ValueError, match="expected db_type to be one of"):
            MultiNodeCheckpointManager(tmp_path, "minidb")

    @pytest.mark.parametrize("method", ["save", "begin", "discard"])
    def test_saving_needs_init(self, tmp_path, method):
        manager = CheckpointManager(tmp_path)
        with pytest.raises(NotRunError, match=rf"expected init\(\) before CheckpointManager.{method}"):
            getattr(manager, method)(*([] if method == "begin" else [1]))

    def test_both_offer_the_same_methods(self):
        def public(kind):
            return {name for name in dir(kind) if not name.startswith("_")}

        assert public(CheckpointManager) == public(MultiNodeCheckpointManager)

    @pytest.mark.parametrize("make", [CheckpointManager, lambda p: MultiNodeCheckpointManager(p)])
    def test_by_hand(self, tmp_path, make):
        manager = make(tmp_path)
        with LocalSession() as session:
            session.workspace().feed("x", np.arange(3))
            session.run(manager.init(["local"]))
            assert manager.blob_list() == ["x"]
            assert manager.epoch_state(1) == "absent"
            session.run(manager.save(1))
            assert manager.epoch_state(1) == "incomplete"
            assert manager.history().epochs == ()
            with pytest.raises(NotRunError):
                manager.commit(2)
            manager.commit(1)
            assert manager.epoch_state(1) == "complete"
            for epoch, there in ((1, True), (2, False)):
                runnable = manager.check_db_exists(epoch)
                session.run(runnable)
                tasks = runnable.tasks() if isinstance(runnable, jobcore.TaskGroup) else [runnable]
                assert [bool(task.outputs()[0].fetch()) for task in tasks] == [there]
            stats: dict[str, int] = {}
            session.workspace().feed("x", np.zeros(3, int))
            session.run(manager.load(1))
            manager.collect_checkpoint_stats(stats)
            assert list(stats) == [str(tmp_path / "local.1.1.zarr.zip")]
            np.testing.assert_array_equal(session.workspace().fetch("x"), np.arange(3))
            assert session.workspace().blob_names() == ["x"]

    def test_their_tasks_do_not_land_in_the_group_that_is_being_built(self, tmp_path):
        manager = CheckpointManager(tmp_path)
        with Job() as job:
            manager.init(["local"])
            job.compile(LocalSession)
            assert job.epoch_group.num_registered_tasks() == 0

    def test_path_prefix_is_used_for_saving_and_loading(self, tmp_path):
        manager = MultiNodeCheckpointManager(tmp_path / "a")
        manager.set_params(["local"], path_prefix=tmp_path / "b")
        with LocalSession() as session:
            JobRunner(counting_job(1), manager).train(session)
        assert not (tmp_path / "a").exists()
        assert (tmp_path / "b" / "local.1.1.zarr.zip").exists()
        assert jobcore.db_name(1, "n", "p", "/q") == "/q/n.1"
        other = MultiNodeCheckpointManager(tmp_path / "a")
        other.set_params(["local"])
        with LocalSession() as session:
            session.run(other.load(1, path_prefix=tmp_path / "b"))
            assert session.workspace().fetch("count") == 1

    def test_saving_and_resuming_agree_on_the_directory(self, tmp_path, monkeypatch):
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.chdir(tmp_path)
        manager = MultiNodeCheckpointManager("runs/x/")
        (tmp_path / "elsewhere").mkdir()
        os.chdir("elsewhere")
        with LocalSession() as session:
            JobRunner(counting_job(1), manager).train(session)
        for prefix in ("~/runs/x", tmp_path / "runs" / "x", "../runs/x"):
            assert MultiNodeCheckpointManager(prefix).history().epochs == (0, 1)
