"""The queue ops: kernels one by one, and queues between the tasks of a session."""

from __future__ import annotations

import collections
import threading
import time
from typing import Any

import numpy as np
import pytest

from jobcore import Counter, LocalSession, NetBuilder, Workspace, WorkspaceType, ops
from jobcore._fast.queue import BlobQueue
from jobcore._fast.rebatch import RebatchingQueue
from jobcore.errors import (
    BlobKindError,
    BlobValueError,
    BuildError,
    ClosedError,
    ContextError,
    TaskGroupError,
    WaitTimeoutError,
)
from jobcore.graph import Net, OpContext, execution_step, schema
from session_tools import boom, concurrent, group_of


def run(net: Net, ws: Workspace) -> None:
    for op in net.ops:
        inputs = [ws.blob(name) for name in op.inputs]
        outputs = [ws.create_blob(name) for name in op.outputs]
        schema(op.type).kernel(OpContext(op, ws, inputs, outputs, op.args))


@pytest.fixture
def ws() -> Workspace:
    workspace = Workspace()
    workspace.feed("x", np.arange(3))
    workspace.feed("text", "abc")
    return workspace


def op(ws: Workspace, op_type: str, inputs: Any = (), outputs: Any = (), **args: Any) -> None:
    net = Net("n")
    net.add_op(op_type, inputs, outputs, **args)
    run(net, ws)


# --------------------------------------------------------------------------------------------- queues of blobs


def test_a_queue_makes_one_transient_blob_and_no_other(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q", capacity=3, num_blobs=2, field_names=["a", "b"])
    assert ws.blob_names() == ["x", "text", "q"]
    queue = ws.fetch("q")
    assert isinstance(queue, BlobQueue)
    assert (queue.name, queue.capacity, queue.field_names) == ("q", 3, ("a", "b"))
    assert (ws.blob("q").kind, ws.blob("q").transient) == ("queue", True)


def test_records_go_through(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q", capacity=3, num_blobs=2)
    op(ws, "EnqueueBlobs", ["q", "x", "text"], ["x", "text"])
    ws.feed("x", np.zeros(2))
    op(ws, "EnqueueBlobs", ["q", "x", "text"])
    op(ws, "DequeueBlobs", "q", ["y", "z"])
    assert (ws.fetch("y").tolist(), ws.fetch("z"), ws.fetch("x").tolist()) == ([0, 1, 2], "abc", [0, 0])
    op(ws, "SafeDequeueBlobs", "q", ["y", "z", "status"])
    assert (ws.fetch("y").tolist(), ws.fetch("status").item()) == ([0, 0], False)


def test_any_kind_of_blob_goes_through(ws: Workspace) -> None:
    counter, thing = Counter(1), object()
    ws.feed("counter", counter)
    ws.feed("state", {"a": [1]})
    ws.feed("thing", thing, transient=True)
    ws.feed("rng", np.random.default_rng())
    names = ["x", "text", "counter", "state", "thing", "rng"]
    op(ws, "CreateBlobsQueue", [], "q", num_blobs=6)
    op(ws, "EnqueueBlobs", ["q", *names])
    op(ws, "DequeueBlobs", "q", [f"{name}2" for name in names])
    assert [ws.blob(f"{name}2").kind for name in names] == [ws.blob(name).kind for name in names]
    assert ws.fetch("counter2") is counter
    assert ws.fetch("thing2") is thing
    assert ws.blob("thing2").transient


def test_a_move_empties_the_blobs(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q", num_blobs=2)
    op(ws, "EnqueueBlobs", ["q", "x", "text"], move=True)
    assert [ws.blob(name).kind for name in ("x", "text")] == ["empty", "empty"]
    op(ws, "DequeueBlobs", "q", ["x", "text"])
    assert ws.fetch("x").tolist() == [0, 1, 2]


def test_the_status_tells_that_a_queue_is_closed(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q", capacity=2)
    op(ws, "SafeEnqueueBlobs", ["q", "x"], "status")
    assert ws.fetch("status").item() is False
    op(ws, "CloseBlobsQueue", "q")
    op(ws, "CloseBlobsQueue", "q")
    # There is room, and it is refused all the same.
    op(ws, "SafeEnqueueBlobs", ["q", "x"], ["x", "status"])
    assert ws.fetch("status").item() is True
    op(ws, "SafeDequeueBlobs", "q", ["y", "status"])
    assert (ws.fetch("y").tolist(), ws.fetch("status").item()) == ([0, 1, 2], False)
    op(ws, "SafeDequeueBlobs", "q", ["y", "status"])
    assert (ws.fetch("y").tolist(), ws.fetch("status").item()) == ([0, 1, 2], True)


def test_plain_ops_fail_on_a_closed_queue(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q")
    op(ws, "CloseBlobsQueue", "q")
    with pytest.raises(ClosedError, match="queue 'q' is closed"):
        op(ws, "EnqueueBlobs", ["q", "x"])
    with pytest.raises(ClosedError, match=r"op DequeueBlobs \(q\).*found queue 'q' closed and empty"):
        op(ws, "DequeueBlobs", "q", "y")


def test_a_dequeue_with_a_timeout_fails_after_it(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q")
    with pytest.raises(WaitTimeoutError):
        op(ws, "DequeueBlobs", "q", "y", timeout_secs=0.01)


def test_records_are_joined(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q", capacity=5)
    for _ in range(5):
        op(ws, "EnqueueBlobs", ["q", "x"])
    op(ws, "CloseBlobsQueue", "q")
    lengths = []
    for _ in range(3):
        op(ws, "SafeDequeueBlobs", "q", ["y", "status"], num_records=3)
        lengths.append((len(ws.fetch("y")), ws.fetch("status").item()))
    assert lengths == [(9, False), (6, False), (6, True)]


def test_a_queue_is_made_anew_and_the_old_one_is_closed(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q")
    old = ws.fetch("q")
    ended: list[type] = []

    def wait() -> None:
        try:
            old.get()
        except ClosedError as error:
            ended.append(type(error))

    waiting = threading.Thread(target=wait)
    waiting.start()
    op(ws, "CreateBlobsQueue", [], "q")
    waiting.join()
    assert ended == [ClosedError]
    assert ws.fetch("q") is not old
    assert not ws.fetch("q").closed
    with pytest.raises(BlobValueError, match="expected an empty blob 'q', found a queue"):
        op(ws, "CreateBlobsQueue", [], "q", enforce_unique_name=True)


def test_the_last_writer_closes(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q", num_writers=1)
    op(ws, "RegisterQueueWriter", "q", count=2)
    for left in (2, 1, 0):
        assert not ws.fetch("q").closed
        op(ws, "FinishQueueWriter", "q")
        assert ws.fetch("q").num_writers == left
    assert ws.fetch("q").closed
    with pytest.raises(ContextError):
        op(ws, "FinishQueueWriter", "q")


@pytest.mark.parametrize("op_type", ["CloseBlobsQueue", "FinishQueueWriter", "CloseRebatchingQueue"])
def test_only_queues_are_queues(ws: Workspace, op_type: str) -> None:
    with pytest.raises(
        BlobKindError, match=rf"op {op_type} \(x\).*expected a.*queue.*found 'x': int64 \(3,\)"
    ):
        op(ws, op_type, "x")
    ws.create_blob("nothing")
    with pytest.raises(BlobValueError, match="but the blob is empty"):
        op(ws, op_type, "nothing")


@pytest.mark.parametrize(
    ("op_type", "inputs", "outputs", "args", "text"),
    [
        ("EnqueueBlobs", ["q"], [], {}, "expected at least 2 inputs"),
        (
            "EnqueueBlobs",
            ["q", "x"],
            ["y"],
            {},
            "expected as outputs the blobs that are put in, x, or none of them",
        ),
        ("SafeEnqueueBlobs", ["q", "x"], ["x"], {}, "expected a blob of its own as status"),
        ("SafeEnqueueBlobs", ["q", "x", "y"], ["y", "x", "s"], {}, "expected as outputs"),
        ("SafeDequeueBlobs", ["q"], ["s"], {}, "expected at least 2 outputs"),
        ("SafeDequeueBlobs", ["q"], ["x", "s"], {"num_records": 0}, "expected an integer of at least 1"),
        ("DequeueBlobs", ["q"], ["x"], {"timeout_secs": -1}, "expected seconds, at least 0"),
        ("CreateBlobsQueue", [], ["q"], {"capacity": 0}, "expected an integer of at least 1"),
        ("WeightedSampleDequeueBlobs", ["q"], ["x", "s"], {"weights": [1, 2]}, "expected 1 weights"),
        ("WeightedSampleDequeueBlobs", ["q"], ["x", "s"], {"weights": [0]}, "one of them above 0"),
        ("WeightedSampleDequeueBlobs", ["q"], ["x", "s"], {"weights": [-1]}, "argument 'weights'"),
        ("WeightedSampleDequeueBlobs", ["q"], ["x", "s"], {"table_idx_blob": 0}, "expected table_idx_blob"),
        (
            "WeightedSampleDequeueBlobs",
            ["q"],
            ["x", "i", "s"],
            {"table_idx_blob": 2},
            "expected table_idx_blob",
        ),
    ],
)
def test_a_wrong_call_fails_where_it_is_built(
    op_type: str, inputs: list[str], outputs: list[str], args: dict[str, Any], text: str
) -> None:
    with pytest.raises(BuildError, match=text):
        Net("n").add_op(op_type, inputs, outputs, **args)


def test_a_record_of_another_size_is_refused(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q", num_blobs=2)
    with pytest.raises(BlobValueError, match="queue 'q': expected 2 values; found 1"):
        op(ws, "EnqueueBlobs", ["q", "x"])
    with pytest.raises(BlobValueError, match="queue 'q': expected 2 blobs; found 1"):
        op(ws, "DequeueBlobs", "q", ["y"])


# ------------------------------------------------------------------------------------------ a choice of queues


def sampled(seed: int | None, weights: list[float] | None, draws: int = 300) -> list[tuple[int, int]]:
    ws, net = Workspace(), Net("n")
    for number in range(3):
        queue = BlobQueue(draws)
        for _ in range(draws):
            queue.put([number * 10])
        ws.feed(f"q{number}", queue, transient=True)
    net.WeightedSampleDequeueBlobs(
        ["q0", "q1", "q2"], ["which", "value", "status"], weights=weights, table_idx_blob=0, seed=seed
    )
    found = []
    for _ in range(draws):
        run(net, ws)
        assert not ws.fetch("status")
        found.append((int(ws.fetch("which")), int(ws.fetch("value"))))
    return found


def test_queues_are_chosen_by_weight() -> None:
    found = sampled(7, [1, 0, 3])
    assert all(value == which * 10 for which, value in found)
    counts = collections.Counter(which for which, _ in found)
    assert counts[1] == 0
    assert 40 <= counts[0] <= 120
    assert found == sampled(7, [1, 0, 3])
    assert found != sampled(8, [1, 0, 3])
    assert {which for which, _ in sampled(None, None)} == {0, 1, 2}


def test_the_end_of_the_chosen_queue_is_told(ws: Workspace) -> None:
    op(ws, "CreateBlobsQueue", [], "q")
    op(ws, "CloseBlobsQueue", "q")
    op(ws, "WeightedSampleDequeueBlobs", "q", ["x", "status"])
    assert (ws.fetch("x").tolist(), ws.fetch("status").item()) == ([0, 1, 2], True)


# ---------------------------------------------------------------------------------------------- queues of rows


def test_rows_are_batched_anew(ws: Workspace) -> None:
    op(ws, "CreateRebatchingQueue", [], "q", capacity=10, num_blobs=2)
    assert isinstance(ws.fetch("q"), RebatchingQueue)
    assert ws.blob_names() == ["x", "text", "q"]
    ws.feed("pairs", np.arange(6).reshape(3, 2))
    op(ws, "EnqueueRebatchingQueue", ["q", "x", "pairs"], enqueue_batch=True)
    ws.feed("one", 9)
    ws.feed("pair", np.array([9, 9]))
    op(ws, "EnqueueRebatchingQueue", ["q", "one", "pair"])
    op(ws, "DequeueRebatchingQueue", "q", ["a", "b"], num_elements=2)
    assert (ws.fetch("a").tolist(), ws.fetch("b").tolist()) == ([0, 1], [[0, 1], [2, 3]])
    op(ws, "CloseRebatchingQueue", "q")
    op(ws, "DequeueRebatchingQueue", "q", ["a", "b"], num_elements=5)
    assert (ws.fetch("a").tolist(), ws.fetch("b").tolist()) == ([2, 9], [[4, 5], [9, 9]])
    with pytest.raises(ClosedError, match="found queue 'q' closed and empty"):
        op(ws, "DequeueRebatchingQueue", "q", ["a", "b"])
    with pytest.raises(ClosedError, match="it takes none any more"):
        op(ws, "EnqueueRebatchingQueue", ["q", "one", "pair"])


def test_a_queue_of_rows_closes_with_its_last_writer(ws: Workspace) -> None:
    op(ws, "CreateRebatchingQueue", [], "q")
    op(ws, "RegisterQueueWriter", "q")
    op(ws, "FinishQueueWriter", "q")
    assert ws.fetch("q").closed


# -------------------------------------------------------------------------------------------------- in a session

pytestmark = pytest.mark.usefixtures("quiet_threads")


def looped(name: str, net: Net, stop: str) -> Any:
    return execution_step(name, [net], should_stop_blob=stop, num_iter=None)


def test_records_of_many_producers_reach_many_consumers(session: LocalSession) -> None:
    """Eight producers of (lengths, keys, values) and three consumers that add up what they get."""
    init = Net("init")
    init.CreateBlobsQueue([], "q", capacity=2, num_blobs=3, num_writers=8)
    session.run(init)
    totals = np.zeros(3, np.int64)
    lock = threading.Lock()

    def produce(number: int) -> Any:
        net = Net(f"p{number}")
        for name, values in {"lengths": [1, 2], "keys": [10, 20, 20], "values": [1, 2, 2]}.items():
            net.Const(np.array(values), f"{name}{number}")
        net.EnqueueBlobs(["q", f"lengths{number}", f"keys{number}", f"values{number}"])
        net.FinishQueueWriter("q")
        return net

    def consume(number: int) -> Any:
        net = Net(f"c{number}")
        names = [f"{name}_{number}" for name in ("l", "k", "v")]
        net.SafeDequeueBlobs("q", [*names, f"stop{number}"])

        def add(inputs: Any, outputs: Any) -> None:
            if not inputs[3].fetch():
                with lock:
                    totals[:] += [inputs[i].fetch().sum() for i in range(3)]

        net.Python(add)([*names, f"stop{number}"], [])
        return looped(f"consume{number}", net, f"stop{number}")

    session.run(concurrent(*map(produce, range(8)), *map(consume, range(3))))
    assert totals.tolist() == [8 * 3, 8 * 50, 8 * 5]


@pytest.mark.parametrize("side", ["DequeueBlobs", "SafeDequeueBlobs", "EnqueueBlobs", "SafeEnqueueBlobs"])
@pytest.mark.parametrize("kind", list(WorkspaceType))
def test_a_failure_reaches_a_sibling_that_waits_at_a_queue(
    session: LocalSession, side: str, kind: WorkspaceType
) -> None:
    net = Net("waits")
    net.CreateBlobsQueue([], "q")
    if side.endswith("EnqueueBlobs"):
        net.Const(1, "x")
        net.EnqueueBlobs(["q", "x"])
        net.add_op(side, ["q", "x"], ["status"] if side.startswith("Safe") else [])
    else:
        net.add_op(side, ["q"], ["x", "status"] if side.startswith("Safe") else ["x"])
    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(net, [lambda ws: time.sleep(0.05), boom], workspace_type=kind))
    assert [type(failure.error) for failure in caught.value.failures] == [ValueError]


@pytest.mark.parametrize("op_type", ["DequeueRebatchingQueue", "EnqueueRebatchingQueue"])
def test_a_failure_reaches_a_sibling_that_waits_for_rows(session: LocalSession, op_type: str) -> None:
    net = Net("waits")
    net.CreateRebatchingQueue([], "q")
    if op_type.startswith("Enqueue"):
        net.Const(np.arange(5), "x")
        net.add_op(op_type, ["q", "x"], [], enqueue_batch=True)
    else:
        net.add_op(op_type, ["q"], ["x"], num_elements=3)
    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(net, [lambda ws: time.sleep(0.05), boom]))
    assert [type(failure.error) for failure in caught.value.failures] == [ValueError]


def test_a_plain_dequeue_at_the_end_is_a_failure_that_stops_the_siblings(session: LocalSession) -> None:
    init, reader, other = Net("init"), Net("reader"), Net("other")
    init.CreateBlobsQueue([], "closed")
    init.CreateBlobsQueue([], "open")
    init.CloseBlobsQueue("closed")
    session.run(init)
    reader.DequeueBlobs("closed", "x")
    other.DequeueBlobs("open", "y")
    with pytest.raises(TaskGroupError) as caught:
        session.run(group_of(reader, other))
    (failure,) = caught.value.failures
    assert isinstance(failure.error, ClosedError)
    assert failure.built_at is not None


def test_two_producers_of_one_queue_deliver_all_their_rows(session: LocalSession) -> None:
    init = Net("init")
    init.CreateBlobsQueue([], "q", capacity=5, num_writers=2)
    session.run(init)
    found: list[int] = []

    def produce(name: str, first: int, count: int) -> Any:
        def rows(ws: Workspace) -> None:
            queue = ws.fetch("q")
            for n in range(first, first + count):
                queue.put([n])

        done = Net(f"{name}_done")
        done.FinishQueueWriter("q")
        return [rows, done]

    net = Net("read")
    net.SafeDequeueBlobs("q", ["row", "stop"])
    net.Python(lambda inputs, outputs: None if inputs[1].fetch() else found.append(int(inputs[0].fetch())))(
        ["row", "stop"], []
    )
    session.run(group_of(produce("few", 1000, 3), produce("many", 0, 200), looped("read", net, "stop")))
    assert sorted(found) == [*range(200), 1000, 1001, 1002]


def test_a_queue_lives_for_one_run_where_it_is_made(session: LocalSession) -> None:
    found: list[Any] = []
    with NetBuilder() as builder:
        queue = ops.CreateBlobsQueue(capacity=2)
        ops.EnqueueBlobs([queue, ops.Const(5)])
        value = ops.DequeueBlobs(queue)
        ops.Python(lambda inputs, outputs: found.extend(blob.fetch() for blob in inputs))([queue, value], [])
    for _ in range(2):
        session.run(builder)
    first, five, second, again = found
    assert (five, again) == (5, 5)
    assert first is not second
    assert first.closed
    assert not second.closed
