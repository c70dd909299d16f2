"""What goes wrong inside a session: one clear error, siblings stopped, nothing lost, nothing left running."""

from __future__ import annotations

import gc
import threading
import time
import weakref

import pytest

from jobcore import TaskGroup, WorkspaceType, check_cancelled, sleep
from jobcore.errors import (
    Cancelled,
    NotRunError,
    TaskFailure,
    TaskGroupError,
)
from jobcore.graph import ExecutionStep, Net, execution_step
from jobcore.runtime import CancelToken, current_token
from jobcore.runtime.crew import Crew
from session_tools import FOREVER, after, boom, concurrent, group_of, hang

pytestmark = pytest.mark.usefixtures("quiet_threads")


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
