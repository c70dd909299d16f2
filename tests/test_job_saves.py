"""What comes of saves: the metadata handler, failures, and the policy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import jobcore
from jobcore import (
    CheckpointManager,
    CheckpointWarning,
    Job,
    JobRunner,
    LocalSession,
    MetadataHandler,
    MultiNodeCheckpointManager,
    Node,
    SaveFailurePolicy,
    epoch_limiter,
)
from jobcore.errors import SupersededError, TaskGroupError
from jobs import counting_job, run


class TestHandler:
    class Recorder(MetadataHandler):
        def __init__(self):
            self.calls = []

        def set_params(self, **kwargs):
            self.calls.append(("set_params", kwargs["node_names"]))

        def last_epoch(self, *, user_epoch):
            self.calls.append(("last_epoch", user_epoch))
            return user_epoch

        def cp_accessible(self, epoch):
            self.calls.append(("cp_accessible", epoch))
            return True

        def write(self, *, epoch):
            self.calls.append(("write", epoch))

        def report(self, action, stats):
            self.calls.append(
                ("report", action, sorted(Path(p).name for p in stats), min(stats.values()) > 0)
            )

    def test_the_protocol_of_a_fresh_and_a_resumed_run(self, tmp_path):
        fresh = self.Recorder()
        with LocalSession() as session:
            JobRunner(counting_job(2), MultiNodeCheckpointManager(tmp_path, "zarr.zip", fresh)).train(session)

        def saved(epoch, generation):
            return [
                ("cp_accessible", epoch),
                ("write", epoch),
                ("report", "checkpoint_save", [f"local.{epoch}.{generation}.zarr.zip"], True),
            ]

        start = [("set_params", ["local"]), ("last_epoch", None)]
        assert fresh.calls == start + saved(0, 1) + saved(1, 1) + saved(2, 1)
        again = self.Recorder()
        with LocalSession() as session:
            manager = MultiNodeCheckpointManager(tmp_path, "zarr.zip", again)
            JobRunner(counting_job(3), manager, resume_from_epoch=1).train(session)
        loaded = [("report", "checkpoint_load", ["local.1.1.zarr.zip"], True)]
        start = [("set_params", ["local"]), ("last_epoch", 1)]
        assert again.calls == start + loaded + saved(2, 2) + saved(3, 2)

    def test_its_answer_wins_over_the_users(self, tmp_path):
        run(counting_job(4), tmp_path)

        class Third(MetadataHandler):
            def last_epoch(self, *, user_epoch):
                return 3

        manager = CheckpointManager(tmp_path, "local", "zarr.zip", Third())
        runner = JobRunner(counting_job(5), manager, resume_from_epoch=1)
        with LocalSession() as session:
            assert runner.train(session) == 5
        assert runner.resume_from_epoch == 3
        assert [e.epoch for e in runner.result.epochs] == [4, 5]

    def test_a_save_that_it_forbids_is_skipped_and_says_so(self, tmp_path):
        class Odd(MetadataHandler):
            def cp_accessible(self, epoch):
                return epoch % 2 == 1

        runner = JobRunner(counting_job(3), MultiNodeCheckpointManager(tmp_path, "zarr.zip", Odd()))
        with (
            LocalSession() as session,
            pytest.warns(CheckpointWarning, match=r"was not saved: the metadata handler"),
        ):
            runner.train(session)
        assert [s.status for s in runner.result.saves] == ["skipped", "saved", "skipped", "saved"]
        assert MultiNodeCheckpointManager(tmp_path).history().epochs == (1, 3)

    @pytest.mark.parametrize("method", ["write", "report"])
    def test_its_failure_is_not_the_checkpoints(self, tmp_path, method):
        class Broken(MetadataHandler):
            def write(self, *, epoch):
                if method == "write":
                    raise OSError("no metadata service")

            def report(self, action, stats):
                if method == "report":
                    raise KeyError("no statistics")

        runner = JobRunner(counting_job(2), MultiNodeCheckpointManager(tmp_path, "zarr.zip", Broken()))
        with (
            LocalSession() as session,
            pytest.warns(CheckpointWarning, match="is saved, but the metadata handler"),
        ):
            runner.train(session)
        assert [(s.status, s.stage) for s in runner.result.saves] == [("saved", "handler")] * 3
        assert MultiNodeCheckpointManager(tmp_path).history().epochs == (0, 1, 2)


class TestSaveFailures:
    @pytest.fixture
    def failing(self, monkeypatch):
        """Make the saves of chosen epochs fail as a full disk does."""
        from jobcore.checkpoint import saves

        real, bad = saves.begin_database, set()

        def begin_database(path, *args, **kwargs):
            if kwargs["epoch"] in bad:
                raise jobcore.errors.SaveError(f"no space left for {path}")
            return real(path, *args, **kwargs)

        monkeypatch.setattr(saves, "begin_database", begin_database)
        return bad

    def test_one_failure_is_a_warning_and_the_run_goes_on(self, tmp_path, failing):
        failing.add(2)
        runner = JobRunner(counting_job(4), MultiNodeCheckpointManager(tmp_path))
        with (
            LocalSession() as session,
            pytest.warns(CheckpointWarning, match=r"epoch 2 could not be saved \(write\)"),
        ):
            assert runner.train(session) == 4
        assert [s.epoch for s in runner.result.failed_saves] == [2]
        assert MultiNodeCheckpointManager(tmp_path).history().epochs == (0, 1, 3, 4)

    def test_a_failed_first_save_is_in_the_result_also_when_it_ends_the_run(self, tmp_path, failing):
        failing.add(0)
        policy = SaveFailurePolicy.raise_at_once()
        runner = JobRunner(counting_job(4), MultiNodeCheckpointManager(tmp_path), on_save_failure=policy)
        with LocalSession() as session, pytest.warns(CheckpointWarning), pytest.raises(TaskGroupError):
            runner.train(session)
        assert [save.epoch for save in runner.result.failed_saves] == [0]
        assert runner.result.epochs == []

    def test_failures_in_a_row_end_the_run(self, tmp_path, failing):
        failing.update({2, 3, 4})
        runner = JobRunner(counting_job(9), MultiNodeCheckpointManager(tmp_path))
        with (
            LocalSession() as session,
            pytest.warns(CheckpointWarning),
            pytest.raises(TaskGroupError, match="no space left"),
        ):
            runner.train(session)
        assert runner.result.last_epoch == 4
        assert MultiNodeCheckpointManager(tmp_path).history().epochs == (0, 1)

    def test_a_run_never_ends_well_without_its_last_epoch_on_disk(self, tmp_path, failing):
        failing.add(3)
        runner = JobRunner(counting_job(3), MultiNodeCheckpointManager(tmp_path))
        with LocalSession() as session, pytest.warns(CheckpointWarning), pytest.raises(TaskGroupError):
            runner.train(session)
        assert runner.result.status == "failed"

    def test_a_failed_node_takes_back_what_the_others_wrote(self, tmp_path, monkeypatch):
        from jobcore.checkpoint import saves

        real = saves.begin_database

        def begin_database(path, *args, **kwargs):
            if kwargs["node"] == "b" and kwargs["epoch"] == 1:
                raise jobcore.errors.SaveError("disk of b is gone")
            return real(path, *args, **kwargs)

        monkeypatch.setattr(saves, "begin_database", begin_database)
        with Job() as job:
            for node in "ab":
                with Node(node):

                    @job.init_group.task
                    def init(ws):
                        ws.feed("x", 1)

            epoch_limiter(job, 2)
        runner = JobRunner(job, MultiNodeCheckpointManager(tmp_path))
        with LocalSession() as session, pytest.warns(CheckpointWarning):
            runner.train(session)
        names = {path.name for path in tmp_path.iterdir()}
        assert {"a.0.1.zarr.zip", "b.0.1.zarr.zip", "a.2.1.zarr.zip", "b.2.1.zarr.zip"} <= names
        assert not [name for name in names if ".1.1.zarr" in name]

    def test_an_error_of_the_program_is_raised_at_once_and_by_name(self, tmp_path):
        with Job() as job:

            @job.init_group.task
            def init(ws):
                ws.feed("fine", 1)
                ws.feed("words", np.array(["a", "b"], dtype=np.dtypes.StringDType()))

            epoch_limiter(job, 1)
        runner = JobRunner(
            job, MultiNodeCheckpointManager(tmp_path), on_save_failure=SaveFailurePolicy.warn()
        )
        with LocalSession() as session, pytest.raises(TaskGroupError, match="words"):
            runner.train(session)
        assert runner.result.epochs == []

    def test_a_run_that_was_taken_over_stops(self, tmp_path):
        with Job() as job:

            @job.init_group.task
            def init(ws):
                ws.feed("n", 0)

            @job.epoch_group.task
            def work(ws):
                ws.feed("n", int(ws.fetch("n")) + 1)
                if int(ws.fetch("n")) == 3:
                    other = MultiNodeCheckpointManager(tmp_path)
                    other.init(["local"], retrieve_from_epoch=1)
                    other.begin()

            epoch_limiter(job, 5)
        with pytest.raises(SupersededError, match="another process has resumed this run"):
            run(job, tmp_path, on_save_failure=SaveFailurePolicy.warn())
        assert MultiNodeCheckpointManager(tmp_path).history().epochs == (0, 1)

    def test_policies(self):
        warn, once, after = (
            SaveFailurePolicy.warn(),
            SaveFailurePolicy.raise_at_once(),
            SaveFailurePolicy.raise_after(3),
        )
        assert [warn.ends_run(n) for n in (1, 99)] == [False, False]
        assert not warn.ends_run(1, last=True)
        assert once.ends_run(1)
        assert not once.ends_run(0, last=True)
        assert [after.ends_run(n) for n in (1, 2, 3)] == [False, False, True]
        assert after.ends_run(1, last=True)
        with pytest.raises(ValueError, match="at least 1"):
            SaveFailurePolicy.raise_after(0)
