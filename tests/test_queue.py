from __future__ import annotations

import gc
import os
import signal
import threading
import time
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

import jobcore
from jobcore import Counter, Workspace
from jobcore._fast.blob import Blob
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.queue import BlobQueue
from jobcore._fast.rebatch import RebatchingQueue
from jobcore.errors import (
    BlobKindError,
    BlobValueError,
    Cancelled,
    ClosedError,
    ContextError,
    WaitTimeoutError,
)
from slow_queue import SlowQueue

ERRORS = (BlobKindError, BlobValueError, ClosedError, ContextError, WaitTimeoutError, TypeError, ValueError)


def make(capacity: int = 4, num_blobs: int = 1, **options: Any) -> BlobQueue:
    return BlobQueue(capacity, num_blobs, classify=Workspace._classify, **options)


def outcome(call: Callable[..., object], *args: object, **options: object) -> object:
    try:
        return call(*args, **options)
    except ERRORS as error:
        return type(error)


def same(a: object, b: object) -> bool:
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(map(same, a, b))
    if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
        return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
    return type(a) is type(b) and a == b


values = st.one_of(
    st.integers(-5, 5),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=3),
    st.binary(max_size=3),
    st.just(2**70),
    st.lists(st.integers(0, 3), max_size=2),
    st.dictionaries(st.text(max_size=2), st.integers(), max_size=2),
    st.integers(0, 3).map(lambda n: np.arange(n, dtype=np.float32)),
    st.integers(1, 2).map(lambda n: np.ones((n, 2), np.int16)),
)


class QueueMachine(RuleBasedStateMachine):
    """Every call on the queue and on its twin, one after the other; no call waits."""

    @initialize(capacity=st.integers(1, 3), num_blobs=st.integers(1, 3))
    def begin(self, capacity: int, num_blobs: int) -> None:
        self.fast = make(capacity, num_blobs)
        self.slow = SlowQueue(capacity, num_blobs)

    @rule(data=st.data(), move=st.booleans(), off=st.sampled_from([0, 0, 0, 0, 1]))
    def put(self, data: st.DataObject, move: bool, off: int) -> None:
        record = [data.draw(values) for _ in range(self.slow.num_blobs + off)]
        expected = outcome(self.slow.put, record, 0)
        assert outcome(self.fast.put, record, 0, move=move) == expected

    @rule()
    def put_blobs(self) -> None:
        workspace = Workspace()
        blobs = [workspace.create_blob(str(i)) for i in range(self.slow.num_blobs)]
        for i, blob in enumerate(blobs):
            blob.feed(np.full(i + 1, i))
        expected = outcome(self.slow.put, [np.full(i + 1, i) for i in range(len(blobs))], 0)
        assert outcome(self.fast.put, blobs, 0, move=True) == expected
        assert {blob.kind for blob in blobs} == {"empty" if expected is None else "tensor"}

    @rule(records=st.sampled_from([1, 1, 2, 3]))
    def get(self, records: int) -> None:
        expected = outcome(self.slow.get, 0, records)
        assert same(outcome(self.fast.get, 0, num_records=records), expected)

    @rule()
    def try_get(self) -> None:
        assert same(outcome(self.fast.try_get), outcome(self.slow.try_get))

    @rule(records=st.sampled_from([1, 2]))
    def get_into(self, records: int) -> None:
        blobs = [Blob(str(i), Workspace._classify) for i in range(self.slow.num_blobs)]
        expected = outcome(self.slow.get, 0, records)
        found = outcome(self.fast.get_into, blobs, 0, num_records=records)
        if isinstance(expected, list):
            assert found is True
            assert same([blob.fetch() for blob in blobs], expected)
        else:
            assert found == (False if expected is ClosedError else expected)
            assert {blob.kind for blob in blobs} == {"empty"}

    @rule(count=st.sampled_from([1, 2, 0]))
    def register(self, count: int) -> None:
        expected = BlobValueError if count == 0 else outcome(self.slow.register_writer, count)
        assert outcome(self.fast.register_writer, count) == expected

    @rule()
    def done(self) -> None:
        assert outcome(self.fast.writer_done) == outcome(self.slow.writer_done)

    @rule(sure=st.sampled_from([False, False, False, True]))
    def close(self, sure: bool) -> None:
        if sure:
            self.fast.close()
            self.slow.close()

    @invariant()
    def agree(self) -> None:
        fast, slow = self.fast, self.slow
        assert (len(fast), fast.closed, fast.num_writers) == (len(slow), slow.closed, slow.writers)
        assert fast.balance == len(slow)
        assert (fast.enqueued_records, fast.dequeued_records) == (slow.enqueued, slow.dequeued)
        assert fast.dequeued_bytes_by_field == tuple(slow.bytes)
        assert fast.dequeued_bytes == sum(slow.bytes)


QueueMachine.TestCase.settings = settings(max_examples=150, stateful_step_count=30)
TestQueueMachine = QueueMachine.TestCase


# ------------------------------------------------------------------------------------------------------- values


def test_every_kind_of_value_comes_out_as_it_went_in() -> None:
    counter, thing, generator = Counter(3), object(), np.random.default_rng(1)
    queue = make(1, 9)
    queue.put([np.arange(3.0), 7, "text", b"bytes", {"a": [1, None]}, None, counter, thing, generator])
    tensor, number, text, raw, state, nothing, *handles = queue.get()
    assert tensor.tolist() == [0, 1, 2]
    assert (number.dtype, number.shape, number[()]) == (np.int64, (), 7)
    assert (text, raw, state, nothing) == ("text", b"bytes", {"a": [1, None]}, None)
    assert all(found is put for found, put in zip(handles, [counter, thing, generator], strict=True))


def test_what_is_put_in_is_a_copy_and_what_comes_out_belongs_to_the_reader() -> None:
    array, state, blob = np.zeros(3), {"a": [1]}, Blob("b")
    blob.feed(array)
    queue = make(2, 3)
    queue.put([array, state, blob])
    array += 1
    state["a"].append(2)
    blob.feed(array)
    first, kept, second = queue.get()
    assert (first.tolist(), kept, second.tolist()) == ([0, 0, 0], {"a": [1]}, [0, 0, 0])
    first += 5
    second += 5
    assert blob.fetch().tolist() == [1, 1, 1]


def test_a_moved_array_is_not_copied() -> None:
    array = np.zeros(3)
    where = array.ctypes.data
    queue = make()
    queue.put([array], move=True)
    assert not array.flags.writeable
    del array
    (found,) = queue.get()
    assert found.ctypes.data == where
    assert found.flags.writeable


def test_a_moved_array_that_its_owner_keeps_is_still_not_shared() -> None:
    array = np.zeros(3)
    queue = make(1, 2)
    queue.put([array, array], move=True)
    first, second = queue.get()
    first += 1
    second += 2
    assert (array.tolist(), first.tolist(), second.tolist()) == ([0] * 3, [1] * 3, [2] * 3)


@pytest.mark.parametrize(
    "array", [np.zeros((4, 4))[1:], np.zeros((4, 4))[:, 1:], np.frombuffer(b"12345678")], ids=str
)
def test_memory_that_belongs_to_others_is_copied_even_by_a_move(array: np.ndarray[Any, Any]) -> None:
    queue = make()
    queue.put([array], move=True)
    (found,) = queue.get()
    assert not np.shares_memory(found, array)
    assert found.tobytes() == array.tobytes()


def test_a_blob_that_is_moved_is_empty_afterwards_unless_others_look_at_it() -> None:
    alone, seen, bound = Blob("alone"), Blob("seen"), Blob("bound")
    outside = np.full(2, 3.0)
    alone.feed(np.full(2, 1.0))
    seen.feed(np.full(2, 2.0))
    bound.bind(outside)
    view = seen.view()
    queue = make(1, 3)
    queue.put([alone, seen, bound], move=True)
    assert [blob.kind for blob in (alone, seen, bound)] == ["empty", "tensor", "tensor"]
    for found in queue.get():
        found += 10
    assert (view.tolist(), outside.tolist()) == ([2, 2], [3, 3])


@pytest.mark.parametrize("fail", ["closed", "full"])
def test_a_put_that_fails_moves_nothing(fail: str) -> None:
    queue = make(1)
    queue.put([0])
    if fail == "closed":
        queue.close()
    array, blob = np.zeros(2), Blob("b")
    blob.feed(array)
    for value in (array, blob):
        with pytest.raises(ClosedError if fail == "closed" else WaitTimeoutError):
            queue.put([value], 0, move=True)
    array += 1
    assert blob.fetch().tolist() == [0, 0]


def test_a_blob_that_cannot_take_the_value_leaves_it_in_the_queue() -> None:
    queue = make()
    queue.put([np.zeros(3)])
    queue.put([np.ones(3)])
    blob = Blob("b")
    blob.bind(np.empty(2))
    with pytest.raises(BlobValueError, match=r"blob 'b' is bound: expected float64 \(2,\)"):
        queue.get_into([blob])
    assert [queue.get()[0][0] for _ in range(2)] == [0, 1]
    assert queue.dequeued_records == 2


def test_records_are_joined_and_a_misfit_takes_nothing() -> None:
    queue = make(8, 2, field_names=["key", "value"])
    for n in (1, 2, 3):
        queue.put([np.full(n, n), np.full((n, 2), n)])
    queue.put([np.zeros(1, np.int64), np.zeros((1, 3), np.int64)])
    with pytest.raises(BlobValueError, match=r"queue/value: expected tensors that differ in axis 0 only"):
        queue.get(num_records=4)
    assert len(queue) == 4
    keys, rows = queue.get(num_records=3)
    assert keys.tolist() == [1, 2, 2, 3, 3, 3]
    assert rows.shape == (6, 2)


def test_five_records_by_three_are_three_two_and_the_end() -> None:
    queue = make(5)
    for n in range(5):
        queue.put([np.array([n])])
    queue.close()
    assert [queue.get(num_records=3)[0].tolist() for _ in range(2)] == [[0, 1, 2], [3, 4]]
    with pytest.raises(ClosedError, match="queue 'queue' is closed and empty"):
        queue.get(num_records=3)


def test_more_records_than_the_capacity_are_joined_as_they_come() -> None:
    queue = make(1)
    thread = threading.Thread(target=lambda: [queue.put([np.array([n])]) for n in range(7)])
    thread.start()
    assert queue.get(num_records=7)[0].tolist() == list(range(7))
    thread.join()


def test_records_that_came_before_a_timeout_stay_in_order() -> None:
    queue = make(2)
    for n in range(2):
        queue.put([np.array([n])])
    with pytest.raises(WaitTimeoutError, match="expected 3 records in time"):
        queue.get(0.01, num_records=3)
    # What was put back has its place, and the writers wait as before.
    with pytest.raises(WaitTimeoutError):
        queue.put([np.array([2])], 0)
    assert [queue.get()[0].tolist() for _ in range(2)] == [[0], [1]]


# ------------------------------------------------------------------------------------------------------ closing


def test_closed_means_closed() -> None:
    queue = make(4, name="rows")
    queue.put([1])
    queue.close()
    queue.close()
    with pytest.raises(ClosedError, match=r"queue 'rows' is closed: expected it to take a record"):
        queue.put([2])
    assert queue.get() == [1]
    with pytest.raises(ClosedError, match=r"queue 'rows' is closed and empty"):
        queue.get()
    with pytest.raises(ClosedError):
        queue.try_get()


def test_a_put_that_waits_fails_when_the_queue_closes(together: Callable[..., list[object]]) -> None:
    queue = make(1)
    queue.put([0])

    def work(number: int) -> object:
        if number < 3:
            return outcome(queue.put, [number + 1])
        while queue.balance < 4:
            time.sleep(0.001)
        queue.close()
        return None

    assert together(4, work) == [ClosedError] * 3 + [None]
    assert queue.get() == [0]
    assert outcome(queue.get) is ClosedError


def test_readers_that_wait_are_told_the_end(together: Callable[..., list[object]]) -> None:
    queue = make()

    def work(number: int) -> object:
        if number < 3:
            return outcome(queue.get)
        while queue.balance > -3:
            time.sleep(0.001)
        queue.close()
        return None

    assert together(4, work) == [ClosedError] * 3 + [None]


def test_the_last_registered_writer_closes() -> None:
    queue = make()
    queue.register_writer(2)
    assert queue.writer_done() == 1
    assert not queue.closed
    assert queue.writer_done() == 0
    assert queue.closed
    with pytest.raises(ContextError, match="expected a registered writer that is not done"):
        queue.writer_done()
    with pytest.raises(ClosedError):
        queue.register_writer()


def test_writers_may_still_say_that_they_are_done_after_a_close_by_hand() -> None:
    queue = make()
    queue.register_writer()
    queue.close()
    assert queue.writer_done() == 0


def test_two_producers_of_one_queue_deliver_all_their_rows(together: Callable[..., list[object]]) -> None:
    queue = make(2)
    queue.register_writer(2)

    def work(number: int) -> object:
        if number < 2:
            for n in range([3, 200][number]):
                queue.put([1000 * number + n])
            return queue.writer_done()
        found: list[int] = []
        while True:
            try:
                found.append(int(queue.get()[0]))
            except ClosedError:
                return found

    *left, found = together(3, work)
    assert sorted(left) == [0, 1]
    assert isinstance(found, list)
    assert [n for n in found if n < 1000] == [0, 1, 2]
    assert [n for n in found if n >= 1000] == [1000 + n for n in range(200)]


# ------------------------------------------------------------------------------------------------------ waiting


def test_a_wait_ends_in_time() -> None:
    queue = make(1)
    begin = time.monotonic()
    with pytest.raises(WaitTimeoutError, match="expected a record in time"):
        queue.get(0.02)
    assert time.monotonic() - begin >= 0.02
    assert queue.read_wait_ns >= 20_000_000
    queue.put([1], 0)
    with pytest.raises(WaitTimeoutError, match="expected room for a record in time"):
        queue.put([1], 0.02)
    assert queue.write_wait_ns >= 20_000_000
    assert isinstance(WaitTimeoutError(""), TimeoutError)


@pytest.mark.parametrize("timeout", [-1, float("nan"), float("-inf")])
def test_a_timeout_is_a_time(timeout: float) -> None:
    queue = make()
    for call in (queue.get, lambda t: queue.put([1], t)):
        with pytest.raises(ValueError, match="expected a timeout of at least 0 seconds"):
            call(timeout)
    queue.put([1], float("inf"))
    assert queue.get(1e30) == [1]


@pytest.mark.parametrize("where", ["main", "thread"])
@pytest.mark.parametrize("side", ["put", "get", "get many"])
def test_a_flag_ends_a_wait(side: str, where: str) -> None:
    queue, flag = make(1), CancelFlag()
    queue.put([np.array([1])])
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: queue.put([2], flag=flag),
        "get": lambda: queue.get(flag=flag) and queue.get(flag=flag),
        "get many": lambda: queue.get(num_records=2, flag=flag),
    }
    timer = threading.Timer(0.02, flag.set, ["enough"])
    timer.start()
    caught: list[BaseException] = []

    def call() -> None:
        try:
            calls[side]()
        except BaseException as error:
            caught.append(error)

    if where == "main":
        call()
    else:
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    timer.join()
    assert isinstance(caught[0], Cancelled)
    assert str(caught[0]) == "enough"
    # Only the one that had come out was taken.
    assert len(queue) == (0 if side == "get" else 1)


def test_a_flag_that_is_up_stops_only_who_would_wait() -> None:
    queue, flag = make(1), CancelFlag()
    flag.set()
    queue.put([1], flag=flag)
    assert queue.get(flag=flag) == [1]
    with pytest.raises(Cancelled):
        queue.get(flag=flag)


@pytest.mark.parametrize("side", ["put", "get", "get many"])
def test_a_signal_ends_a_wait_in_the_main_thread(side: str) -> None:
    queue = make(1)
    queue.put([np.array([1])])
    main = threading.main_thread().ident
    assert main is not None
    timer = threading.Timer(0.05, signal.pthread_kill, [main, signal.SIGINT])
    timer.start()
    calls: dict[str, Callable[[], object]] = {
        "put": lambda: queue.put([2]),
        "get": lambda: queue.get() and queue.get(),
        "get many": lambda: queue.get(num_records=2),
    }
    with pytest.raises(KeyboardInterrupt):
        calls[side]()
    timer.join()
    assert len(queue) == (0 if side == "get" else 1)


# ------------------------------------------------------------------------------------------- memory and processes


class Thing:
    pass


def test_nothing_is_leaked() -> None:
    things = [Thing() for _ in range(6)]
    alive = [weakref.ref(thing) for thing in things]
    queue = make(3)
    for thing in things[:3]:
        queue.put([thing])
    outcome(queue.put, [things[3]], 0)
    queue.get()
    queue.put([things[4]])
    queue.close()
    outcome(queue.put, [things[5]])
    things.clear()
    del thing
    assert [ref() is not None for ref in alive] == [False, True, True, False, True, False]
    del queue
    assert [ref() for ref in alive] == [None] * 6


def test_a_cycle_through_a_queue_is_collected() -> None:
    queue, thing = make(2), Thing()
    thing.queue = queue  # type: ignore[attr-defined]  # the point of the test
    queue.put([thing])
    queue.put([[1, 2]])
    alive = weakref.ref(thing)
    gc.collect()
    assert alive() is thing
    del queue, thing
    gc.collect()
    assert alive() is None


def test_the_collector_sees_what_is_in_a_queue_while_it_is_used(
    together: Callable[..., list[object]],
) -> None:
    queue = make(3)

    def work(number: int) -> object:
        if number == 0:
            for _ in range(60):
                gc.collect(0)
            queue.close()
            return None
        if number == 1:
            while outcome(queue.put, [{"a": [1], "b": {}}]) is None:
                pass
            return None
        while isinstance(found := outcome(queue.get), list):
            assert found == [{"a": [1], "b": {}}]
        return found

    assert together(3, work) == [None, None, ClosedError]


def test_a_child_process_finds_the_queue_closed_and_empty() -> None:
    queue = make(2)
    queue.put([Thing()])
    reader = threading.Thread(target=lambda: outcome(make().get, 5))
    reader.start()
    child = os.fork()
    if child == 0:
        good = (len(queue), queue.closed, queue.foreign, queue.balance) == (0, True, True, 0)
        for call in (queue.get, queue.try_get, lambda: queue.put([1]), queue.register_writer):
            try:
                call()
                good = False
            except ClosedError as error:
                good = good and "forked" in str(error)
        queue.close()
        gc.collect()
        del queue
        fresh = make(1)
        fresh.put([1])
        os._exit(0 if good and fresh.get() == [1] else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert not queue.closed
    assert isinstance(queue.get()[0], Thing)


# ---------------------------------------------------------------------------------------------------- arguments


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: BlobQueue(0), BlobValueError, "expected capacity of at least 1"),
        (lambda: BlobQueue(2**70), BlobValueError, "found an integer of 71 bits"),
        (lambda: BlobQueue(1.5), TypeError, "expected an integer as capacity, found float"),  # type: ignore[arg-type]
        (lambda: BlobQueue(1, -1), BlobValueError, "expected num_blobs of at least 1"),
        (lambda: BlobQueue(2**60, 2**60), MemoryError, "no room for a queue"),
        (lambda: BlobQueue(1, 2, ["a"]), BlobValueError, "expected 2 different field_names"),
        (lambda: BlobQueue(1, 2, ["a", "a"]), BlobValueError, "expected 2 different field_names"),
        (lambda: BlobQueue(1, 1, [3]), TypeError, "expected field_names of type str"),  # type: ignore[list-item]
        (lambda: BlobQueue(name=3), TypeError, "expected a str as name, found int"),  # type: ignore[arg-type]
        (lambda: make(1, 2, field_names="ab").put([1]), BlobValueError, "expected 2 values: a, b; found 1"),
        (lambda: make().put([Blob("x")]), BlobValueError, "blob 'x' is empty"),
        (lambda: make().get(num_records=0), BlobValueError, "expected num_records of at least 1"),
        (lambda: make(1, 2).get_into([Blob("x")]), BlobValueError, "expected 2 blobs; found 1"),
    ],
)
def test_bad_arguments_are_refused(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        call()


def test_shows_what_it_is() -> None:
    queue = make(3, 2, field_names=["a", "b"], name="q")
    queue.put([1, 2])
    assert repr(queue) == "<BlobQueue 'q': 1 of 3 records, open>"
    assert (queue.name, queue.capacity, queue.num_blobs, queue.field_names) == ("q", 3, 2, ("a", "b"))
    assert bool(make())
    assert make().field_names is None


@pytest.mark.parametrize("kind", [BlobQueue, RebatchingQueue])
def test_a_queue_is_a_blob_of_its_own_kind_and_in_no_checkpoint(kind: Any, tmp_path: Path) -> None:
    ws, queue = jobcore.Workspace(), kind(3)
    ws.feed("q", queue)
    blob = ws.blob("q")
    assert (blob.kind, blob.transient, ws.fetch("q")) == ("queue", True, queue)
    assert repr(blob) == "<Blob 'q': queue, transient>"
    for attempt in (
        lambda: ws.feed("q", queue, transient=False),
        lambda: setattr(blob, "transient", False),
        lambda: blob.feed(blob, transient=False),
    ):
        with pytest.raises(
            BlobKindError, match=f"blob 'q': a queue cannot be in a checkpoint.*found .*{kind.__name__}"
        ):
            attempt()
    ws.feed("w", 1.0)
    written = jobcore.save(tmp_path / "a.zarr.zip", {"q": blob, "w": ws.blob("w")})
    assert [tuple(entry) for entry in written.skipped] == [("q", "transient")]
    assert list(jobcore.load(tmp_path / "a.zarr.zip")) == ["w"]
    ws.feed("other", blob)
    assert ws.blob("other").kind == "queue"


def test_a_queue_in_a_queue_is_found_by_the_garbage_collector() -> None:
    queue, inner = make(2), make(1)
    queue.put([inner])
    blob = Blob("out")
    assert queue.get_into([blob])
    assert (blob.kind, blob.value is inner, blob.transient) == ("queue", True, True)
    gc.collect()
    thing = type("Thing", (), {})()
    alive = weakref.ref(thing)
    inner.put([thing])
    queue.put([queue])
    queue.put([inner])
    del queue, inner, thing, blob
    gc.collect()
    assert alive() is None


def test_an_integer_is_added_to_in_one_step() -> None:
    blob = Blob("n")
    blob.feed(5)
    assert (blob.fetch_add(3), blob.fetch_add(-1), int(blob.fetch())) == (5, 8, 7)
    seen = blob.view()
    assert (blob.fetch_add(1), int(seen), int(blob.fetch())) == (7, 7, 8)
    blob.feed(2**63 - 1)
    assert blob.fetch_add(1) == 2**63 - 1
    assert blob.fetch() == -(2**63)
    bound = np.array(4)
    blob.bind(bound)
    assert (blob.fetch_add(2), int(bound)) == (4, 6)
    for value in (1.5, "text", np.arange(3), np.int32(1)):
        other = Blob("m")
        other.feed(value)
        with pytest.raises(BlobKindError, match="expected a 0-d tensor of int64 to add to, found <Blob 'm'"):
            other.fetch_add(1)
    with pytest.raises(OverflowError):
        blob.fetch_add(2**63)
