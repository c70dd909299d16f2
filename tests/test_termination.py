"""SIGTERM and SIGHUP interrupt a run in order where that was asked for, and nothing else changes."""

from __future__ import annotations

import os
import signal
import threading

import pytest

from jobcore import (
    Job,
    JobRunner,
    LocalSession,
    MultiNodeCheckpointManager,
    Task,
    TaskGroup,
    epoch_limiter,
    ops,
)
from jobcore.runtime import terminable
from session_tools import hang

pytestmark = pytest.mark.usefixtures("quiet_threads")


@pytest.fixture(autouse=True)
def default_handlers():
    numbers = (signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, signal.SIG_DFL) for number in numbers]
    yield
    for number, handler in zip(numbers, before, strict=True):
        signal.signal(number, handler)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
@pytest.mark.parametrize("width", [1, 2])
def test_the_run_ends_as_interrupted_and_its_exit_blocks_run(session, number, width):
    log = []
    with TaskGroup() as group:
        for task in range(width):
            with Task(name=f"t{task}"):
                for kind in ("task_exit", "local_exit"):
                    with getattr(ops, kind)():
                        ops.Python(lambda inputs, outputs, kind=kind: log.append(kind))()
                ops.net(hang if task else lambda ws: (os.kill(os.getpid(), number), hang(ws)))
    with pytest.raises(SystemExit) as caught, terminable():
        session.run(group)
    assert caught.value.code == 128 + number
    # A task that had not begun yet when the signal came has nothing to leave.
    assert log.count("local_exit") == width
    assert 1 <= log.count("task_exit") <= width
    assert signal.getsignal(number) is signal.SIG_DFL


def test_handlers_of_others_and_ignored_signals_are_left_alone():
    seen = []
    signal.signal(signal.SIGTERM, lambda number, frame: seen.append(number))
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with terminable():
        os.kill(os.getpid(), signal.SIGHUP)
        os.kill(os.getpid(), signal.SIGTERM)
    assert seen == [signal.SIGTERM]


def test_a_handler_set_inside_stays_and_blocks_nest():
    with terminable(), terminable():
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    assert signal.getsignal(signal.SIGTERM) is signal.SIG_IGN
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL


def test_in_another_thread_it_does_nothing():
    handlers = []

    def work():
        with terminable():
            handlers.append(signal.getsignal(signal.SIGTERM))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert handlers == [signal.SIG_DFL]


def test_an_epoch_that_is_hung_up_on_is_interrupted_and_not_saved(session, tmp_path):
    job = Job()
    job.init_group.task(lambda ws: ws.feed("x", 0))

    @job.epoch_group.task
    def epoch(ws):
        ws.feed("x", ws.fetch("x") + 1)
        if ws.fetch("x") == 2:
            os.kill(os.getpid(), signal.SIGHUP)
            hang(ws)

    epoch_limiter(job, 5)
    manager = MultiNodeCheckpointManager(str(tmp_path / "run"))
    runner = JobRunner(job, manager)
    with pytest.raises(SystemExit), terminable():
        runner.train(session)
    assert runner.result.status == "interrupted"
    # Epoch 1 is whole; a new run goes on from there.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)
    seen = []
    job = Job()
    job.init_group.task(lambda ws: ws.feed("x", 0))
    job.epoch_group.task(lambda ws: seen.append(int(ws.fetch("x"))))
    epoch_limiter(job, 2)
    with LocalSession() as other:
        assert JobRunner(job, MultiNodeCheckpointManager(str(tmp_path / "run")), "latest").train(other) == 2
    assert seen == [1]
