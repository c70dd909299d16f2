"""What a run must survive, or refuse: races for a directory, files of others, mishaps while reading, odd answers."""

from __future__ import annotations

import os
import shutil
import threading
from pathlib import Path

import numpy as np
import pytest

import jobcore
from jobcore import (
    CheckpointWarning,
    Job,
    JobRunner,
    LocalSession,
    MetadataHandler,
    MultiNodeCheckpointManager,
    Node,
    Workspace,
    epoch_limiter,
)
from jobcore.checkpoint import CommitLog, History, RunDirectory, RunResult
from jobcore.checkpoint.lineage import EpochRef
from jobcore.errors import (
    BlobValueError,
    BuildError,
    CheckpointNotFoundError,
    SupersededError,
    TaskGroupError,
)
from jobcore.store import write_database
from jobs import counting_job


def train(job: Job, prefix, resume=None, session=None, **kwargs) -> RunResult:
    runner = JobRunner(job, MultiNodeCheckpointManager(prefix), resume, **kwargs)
    with session or LocalSession() as own:
        runner.train(own)
    return runner.result


def job_that(epochs: int, work=lambda ws: None, init=lambda ws: None) -> Job:
    """A job that counts its epochs in the blob ``n`` and then does `work` in each."""
    with Job() as job:

        @job.init_group.task
        def begin(ws: Workspace) -> None:
            init(ws)
            ws.feed("n", 0)

        @job.epoch_group.task
        def count(ws: Workspace) -> None:
            ws.feed("n", int(ws.fetch("n")) + 1)
            work(ws)

        epoch_limiter(job, epochs)
    return job


def history(prefix) -> History:
    return CommitLog(RunDirectory.at(prefix, "zarr.zip")).read()


class TestTwoStarts:
    def test_one_that_comes_between_look_and_claim_is_not_superseded_unseen(self, tmp_path):
        looked, go_on = threading.Event(), threading.Event()
        failures = []

        def wait(ws):
            looked.set()
            go_on.wait()

        def slow():
            try:
                train(job_that(1, init=wait), tmp_path, "latest")
            except SupersededError as error:
                failures.append(str(error))

        thread = threading.Thread(target=slow)
        thread.start()
        looked.wait()
        train(job_that(3), tmp_path, "latest")
        go_on.set()
        thread.join()
        assert "expected generation 1 to be free" in failures[0]
        assert history(tmp_path).epochs == (0, 1, 2, 3)

    def test_a_zombie_saves_nothing_into_a_directory_that_was_emptied_and_begun_anew(self, tmp_path):
        run = tmp_path / "run"

        def begin_anew(ws):
            if int(ws.fetch("n")) == 3:
                shutil.rmtree(run)
                train(job_that(2), run)

        with pytest.raises(SupersededError, match=r"found generation\.1\.json of another start"):
            train(job_that(6, begin_anew), run)
        assert history(run).epochs == (0, 1, 2)
        assert len({record.run for record in history(run).records}) == 1

    @pytest.mark.parametrize("harm", [Path.unlink, lambda path: path.write_bytes(b"?")])
    def test_a_run_goes_on_without_its_own_claim(self, tmp_path, harm):
        train(
            job_that(3, lambda ws: harm(tmp_path / "generation.1.json") if ws.fetch("n") == 2 else None),
            tmp_path,
        )
        assert history(tmp_path).epochs == (0, 1, 2, 3)

    def test_a_superseded_process_is_told_so_before_it_writes(self, tmp_path):
        def resume_elsewhere(ws):
            other = MultiNodeCheckpointManager(tmp_path)
            other.init(["local"], retrieve_from_epoch=0)
            other.begin()

        with pytest.raises(SupersededError):
            train(job_that(2, resume_elsewhere), tmp_path)
        assert not (tmp_path / "local.1.1.zarr.zip").exists()

    def test_a_forked_child_saves_nothing_of_its_parents_run(self, tmp_path, monkeypatch):
        manager = MultiNodeCheckpointManager(tmp_path)
        manager.init(["local"])
        manager.begin()
        parent = os.getpid()
        monkeypatch.setattr(os, "getpid", lambda: parent + 1)
        with pytest.raises(SupersededError, match=f"expected process {parent} to save"):
            manager.save(0)


class TestFilesOfOthers:
    def test_sweeping_leaves_what_a_later_start_is_writing(self, tmp_path):
        log = CommitLog(RunDirectory.at(tmp_path, "zarr.zip"))
        first = log.claim("run", None)
        for name in (".local.0.2.zarr.zip.7.ab.tmp", ".generation.2.json.7.ab.tmp"):
            (tmp_path / name).touch()
        assert log.sweep(first) == ()
        assert len(log.sweep(log.claim("run", EpochRef(0, 1), after=2))) == 2

    def test_nothing_that_only_bears_the_name_of_a_left_over_is_removed(self, tmp_path):
        train(job_that(2), tmp_path)
        (tmp_path / "local.1.0.zarr.zip").mkdir()
        (tmp_path / ".epoch.1.1.json.12.ab.tmp").mkdir()
        (tmp_path / "weights.3.0.zarr.zip").write_bytes(b"mine")
        (tmp_path / "local.05.1.zarr.zip").write_bytes(b"mine too")
        jobcore.save(tmp_path / "best.7.0.zarr.zip", {"w": np.ones(3)})
        write_database(tmp_path / "local.9.1.zarr.zip", {}, node="local", epoch=9, generation=1)
        before = {path.name for path in tmp_path.iterdir()}
        assert train(job_that(3), tmp_path, "latest").resumed_from == 2
        assert before - {path.name for path in tmp_path.iterdir()} == {"local.9.1.zarr.zip"}


class TestMishaps:
    """What goes wrong while resuming; of files that cannot be read now, see ``test_unreadable.py``."""

    @pytest.mark.filterwarnings("ignore::jobcore.CheckpointWarning")
    @pytest.mark.parametrize("resume", [1, "latest"])
    def test_a_load_that_fails_on_one_node_leaves_nothing_on_the_others(self, tmp_path, resume):
        with Job() as job:
            for name in "ab":
                with Node(name):

                    @job.init_group.task
                    def init(ws):
                        ws.feed("w", np.ones(3))

            epoch_limiter(job, 1)
        train(job, tmp_path)
        for path in tmp_path.glob("b.*.zarr.zip"):
            data = bytearray(path.read_bytes())
            data[200] ^= 1
            path.write_bytes(data)
        runner = JobRunner(job, MultiNodeCheckpointManager(tmp_path), resume)
        with LocalSession() as session:
            with pytest.raises((TaskGroupError, CheckpointNotFoundError)):
                runner.train(session)
            assert session.workspace("a").blob_names() == []

    def test_a_start_that_saved_nothing_does_not_hide_the_epochs_that_it_superseded(self, tmp_path):
        train(job_that(3), tmp_path)
        CommitLog(RunDirectory.at(tmp_path, "zarr.zip")).claim("another", None)
        with pytest.warns(CheckpointWarning, match="were superseded by a start from scratch that saved none"):
            train(job_that(1), tmp_path, "latest")


class TestDirectories:
    def test_a_claim_is_good_in_its_own_directory_only(self, tmp_path):
        first, second = tmp_path / "first", tmp_path / "second"
        train(job_that(1), second)
        manager = MultiNodeCheckpointManager(first)
        with LocalSession() as session:
            session.run(manager.init(["local"]))
            session.run(manager.save(0))
            assert manager.commit(0).generation == 1
            manager.set_params(["local"], path_prefix=second)
            session.run(manager.save(7))
            assert manager.commit(7).generation == 2
        # The other run's epochs do not become those of this one.
        assert history(second).epochs == (7,)

    def test_a_path_prefix_stays_where_it_was_given(self, tmp_path, monkeypatch):
        for name in ("here", "there"):
            (tmp_path / name).mkdir()
        monkeypatch.chdir(tmp_path / "here")
        manager = MultiNodeCheckpointManager("unused")
        manager.set_params(["local"], path_prefix="run")
        with LocalSession() as session:
            JobRunner(job_that(2, lambda ws: os.chdir(tmp_path / "there")), manager).train(session)
        assert history(tmp_path / "here" / "run").epochs == (0, 1, 2)
        assert list((tmp_path / "there").iterdir()) == []

    def test_files_of_another_run_do_not_become_epochs_of_this_one(self, tmp_path):
        mine, other = tmp_path / "mine", tmp_path / "other"
        train(job_that(2), mine)
        train(job_that(5), other)
        for path in other.iterdir():
            if not (mine / path.name).exists():
                shutil.copy(path, mine)
        assert history(mine).epochs == (0, 1, 2)
        assert {record.epoch for record in history(mine).superseded} == {3, 4, 5}

    @pytest.mark.parametrize("nodes", ["local", [None], [1]])
    def test_what_is_no_list_of_nodes_is_refused(self, tmp_path, nodes):
        # Each letter would be a node, and the epochs would hold nothing.
        for use in (
            lambda: Job(nodes_to_checkpoint=nodes),
            lambda: MultiNodeCheckpointManager(tmp_path).init(nodes),
            lambda: MultiNodeCheckpointManager(tmp_path).set_params(nodes),
        ):
            with pytest.raises(BuildError, match="expected a list of nodes or of their names"):
                use()

    def test_a_node_that_no_task_uses_is_refused(self):
        with Job(nodes_to_checkpoint=["local", "lokal"]) as job:
            job.init_group.task(lambda ws: ws.feed("w", 1), name="init")
        with pytest.raises(BuildError, match=r"found none on \['lokal'\]"):
            job.compile(LocalSession)


class TestAnswers:
    """What users' functions and handlers return."""

    def test_a_condition_may_answer_in_numpys_terms(self, tmp_path):
        job = job_that(9)
        job.stop_when("numpy", lambda epoch: np.float64(epoch) >= 2)
        job.stop_when("none", lambda epoch: None)
        assert train(job, tmp_path).last_epoch == 2
        assert [c["met"] for c in history(tmp_path).get(2).stop["conditions"]] == [False, True, False]

    @pytest.mark.parametrize("value", ["yes", np.nan, np.ones(2), [1, [2]], {}])
    def test_a_condition_that_is_no_boolean_is_named(self, value):
        job = job_that(2)
        job.stop_when("odd", lambda epoch: value)
        with LocalSession() as session, pytest.raises(BlobValueError, match=r"single boolean .*'odd'"):
            JobRunner(job).train(session)

    def test_a_condition_that_no_epoch_sets_is_refused(self):
        with Job() as job:

            @job.init_group.task(outputs=["done"])
            def init(ws):
                ws.feed("done", False)

            job.add_stop_condition(init.outputs()[0])
        with pytest.raises(BuildError, match="'done' to be an output of a task of the epoch group"):
            job.compile(LocalSession)

    @pytest.mark.parametrize("epoch", [1, np.int64(1), np.uint8(1)])
    def test_epochs_are_any_integers(self, tmp_path, epoch):
        train(job_that(2), tmp_path)
        assert train(job_that(3), tmp_path, epoch).resumed_from == 1

    @pytest.mark.parametrize("answer", ["1", "Latest", -1, True, 1.0])
    def test_a_handlers_bad_answer_is_named(self, tmp_path, answer):
        class Odd(MetadataHandler):
            def last_epoch(self, *, user_epoch):
                return answer

        train(job_that(2), tmp_path)
        runner = JobRunner(job_that(3), MultiNodeCheckpointManager(tmp_path, metadata_handler=Odd()))
        with LocalSession() as session, pytest.raises(BuildError, match="the metadata handler's last_epoch"):
            runner.train(session)

    @pytest.mark.parametrize("epoch", [-1, True, None, 1.0, "1"])
    def test_an_epoch_that_could_not_be_found_again_is_not_saved(self, tmp_path, epoch):
        manager = MultiNodeCheckpointManager(tmp_path)
        manager.init(["local"])
        with pytest.raises(BuildError, match="expected epoch to be an integer of at least 0"):
            manager.save(epoch)

    def test_a_handler_that_fails_to_say_whether_to_save_is_a_failed_save(self, tmp_path):
        class Broken(MetadataHandler):
            def cp_accessible(self, epoch):
                if epoch == 1:
                    raise RuntimeError("out of order")
                return True

        runner = JobRunner(counting_job(2), MultiNodeCheckpointManager(tmp_path, metadata_handler=Broken()))
        with LocalSession() as session, pytest.warns(CheckpointWarning, match="out of order"):
            assert runner.train(session) == 2
        assert [(s.status, s.stage) for s in runner.result.saves] == [
            ("saved", ""),
            ("failed", "handler"),
            ("saved", ""),
        ]

    def test_a_policy_is_checked_before_it_is_needed(self):
        with pytest.raises(BuildError, match="expected a SaveFailurePolicy as on_save_failure, found 'warn'"):
            JobRunner(counting_job(1), on_save_failure="warn")

    def test_an_interrupt_by_the_first_event_is_in_the_result(self):
        def interrupt(event):
            if event.kind == "run_started":
                raise KeyboardInterrupt

        runner = JobRunner(counting_job(1), observers=[interrupt])
        with LocalSession() as session, pytest.raises(KeyboardInterrupt):
            runner.train(session)
        assert runner.result.status == "interrupted"
