from __future__ import annotations

import os
import random
import threading
from collections.abc import Callable
from itertools import chain
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from jobcore._fast.blob import Blob
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.rebatch import RebatchingQueue
from jobcore.errors import BlobKindError, BlobValueError, Cancelled, ClosedError, WaitTimeoutError
from slow_queue import SlowRebatchingQueue
from test_queue import outcome, same

rows = st.integers(0, 3).map(lambda n: np.arange(n * 2, dtype=np.int16).reshape(n, 2))
batches = st.one_of(
    rows,
    rows.map(np.asfortranarray),
    rows.map(lambda a: a[::-1]),
    st.integers(0, 3).map(np.zeros),
    st.just(np.zeros((2, 2), np.int32)),
)


class RebatchingMachine(RuleBasedStateMachine):
    @initialize(capacity=st.integers(1, 4), num_blobs=st.integers(1, 2))
    def begin(self, capacity: int, num_blobs: int) -> None:
        self.fast = RebatchingQueue(capacity, num_blobs)
        self.slow = SlowRebatchingQueue(capacity, num_blobs)

    @rule(data=st.data(), batch=st.booleans(), off=st.sampled_from([0, 0, 0, 0, 1]))
    def enqueue(self, data: st.DataObject, batch: bool, off: int) -> None:
        values = [data.draw(batches) for _ in range(self.slow.rows.num_blobs + off)]
        if not batch:
            values = [value[0] if len(value) else value for value in values]
        expected = outcome(self.slow.enqueue, values, batch, 0)
        assert outcome(self.fast.enqueue, values, batch=batch, timeout=0) == expected

    @rule(count=st.integers(1, 5))
    def dequeue(self, count: int) -> None:
        expected = outcome(self.slow.dequeue, count, 0)
        assert same(outcome(self.fast.dequeue, count, timeout=0), expected)

    @rule(sure=st.sampled_from([False, False, False, True]))
    def close(self, sure: bool) -> None:
        if sure:
            self.fast.close()
            self.slow.rows.close()

    @invariant()
    def agree(self) -> None:
        slow = self.slow.rows
        assert (len(self.fast), self.fast.closed) == (len(slow), slow.closed)
        assert (self.fast.enqueued_rows, self.fast.dequeued_rows) == (slow.enqueued, slow.dequeued)


RebatchingMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestRebatchingMachine = RebatchingMachine.TestCase


@pytest.mark.parametrize("close", [False, True])
def test_ten_rows_come_out_five_by_five(close: bool) -> None:
    queue = RebatchingQueue(10)
    for n in range(10):
        queue.enqueue([n])
    if close:
        queue.close()
    assert [queue.dequeue(5)[0].tolist() for _ in range(2)] == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    queue.close()
    with pytest.raises(ClosedError, match="closed and empty"):
        queue.dequeue(5)
    with pytest.raises(ClosedError, match="it takes none any more"):
        queue.enqueue([10])


def test_a_closed_queue_gives_the_rows_that_are_left() -> None:
    queue = RebatchingQueue(10, 2)
    queue.enqueue([[1, 2, 3], [[1, 1], [2, 2], [3, 3]]], batch=True)
    queue.close()
    keys, pairs = queue.dequeue(8)
    assert (keys.tolist(), pairs.tolist()) == ([1, 2, 3], [[1, 1], [2, 2], [3, 3]])
    assert keys.flags.writeable


def test_a_reader_waits_for_exactly_as_many_rows_as_it_wants() -> None:
    queue = RebatchingQueue(2)
    thread = threading.Thread(target=lambda: [queue.enqueue([n]) for n in range(9)])
    thread.start()
    assert queue.dequeue(7)[0].tolist() == list(range(7))
    thread.join()
    with pytest.raises(WaitTimeoutError):
        queue.dequeue(3, timeout=0.01)
    assert queue.dequeue(2)[0].tolist() == [7, 8]


def test_a_batch_larger_than_the_queue_goes_in_as_room_comes() -> None:
    queue = RebatchingQueue(3)
    thread = threading.Thread(target=lambda: queue.enqueue([np.arange(20)], batch=True))
    thread.start()
    assert [queue.dequeue(4)[0].tolist() for _ in range(5)] == np.arange(20).reshape(5, 4).tolist()
    thread.join()


def test_a_close_in_the_middle_of_a_batch_says_how_many_rows_went_in() -> None:
    queue = RebatchingQueue(3, name="rows")
    timer = threading.Timer(0.02, queue.close)
    timer.start()
    with pytest.raises(ClosedError, match=r"queue 'rows' is closed.*; 3 of 5 rows had gone in"):
        queue.enqueue([np.arange(5)], batch=True)
    timer.join()
    assert queue.dequeue(5)[0].tolist() == [0, 1, 2]


def test_a_timeout_in_the_middle_of_a_batch_says_how_many_rows_went_in() -> None:
    queue = RebatchingQueue(3)
    with pytest.raises(WaitTimeoutError, match="; 3 of 5 rows had gone in"):
        queue.enqueue([np.arange(5)], batch=True, timeout=0.01)
    assert len(queue) == 3


def test_a_reader_that_is_cancelled_loses_no_row() -> None:
    queue, flag = RebatchingQueue(4), CancelFlag()
    queue.enqueue([np.arange(3)], batch=True)
    timer = threading.Timer(0.02, flag.set)
    timer.start()
    with pytest.raises(Cancelled):
        queue.dequeue(9, flag=flag)
    timer.join()
    assert queue.dequeue(3)[0].tolist() == [0, 1, 2]


def test_rows_that_a_bound_blob_cannot_take_stay_in_the_queue() -> None:
    queue, blob = RebatchingQueue(4), Blob("b")
    queue.enqueue([np.arange(3)], batch=True)
    blob.bind(np.empty(3, np.float32))
    with pytest.raises(BlobValueError, match="blob 'b' is bound"):
        queue.dequeue_into([blob], 3)
    assert queue.dequeue(3)[0].tolist() == [0, 1, 2]


@pytest.mark.parametrize(
    ("values", "batch", "error", "text"),
    [
        (
            [np.zeros((2, 3))],
            True,
            BlobValueError,
            r"expected rows of int64 \(2,\), like the first one, found float64",
        ),
        ([np.zeros((2, 3), np.int64)], True, BlobValueError, r"found int64 \(3,\); nothing was put in"),
        ([np.zeros(2)], False, BlobValueError, r"queue\[0\]: expected rows of int64 \(2,\)"),
        ([np.zeros(2), np.zeros(2)], False, BlobValueError, "expected 1 tensors; found 2"),
        ([np.int64(3)], True, BlobValueError, "expected a batch of tensors of one dimension or more"),
        (["text"], False, BlobKindError, "expected a tensor, found str"),
        ([{}], False, BlobKindError, "expected a dtype without Python objects"),
    ],
)
def test_rows_that_do_not_fit_are_refused_before_any_goes_in(
    values: list[Any], batch: bool, error: type[Exception], text: str
) -> None:
    queue = RebatchingQueue(4)
    queue.enqueue([[[1, 2]]], batch=True)
    with pytest.raises(error, match=text):
        queue.enqueue(values, batch=batch)
    assert len(queue) == 1


def test_tensors_of_a_batch_are_equally_long() -> None:
    queue = RebatchingQueue(4, 2)
    with pytest.raises(BlobValueError, match="expected a batch of tensors of one length, found lengths 2, 3"):
        queue.enqueue([[1, 2], [1, 2, 3]], batch=True)


def test_blobs_are_copied_row_by_row() -> None:
    array = np.arange(4.0).reshape(2, 2)
    fed, bound = Blob("fed"), Blob("bound")
    fed.feed(array)
    bound.bind(array)
    queue = RebatchingQueue(4, 2)
    queue.enqueue([fed, bound], batch=True)
    array += 7
    first, second = queue.dequeue(2)
    assert first.tolist() == second.tolist() == [[0, 1], [2, 3]]
    with pytest.raises(BlobKindError, match="expected a tensor"):
        queue.enqueue([Blob("empty"), bound])


@pytest.mark.parametrize("dtype", ["U3", "S0", "M8[s]", "?", "c16", np.dtypes.StringDType()])
def test_rows_of_any_dtype(dtype: Any) -> None:
    batch = np.array(["1", "0", "1"]).astype("i4").astype("U1").astype(dtype)
    queue = RebatchingQueue(3)
    queue.enqueue([batch], batch=True)
    (found,) = queue.dequeue(3)
    assert found.dtype == batch.dtype
    assert found.tolist() == batch.tolist()


def test_many_producers_and_consumers_permute_the_rows(together: Callable[..., list[Any]]) -> None:
    queue = RebatchingQueue(7, 2)
    queue.register_writer(3)

    def work(number: int) -> list[int] | None:
        draw = random.Random(number)
        if number < 3:
            n = 0
            while n < 300:
                size = min(draw.randint(1, 20), 300 - n)
                batch = np.arange(n, n + size) + 1000 * number
                queue.enqueue([batch, np.stack([batch, -batch], 1)], batch=True)
                n += size
            queue.writer_done()
            return None
        found: list[int] = []
        while True:
            try:
                keys, pairs = queue.dequeue(draw.randint(1, 20))
            except ClosedError:
                return found
            assert (pairs == np.stack([keys, -keys], 1)).all()
            found += keys.tolist()

    lists = [found for found in together(6, work) if found is not None]
    assert sorted(chain(*lists)) == [1000 * number + n for number in range(3) for n in range(300)]
    for found in lists:
        for number in range(3):
            own = [n for n in found if n // 1000 == number]
            assert own == sorted(own)


def test_a_child_process_finds_it_closed_and_empty() -> None:
    queue = RebatchingQueue(3)
    queue.enqueue([1])
    child = os.fork()
    if child == 0:
        good = (len(queue), queue.closed, queue.foreign) == (0, True, True)
        os._exit(
            0
            if good and outcome(queue.dequeue) is ClosedError and outcome(queue.enqueue, [1]) is ClosedError
            else 1
        )
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_shows_what_it_is() -> None:
    queue = RebatchingQueue(3, name="r")
    queue.enqueue([1])
    assert repr(queue) == "<RebatchingQueue 'r': 1 of 3 rows, open>"
    assert (queue.name, queue.capacity, queue.num_blobs) == ("r", 3, 1)
    assert bool(RebatchingQueue())
