"""Sessions that are interrupted, again and again, or closed while they run."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import threading

import pytest

from jobcore import LocalSession, sleep
from jobcore.errors import ClosedError, SessionBusyError, TaskGroupError
from jobcore.runtime import current_token
from session_tools import FOREVER, concurrent, group_of, hang, interrupt_main

pytestmark = pytest.mark.usefixtures("quiet_threads")


# -- closing


@pytest.mark.parametrize("depth", [0, 1])
def test_a_step_cannot_close_the_session_it_runs_in(session, depth):
    def closes(ws):
        session.close()

    with pytest.raises(TaskGroupError, match=r"LocalSession\.close: expected a call from outside"):
        session.run(closes if depth == 0 else lambda ws: session.run(closes))
    assert session.is_open()


def test_another_session_can_be_closed_from_a_step(session):
    other = LocalSession()
    session.run(lambda ws: other.close())
    assert not other.is_open()


@pytest.mark.parametrize("step", [hang, concurrent(hang, hang)], ids=["inline", "threads"])
@pytest.mark.parametrize("width", [1, 2])
def test_closing_from_another_thread_stops_what_runs(step, width):
    session, begun = LocalSession(), threading.Event()

    def close():
        assert begun.wait(60)
        session.close()

    closer = threading.Thread(target=close)
    closer.start()
    with pytest.raises(ClosedError, match=r"closed while the tasks \['local/t0'"):
        session.run(group_of(*[[lambda ws: begun.set(), step]] * width))
    closer.join()


# -- interruptions of the waiting thread


def interrupt():
    signal.raise_signal(signal.SIGINT)


def test_ctrl_c_while_waiting_stops_the_tasks_and_comes_out(session):
    main, begun, ended = threading.main_thread(), threading.Barrier(3, timeout=60), []

    def waits(ws):
        begun.wait()
        try:
            sleep(FOREVER)
        finally:
            ended.append(1)

    def presses(ws):
        begun.wait()
        signal.pthread_kill(main.ident, signal.SIGINT)
        sleep(FOREVER)

    with pytest.raises(KeyboardInterrupt):
        session.run(group_of(waits, waits, presses))
    assert ended == [1, 1]
    session.run(group_of(lambda ws: None, lambda ws: None))


def test_ctrl_c_in_a_task_of_the_calling_thread_comes_out_bare(session):
    with pytest.raises(KeyboardInterrupt):
        session.run(lambda ws: interrupt())
    with pytest.raises(KeyboardInterrupt):
        session.run(lambda ws: (threading.Timer(0.01, interrupt_main).start(), sleep(FOREVER)))
    wait_for_timers()
    session.run(lambda ws: None)


def wait_for_timers():
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


def test_ctrl_c_while_concurrent_parts_run_stops_them(session):
    ended = []

    def part(ws):
        try:
            sleep(FOREVER)
        finally:
            ended.append(1)

    def presses(ws):
        interrupt_main()
        sleep(FOREVER)

    with pytest.raises(KeyboardInterrupt):
        session.run(concurrent(part, presses))
    assert len(ended) <= 1
    session.run(concurrent(lambda ws: None, lambda ws: None))


def test_another_exception_of_a_signal_handler_stops_the_tasks_too(session):
    class Alarm(Exception):
        pass

    def handler(number, frame):
        raise Alarm

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        with pytest.raises(Alarm):
            session.run(
                group_of(
                    hang,
                    lambda ws: (
                        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1),
                        sleep(FOREVER),
                    ),
                )
            )
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_second_ctrl_c_comes_out_at_once_and_the_next_run_waits_for_the_stragglers(session):
    release, began, log = threading.Event(), threading.Event(), []

    def deaf(ws):
        began.set()
        assert release.wait(60)
        log.append("straggler ended")

    def presses(ws):
        assert began.wait(60)
        interrupt_main()
        current_token().wait()
        # The order is here, so the first one was taken; the main thread waits for us now.
        interrupt_main()

    with pytest.raises(KeyboardInterrupt):
        session.run(group_of(deaf, presses))
    assert not log
    session.straggler_grace_s = 0
    with pytest.raises(SessionBusyError, match="still running after 0 s: 'local/t0'"):
        session.run(lambda ws: None)
    session.straggler_grace_s = FOREVER
    threading.Timer(0.02, release.set).start()
    session.run(lambda ws: log.append("next run"))
    assert log == ["straggler ended", "next run"]
    wait_for_timers()


def test_what_failed_comes_out_with_the_interruption(session):
    def untidy(ws):
        try:
            sleep(FOREVER)
        finally:
            raise OSError("disk full")

    def presses(ws):
        interrupt_main()
        sleep(FOREVER)

    with pytest.raises(KeyboardInterrupt) as caught:
        session.run(group_of(untidy, presses))
    assert isinstance(caught.value.__context__, TaskGroupError)
    assert [str(failure.error) for failure in caught.value.__context__.failures] == ["disk full"]


@pytest.mark.parametrize("shape", [group_of, concurrent], ids=["tasks", "parts"])
def test_a_straggler_that_fails_is_logged(session, caplog, shape):
    release, began = threading.Event(), threading.Event()

    def deaf(ws):
        began.set()
        assert release.wait(60)
        raise OSError("too late")

    def presses(ws):
        assert began.wait(60)
        interrupt_main()
        current_token().wait()
        interrupt_main()

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        session.run(shape(deaf, presses))
    release.set()
    session.run(lambda ws: None)
    for thread in set(threading.enumerate()) - before:
        thread.join()
    (record,) = caplog.records
    assert record.name == "jobcore.runtime"
    assert "OSError: too late" in record.message
    assert "deaf" in record.exc_text


def test_a_session_with_stragglers_can_be_closed():
    release, began = threading.Event(), threading.Event()

    def deaf(ws):
        began.set()
        assert release.wait(60)

    def presses(ws):
        assert began.wait(60)
        interrupt_main()
        current_token().wait()
        interrupt_main()

    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt), LocalSession() as session:
        session.run(group_of(deaf, presses))
    assert not session.is_open()
    release.set()
    for thread in set(threading.enumerate()) - before:
        thread.join()


def test_interruptions_at_any_moment_leave_a_usable_session():
    """Ctrl-C again and again, in a process of its own so that no other code is hit."""
    program = """
        import signal, sys, threading
        from jobcore import LocalSession, Task, TaskGroup, sleep

        session = LocalSession()
        group = TaskGroup()
        for number in range(3):
            Task(step=lambda ws: sleep(0.0005), name=str(number), group=group)
        nested = TaskGroup()
        Task(step=lambda ws: session.run(group), group=nested)
        session.run(group)

        armed, interrupted = False, 0

        def press(number, frame):
            if armed:
                raise KeyboardInterrupt

        signal.signal(signal.SIGALRM, press)
        for round in range(400):
            try:
                # From 30 microseconds on it hits every stage of a run sooner or later; often it comes again and again.
                armed = True
                signal.setitimer(signal.ITIMER_REAL, 0.00003 + 0.00001 * (round % 200), 0.0004 if round % 3 else 0)
                for _ in range(4):
                    session.run(nested if round % 2 else group)
                armed = False
            except KeyboardInterrupt:
                armed = False
                interrupted += 1
            signal.setitimer(signal.ITIMER_REAL, 0)
            done = []
            session.run(lambda ws: done.append(1))
            assert done == [1], round
        for thread in threading.enumerate():
            if thread is not threading.main_thread() and thread.is_alive():
                thread.join()
        session.close()
        print(interrupted)
    """
    done = subprocess.run(
        [sys.executable, "-X", "dev", "-c", textwrap.dedent(program)],
        capture_output=True,
        text=True,
        timeout=240,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stderr
    # The interpreter says so itself where an interruption hit a weak reference's callback: nobody could take it there.
    assert "Exception in thread" not in done.stderr
    assert int(done.stdout) > 0
