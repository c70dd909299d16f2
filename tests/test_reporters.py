"""Reporters: beside the work, exactly once more after it, and never in its way."""

from __future__ import annotations

import threading

import pytest

from jobcore import Net, Task, TaskGroup, ops, sleep
from jobcore.errors import BuildError, TaskGroupError
from jobcore.graph import ExecutionStep, Loop, When, execution_step
from session_tools import FOREVER, add, concurrent, hang, interrupt_main

pytestmark = pytest.mark.usefixtures("quiet_threads")

NEVER_MS = 1000 * FOREVER


class Reports:
    """Counts reports, and lets others wait for them."""

    def __init__(self):
        self.log = []
        self.seen = threading.Semaphore(0)

    def __call__(self, ws):
        self.log.append("report")
        self.seen.release()

    def wait(self, ws):
        """A step that ends after three reports."""
        for _ in range(3):
            assert self.seen.acquire(timeout=60)
        self.log.append("end")

    def only_the_last(self):
        return self.log.count("report") == 1


def reporter(step, every_ms=1.0):
    return execution_step("reporter", step, run_every_ms=every_ms)


def test_a_reporter_runs_beside_its_siblings_and_exactly_once_more_after_them(session):
    reports = Reports()
    session.run(execution_step("s", [reporter(reports), reports.wait, lambda ws: reports.log.append("end")]))
    assert reports.log.count("report") >= 4
    last = len(reports.log) - 1 - reports.log[::-1].index("end")
    # One may have begun before the end, and is waited for.
    assert 1 <= reports.log[last:].count("report") <= 2


def test_a_report_in_progress_at_the_end_is_waited_for_and_there_is_one_more(session):
    begun, ended, log = threading.Event(), threading.Event(), []

    def report(ws):
        begun.set()
        assert ended.wait(60)
        log.append("report")

    def work(ws):
        assert begun.wait(60)
        threading.Timer(0.01, ended.set).start()
        log.append("work")

    session.run(execution_step("s", [reporter(report, 0.01), work]))
    assert log == ["work", "report", "report"]
    for thread in threading.enumerate():
        if isinstance(thread, threading.Timer):
            thread.join()


@pytest.mark.parametrize("place", ["step", "rounds", "loop", "branch", "concurrent", "plan", "instances"])
def test_a_reporter_is_started_once_round_all_that_its_parent_does(session, place):
    reports = Reports()
    parts = [add("x"), reporter(reports, NEVER_MS)]
    flags = {
        "rounds": {"num_iter": 3},
        "loop": {"control": Loop(3)},
        "branch": {"control": When("yes")},
        "concurrent": {"concurrent_substeps": True},
        "instances": {"num_concurrent_instances": 2},
    }.get(place, {})
    session.workspace().feed("yes", True)
    if place == "concurrent":
        parts.append(add("y"))
    session.run(execution_step("s", parts, **flags) if place != "plan" else parts)
    assert reports.log == ["report"]
    session.workspace().feed("yes", False)
    session.run(execution_step("s", parts, control=When("yes")))
    assert reports.log == ["report"]


def test_a_step_made_of_reporters_alone_reports_once(session):
    reports = Reports()
    session.run(execution_step("s", [reporter(reports, NEVER_MS)]))
    session.run(reporter(reports, NEVER_MS))
    assert reports.log == ["report"] * 2


@pytest.mark.parametrize("end", ["failure", "stop", "interruption", "sibling"])
def test_the_last_report_is_made_however_the_work_ends(session, end):
    reports = Reports()

    def work(ws):
        if end == "failure":
            raise ValueError("work")
        if end == "interruption":
            interrupt_main()
        sleep(FOREVER)

    stop = Net("stop")
    stop.Stop([], [])
    step = execution_step("s", [reporter(reports, NEVER_MS), stop if end == "stop" else work])
    if end == "stop":
        session.run(execution_step("outer", [step, add("never")]))
        assert not session.workspace().has_blob("never")
    elif end == "interruption":
        with pytest.raises(KeyboardInterrupt):
            session.run(step)
    else:
        with pytest.raises(TaskGroupError) as caught:
            session.run(concurrent(step, lambda ws: 1 // 0) if end == "sibling" else step)
        assert len(caught.value.failures) == 1
    assert len(reports.log) <= 1 if end == "sibling" else reports.only_the_last()


def test_the_last_report_comes_after_a_sibling_that_cleans_up(session):
    log, begun = [], threading.Event()

    def untidy(ws):
        begun.set()
        try:
            sleep(FOREVER)
        finally:
            log.append("cleaned")

    def fails(ws):
        assert begun.wait(60)
        raise ValueError

    beside = execution_step("s", [reporter(lambda ws: log.append("report"), NEVER_MS), untidy])
    with pytest.raises(TaskGroupError):
        session.run(concurrent(beside, fails))
    assert log == ["cleaned", "report"]


@pytest.mark.parametrize("place", ["step", "task", "local", "exit"])
def test_a_failing_reporter_stops_the_work_and_is_reported_once(session, place):
    def report():
        raise ValueError("report")

    def write(kind):
        with getattr(ops, kind)(interval_ms=1):
            ops.Python(lambda inputs, outputs: report())()

    if place == "step":
        runnable = execution_step("s", [reporter(lambda ws: report()), hang])
    elif place == "exit":
        with TaskGroup() as runnable, Task(), ops.task_exit():
            ops.net(execution_step("s", [reporter(lambda ws: report()), hang]))
    else:
        with TaskGroup() as runnable:
            with Task(name="a", num_instances=2):
                ops.net(hang)
                write(f"{place}_reporter")
            Task(step=hang, name="b")
    with pytest.raises(TaskGroupError) as caught:
        session.run(runnable)
    assert [str(failure.error) for failure in caught.value.failures] == ["report"]
    assert "report" in caught.value.failures[0].step
    session.run(lambda ws: None)


def test_a_failing_last_report_fails_the_run(session):
    step = execution_step("s", [reporter(lambda ws: 1 // 0, NEVER_MS), add("x")])
    with pytest.raises(TaskGroupError, match="ZeroDivisionError"):
        session.run([step, add("x")])
    assert session.workspace().fetch("x") == 1


def test_a_stop_in_a_reporter_ends_that_report_alone(session):
    reports = Reports()
    stop = Net("stop")
    stop.Stop([], [])
    session.run(execution_step("s", [reporter([reports, stop, add("never")]), reports.wait, add("after")]))
    assert session.workspace().blob_names() == ["after"]


def test_cancellation_reaches_a_report_that_sleeps(session):
    begun = threading.Event()

    def report(ws):
        if not begun.is_set():
            begun.set()
            sleep(FOREVER)

    def fails(ws):
        assert begun.wait(60)
        raise ValueError("work")

    with pytest.raises(TaskGroupError) as caught:
        session.run(execution_step("s", [reporter(report), fails]))
    assert len(caught.value.failures) == 1


def test_reporters_see_the_workspace_of_what_they_run_beside(session):
    seen = []
    with TaskGroup() as group, Task(name="a"):
        with ops.local_init():
            ops.Const(1, "of the node")
        with ops.task_init():
            ops.Const(1, "of the task")
        ops.Const(1, "of the body")
        for kind in ("task_reporter", "local_reporter"):
            with getattr(ops, kind)(NEVER_MS):
                ops.net(lambda ws: seen.append(sorted(ws.blob_names())))
    session.run(group)
    assert seen == [["of the body", "of the node", "of the task"], ["of the node"]]


@pytest.mark.parametrize("refused", [0, 1])
def test_a_reporter_that_gets_no_thread_is_a_failure(session, monkeypatch, refused):
    starts, original, log = [], threading.Thread.start, []

    def start(thread):
        starts.append(thread)
        if len(starts) == refused + 1:
            raise RuntimeError("can't start new thread")
        original(thread)

    def report(name):
        return ExecutionStep(name, function=lambda ws: log.append(name), run_every_ms=NEVER_MS)

    monkeypatch.setattr(threading.Thread, "start", start)
    with pytest.raises(TaskGroupError, match="can't start new thread") as caught:
        session.run(execution_step("s", [report("r0"), report("r1"), hang]))
    assert len(caught.value.failures) == 1
    assert log == [f"r{1 - refused}"]


def test_a_while_takes_no_reporters():
    from jobcore.graph import While

    with pytest.raises(BuildError, match="two substeps"):
        ExecutionStep(
            "w", substeps=[ExecutionStep("a"), ExecutionStep("b", run_every_ms=1)], control=While("c")
        ).freeze()


# -- the executor of plans


def test_an_empty_plan_step_succeeds(session):
    session.run(execution_step("empty", []))


def test_a_stuck_part_is_cancelled_once_when_another_fails(session):
    cancels, begun = [], threading.Event()

    def stuck(ws):
        begun.set()
        try:
            sleep(FOREVER)
        except BaseException as error:
            cancels.append(type(error).__name__)
            raise

    def fails(ws):
        assert begun.wait(60)
        raise ValueError("first")

    with pytest.raises(TaskGroupError) as caught:
        session.run(concurrent(stuck, fails))
    assert cancels == ["Cancelled"]
    assert [str(failure.error) for failure in caught.value.failures] == ["first"]


def test_of_two_instances_the_stuck_one_ends_when_the_other_fails(session):
    counter, begun = session.workspace().counter("n"), threading.Event()

    def part(ws):
        if counter.count_up():
            assert begun.wait(60)
            raise ValueError("second")
        begun.set()
        sleep(FOREVER)

    with pytest.raises(TaskGroupError) as caught:
        session.run(ExecutionStep("two", function=part, num_concurrent_instances=2))
    assert [str(failure.error) for failure in caught.value.failures] == ["second"]


def test_a_loop_on_a_stop_blob_ends_when_a_sibling_fails(session):
    begun = threading.Event()
    net = Net("beat")
    net.Python(lambda inputs, outputs: begun.set())()

    def fails(ws):
        assert begun.wait(60)
        raise ValueError("sibling")

    with pytest.raises(TaskGroupError, match="sibling"):
        session.run(concurrent(execution_step("loop", net, should_stop_blob="never"), fails))
