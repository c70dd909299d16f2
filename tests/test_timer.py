from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcore import Timer
from jobcore.errors import JobcoreError, TimerStateError
from slow_timer import SlowTimer


@given(script=st.lists(st.sampled_from(["begin", "get", "end"]), max_size=60))
def test_agrees_with_its_twin_after_every_step(script: list[str]) -> None:
    fast, slow = Timer("t"), SlowTimer("t")
    for method in script:
        try:
            length_ns = getattr(fast, method)() or 0
        except TimerStateError:
            with pytest.raises(TimerStateError):
                getattr(slow, method)(0)
        else:
            # The twin's clock stands at 0 when a span begins, and shows the length that the timer told.
            assert getattr(slow, method)(length_ns) in (None, length_ns)
        assert (fast.running, fast.count, fast.sum_ns) == (slow.running, slow.count, slow.sum_ns)


def test_a_span_grows_until_it_ends() -> None:
    timer = Timer()
    timer.begin()
    readings = [timer.get() for _ in range(50)] + [timer.end()]
    assert readings[0] >= 0
    assert readings == sorted(readings)
    assert timer.sum_ns == readings[-1]


def test_spans_add_up() -> None:
    timer = Timer("load")
    spans = []
    for _ in range(20):
        timer.begin()
        spans.append(timer.end())
    assert timer.sum_ns == sum(spans)
    assert timer.count == 20
    assert all(type(span) is int and span >= 0 for span in spans)


def test_a_new_timer_is_stopped_and_empty() -> None:
    timer = Timer()
    assert (timer.name, timer.running, timer.sum_ns, timer.count) == ("timer", False, 0, 0)
    assert Timer.__new__(Timer).running is False
    assert Timer(name="é").name == "é"


@pytest.mark.parametrize(
    ("method", "running", "text"),
    [
        (
            "begin",
            True,
            "Timer.begin: expected timer 'save' to be stopped, found it running"
            " (end() it first; spans that overlap need a timer each)",
        ),
        (
            "get",
            False,
            "Timer.get: expected timer 'save' to be running, found it stopped"
            " (begin() it first; another thread may have ended it)",
        ),
        (
            "end",
            False,
            "Timer.end: expected timer 'save' to be running, found it stopped"
            " (begin() it first; another thread may have ended it)",
        ),
    ],
)
def test_a_step_in_the_wrong_state_fails_and_changes_nothing(method: str, running: bool, text: str) -> None:
    timer = Timer("save")
    if running:
        timer.begin()
    with pytest.raises(TimerStateError) as caught:
        getattr(timer, method)()
    assert str(caught.value) == text
    assert isinstance(caught.value, JobcoreError)
    assert isinstance(caught.value, RuntimeError)
    assert (timer.running, timer.sum_ns, timer.count) == (running, 0, 0)


@pytest.mark.parametrize("name", [None, 3, b"t"])
def test_a_name_is_text(name: object) -> None:
    with pytest.raises(TypeError, match=f"Argument 'name'.*expected str, got {type(name).__name__}"):
        Timer(name)  # type: ignore[arg-type]  # the point of the test


@pytest.mark.parametrize("method", ["begin", "end"])
def test_one_of_the_racing_threads_wins(method: str, together: Callable[..., list[object]]) -> None:
    timer = Timer()
    for round_number in range(100):
        if method == "end":
            timer.begin()
        results = together(4, lambda number: getattr(timer, method)())
        lost = [r for r in results if isinstance(r, TimerStateError)]
        assert len(lost) == 3
        assert timer.running is (method == "begin")
        if method == "begin":
            timer.end()
        assert timer.count == round_number + 1


def test_threads_that_begin_and_end_at_will_keep_the_totals_exact(
    together: Callable[..., list[tuple[int, list[int]]]],
) -> None:
    timer = Timer()

    def work(number: int) -> tuple[int, list[int]]:
        begun, spans = 0, []
        for _ in range(3_000):
            with suppress(TimerStateError):
                timer.begin()
                begun += 1
            with suppress(TimerStateError):
                spans.append(timer.end())
        return begun, spans

    results = together(6, work)
    spans = [span for _, own in results for span in own]
    assert sum(begun for begun, _ in results) == len(spans) == timer.count
    assert timer.sum_ns == sum(spans)
    assert min(spans) >= 0
    assert not timer.running


def test_is_a_handle() -> None:
    timer = Timer("fit")
    assert repr(timer) == "<Timer 'fit' stopped, 0 spans, 0 ns>"
    timer.begin()
    assert repr(timer) == "<Timer 'fit' running, 0 spans, 0 ns>"
    with pytest.raises(TypeError):
        copy.copy(timer)
    with pytest.raises(TypeError):
        pickle.dumps(timer)
    with pytest.raises(TypeError):
        type("Derived", (Timer,), {})
