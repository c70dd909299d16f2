"""The decisions of a group run, without threads; and the cancel token."""

from __future__ import annotations

import contextvars
import threading

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from jobcore.errors import Cancelled, ContextError, TaskFailure
from jobcore.runtime.cancel import CancelToken, check_cancelled, current_token, enter_token, sleep
from jobcore.runtime.state import Cancel, Finish, GroupState, Outcome, Run, Spawn, Status


def failure(task: object = 0, text: str = "boom") -> TaskFailure:
    return TaskFailure("local", f"local/{task}", "step", None, ValueError(text))


def started(count: int) -> GroupState:
    state = GroupState(count)
    state.begin()
    for task in range(count):
        assert state.task_started(task) == (Run(task),)
    return state


def test_all_tasks_start_together_and_the_last_one_ends_the_run():
    state = GroupState(2)
    assert state.begin() == (Spawn(0), Spawn(1))
    assert state.task_started(1) == (Run(1),)
    assert state.task_finished(1) == ()
    assert state.task_started(0) == (Run(0),)
    assert state.running == {0}
    assert state.task_finished(0) == (Finish(Outcome(Status.SUCCESS)),)
    assert state.outcome == Outcome(Status.SUCCESS)


def test_a_group_without_tasks_ends_at_once():
    assert GroupState(0).begin() == (Finish(Outcome(Status.SUCCESS)),)


def test_the_first_failure_gives_the_order_and_the_second_is_kept():
    state, one, two = started(3), failure(1), failure(2)
    assert state.task_failed(1, one) == (Cancel("task 'local/1' on node 'local' failed: ValueError"),)
    assert state.task_failed(2, two) == ()
    (end,) = state.task_cancelled(0)
    assert end == Finish(
        Outcome(Status.FAILED, (one, two), "task 'local/1' on node 'local' failed: ValueError")
    )


def test_a_failure_inside_a_task_cancels_before_the_task_has_ended():
    state, inner = started(1), failure()
    assert isinstance(state.failure_found(0, inner)[0], Cancel)
    assert state.failure_found(0, failure(0, "again")) == ()
    (end,) = state.task_cancelled(0)
    assert [str(f.error) for f in end.outcome.failures] == ["boom", "again"]


def test_a_task_that_has_not_begun_when_the_order_comes_never_runs():
    state = GroupState(2)
    state.begin()
    state.task_started(0)
    assert state.cancel_requested("stop") == (Cancel("stop"),)
    assert state.task_cancelled(0) == (Finish(Outcome(Status.CANCELLED, (), "stop")),)
    assert state.task_started(1) == ()


def test_a_start_that_fails_is_a_failure_and_ends_the_run_when_nothing_runs():
    state, refused = GroupState(2), failure(0, "no more threads")
    state.begin()
    cancel, end = state.start_failed(0, refused)
    assert isinstance(cancel, Cancel)
    assert end.outcome.failures == (refused,)
    assert state.start_failed(1, failure(1)) == ()


def test_an_order_that_comes_too_late_does_not_spoil_a_success():
    state = started(1)
    assert state.cancel_requested("stop") == (Cancel("stop"),)
    assert state.task_finished(0) == (Finish(Outcome(Status.SUCCESS, (), "stop")),)
    assert state.cancel_requested("stop") == ()


def test_an_order_before_the_beginning_starts_nothing():
    state = GroupState(2)
    assert state.cancel_requested("stop") == (
        Cancel("stop"),
        Finish(Outcome(Status.CANCELLED, (), "stop")),
    )
    assert state.begin() == ()
    assert state.task_started(0) == ()


def test_a_task_stopped_by_an_order_from_outside_stops_its_siblings():
    state = started(2)
    assert state.task_cancelled(0, "outer run") == (Cancel("outer run"),)
    assert state.task_finished(1)[0].outcome.status is Status.CANCELLED


@pytest.mark.parametrize(
    "event",
    [
        lambda state: state.begin(),
        lambda state: state.task_started(0),
        lambda state: state.task_started(7),
        lambda state: state.start_failed(0, failure()),
        lambda state: (state.task_finished(0), state.task_finished(0)),
        lambda state: (state.task_finished(0), state.failure_found(0, failure())),
        lambda state: (state.task_finished(0), state.task_cancelled(0)),
    ],
)
def test_an_impossible_event_is_refused(event):
    with pytest.raises(RuntimeError):
        event(started(2))


def test_events_before_the_beginning_are_refused():
    with pytest.raises(RuntimeError, match="begin"):
        GroupState(1).task_started(0)


class AnyOrder(RuleBasedStateMachine):
    """Every order of events that threads can produce."""

    @initialize(count=st.integers(0, 5))
    def make(self, count):
        self.count = count
        self.state = GroupState(count)
        self.spawned, self.asked, self.ran, self.ended = set(), set(), set(), set()
        self.cancels, self.outcomes, self.reported, self.stopped = 0, [], [], False
        self.refused = set()
        self.stopped_early = False

    def take(self, instructions):
        for instruction in instructions:
            assert not self.outcomes, "nothing may follow the end"
            match instruction:
                case Spawn(task):
                    assert task not in self.spawned
                    self.spawned.add(task)
                case Run(task):
                    assert not self.stopped, "no task may begin after the order to stop"
                    self.ran.add(task)
                case Cancel():
                    self.cancels += 1
                    self.stopped = True
                case Finish(outcome):
                    self.outcomes.append(outcome)

    @precondition(lambda self: not self.spawned and not self.outcomes)
    @rule()
    def begin(self):
        if not self.state._begun:
            self.take(self.state.begin())

    @precondition(lambda self: self.spawned - self.asked)
    @rule(data=st.data())
    def thread_arrives(self, data):
        task = data.draw(st.sampled_from(sorted(self.spawned - self.asked)))
        self.asked.add(task)
        self.take(self.state.task_started(task))

    @precondition(lambda self: self.spawned - self.asked)
    @rule(data=st.data())
    def thread_cannot_start(self, data):
        task = data.draw(st.sampled_from(sorted(self.spawned - self.asked)))
        self.asked.add(task)
        refused = failure(task, "no thread")
        if not self.stopped:
            self.reported.append(refused)
        self.take(self.state.start_failed(task, refused))

    @precondition(lambda self: self.ran - self.ended)
    @rule(data=st.data(), how=st.sampled_from(["finished", "failed", "found", "cancelled"]))
    def task_acts(self, data, how):
        task = data.draw(st.sampled_from(sorted(self.ran - self.ended)))
        if how in ("failed", "found"):
            self.reported.append(failure(task, f"error {len(self.reported)}"))
        if how != "found":
            self.ended.add(task)
        if how in ("failed", "cancelled"):
            self.stopped_early = True
        self.take(
            {
                "finished": lambda: self.state.task_finished(task),
                "failed": lambda: self.state.task_failed(task, self.reported[-1]),
                "found": lambda: self.state.failure_found(task, self.reported[-1]),
                "cancelled": lambda: self.state.task_cancelled(task, "outside"),
            }[how]()
        )

    @rule()
    def somebody_cancels(self):
        self.take(self.state.cancel_requested("outside"))

    @invariant()
    def one_order_one_end_and_nothing_lost(self):
        if not hasattr(self, "state"):
            return
        assert self.cancels <= 1
        assert len(self.outcomes) <= 1
        assert self.state.running == self.ran - self.ended
        assert (self.state.outcome is not None) == bool(self.outcomes)
        complete = self.state._begun and len(self.ran) == self.count
        over = self.ran == self.ended and (self.stopped or complete)
        assert bool(self.outcomes) == over
        for outcome in self.outcomes:
            assert list(outcome.failures) == self.reported
            complete = len(self.ran) == self.count and not self.stopped_early
            expected = Status.FAILED if self.reported else Status.SUCCESS if complete else Status.CANCELLED
            assert outcome.status is expected
            assert (outcome.reason is not None) == bool(self.cancels)

    def teardown(self):
        if not hasattr(self, "state"):
            return
        # Whatever came before: when everybody who runs has ended, the run is over.
        self.begin()
        self.take(self.state.cancel_requested("end"))
        for task in sorted(self.ran - self.ended):
            self.ended.add(task)
            self.stopped_early = True
            self.take(self.state.task_cancelled(task))
        self.one_order_one_end_and_nothing_lost()
        assert len(self.outcomes) == 1


TestAnyOrder = AnyOrder.TestCase


# -- the token


def test_a_token_is_cancelled_once_and_keeps_the_first_reason():
    token = CancelToken()
    assert not token.cancelled
    assert token.reason is None
    token.check()
    assert token.cancel("first")
    assert not token.cancel("second")
    assert (token.cancelled, token.reason) == (True, "first")
    with pytest.raises(Cancelled, match="first"):
        token.check()


def test_cancelled_is_no_exception_that_a_step_swallows_by_accident():
    assert not issubclass(Cancelled, Exception)


def test_callbacks_run_once_in_order_and_can_be_taken_back():
    token, seen = CancelToken(), []
    token.on_cancel(lambda: seen.append("a"))
    forget = token.on_cancel(lambda: seen.append("b"))
    token.on_cancel(lambda: seen.append("c"))
    forget()
    forget()
    token.cancel()
    token.cancel()
    assert seen == ["a", "c"]
    token.on_cancel(lambda: seen.append("late"))
    assert seen == ["a", "c", "late"]


def test_one_bad_callback_keeps_none_of_the_others_from_being_told():
    token, seen = CancelToken(), []
    token.on_cancel(lambda: 1 // 0)
    token.on_cancel(lambda: seen.append("told"))
    with pytest.raises(ExceptionGroup) as caught:
        token.cancel()
    assert seen == ["told"]
    assert caught.group_contains(ZeroDivisionError)


def test_a_cancel_that_was_interrupted_is_finished_by_the_next_one():
    token, seen = CancelToken(), []

    def interrupted():
        raise KeyboardInterrupt

    token.on_cancel(interrupted)
    token.on_cancel(lambda: seen.append("told"))
    with pytest.raises(KeyboardInterrupt):
        token.cancel()
    assert not seen
    token.cancel()
    assert seen == ["told"]


def test_a_callback_may_use_the_token():
    token, seen = CancelToken(), []
    token.on_cancel(lambda: (seen.append(token.reason), token.cancel("again")))
    token.cancel("once")
    assert seen == ["once"]


def test_an_order_goes_down_to_children_and_never_up():
    outer = CancelToken()
    inner = CancelToken(outer)
    leaf = CancelToken(inner)
    sibling = CancelToken(outer)
    assert leaf.is_within(outer)
    assert not outer.is_within(leaf)
    inner.cancel("inner")
    assert (outer.cancelled, sibling.cancelled) == (False, False)
    assert leaf.reason == "inner"
    outer.cancel("outer")
    assert (inner.reason, sibling.reason) == ("inner", "outer")


def test_a_detached_child_no_longer_hears_its_parent():
    outer = CancelToken()
    inner = CancelToken(outer)
    inner.detach()
    inner.detach()
    outer.cancel()
    assert not inner.cancelled


def test_a_child_of_a_cancelled_token_is_cancelled_from_the_start():
    outer = CancelToken()
    outer.cancel("before")
    assert CancelToken(outer).reason == "before"


def test_waiting_ends_by_the_order_or_by_the_clock():
    token = CancelToken()
    assert not token.wait(0)
    assert not token.wait(-1)
    assert not token.wait(0.001)
    thread = threading.Thread(target=lambda: token.cancel("now"))
    waiters = [threading.Thread(target=token.wait) for _ in range(3)]
    for waiter in waiters:
        waiter.start()
    thread.start()
    assert token.wait()
    assert token.wait(float("inf"))
    for each in (thread, *waiters):
        each.join()
    with pytest.raises(ValueError, match="NaN"):
        token.wait(float("nan"))


def test_many_threads_cancel_and_wait_at_once():
    for _ in range(50):
        token, won, told = CancelToken(), [], []
        token.on_cancel(lambda told=told: told.append(1))
        gate = threading.Barrier(4)

        def act(token=token, won=won, gate=gate):
            gate.wait()
            won.append(token.cancel())
            token.wait()

        threads = [threading.Thread(target=act) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sum(won) == 1
        assert told == [1]


def test_outside_a_task_nobody_can_cancel():
    token = current_token()
    assert not token.cancelled
    check_cancelled()
    assert not token.wait(0)
    before = len(token._callbacks)
    token.on_cancel(lambda: None)
    assert len(token._callbacks) == before
    with pytest.raises(ContextError, match="running task"):
        token.cancel("no")
    sleep(0)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("-inf")])
def test_sleep_refuses_what_is_no_duration(seconds):
    with pytest.raises(ValueError, match="at least 0"):
        sleep(seconds)


def test_sleep_is_cut_short_by_the_order():
    token = CancelToken()

    def body():
        enter_token(token)
        assert current_token() is token
        sleep(3600)

    timer = threading.Timer(0.01, token.cancel, ["enough"])
    timer.start()
    with pytest.raises(Cancelled, match="enough"):
        contextvars.copy_context().run(body)
    timer.join()
    assert current_token() is not token
