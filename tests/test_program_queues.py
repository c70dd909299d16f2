"""Queue ops in native programs: against their kernels in Python, beside other threads, and where they must give way."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from random import Random
from typing import Any

import numpy as np
import pytest

from jobcore import LocalSession, NetBuilder, Task, TaskGroup, Workspace, ops
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.program import Program, native_kernel
from jobcore.errors import Cancelled, ClosedError, TaskGroupError
from jobcore.graph import OpContext, schema
from jobcore.graph.registry import make_op
from jobcore.lowlevel import BlobQueue, classify
from slow_program import in_python

pytestmark = pytest.mark.usefixtures("quiet_threads")


class Context:
    """What a program wants to know of its run."""

    def __init__(self) -> None:
        self.token = self
        self.flag = CancelFlag()

    def check(self) -> None:
        self.flag.check()

    def passes(self, error: BaseException) -> bool:
        return True


class Looped:
    """Ops that a native program runs so often; `python_calls` counts those that Python did."""

    def __init__(self, times: int, *calls: tuple[str, list[str], list[str]]) -> None:
        self.names: list[str] = []
        self.python_calls: list[str] = []
        self.context = Context()
        body = [self._op(*call) for call in calls]
        self.program = Program(
            tuple(self.names),
            1,
            [
                ("set", 0, 0, (), (), None, times, None),
                ("loop", len(body) + 3, 0, (), (), None, None, None),
                *body,
                ("jump", 1, 0, (), (), None, None, None),
                ("end", 0, 0, (), (), None, None, None),
            ],
        )

    def _op(self, op_type: str, inputs: list[str], outputs: list[str]) -> tuple[Any, ...]:
        made, kernel = make_op(op_type, inputs, outputs, {}, "", ""), schema(op_type).kernel

        def counted(ctx: OpContext) -> None:
            self.python_calls.append(op_type)
            kernel(ctx)

        for name in (*inputs, *outputs):
            if name not in self.names:
                self.names.append(name)
        slots = [tuple(self.names.index(name) for name in group) for group in (inputs, outputs)]
        plain = True if op_type.endswith("Blobs") else None
        return ("op", 0, 0, *slots, native_kernel(op_type), plain, ("", counted, made, OpContext))

    def run(self, ws: Workspace) -> None:
        self.program.run(ws, self.context)


def put(times: int) -> Looped:
    return Looped(times, ("EnqueueBlobs", ["q", "x"], []))


def take(times: int) -> Looped:
    return Looped(times, ("SafeDequeueBlobs", ["q"], ["y", "ended"]))


def workspaces(queue: BlobQueue, x: object, y: object) -> tuple[Workspace, Workspace]:
    """One for what puts, and one for what takes."""
    one, other = Workspace(), Workspace()
    for ws in (one, other):
        ws.feed("q", queue)
    one.feed("x", x)
    other.feed("y", y)
    other.feed("ended", False)
    return one, other


VALUES = [
    1,
    2.5,
    True,
    np.int32(7),
    np.arange(6.0).reshape(2, 3),
    np.arange(3),
    np.array(["ab", "c"]),
    np.zeros(0),
]
IDS = [f"{np.asarray(value).dtype} {np.shape(value)}" for value in VALUES]


@pytest.mark.parametrize("value", VALUES, ids=IDS)
def test_records_pass_without_python(value: Any, together: Callable[..., list[object]]) -> None:
    one, other = workspaces(BlobQueue(5), value, np.zeros_like(value))
    writer, reader = put(1000), take(1000)
    together(2, lambda number: writer.run(one) if number == 0 else reader.run(other))
    assert (writer.python_calls, reader.python_calls) == ([], [])
    found = other.fetch("y")
    assert found.dtype == np.asarray(value).dtype
    assert np.array_equal(found, value)
    assert np.array_equal(one.fetch("x"), value)
    queue = one.blob("q").value
    assert (queue.enqueued_records, queue.dequeued_records, len(queue)) == (1000, 1000, 0)
    assert queue.enqueued_bytes == queue.dequeued_bytes == 1000 * np.asarray(value).nbytes


OTHERS = [
    "text", b"bytes", {"a": 1}, np.arange(3)[::-1], np.uint64(3), 1j, np.asfortranarray(np.ones((2, 3))), np.ones(5000),
]  # fmt: skip


@pytest.mark.parametrize("value", OTHERS, ids=lambda value: type(value).__name__ + str(np.shape(value)))
def test_all_else_passes_by_way_of_python(value: Any) -> None:
    one, other = workspaces(BlobQueue(8, classify=classify), value, 0)
    put(4).run(one)
    take(4).run(other)
    assert np.array_equal(other.fetch("y"), one.fetch("x"))
    assert other.blob("y").kind == one.blob("x").kind


@pytest.mark.parametrize("y", [0, 1.0, np.zeros(3), np.zeros((3, 1)), np.zeros(3, "f4"), "text"])
def test_a_blob_takes_the_form_of_the_record(y: Any) -> None:
    queue = BlobQueue(8)
    one, other = workspaces(queue, np.arange(3), y)
    put(2).run(one)
    take(2).run(other)
    found = other.fetch("y")
    assert (found.dtype, found.tolist()) == (np.int64, [0, 1, 2])


def test_a_bound_blob_gets_a_copy_and_refuses_what_has_no_place(ws: Workspace) -> None:
    queue, bound = BlobQueue(8), np.zeros(3)
    one, other = workspaces(queue, np.arange(3.0), 0)
    other.bind("y", bound)
    put(2).run(one)
    take(2).run(other)
    assert bound.tolist() == [0, 1, 2]
    one.feed("x", np.zeros(2))
    put(1).run(one)
    with pytest.raises(Exception, match="is bound"):
        take(1).run(other)
    assert len(queue) == 1


@pytest.fixture
def ws() -> Workspace:
    return Workspace()


def test_who_has_a_view_keeps_what_it_shows() -> None:
    queue = BlobQueue(8)
    one, other = workspaces(queue, np.zeros(4), np.zeros(4))
    held = [other.view("y"), one.view("x")]
    for number in range(1, 5):
        one.feed("x", np.full(4, number))
        put(2).run(one)
        take(2).run(other)
        held += [other.view("y"), one.view("x"), other.fetch("y")]
    assert [array[0] for array in held] == [0, 0] + [n for n in range(1, 5) for _ in range(3)]


def test_no_thread_gets_half_a_tensor(together: Callable[..., list[object]]) -> None:
    """A writer whose blob is fed all the time, a reader whose blob is fetched all the time."""
    one, other = workspaces(BlobQueue(3), np.zeros(1000), np.zeros(1000))
    rounds, done = 1000, threading.Event()

    def work(number: int) -> None:
        if number == 0:
            put(rounds).run(one)
        elif number == 1:
            take(rounds).run(other)
            done.set()
        else:
            count = 0.0
            while not done.is_set():
                count += 1
                one.feed("x", np.full(1000, count))
                for found in (other.fetch("y"), other.view("y"), one.fetch("x")):
                    assert (found == found[0]).all()

    together(3, work)


def test_the_end_of_a_queue_is_told_or_fails() -> None:
    queue = BlobQueue(2)
    one, other = workspaces(queue, 5, 0)
    put(2).run(one)
    queue.close()
    with pytest.raises(ClosedError):
        put(1).run(one)
    safe = Looped(1, ("SafeEnqueueBlobs", ["q", "x"], ["stopped"]))
    one.feed("stopped", False)
    safe.run(one)
    assert safe.python_calls == []
    assert one.fetch("stopped") == True  # noqa: E712 - a 0-d array
    reader = take(4)
    reader.run(other)
    assert reader.python_calls == []
    assert (other.fetch("y"), other.fetch("ended")) == (5, True)
    with pytest.raises(ClosedError):
        Looped(1, ("DequeueBlobs", ["q"], ["y"])).run(other)


@pytest.mark.parametrize("side", ["put", "take"])
@pytest.mark.parametrize("value", [1, np.ones(7)], ids=["scalar", "tensor"])
def test_a_flag_ends_a_wait(side: str, value: Any) -> None:
    queue = BlobQueue(1)
    one, other = workspaces(queue, value, value)
    program, ws = (put(2), one) if side == "put" else (take(1), other)
    raised: list[type] = []

    def wait() -> None:
        try:
            program.run(ws)
        except Cancelled:
            raised.append(Cancelled)

    thread = threading.Thread(target=wait)
    thread.start()
    while queue.balance != (2 if side == "put" else -1):
        pass
    program.context.flag.set("enough")
    thread.join()
    assert raised == [Cancelled]
    assert len(queue) == (1 if side == "put" else 0)


def test_a_wait_in_the_main_thread_sees_signals() -> None:
    queue = BlobQueue(1)
    _, other = workspaces(queue, 1, 1)

    def interrupt() -> None:
        while queue.balance != -1:
            pass
        signal.raise_signal(signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        take(1).run(other)
    thread.join()
    assert queue.balance == 0


def test_a_failure_reaches_a_program_that_waits(session: LocalSession) -> None:
    with TaskGroup() as group:
        with Task():
            queue = ops.CreateBlobsQueue([], "q")
            with ops.loop():
                ops.SafeEnqueueBlobs([queue, ops.Const(1)], ["stopped"])
                ops.stop_if("stopped")
        with Task():
            ops.Python(lambda inputs, outputs: 1 // 0)([], [])
    with pytest.raises(TaskGroupError) as caught:
        session.run(group)
    assert [type(failure.error) for failure in caught.value.failures] == [ZeroDivisionError]


# -- against the kernels in Python


def random_net(rng: Random, capacity: int) -> NetBuilder:
    """A sequence on one queue that never waits: what is in it is known."""
    inside, closed = 0, False
    feeds: list[Any] = [
        0,
        3,
        2.5,
        False,
        np.arange(3),
        np.ones((2, 2), "f4"),
        "text",
        {"a": [1]},
        np.int32(5),
        np.uint64(1),
    ]

    def feed(value: Any) -> Any:
        return lambda inputs, outputs: outputs[0].feed(value)

    with NetBuilder() as builder:
        ops.CreateBlobsQueue([], "q", capacity=capacity, num_blobs=2)
        for name in ("a", "b", "c", "d"):
            ops.Python(feed(rng.choice(feeds)))([], [name])
        for flag in ("s", "t"):
            ops.Const(False, flag)
        with ops.loop(rng.randrange(1, 4)):
            ops.CreateBlobsQueue([], "q", capacity=capacity, num_blobs=2)
            for _ in range(rng.randrange(25)):
                kind = rng.randrange(9)
                if kind < 3:
                    ops.Python(feed(rng.choice(feeds)))([], [rng.choice("abcd")])
                elif kind < 6 and (inside < capacity or closed):
                    ops.SafeEnqueueBlobs(["q", rng.choice("abcd"), rng.choice("abcd")], ["s"])
                    inside += not closed
                elif kind < 8 and (inside or closed):
                    first, second = rng.sample("abcd", 2)
                    ops.SafeDequeueBlobs("q", [first, second, rng.choice("st")])
                    inside -= inside > 0
                elif kind == 8 and rng.random() < 0.3:
                    ops.CloseBlobsQueue("q")
                    closed = True
            # The next round begins with a new queue.
            ops.CloseBlobsQueue("q")
            inside, closed = 0, True
    return builder


def outcome(seed: int) -> list[Any]:
    ws = Workspace()
    with LocalSession(ws) as session:
        session.run(random_net(Random(seed), 3))
    state: list[Any] = []
    for name in ("a", "b", "c", "d", "s", "t"):
        value = ws.fetch(name)
        state.append(
            (
                ws.blob(name).kind,
                getattr(value, "dtype", None),
                value.tolist() if hasattr(value, "tolist") else value,
            )
        )
    queue = ws.blob("q").value
    numbers = queue.totals.read()
    state.append({name: number for name, number in numbers.items() if "time" not in name})
    while (record := queue.get() if len(queue) else None) is not None:
        state.append([value.tolist() if isinstance(value, np.ndarray) else value for value in record])
    return state


def test_sequences_do_as_the_kernels_in_python(monkeypatch: pytest.MonkeyPatch) -> None:
    for seed in range(150):
        native = outcome(seed)
        with in_python(monkeypatch):
            assert outcome(seed) == native, seed


# -- sums and flags


def test_native_and_other_additions_lose_no_count(together: Callable[..., list[object]]) -> None:
    ws, rounds = Workspace(), 5_000
    ws.feed("sum", 0)
    ws.feed("mutex", {"mutex": "unlocked"})
    ws.feed("one", 1)
    done = threading.Event()

    def work(number: int) -> None:
        if number < 2:
            own = Workspace(ws)
            own.feed("before", 0)
            Looped(rounds, ("AtomicFetchAdd64", ["mutex", "sum", "one"], ["sum", "before"])).run(own)
        elif number == 2:
            for _ in range(rounds):
                ws.blob("sum").fetch_add(1)
            done.set()
        else:
            # Who looks makes some of the additions go to new memory.
            while not done.is_set():
                ws.view("sum")

    together(4, work)
    assert ws.fetch("sum") == 3 * rounds


def test_flags_and_iterations_run_natively() -> None:
    ws = Workspace()
    for name in ("flag", "yes", "seen"):
        ws.feed(name, name == "yes")
    ws.feed("n", 0)
    looped = Looped(
        10,
        ("CheckAtomicBool", ["flag"], ["seen"]),
        ("ConditionalSetAtomicBool", ["flag", "yes"], []),
        ("Iter", ["n"], ["n"]),
    )
    looped.run(ws)
    assert looped.python_calls == []
    assert (ws.fetch("flag"), ws.fetch("seen"), ws.fetch("n")) == (True, True, 10)
    Looped(1, ("CreateAtomicBool", [], ["flag"])).run(ws)
    assert not ws.fetch("flag")


def test_a_state_that_is_no_mutex_is_none() -> None:
    ws = Workspace()
    ws.feed("sum", 0)
    ws.feed("one", 1)
    ws.feed("before", 0)
    for wrong in ({"mutex": np.zeros(2)}, {"mutex": "locked"}, {"mutex": "unlocked", "more": 1}):
        ws.feed("mutex", wrong)
        with pytest.raises(Exception, match="expected a mutex"):
            Looped(1, ("AtomicFetchAdd64", ["mutex", "sum", "one"], ["sum", "before"])).run(ws)
    assert ws.fetch("sum") == 0
