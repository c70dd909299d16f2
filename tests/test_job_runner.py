"""The lifecycle of a run: order, resuming, stop conditions, handlers, policies, results."""

from __future__ import annotations

import gc
import json
import os
import pathlib
import threading
import tracemalloc
from collections import Counter
from pathlib import Path

import numpy as np
import psutil
import pytest

import jobcore
from jobcore import (
    BlobReference,
    CheckpointManager,
    CheckpointWarning,
    Job,
    JobRunner,
    LocalSession,
    MetadataHandler,
    MultiNodeCheckpointManager,
    NameScope,
    Node,
    RunEvent,
    SaveFailurePolicy,
    epoch_limiter,
)
from jobcore.checkpoint.sealed import seal
from jobcore.errors import (
    BlobValueError,
    BuildError,
    CheckpointNotFoundError,
    MismatchError,
    NotRunError,
    SupersededError,
    TaskGroupError,
    VersionError,
)
from jobs import counting_job


def run(job, prefix=None, resume=None, session=None, **kwargs):
    manager = None if prefix is None else MultiNodeCheckpointManager(prefix)
    runner = JobRunner(job, manager, resume_from_epoch=resume, **kwargs)
    if session is not None:
        runner.train(session)
        return runner
    with LocalSession() as own:
        runner.train(own)
    return runner


class TestOrder:
    def test_a_fresh_run(self, tmp_path):
        trace: list[str] = []
        runner = run(counting_job(2, trace), tmp_path)
        assert trace == ["setup", "init", "epoch 1", "epoch 2", "download", "exit"]
        assert [save.epoch for save in runner.result.saves] == [0, 1, 2]
        assert runner.result.status == "completed"
        assert runner.result.last_epoch == 2

    def test_a_resumed_run_sets_up_and_loads_but_does_not_init(self, tmp_path):
        run(counting_job(2), tmp_path)
        trace: list[str] = []
        runner = run(counting_job(4, trace), tmp_path, "latest")
        assert trace == ["setup", "epoch 3", "epoch 4", "download", "exit"]
        assert runner.result.resumed_from == 2

    @pytest.mark.parametrize("resume", ["latest", 3])
    def test_resuming_a_finished_run_runs_no_epoch_and_ends_as_specified(self, tmp_path, resume):
        run(counting_job(3), tmp_path)
        before = sorted(path.name for path in tmp_path.iterdir())
        trace: list[str] = []
        runner = run(counting_job(3, trace), tmp_path, resume)
        assert trace == ["setup", "download", "exit"]
        assert runner.result.last_epoch == 3
        assert sorted(path.name for path in tmp_path.iterdir()) == before

    def test_a_start_from_scratch_over_a_run_says_what_it_supersedes(self, tmp_path):
        run(counting_job(2), tmp_path)
        with pytest.warns(CheckpointWarning, match=r"scratch: 3 epochs in .*, up to epoch 2, will no longer"):
            run(counting_job(1), tmp_path)
        assert MultiNodeCheckpointManager(tmp_path).history().epochs == (0, 1)

    @pytest.mark.parametrize("name", ["epoch.2.1.json", "generation.1.json"])
    def test_a_run_of_a_newer_version_is_refused_and_not_superseded(self, tmp_path, name):
        run(counting_job(2), tmp_path)
        body = json.loads((tmp_path / name).read_bytes())["record"]
        (tmp_path / name).write_bytes(seal({**body, "format": 2}))
        before = sorted(tmp_path.iterdir())
        for resume in ("latest", 1, None):
            with pytest.raises(VersionError, match="expected record format 1, found 2"):
                run(counting_job(4), tmp_path, resume)
        assert sorted(tmp_path.iterdir()) == before

    def test_latest_without_any_checkpoint_starts_from_scratch(self, tmp_path):
        trace: list[str] = []
        run(counting_job(1, trace), tmp_path / "new", "latest")
        assert trace[:2] == ["setup", "init"]

    def test_a_failed_epoch_is_run_again_from_the_end_of_the_one_before(self, tmp_path):
        def build(fail_at):
            with Job() as job:

                @job.init_group.task
                def init(ws):
                    ws.feed("sum", 0)

                @job.epoch_group.task
                def work(ws):
                    ws.feed("sum", int(ws.fetch("sum")) + 1)
                    if int(ws.fetch("sum")) == fail_at:
                        raise RuntimeError("power cut")

                epoch_limiter(job, 5)
            return job

        with pytest.raises(TaskGroupError, match="power cut"):
            run(build(4), tmp_path)
        with LocalSession() as session:
            runner = run(build(None), tmp_path, "latest", session)
            assert session.workspace().fetch("sum") == 5
        assert [e.epoch for e in runner.result.epochs] == [4, 5]

    def test_resuming_from_an_older_epoch_supersedes_the_later_ones(self, tmp_path):
        run(counting_job(4), tmp_path)
        run(counting_job(3), tmp_path, 2)
        manager = MultiNodeCheckpointManager(tmp_path)
        assert manager.history().epochs == (0, 1, 2, 3)
        assert [r.generation for r in manager.history().records] == [1, 1, 1, 2]
        with pytest.raises(CheckpointNotFoundError, match=r"expected a complete epoch 4 .* superseded"):
            run(counting_job(9), tmp_path, 4)

    def test_without_a_manager_there_is_nothing_to_resume_from(self):
        with pytest.raises(ValueError, match="expected a checkpoint manager to resume from 7"):
            JobRunner(counting_job(1), resume_from_epoch=7)

    @pytest.mark.parametrize("bad", [-1, 1.5, True, "newest"])
    def test_a_bad_resume_epoch_is_refused(self, tmp_path, bad):
        with pytest.raises(ValueError, match="expected resume_from_epoch to be"):
            JobRunner(counting_job(1), MultiNodeCheckpointManager(tmp_path), resume_from_epoch=bad)


class TestStopConditions:
    def test_a_job_that_would_never_end_is_refused_before_anything_runs(self):
        trace: list[str] = []
        job = counting_job(1, trace)
        job.stop_conditions.clear()
        with pytest.raises(BuildError, match="expected a job with a stop condition, found none"):
            run(job)
        assert trace == []

    @pytest.mark.parametrize("bad", [0, -3, 1.5, True, "3"])
    def test_a_limit_that_is_no_positive_integer_is_refused(self, bad):
        with Job() as job, pytest.raises(BuildError, match="expected num_epochs"):
            epoch_limiter(job, bad)

    def test_a_limit_counts_epochs_before_a_resume(self, tmp_path):
        run(counting_job(2), tmp_path)
        assert [e.epoch for e in run(counting_job(5), tmp_path, "latest").result.epochs] == [3, 4, 5]
        assert run(counting_job(np.int64(4)), tmp_path, "latest").result.epochs == []

    def test_a_vector_is_no_stop_condition(self):
        with Job() as job:

            @job.epoch_group.task(outputs=["flags"])
            def work(ws):
                ws.feed("flags", np.array([True, False]))

            job.add_stop_condition(work.outputs()[0])
        with pytest.raises(BlobValueError, match=r"single boolean .*'flags', found shape \(2,\)"):
            run(job)

    def test_an_output_that_never_gets_a_value_ends_the_run_instead_of_never_stopping_it(self):
        with Job() as job:

            @job.epoch_group.task(outputs=["stop"])
            def work(ws):
                pass

            job.add_stop_condition(work.outputs()[0])
        with pytest.raises(BlobValueError, match="stop condition 'stop', found no value"):
            run(job)

    def test_the_name_of_a_blob_will_do(self):
        with Job() as job:

            @job.epoch_group.task
            def work(ws):
                ws.feed("enough", True)

            job.add_stop_condition("enough")
        assert run(job).result.last_epoch == 1

    def test_other_things_are_refused(self):
        with pytest.raises(
            BuildError, match="expected a BlobReference or a TaskOutput as stop condition, found int"
        ):
            Job().add_stop_condition(3)  # type: ignore[arg-type]

    def test_a_stored_stop_is_honoured_only_by_the_condition_that_made_it(self, tmp_path):
        def build(name):
            with Job() as job:

                @job.init_group.task
                def init(ws):
                    ws.feed("n", 0)

                @job.epoch_group.task(outputs=[name])
                def work(ws):
                    ws.feed("n", int(ws.fetch("n")) + 1)
                    ws.feed(name, int(ws.fetch("n")) >= 2)

                job.add_stop_condition(work.outputs()[0])
            return job

        assert len(run(build("converged"), tmp_path).result.epochs) == 2
        assert run(build("converged"), tmp_path, "latest").result.epochs == []
        assert len(run(build("other"), tmp_path, "latest").result.epochs) == 1


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
        from jobcore.checkpoint import steps

        real, bad = steps.write_database, set()

        def write_database(path, *args, **kwargs):
            if kwargs["epoch"] in bad:
                raise jobcore.errors.SaveError(f"no space left for {path}")
            return real(path, *args, **kwargs)

        monkeypatch.setattr(steps, "write_database", write_database)
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
        from jobcore.checkpoint import steps

        real = steps.write_database

        def write_database(path, *args, **kwargs):
            if kwargs["node"] == "b" and kwargs["epoch"] == 1:
                raise jobcore.errors.SaveError("disk of b is gone")
            return real(path, *args, **kwargs)

        monkeypatch.setattr(steps, "write_database", write_database)
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


class TestContents:
    def test_transient_blobs_timers_and_excluded_names_are_left_out_and_listed(self, tmp_path):
        with Job() as job:

            @job.init_group.task
            def init(ws):
                ws.feed("kept", 1)
                ws.feed("scratch", 2)
                ws.feed("handle", object(), transient=True)
                ws.feed("timer", jobcore.Timer("t"))

            epoch_limiter(job, 1)
        manager = MultiNodeCheckpointManager(tmp_path, exclude={"scratch"})
        runner = JobRunner(job, manager)
        with LocalSession() as session:
            runner.train(session)
        info = jobcore.inspect(manager.get_ckpt_db_path("local", 1))
        assert [blob.name for blob in info.blobs] == ["kept"]
        assert sorted(name for name, _ in runner.result.epochs[0].save.skipped_blobs["local"]) == [
            "handle",
            "scratch",
            "timer",
        ]

    def test_blobs_made_after_the_start_are_saved_and_restored(self, tmp_path):
        def build(epochs):
            with Job() as job:

                @job.init_group.task
                def init(ws):
                    ws.feed("n", 0)

                @job.epoch_group.task
                def work(ws):
                    ws.feed("n", int(ws.fetch("n")) + 1)

                work_global = jobcore.Task(
                    step=lambda ws: ws.feed(f"late/{int(ws.fetch('n'))}", 1),
                    group=job.download_group,
                    workspace_type=jobcore.WorkspaceType.GLOBAL,
                )
                assert work_global is not None
                epoch_limiter(job, epochs)
            return job

        with LocalSession() as session:
            run(build(1), tmp_path, None, session)
            runner = run(build(2), tmp_path, "latest", session)
        assert runner.result.last_epoch == 2
        with LocalSession() as session:
            run(build(2), tmp_path, "latest", session)
            assert set(session.workspace().blob_names()) >= {"n", "late/1", "late/2"}

    def test_a_bound_array_is_filled_in_place_on_resume(self, tmp_path):
        def build(array, epochs):
            with Job() as job:

                @job.setup_group.task
                def setup(ws):
                    ws.bind("weights", array)

                @job.init_group.task
                def init(ws):
                    ws.feed("weights", np.arange(6.0).reshape(2, 3))

                @job.epoch_group.task
                def work(ws):
                    array[...] += 1

                epoch_limiter(job, epochs)
            return job

        run(build(np.zeros((2, 3)), 2), tmp_path)
        array = np.zeros((2, 3))
        run(build(array, 3), tmp_path, "latest")
        np.testing.assert_array_equal(array, np.arange(6.0).reshape(2, 3) + 3)
        with pytest.raises(TaskGroupError, match="weights"):
            run(build(np.zeros((3, 3)), 3), tmp_path, "latest")

    def test_names_do_not_depend_on_what_was_built_before_nor_on_the_scope_of_the_caller(self, tmp_path):
        run(counting_job(1), tmp_path / "a")
        counting_job(3)
        with NameScope("elsewhere"):
            run(counting_job(1), tmp_path / "b")
            run(counting_job(2), tmp_path / "b", "latest")
        names = [
            [blob.name for blob in jobcore.inspect(tmp_path / f"{run}/local.1.1.zarr.zip").blobs]
            for run in "ab"
        ]
        assert names == [["count"], ["count"]]

    def test_counters_strings_state_and_generators_are_restored(self, tmp_path):
        drawn: list[float] = []

        def build(epochs):
            with Job() as job:

                @job.init_group.task
                def init(ws):
                    ws.counter("steps", 5)
                    ws.feed("name", "größe")
                    ws.feed("raw", b"\x00\xff")
                    ws.feed("config", {"rate": 0.1, "sizes": [1, 2], "none": None})
                    ws.feed("rng", np.random.default_rng(3))

                @job.epoch_group.task
                def work(ws):
                    ws.fetch("steps").count_down()
                    drawn.append(ws.fetch("rng").random())

                epoch_limiter(job, epochs)
            return job

        run(build(4), tmp_path / "whole")
        whole, drawn[:] = list(drawn), []
        for epochs in (1, 3, 4):
            with LocalSession() as session:
                run(build(epochs), tmp_path / "parts", "latest", session)
                ws = session.workspace()
                assert ws.fetch("steps").retrieve() == 5 - epochs
                assert (ws.fetch("name"), ws.fetch("raw")) == ("größe", b"\x00\xff")
                assert ws.fetch("config") == {"rate": 0.1, "sizes": [1, 2], "none": None}
        assert drawn == whole

    def test_a_workspace_without_any_blob_is_saved_and_resumed(self, tmp_path):
        def build(epochs):
            with Job(nodes_to_checkpoint=["local"]) as job:
                epoch_limiter(job, epochs)
            return job

        run(build(1), tmp_path)
        assert [e.epoch for e in run(build(2), tmp_path, "latest").result.epochs] == [2]

    def test_a_job_on_other_nodes_is_not_resumed(self, tmp_path):
        run(counting_job(1), tmp_path)
        with Job(nodes_to_checkpoint=["local", "more"]) as job:
            epoch_limiter(job, 2)
        with pytest.raises(MismatchError, match=r"to hold the nodes \['local', 'more'\], found \['local'\]"):
            run(job, tmp_path, "latest")


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


class TestJob:
    def test_compiling_is_repeatable_and_may_happen_inside_the_block(self):
        trace: list[str] = []
        with Job() as job:
            jobcore.Task(step=lambda ws: ws.feed("n", 0), group=job.init_group)
            jobcore.Task(step=lambda ws: trace.append("epoch"), group=job.epoch_group)
            epoch_limiter(job, 1)
            first = job.compile(LocalSession)
            # What is compiled is frozen: a task added later would be in one compiled job and not in the other.
            with pytest.raises(BuildError, match="frozen by being compiled"):
                jobcore.Task(step=lambda ws: None, group=job.epoch_group)
        second = job.compile(LocalSession)
        run(first)
        run(second)
        run(job)
        assert trace == ["epoch"] * 3
        assert first.nodes_to_checkpoint() == ["local"]

    def test_nodes_are_those_of_the_init_group(self):
        with Job() as job:
            for node in ("b", "a", "b"):
                with Node(node):
                    jobcore.Task(step=lambda ws: None, group=job.init_group)
            with Node("c"):
                jobcore.Task(step=lambda ws: None, group=job.epoch_group)
        assert job.nodes_to_checkpoint() == ["b", "a"]

    def test_a_block_that_raises_leaves_no_context_behind(self):
        with pytest.raises(ZeroDivisionError), Job():
            raise ZeroDivisionError
        assert Job.current(required=False) is None
        assert jobcore.TaskGroup.current(required=False) is None

    def test_bare_tasks_land_in_the_epoch_group(self):
        with Job() as job:
            jobcore.Task(step=lambda ws: None)
            assert Job.current() is job
        assert job.epoch_group.num_registered_tasks() == 1


class TestEvents:
    def test_what_observers_are_told(self, tmp_path):
        events: list[RunEvent] = []
        run(counting_job(1), tmp_path, observers=[events.append])
        assert [(e.kind, e.group, e.epoch) for e in events] == [
            ("run_started", "", None),
            ("group_started", "setup", None),
            ("group_finished", "setup", None),
            ("group_started", "init", None),
            ("group_finished", "init", None),
            ("group_started", "save", 0),
            ("save_finished", "save", 0),
            ("epoch_started", "epoch", 1),
            ("epoch_finished", "epoch", 1),
            ("group_started", "save", 1),
            ("save_finished", "save", 1),
            ("stopped", "", 1),
            ("group_started", "download", None),
            ("group_finished", "download", None),
            ("group_started", "exit", None),
            ("group_finished", "exit", None),
            ("run_finished", "", 1),
        ]
        assert events[6].size_bytes > 0

    def test_an_observer_that_raises_is_dropped_and_the_run_goes_on(self):
        def broken(event):
            raise ValueError("no terminal")

        with pytest.warns(RuntimeWarning, match="no terminal") as caught:
            run(counting_job(2), observers=[broken])
        assert len(caught) == 1

    def test_an_interrupt_is_passed_on_and_the_result_says_so(self, tmp_path):
        with Job() as job:
            jobcore.Task(step=lambda ws: ws.feed("n", 0), group=job.init_group)

            @job.epoch_group.task
            def work(ws):
                raise KeyboardInterrupt

            epoch_limiter(job, 3)
        runner = JobRunner(job, MultiNodeCheckpointManager(tmp_path))
        with LocalSession() as session, pytest.raises(KeyboardInterrupt):
            runner.train(session)
        assert runner.result.status == "interrupted"
        assert MultiNodeCheckpointManager(tmp_path).history().epochs == (0,)


@pytest.mark.slow
@pytest.mark.parametrize("saving", [False, True])
def test_a_thousand_epochs_leak_nothing(tmp_path, saving):
    """Objects, threads, memory and open files after epoch 1,000 are those after epoch 100."""
    process, seen = psutil.Process(), {}

    def look(event: RunEvent) -> None:
        if event.kind == "epoch_started" and event.epoch in (100, 1000):
            gc.collect()
            kinds = Counter(type(o).__name__ for o in gc.get_objects())
            # Paths intern their parts: the interpreter's table of such strings, one block, is made anew now and then.
            snapshot = tracemalloc.take_snapshot().filter_traces(
                [tracemalloc.Filter(False, pathlib.__file__)]
            )
            memory = sum(trace.size for trace in snapshot.traces)
            seen[event.epoch] = (kinds, memory, threading.active_count(), process.num_fds())

    tracemalloc.start()
    try:
        runner = run(counting_job(1000, Discard()), tmp_path if saving else None, observers=[look])
    finally:
        tracemalloc.stop()
    assert runner.result.last_epoch == 1000
    (kinds, memory, threads, files), (kinds_after, memory_after, threads_after, files_after) = seen.values()
    # The result keeps a line per epoch, with its save; nothing else may grow.
    growth = {name: n - kinds[name] for name, n in kinds_after.items() if n - kinds[name] > 50}
    assert set(growth) <= {"EpochResult", "SaveResult", "dict", "tuple"}, growth
    assert max(growth.values(), default=0) <= 2 * 900 + 50
    assert memory_after - memory < 900 * 1200
    assert (threads_after, files_after) == (threads, files)


class Discard(list):
    def append(self, item):
        pass


def test_a_blob_reference_as_stop_condition_is_absolute():
    with Job() as job, NameScope("scope"):
        job.add_stop_condition(BlobReference("done"))
    assert job.stop_conditions[0].name == "done"
