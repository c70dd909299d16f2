"""The lifecycle of a run: order, resuming, stop conditions, events."""

from __future__ import annotations

import gc
import json
import pathlib
import threading
import tracemalloc
from collections import Counter

import numpy as np
import psutil
import pytest

import jobcore
from jobcore import (
    CheckpointWarning,
    Job,
    JobRunner,
    LocalSession,
    MultiNodeCheckpointManager,
    RunEvent,
    epoch_limiter,
)
from jobcore.checkpoint.sealed import seal
from jobcore.errors import BlobValueError, BuildError, CheckpointNotFoundError, TaskGroupError, VersionError
from jobs import counting_job, run


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
