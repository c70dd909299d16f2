"""Exit blocks and last reports that wait for what never comes: the order to stop reaches them too, after a while."""

from __future__ import annotations

import _thread
import threading
import time

import pytest

import jobcore
from jobcore import LocalSession, Task, TaskGroup, ops
from jobcore.errors import ClosedError, TaskGroupError, WaitTimeoutError
from jobcore.graph import execution_step
from jobcore.runtime import grace
from session_tools import FOREVER, group_of, hang, interrupt_main

pytestmark = pytest.mark.usefixtures("quiet_threads")

BRIEF = 0.05
EXITS = ["task_exit", "task_instance_exit", "local_exit"]
REPORTS = ["task_reporter", "local_reporter"]


def call(function, *arguments):
    ops.Python(lambda inputs, outputs: function(*arguments))()


def block(kind):
    return getattr(ops, kind)(FOREVER * 1000) if kind in REPORTS else getattr(ops, kind)()


def add_to_full_queue():
    ops.EnqueueBlobs(["full", "x"], ["x"])


def run_for_ever():
    with ops.loop(2**62):
        ops.CountUp("counter")


def look_for_ever():
    while True:
        jobcore.check_cancelled()


def at_once():
    ops.net(execution_step("parts", [hang, hang], concurrent_substeps=True))


def run_inside():
    with LocalSession() as session:
        session.run(group_of(hang, hang))


WAITS = {
    "dequeue": lambda: ops.DequeueBlobs("empty", ["y"]),
    "enqueue": add_to_full_queue,
    "rebatching dequeue": lambda: ops.DequeueRebatchingQueue("batches", ["y"], num_elements=2),
    "weighted dequeue": lambda: ops.WeightedSampleDequeueBlobs(["empty"], ["y", "which"], weights=[1.0]),
    "native sleep": lambda: ops.Sleep([], [], seconds=FOREVER),
    "sleep": lambda: call(jobcore.sleep, FOREVER),
    "native loop": run_for_ever,
    "check_cancelled": lambda: call(look_for_ever),
    "parts at once": at_once,
    "a run inside": lambda: call(run_inside),
}


def blocked(kind, wait, log, then, tasks=2):
    """A group whose block of one kind waits for ever, and others that do not; `then` gives the order to stop."""
    begun = threading.Event()
    with TaskGroup() as group:
        with Task(name="waits"):
            with ops.local_init():
                ops.Const(1.0, "x")
                ops.CreateCounter([], ["counter"], init_count=0)
                ops.CreateBlobsQueue([], ["empty"], num_blobs=1, capacity=1)
                ops.CreateBlobsQueue([], ["full"], num_blobs=1, capacity=1)
                ops.CreateRebatchingQueue([], ["batches"], capacity=1, num_blobs=1)
                ops.EnqueueBlobs(["full", "x"], ["x"])
            with block(kind):
                call(begun.set)
                wait()
            for other in EXITS + REPORTS:
                with block(other):
                    call(log.append, other)
        for number in range(1, tasks):
            with Task(name=f"t{number}"):
                # A local block begins when the tasks have ended.
                if not kind.startswith("local"):
                    call(begun.wait)
                call(then)
    return group, begun


def fail():
    raise ValueError("on purpose")


@pytest.mark.parametrize("kind", EXITS + REPORTS)
@pytest.mark.parametrize("wait", WAITS)
def test_a_block_that_waits_for_ever_is_stopped_when_a_sibling_fails(session, kind, wait):
    log, threads = [], _thread._count()
    group, _ = blocked(kind, WAITS[wait], log, fail)
    session.exit_grace_s = BRIEF
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    first, second = caught.value.failures
    assert str(first.error) == "on purpose"
    assert isinstance(second.error, WaitTimeoutError)
    assert "within 0.05 s after the run was told to stop" in str(second.error)
    assert second.step.endswith(kind)
    assert second.built_at is not None
    assert sorted(log) == sorted(EXITS + REPORTS)
    caught = first = second = None
    # Those that watched the time are no `threading.Thread`s.
    assert _thread._count() <= threads


@pytest.mark.parametrize("kind", EXITS + REPORTS)
def test_a_block_that_waits_for_ever_is_stopped_when_the_session_is_closed(kind):
    log, session = [], LocalSession()
    session.exit_grace_s = BRIEF
    group, begun = blocked(kind, WAITS["dequeue"], log, lambda: None)

    def close():
        assert begun.wait(60)
        session.close()
        log.append("closed")

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises((ClosedError, TaskGroupError), match=f"{kind}.*WaitTimeoutError"):
        session.run(group)
    closer.join()
    assert log[-1] == "closed"
    assert sorted(log[:-1]) == sorted(EXITS + REPORTS)


@pytest.mark.parametrize("kind", ["task_exit", "task_instance_exit", "task_reporter"])
def test_a_block_that_waits_for_ever_is_stopped_after_an_interruption(session, kind):
    log = []
    session.exit_grace_s = BRIEF
    group, _ = blocked(kind, WAITS["dequeue"], log, interrupt_main)
    with pytest.raises(KeyboardInterrupt) as caught:
        session.run(group)
    assert isinstance(caught.value.__context__, TaskGroupError)
    (failure,) = caught.value.__context__.failures
    assert isinstance(failure.error, WaitTimeoutError)
    assert sorted(log) == sorted(EXITS + REPORTS)


@pytest.mark.parametrize("kind", EXITS + REPORTS)
def test_without_an_order_a_block_takes_the_time_that_it_takes(session, kind):
    log = []
    session.exit_grace_s = 0
    with TaskGroup() as group, Task(), block(kind):
        ops.Sleep([], [], seconds=0.02)
        call(log.append, "slept")
    session.run(group)
    assert log == ["slept"]


@pytest.mark.parametrize("seconds", [None, float("inf"), FOREVER])
@pytest.mark.parametrize("kind", EXITS + REPORTS)
def test_a_block_that_is_given_the_time_ends_its_work(session, kind, seconds):
    done = []

    def work():
        # The order is here, or comes in this time.
        jobcore.sleep(0.05)
        done.append(True)

    session.exit_grace_s = seconds
    group, _ = blocked(kind, lambda: call(work), [], fail)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert [str(failure.error) for failure in caught.value.failures] == ["on purpose"]
    assert done == [True]


def test_each_block_has_the_time_for_itself(session):
    log, begun = [], threading.Event()
    session.exit_grace_s = BRIEF
    with TaskGroup() as group:
        with Task(name="a"):
            for number in range(3):
                with ops.task_exit():
                    ops.Sleep([], [], seconds=FOREVER)
                with ops.task_exit():
                    call(log.append, number)
            call(begun.set)
            ops.net(hang)
        with Task(name="b"):
            call(begun.wait)
            call(fail)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert [type(failure.error) for failure in caught.value.failures] == [ValueError] + [WaitTimeoutError] * 3
    assert log == [0, 1, 2]


def test_a_block_inside_a_stopped_block_has_the_time_anew(session):
    log = []
    session.exit_grace_s = BRIEF

    def inner():
        with TaskGroup() as group, Task(name="inner"):
            with ops.task_exit():
                call(log.append, "exit")
                ops.Sleep([], [], seconds=FOREVER)
            with ops.task_exit():
                call(log.append, "next exit")
            ops.net(hang)
        session.run(group)

    group, _ = blocked("task_exit", lambda: call(inner), [], fail)
    with pytest.raises(TaskGroupError, match=r"task_exit.*WaitTimeoutError"):
        session.run(group)
    assert log == ["exit", "next exit"]


def test_a_block_that_fails_in_its_time_has_that_error_alone(session):
    session.exit_grace_s = FOREVER

    def late():
        time.sleep(0.05)
        raise OSError("disk full")

    group, _ = blocked("task_exit", lambda: call(late), [], fail)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert [str(failure.error) for failure in caught.value.failures] == ["on purpose", "disk full"]


def test_a_block_that_does_not_look_at_the_order_is_waited_for_and_spoken_of(session, monkeypatch):
    log, done, spoken = [], [], threading.Event()

    class Listener:
        def warning(self, text, *arguments):
            log.append(text % arguments)
            spoken.set()

    def deaf():
        done.append(spoken.wait(60))

    monkeypatch.setattr(grace, "_PATIENCE_S", 0.0)
    monkeypatch.setattr(grace, "_log", Listener())
    session.exit_grace_s = BRIEF
    group, _ = blocked("task_exit", lambda: call(deaf), [], fail)
    with pytest.raises(TaskGroupError):
        session.run(group)
    assert done == [True]
    assert log == [
        "local/waits/task_exit was told to stop, 0.05 s after the run was, and goes on; it should call check_cancelled "
        "now and then"
    ]


def test_where_no_thread_can_watch_the_time_there_is_no_limit(session, caplog, monkeypatch):
    def refuse(*arguments):
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(grace._thread, "start_new_thread", refuse)
    session.exit_grace_s = 0
    done = []

    def work():
        jobcore.sleep(0.05)
        done.append(True)

    with TaskGroup() as group, Task():
        with ops.task_exit():
            call(work)
        call(fail)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert len(caught.value.failures) == 1
    assert done == [True]
    assert "no time limit, since no thread can be started" in caplog.text


@pytest.mark.parametrize("name", ["exit_grace_s", "straggler_grace_s"])
def test_what_is_no_time_is_refused(session, name):
    before = getattr(session, name)
    for value in ("1", True, [1], 1j):
        with pytest.raises(
            TypeError, match=f"{name}: expected a number of seconds, found {type(value).__name__}"
        ):
            setattr(session, name, value)
    for value in (-1, float("nan"), -0.001):
        with pytest.raises(ValueError, match=f"{name}: expected seconds of at least 0, found"):
            setattr(session, name, value)
    assert getattr(session, name) == before
    setattr(session, name, 2)
    assert getattr(session, name) == 2.0
