"""What a checkpoint of a run holds, and what resuming gives back."""

from __future__ import annotations

import numpy as np
import pytest

import jobcore
from jobcore import Job, JobRunner, LocalSession, MultiNodeCheckpointManager, NameScope, epoch_limiter
from jobcore.errors import MismatchError, TaskGroupError
from jobs import counting_job, run


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
