from __future__ import annotations

import copy
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jobcore import Counter
from jobcore.errors import BlobValueError, JobcoreError
from slow_counter import INT64_MAX, INT64_MIN, SlowCounter

# Small numbers find the behaviour round zero, the edges find the wrap-around, the rest must be refused.
numbers = (
    st.integers(-3, 3)
    | st.sampled_from([INT64_MIN, INT64_MIN + 1, INT64_MAX - 1, INT64_MAX])
    | st.integers(INT64_MIN, INT64_MAX)
    | st.sampled_from([INT64_MIN - 1, INT64_MAX + 1, 2**64, -(2**64)])
)
steps = st.one_of(
    st.sampled_from([("count_up",), ("count_down",), ("retrieve",), ("check_done",), ("reset",)]),
    st.tuples(st.sampled_from(["reset", "restore"]), numbers | st.sampled_from([1.5, "1", None])),
)


def outcome(call: Callable[..., object], *args: object) -> object:
    try:
        return call(*args)
    except (BlobValueError, TypeError) as error:
        return type(error)


@given(start=numbers.filter(lambda n: 0 <= n <= INT64_MAX), script=st.lists(steps, max_size=40))
@example(start=INT64_MAX, script=[("count_up",), ("retrieve",), ("count_down",), ("retrieve",)])
@example(start=0, script=[("restore", INT64_MIN), ("count_down",), ("retrieve",), ("check_done",)])
def test_agrees_with_its_twin_after_every_step(start: int, script: list[tuple[object, ...]]) -> None:
    fast, slow = Counter(start), SlowCounter(start)
    for method, *args in script:
        got = outcome(getattr(fast, str(method)), *args)
        expected = outcome(getattr(slow, str(method)), *args)
        assert got == expected
        assert type(got) is type(expected)
        assert fast.retrieve() == slow.retrieve()


@given(start=numbers | st.sampled_from([2.0, "0", None, True]))
def test_accepts_the_same_starts_as_its_twin(start: object) -> None:
    fast, slow = outcome(Counter, start), outcome(SlowCounter, start)
    if isinstance(fast, Counter) and isinstance(slow, SlowCounter):
        assert fast.retrieve() == slow.retrieve()
    else:
        assert fast == slow


def test_counts_down_past_zero_and_back() -> None:
    counter = Counter(1)
    assert [counter.count_down(), counter.count_down()] == [False, True]
    assert counter.count_up() == -1
    assert counter.retrieve() == 0
    assert counter.reset(1) == 0
    assert counter.count_down() is False
    assert counter.reset(5) == 0
    assert counter.reset() == 5
    assert counter.check_done() is True


def test_takes_numpy_integers_and_starts_at_zero_by_default() -> None:
    assert Counter().retrieve() == 0
    assert Counter(np.int16(7)).retrieve() == 7
    assert Counter(np.array(8)).retrieve() == 8
    assert Counter(init_count=3).reset(init_count=np.uint64(4)) == 3


def test_init_called_again_starts_anew() -> None:
    counter = Counter(3)
    counter.__init__(9)  # type: ignore[misc]  # the point of the test
    assert counter.retrieve() == 9


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda c: Counter(-1),
            BlobValueError,
            "Counter(): expected init_count of at least 0, found -1"
            " (restore(value) sets a counter below zero)",
        ),
        (
            lambda c: c.reset(-7),
            BlobValueError,
            "Counter.reset: expected init_count of at least 0, found -7"
            " (restore(value) sets a counter below zero)",
        ),
        (
            lambda c: c.restore(2**63),
            BlobValueError,
            "Counter.restore: expected value within int64, -2**63 to 2**63 - 1, found an integer of 64 bits",
        ),
        (
            lambda c: c.reset(-(10**5000)),
            BlobValueError,
            "Counter.reset: expected init_count within int64, -2**63 to 2**63 - 1,"
            " found a negative integer of 16610 bits",
        ),
        (lambda c: Counter("5"), TypeError, "Counter(): expected an integer as init_count, found str"),
        (lambda c: c.restore(2.0), TypeError, "Counter.restore: expected an integer as value, found float"),
    ],
)
def test_refuses_bad_values_and_keeps_its_own(
    call: Callable[[Counter], object], error: type[Exception], text: str
) -> None:
    counter = Counter(11)
    with pytest.raises(error) as caught:
        call(counter)
    assert str(caught.value) == text
    assert isinstance(caught.value, JobcoreError) is (error is BlobValueError)
    assert counter.retrieve() == 11


def test_an_error_inside_index_is_not_hidden() -> None:
    class Broken:
        def __index__(self) -> int:
            raise ZeroDivisionError("inside")

    with pytest.raises(ZeroDivisionError, match="inside"):
        Counter(Broken())


def test_many_threads_lose_no_count(together: Callable[..., list[object]]) -> None:
    counter = Counter()
    rounds = 5_000

    def work(number: int) -> set[int] | None:
        if number % 2:
            return {counter.count_up() for _ in range(rounds)}
        return None

    seen = [s for s in together(8, work) if isinstance(s, set)]
    # Each value before an addition is handed out once: a lost count would hand one out twice.
    assert set().union(*seen) == set(range(4 * rounds))
    assert counter.retrieve() == 4 * rounds


def test_ups_and_downs_of_many_threads_cancel_out(together: Callable[..., list[object]]) -> None:
    counter = Counter(5)

    def work(number: int) -> None:
        for _ in range(3_000):
            counter.count_up() if number % 2 else counter.count_down()

    assert together(6, work) == [None] * 6
    assert counter.retrieve() == 5


def test_a_countdown_shared_by_threads_gives_each_ticket_once(together: Callable[..., list[object]]) -> None:
    counter = Counter(9_999)

    def work(number: int) -> int:
        taken = 0
        while not counter.count_down():
            taken += 1
        return taken

    assert sum(together(8, work)) == 9_999
    assert counter.retrieve() == -8


def test_racing_resets_hand_the_old_value_to_one(together: Callable[..., list[object]]) -> None:
    for _ in range(100):
        counter = Counter(1_000)
        before = together(4, lambda number: counter.reset(number))  # noqa: B023 - called within the round
        assert sorted([*before, counter.retrieve()]) == [0, 1, 2, 3, 1_000]


def test_is_a_handle() -> None:
    counter = Counter(4)
    assert repr(counter) == "<Counter 4>"
    assert counter != Counter(4)
    assert len({counter, Counter(4)}) == 2
    with pytest.raises(TypeError):
        copy.copy(counter)
    with pytest.raises(TypeError):
        pickle.dumps(counter)
    with pytest.raises(TypeError):
        type("Derived", (Counter,), {})
