"""What goes wrong inside a session: one clear error, siblings stopped, nothing lost, nothing left running."""

from __future__ import annotations

import gc
import os
import re
import signal
import subprocess
import sys
import textwrap
import threading
import time
import traceback
import weakref

import pytest

from jobcore import LocalSession, Node, Task, TaskGroup, WorkspaceType, check_cancelled, ops, sleep
from jobcore.errors import (
    BlobKindError,
    BlobNotFoundError,
    Cancelled,
    ClosedError,
    NotRunError,
    SessionBusyError,
    TaskFailure,
    TaskGroupError,
)
from jobcore.graph import ExecutionStep, Net, execution_step
from jobcore.runtime import CancelToken, current_token
from jobcore.runtime.crew import Crew

FOREVER = 3600


@pytest.fixture
def session():
    with LocalSession() as session:
        yield session


@pytest.fixture(autouse=True)
def no_thread_dies_unheard(monkeypatch):
    heard = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    before = threading.active_count()
    yield
    assert heard == []
    assert threading.active_count() == before


def boom(ws):
    raise ValueError("boom")


def group_of(*steps, **options):
    group = TaskGroup(**options)
    for number, step in enumerate(steps):
        Task(step=step, name=f"t{number}", group=group)
    return group


def hang(ws):
    sleep(FOREVER)
    raise AssertionError("nobody stopped this task")


def after(event, action):
    def step(ws):
        assert event.wait(60)
        action()

    return step


# -- what the error says


def test_the_error_names_task_node_step_and_line(session):
    group = TaskGroup()
    with Node("trainer_0"):
        group.task(name="train")(boom)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    (failure,) = caught.value.failures
    assert (failure.node, failure.task, failure.step) == ("trainer_0", "trainer_0/train", "boom")
    assert re.fullmatch(r".*test_session_failures\.py:\d+", failure.built_at)
    assert isinstance(failure.error, ValueError)
    text = str(caught.value)
    assert text.startswith(
        "the task failed: task 'trainer_0/train' on node 'trainer_0', step 'boom' built at "
    )
    assert text.endswith(": ValueError: boom")


def test_the_original_traceback_is_kept_and_printed(session):
    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(boom, hang))
    error = caught.value.failures[0].error
    assert traceback.extract_tb(error.__traceback__)[-1].name == "boom"
    printed = "".join(traceback.format_exception(caught.value))
    assert 'raise ValueError("boom")' in printed
    assert "Cancelled" not in printed


def test_a_failing_op_is_named_by_step_net_type_and_the_line_that_built_it(session):
    with TaskGroup() as group, Task(name="count"):
        ops.Const(1, "number")
        ops.CountDown("number")
        line = sys._getframe().f_lineno - 1
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    (failure,) = caught.value.failures
    assert failure.step == "local/count / CountDown"
    assert failure.built_at == f"{__file__}:{line}"
    assert isinstance(failure.error, BlobKindError)


def test_the_path_leads_from_the_tasks_step_to_the_op(session):
    net = Net("inner_net")
    net.Python(lambda inputs, outputs: 1 // 0)(name="division")
    step = execution_step("outer", [execution_step("middle", [net, net]), boom])
    with pytest.raises(TaskGroupError) as caught:
        session.run(step)
    assert caught.value.failures[0].step == "outer / middle / inner_net / Python 'division'"


def test_a_missing_input_is_a_failure_of_the_op_that_reads_it(session):
    net = Net("n")
    net.Copy("absent", "copy")
    with pytest.raises(TaskGroupError) as caught:
        session.run(net)
    assert caught.value.failures[0].step == "n / Copy"
    assert isinstance(caught.value.failures[0].error, BlobNotFoundError)
    assert not session.workspace().has_blob("copy")


def test_several_failures_are_listed_line_by_line_in_the_order_in_which_they_happened(session):
    barrier = threading.Barrier(2, timeout=60)

    def first(ws):
        barrier.wait()
        raise KeyError("first")

    def second(ws):
        barrier.wait()
        current_token().wait()
        raise OSError("second")

    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(first, second, hang))
    lines = str(caught.value).splitlines()
    assert lines[0] == "2 of 3 tasks failed:"
    assert "KeyError: 'first'" in lines[1]
    assert "OSError: second" in lines[2]
    assert [type(f.error) for f in caught.value.failures] == [KeyError, OSError]


def test_an_error_whose_text_cannot_be_made_does_not_hide_the_others(session):
    class Broken(Exception):
        def __str__(self):
            raise RuntimeError("no text")

    def broken(ws):
        raise Broken

    with pytest.raises(TaskGroupError, match=r"Broken: .*cannot be made"):
        session.run(broken)


# -- an exception group like any other


def test_except_star_takes_what_it_names(session):
    caught = []
    try:
        session.run(group_of(boom, hang))
    except* ValueError as group:
        caught.append(group)
    (group,) = caught
    assert isinstance(group, TaskGroupError)
    assert [failure.task for failure in group.failures] == ["local/t0"]


def test_a_split_keeps_failures_and_errors_together():
    errors = [ValueError("v"), SystemExit(3), ExceptionGroup("inner", [KeyError("k"), TypeError("t")])]
    group = TaskGroupError("x", [TaskFailure("n", f"t{i}", "s", None, e) for i, e in enumerate(errors)])
    exits, rest = group.split(RuntimeError)
    # The group itself is a RuntimeError too, so a split by type takes it whole.
    assert exits is group
    assert rest is None
    keys, rest = group.split(KeyError)
    assert [failure.task for failure in keys.failures] == ["t2"]
    assert [failure.task for failure in rest.failures] == ["t0", "t1", "t2"]
    assert [type(e) for e in rest.failures[2].error.exceptions] == [TypeError]
    exits, rest = group.split(lambda e: e.__cause__ is errors[1])
    assert [failure.task for failure in exits.failures] == ["t1"]
    assert [failure.task for failure in rest.failures] == ["t0", "t2"]


# -- cancellation


def test_a_failure_stops_siblings_at_every_kind_of_boundary(session):
    begun = threading.Barrier(5, timeout=60)

    def arrive(ws):
        begun.wait()

    def polling(ws):
        while True:
            check_cancelled()
            time.sleep(0)

    net = Net("endless_net")
    net.Python(lambda inputs, outputs: None)()
    endless_net = ExecutionStep("loop", nets=[net], should_stop_blob="never")
    endless_step = ExecutionStep("loop", function=lambda ws: time.sleep(0), should_stop_blob="never")
    with pytest.raises(TaskGroupError) as caught:
        session.run(
            group_of(
                [arrive, hang],
                [arrive, polling],
                [arrive, endless_net],
                [arrive, endless_step],
                [arrive, boom],
            )
        )
    assert [failure.task for failure in caught.value.failures] == ["local/t4"]


def test_a_task_that_swallows_exceptions_is_stopped_all_the_same(session):
    def stubborn(ws):
        while True:
            try:
                sleep(FOREVER)
            except Exception:
                continue

    with pytest.raises(TaskGroupError):
        session.run(group_of(stubborn, boom))


def test_a_sibling_may_clean_up_and_what_fails_then_is_reported_too(session):
    cleaned, ready = [], threading.Event()

    def tidy(ws):
        try:
            ready.set()
            sleep(FOREVER)
        finally:
            cleaned.append(True)

    def untidy(ws):
        try:
            sleep(FOREVER)
        finally:
            raise OSError("disk full")

    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(tidy, untidy, [lambda ws: ready.wait(60), boom]))
    assert cleaned == [True]
    assert {type(failure.error) for failure in caught.value.failures} == {ValueError, OSError}


def test_a_task_that_waits_on_the_token_wakes_up(session):
    reasons = []

    def waiter(ws):
        token = current_token()
        token.wait()
        reasons.append(token.reason)
        token.check()

    with pytest.raises(TaskGroupError):
        session.run(group_of(waiter, boom))
    assert reasons == ["task 'local/t1' on node 'local' failed: ValueError"]


def test_cancelled_raised_by_a_step_that_nobody_cancelled_is_a_failure(session):
    def gives_up(ws):
        raise Cancelled("on my own")

    for group in (group_of(gives_up), group_of(gives_up, hang)):
        with pytest.raises(TaskGroupError, match="Cancelled: on my own"):
            session.run(group)


def test_a_step_may_cancel_its_own_group(session):
    def enough(ws):
        current_token().cancel("enough")
        check_cancelled()

    for group in (group_of(enough), group_of(enough, hang)):
        with pytest.raises(Cancelled, match="enough"):
            session.run(group)


def test_a_failing_callback_of_the_token_is_a_failure_and_stops_nobody_from_being_stopped(session):
    ready = threading.Event()

    def registers(ws):
        current_token().on_cancel(lambda: 1 // 0)
        ready.set()
        sleep(FOREVER)

    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(registers, [lambda ws: ready.wait(60), boom]))
    kinds = [type(failure.error) for failure in caught.value.failures]
    assert kinds == [ValueError, ExceptionGroup]


# -- concurrent parts and instances


def concurrent(*parts):
    return execution_step("parts", list(parts), concurrent_substeps=True)


def test_a_failing_concurrent_substep_stops_its_siblings_and_the_whole_group(session):
    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(concurrent(hang, boom), hang))
    (failure,) = caught.value.failures
    assert (failure.task, failure.step) == ("local/t0", "parts / boom")


def test_every_failure_of_concurrent_substeps_is_reported_once(session):
    barrier = threading.Barrier(3, timeout=60)

    def fails(ws):
        barrier.wait()
        raise ValueError("at once")

    for group in (group_of(concurrent(fails, fails, fails)), group_of(concurrent(fails, fails, fails), hang)):
        with pytest.raises(TaskGroupError) as caught:
            session.run(group)
        assert len(caught.value.failures) == 3


def test_the_order_reaches_every_depth(session):
    deep = concurrent(hang, concurrent(hang, concurrent(hang, lambda ws: session.run(hang))))
    begun = threading.Event()
    with pytest.raises(TaskGroupError) as caught:
        session.run(
            group_of(
                [lambda ws: begun.set(), deep], [after(begun, lambda: None), boom], workspace_type="global"
            )
        )
    assert [type(failure.error) for failure in caught.value.failures] == [ValueError]


@pytest.mark.parametrize("kind", WorkspaceType)
def test_a_failing_instance_stops_the_others(session, kind):
    counter = session.workspace().counter("number")
    group = TaskGroup(kind)

    @group.task(num_instances=4)
    def work(ws):
        if counter.count_up() == 2:
            raise ValueError("third")
        sleep(FOREVER)

    with pytest.raises(TaskGroupError, match="ValueError: third") as caught:
        session.run(group)
    assert len(caught.value.failures) == 1


def test_a_stop_blob_does_not_save_a_step_whose_part_failed(session):
    session.workspace().feed("stop", True)
    step = execution_step("s", [boom, lambda ws: None], should_stop_blob="stop", concurrent_substeps=True)
    with pytest.raises(TaskGroupError):
        session.run(step)


# -- every kind of exception


EXITS = [SystemExit(3), KeyboardInterrupt("inside"), GeneratorExit(), BaseException("base")]


@pytest.mark.parametrize("error", EXITS, ids=lambda e: type(e).__name__)
def test_an_exit_raised_inside_a_task_thread_is_a_failure(session, error):
    def leaves(ws):
        raise error

    for group in (group_of(leaves, hang), group_of(concurrent(leaves, hang))):
        with pytest.raises(TaskGroupError) as caught:
            session.run(group)
        (failure,) = caught.value.failures
        assert failure.error is error
        assert caught.value.exceptions[0].__cause__ is error
        assert type(error).__name__ in str(caught.value)


@pytest.mark.parametrize("error", EXITS[:2], ids=lambda e: type(e).__name__)
@pytest.mark.parametrize("nest", [lambda step: step, lambda step: [step]], ids=["plain", "nested"])
def test_in_the_calling_thread_an_exit_concerns_the_whole_program(session, error, nest):
    def leaves(ws):
        raise error

    with pytest.raises(type(error)) as caught:
        session.run(nest(leaves))
    assert caught.value is error
    session.run(lambda ws: None)


def test_other_base_exceptions_of_a_task_in_the_calling_thread_are_failures(session):
    def leaves(ws):
        raise GeneratorExit

    with pytest.raises(TaskGroupError):
        session.run(leaves)


# -- outputs


def test_outputs_of_a_failed_run_are_not_those_of_the_run_before(session):
    group, fail = TaskGroup(), []

    @group.task(outputs="x")
    def work(ws):
        ws.feed("x", 1)
        if fail:
            raise ValueError

    session.run(group)
    assert work.outputs()[0].fetch() == 1
    fail.append(True)
    with pytest.raises(TaskGroupError):
        session.run(group)
    with pytest.raises(NotRunError):
        work.outputs()[0].fetch()


def test_an_output_that_cannot_be_copied_is_a_failure_and_no_output_is_set(session):
    group = TaskGroup()

    @group.task(outputs=["good", "bad"])
    def work(ws):
        ws.feed("good", 1)
        ws.feed("bad", [1])
        ws.blob("bad").value.append(object())

    with pytest.raises(TaskGroupError, match="step 'output bad': BlobKindError"):
        session.run(group)
    with pytest.raises(NotRunError):
        work.outputs()[0].fetch()


# -- threads that cannot be started


@pytest.mark.parametrize("refused", [0, 1, 2])
def test_a_thread_that_cannot_be_started_is_a_failure_and_the_others_end(session, monkeypatch, refused):
    starts, original = [], threading.Thread.start

    def start(thread):
        starts.append(thread)
        if len(starts) == refused + 1:
            raise RuntimeError("can't start new thread")
        original(thread)

    monkeypatch.setattr(threading.Thread, "start", start)
    for group in (group_of(hang, hang, hang), group_of(concurrent(hang, hang, hang))):
        starts.clear()
        with pytest.raises(TaskGroupError, match="can't start new thread") as caught:
            session.run(group)
        assert len(caught.value.failures) == 1
    monkeypatch.undo()
    session.run(group_of(lambda ws: None, lambda ws: None))


# -- runs inside runs


def test_a_step_may_catch_the_failure_of_a_run_that_it_started(session):
    def careful(ws):
        try:
            session.run(group_of(boom, hang))
        except* ValueError:
            ws.feed("caught", True)
        check_cancelled()

    session.run(careful)
    assert session.workspace().fetch("caught")


def test_a_failure_of_an_inner_run_is_a_failure_of_the_step_that_ran_it(session):
    with pytest.raises(TaskGroupError) as outer:
        session.run(lambda ws: session.run(boom))
    (inner,) = outer.value.failures
    assert isinstance(inner.error, TaskGroupError)
    assert isinstance(inner.error.failures[0].error, ValueError)


@pytest.mark.parametrize("width", [1, 2])
def test_an_inner_run_is_cancelled_with_the_outer_one(session, width):
    begun = threading.Event()

    def inner(ws):
        begun.set()
        sleep(FOREVER)

    def outer(ws):
        try:
            session.run(group_of(*[inner] * width))
        except Cancelled:
            with pytest.raises(Cancelled):
                session.run(lambda ws: None)
            raise

    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(outer, after(begun, lambda: 1 // 0)))
    assert [type(failure.error) for failure in caught.value.failures] == [ZeroDivisionError]


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


def interrupt_main():
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


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


# -- after the end


def test_after_every_kind_of_end_the_session_runs_again(session):
    for bad in (boom, group_of(boom, hang), concurrent(boom, hang)):
        with pytest.raises(TaskGroupError):
            session.run(bad)
        with pytest.raises(TaskGroupError):
            session.run(bad)
        session.run(lambda ws: ws.feed("x", 1))
    assert session.workspace().blob_names() == ["x"]


def test_a_failed_run_lets_go_of_everything_with_its_error(session):
    class Big:
        pass

    kept = []

    def holds(ws):
        big = Big()
        kept.append(weakref.ref(big))
        ws.feed("big", big, transient=True)
        raise ValueError("boom")

    group = group_of(holds)
    gc.collect()
    gc.disable()
    try:
        try:
            session.run(group)
        except TaskGroupError as error:
            assert kept[0]() is not None
            del error
        assert kept[0]() is None
    finally:
        gc.enable()


# -- parts that have no way in from outside


def test_a_crew_reports_what_its_work_did_not(session):
    failures = []

    def blame(member, error):
        failures.append(TaskFailure("n", str(member), "s", None, error))
        return failures[-1]

    for width in (1, 2):

        def work(member, inline):
            raise OSError(member)

        crew = Crew(["w"] * width, work, blame, CancelToken(), session._roster)
        outcome = crew.run()
        assert set(outcome.failures) <= set(failures)
        assert outcome.failures
        crew.release()
        crew.cancel("late")
        assert crew.unfinished() == []
