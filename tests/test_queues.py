"""Queues as pipes, and queues by hand."""

from __future__ import annotations

import gc

import numpy as np
import pytest

from jobcore import (
    LocalSession,
    NameScope,
    Net,
    NetBuilder,
    Task,
    TaskGroup,
    execution_step,
    ops,
    stat_registry,
)
from jobcore.data import (
    CountUntil,
    Dataset,
    List,
    Queue,
    QueueWrapper,
    Struct,
    as_record,
    close_queue,
    dequeue,
    enqueue,
    feed_record,
    fetch_record,
    pipe,
)
from jobcore.errors import BuildError, TaskGroupError

pytestmark = pytest.mark.usefixtures("quiet_threads")


def run(session, *steps):
    group = TaskGroup("global")
    Task(step=list(steps), group=group)
    session.run(group)


def test_by_hand_in_one_task(session) -> None:
    net = Net("n")
    net.CreateBlobsQueue([], "q", capacity=4, num_blobs=2)
    a, b = net.Const(1, "a"), net.Const(np.arange(2), "b")
    blobs, status = enqueue(net, "q", [a, b])
    assert blobs == ["a", "b"]
    enqueue(net, "q", [a, a], "second_status")
    closing = close_queue(execution_step("put", [net]), "q")
    after = Net("after")
    _, third = enqueue(after, "q", [a, b])
    (first, second), ended = dequeue(after, "q", 2, field_names=["x", ""])
    dequeue(after, "q", 2)
    _, last = dequeue(after, "q", 2, "last_status")
    run(session, closing, after)
    ws = session.workspace()
    assert [bool(ws.fetch(blob)) for blob in (status, "second_status", third, ended, last)] == [
        False,
        False,
        True,
        False,
        True,
    ]
    assert (ws.fetch(first), ws.fetch(second).tolist()) == (1, [0, 1])
    assert (ws.fetch("a"), first, second) == (1, "after/x", "after/column")
    with pytest.raises(BuildError, match="expected 2 names of values"):
        dequeue(after, "q", 2, field_names=["x"])


def test_what_is_moved_is_gone(session) -> None:
    net = Net("n")
    net.CreateBlobsQueue([], "q", capacity=4, num_blobs=2)
    a, b = net.Const(np.arange(3), "a"), net.Const(np.arange(3), "b")
    enqueue(net, "q", [a, b], move=True)
    c = net.Const(np.arange(3), "c")
    enqueue(net, "q", [c, c], move=True)
    run(session, net)
    assert not session.workspace().has_blob("a") or session.workspace().blob("a").kind == "empty"
    assert session.workspace().fetch("c").tolist() == [0, 1, 2]
    assert len(session.workspace().blob("q").value) == 2


def test_a_wrapper_reads_and_writes_a_queue_that_is_there(session) -> None:
    make = Net("make")
    make.CreateBlobsQueue([], "q", capacity=10, num_blobs=1, num_writers=1)
    run(session, make)
    target = Dataset(Struct(("iter", np.int64)), name="target")
    with TaskGroup() as group:
        wrapper = QueueWrapper("q", num_dequeue_records=1)
        assert pipe(CountUntil(5), wrapper) is wrapper
        assert wrapper.schema().field_names() == ["iter"]
        assert (wrapper.num_readers(), wrapper.num_writers()) == (0, 1)
    session.run(group)
    closing = Net("closing")
    closing.FinishQueueWriter(["q"], [])
    filled = Net("filled")
    target.init_empty(filled)
    run(session, closing, filled)
    with TaskGroup() as group:
        pipe(wrapper, target)
    session.run(group)
    assert fetch_record(target.content(), session.workspace()).iter.leaf().tolist() == [0, 1, 2, 3, 4]


def test_a_write_by_hand_into_a_closed_queue_fails_the_task(session) -> None:
    net = Net("n")
    net.CreateBlobsQueue([], "q", capacity=10, num_blobs=1)
    net.CloseBlobsQueue(["q"], [])
    QueueWrapper("q").writer().write_record(net, as_record({"x": net.Const(1)}))
    with pytest.raises(TaskGroupError, match="closed"):
        run(session, net)
    writer = QueueWrapper("q").writer()
    other = Net("other")
    nets = writer.write_record_ex(as_record({"x": other.Const(1)}), other, other)
    assert [op.type for op in nets[0].ops] == ["EnqueueBlobs"]


def test_names_of_queues_are_numbered_in_a_program() -> None:
    with TaskGroup(), NameScope("scope"):
        assert [Queue(1).queue for _ in range(2)] == ["scope/queue", "scope/queue_1"]
        assert Queue(1, name="other").queue == "scope/other"
    assert Queue(1).queue == "queue"


def test_a_queue_says_what_it_is_and_what_it_carries() -> None:
    queue = Queue(3, {"a": np.int64})
    assert repr(queue) == "Queue('queue', capacity=3)"
    assert repr(queue.reader()) == "QueueReader(Queue('queue', capacity=3))"
    assert repr(queue.writer()) == "QueueWriter(Queue('queue', capacity=3))"
    assert repr(QueueWrapper("q")) == "QueueWrapper('q')"
    assert queue.reader().schema().field_names() == ["a"]
    with NetBuilder(), pytest.raises(BuildError, match="expected the columns"):
        queue.writer().write_record(Net("n"), as_record({"b": ops.Const(1)}))
    with pytest.raises(BuildError, match="expected a schema of Queue"):
        Queue(1).reader().schema()
    for wrong in ({"capacity": 0}, {"capacity": 1, "num_dequeue_records": 0}):
        with pytest.raises(BuildError, match="integer of at least 1"):
            Queue(**wrong)


@pytest.mark.parametrize("producers", [1, 8])
def test_many_producers_and_consumers_hand_over_each_record_once(session, producers) -> None:
    target = Dataset(Struct(("iter", np.int64)), name="target")
    net = Net("make")
    target.init_empty(net)
    run(session, net)
    with TaskGroup() as group:
        queue = Queue(2)
        source = CountUntil(100)
        pipe(source, queue, num_runtime_threads=producers)
        for _ in range(3):
            pipe(queue, target)
    for number in range(1, 6):
        session.run(group)
        found = fetch_record(target.content(), session.workspace()).iter.leaf()
        assert sorted(found) == sorted(list(range(100)) * number)


def test_eight_producers_and_three_consumers_hand_over_each_row_of_a_data_set_once(session) -> None:
    """Three rows of lists of pairs, read by eight instances and taken out by three."""
    schema = Struct(("pairs", List(Struct(("keys", np.int32), ("values", np.float32)))))
    lengths, keys = [1, 2, 3], [11, 21, 22, 31, 32, 33]
    source, target = Dataset(schema, name="source"), Dataset(schema, name="target")
    net = Net("make")
    for dataset in (source, target):
        dataset.init_empty(net)
    run(session, net)
    columns = [np.array(lengths, np.int32), np.array(keys, np.int32), np.array(keys, np.float32) / 10]
    feed_record(source.content(), columns, session.workspace())
    with TaskGroup() as group:
        pipe(pipe(source, capacity=1, num_runtime_threads=8), target, num_runtime_threads=3)
    session.run(group)
    found = [column.tolist() for column in fetch_record(target.content(), session.workspace()).field_blobs()]
    assert [round(sum(column), 4) for column in found] == [6, 150, 15]
    # The fields of a record are together, whoever put it in and whoever took it out.
    assert sorted(found[1]) == keys
    assert [round(10 * value) for value in found[2]] == found[1]


def test_a_queue_is_new_in_each_run_and_gone_after_it() -> None:
    with LocalSession() as session:
        with TaskGroup() as group:
            queue = pipe(CountUntil(7), capacity=2)
            pipe(queue, processor=lambda record: None)
        for _ in range(3):
            session.run(group)
        assert session.workspace().blob_names() == []


def test_what_went_through_a_queue_is_in_the_statistics_of_the_process() -> None:
    stats = stat_registry()
    stats.export(reset=True)
    for number in range(1, 4):
        with LocalSession() as session, TaskGroup() as group:
            queue = pipe(CountUntil(7), Queue(2, name="counted"))
            pipe(queue, processor=lambda record: None)
            session.run(group)
        gc.collect()
        found = {one.name: one.value for one in stats.export() if one.name.startswith("counted/")}
        assert (
            found["counted/queue_enqueued_records"] == found["counted/queue_dequeued_records"] == 7 * number
        )
        assert found["counted/queue_dequeued_bytes/iter"] == 7 * 8 * number
        assert found["counted/read_time_ns/count"] == 7 * number
        assert found["counted/queue_balance"] == 0
