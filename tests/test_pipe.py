"""Pipelines: stages that are joined by queues."""

from __future__ import annotations

import math
import threading

import numpy as np
import pytest

from jobcore import ExecutionStep, LocalSession, Net, Task, TaskGroup, WorkspaceType, ops
from jobcore.data import (
    CompositeReader,
    CounterReader,
    CountUntil,
    Dataset,
    NetProcessor,
    ProcessingReader,
    ProcessorOutput,
    Queue,
    Reader,
    ReaderWithDelay,
    ReaderWithLimit,
    Scalar,
    Struct,
    as_record,
    fetch_record,
    from_blob_list,
    new_record,
    pipe,
    pipe_and_output,
    python_processor,
    python_sink,
    reader_from,
)
from jobcore.errors import BuildError, ContextError, TaskGroupError
from reader_tools import numbers, run_init

pytestmark = pytest.mark.usefixtures("quiet_threads")

SCHEMA = Struct(("uid", Scalar(np.int64)), ("value", Scalar(np.float64)))


def make(session, columns, *targets):
    source = Dataset(SCHEMA, name="source")
    run_init(session, (source, columns), *((target, None) for target in targets))
    return source


def double_with_nets(record):
    net = Net("double")
    net.Add([record.uid.leaf(), record.uid.leaf()], [record.uid.leaf()])
    return [net], record


def value_to_zero(record):
    ops.Sub([record.value.leaf(), record.value.leaf()], [record.value.leaf()])
    return record


def columns_of(dataset, session):
    found = fetch_record(dataset.content(), session.workspace())
    return {
        name: array.tolist() for name, array in zip(found.field_names(), found.field_blobs(), strict=True)
    }


def collected(session, reader_like, schema, group, *, threads=1, processor=None, name="collected"):
    """A task that writes everything into a data set."""
    target = Dataset(schema, name=name)
    run_init(session, (target, None))
    pipe(reader_like, target, processor=processor, num_runtime_threads=threads, group=group)
    return target


def test_three_stages_keep_the_order_of_rows(session) -> None:
    target = Dataset(SCHEMA, name="target")
    source = make(session, {"uid": [1, 2, 6], "value": [1.4, 1.6, 1.7]}, target)
    with TaskGroup() as group:
        first = pipe(source.reader(), processor=double_with_nets)
        second = pipe(first, processor=value_to_zero)
        assert pipe(second, target) is target
    session.run(group)
    assert columns_of(target, session) == {"uid": [2, 4, 12], "value": [0, 0, 0]}


@pytest.mark.parametrize("runs", [1, 2])
def test_records_are_joined_when_they_are_dequeued(session, runs) -> None:
    rows = 17
    target = Dataset(SCHEMA, name="target")
    source = make(session, {"uid": np.arange(rows), "value": 0.1 * np.arange(rows)}, target)
    calls = Net("calls")
    counter = calls.CreateCounter([], "calls", init_count=0)
    start = TaskGroup("global")
    Task(step=calls, group=start)
    session.run(start)

    def zero_and_count(record):
        ops.CountUp(counter)
        return value_to_zero(record)

    with TaskGroup() as group:
        first = pipe(source.reader(), Queue(11, num_dequeue_records=3), processor=double_with_nets)
        second = pipe(first, processor=zero_and_count)
        pipe(second, target)
    for _ in range(runs):
        session.run(group)
    assert session.workspace().fetch("calls").retrieve() == runs * math.ceil(rows / 3) == runs * 6
    found = columns_of(target, session)
    assert found["uid"] == runs * list(range(0, 2 * rows, 2))
    assert set(found["value"]) == {0}


def test_each_source_of_a_composite_comes_whole_through_three_threads(session) -> None:
    datasets = [numbers(100, 100 * i, name=f"source{i}") for i in range(3)]
    run_init(session, *((dataset, {"label": values}) for dataset, values in datasets))
    reader = CompositeReader(["a", "b", "c"], [dataset.reader() for dataset, _ in datasets])
    with TaskGroup() as group:
        queue = pipe(reader, num_runtime_threads=3)
        target = collected(session, queue, reader.schema(), group)
    session.run(group)
    found = columns_of(target, session)
    for i, name in enumerate("abc"):
        assert sorted(found[f"{name}:label"]) == list(range(100 * i, 100 * i + 100))


def test_counters_of_the_task_of_its_instances_and_of_each_record(session) -> None:
    dataset, values = numbers(100)
    run_init(session, (dataset, {"label": values}))
    made = {}

    def count(record):
        with ops.task_init():
            made["records"] = ops.CreateCounter([], "records", init_count=0)
            made["instances"] = ops.CreateCounter([], "instances", init_count=0)
            made["sum"] = ops.CreateCounter([], "sum", init_count=0)
        with ops.task_instance_init():
            own = ops.CreateCounter([], "own", init_count=0)
            ops.CountUp(made["instances"])
        ops.CountUp(made["records"])
        ops.CountUp(own)
        with ops.task_instance_exit():
            number = ops.RetrieveCount(own)
            with ops.loop(number):
                ops.CountUp(made["sum"])
        with ops.task_exit():
            made["totals"] = [ops.RetrieveCount(made[name]) for name in ("records", "sum", "instances")]
        return record

    target = Dataset(dataset.schema(), name="target")
    run_init(session, (target, None))
    with TaskGroup() as group:
        queue, nothing = pipe_and_output(dataset.reader(), num_runtime_threads=8, processor=count)
        assert nothing is None
        pipe(queue, target)
        outputs = group.tasks()[0].add_outputs(made["totals"])
    session.run(group)
    assert [int(output.fetch()) for output in outputs] == [100, 100, 8]
    assert sorted(columns_of(target, session)["label"]) == list(range(100))


def test_a_limit_behind_a_queue(session) -> None:
    dataset, values = numbers(100)
    run_init(session, (dataset, {"label": values}))
    made = {}

    def counted(key):
        def count(record):
            with ops.task_init():
                records = ops.CreateCounter([], f"{key}_records", init_count=0)
                instances = ops.CreateCounter([], f"{key}_instances", init_count=0)
            with ops.task_instance_init():
                ops.CountUp(instances)
            ops.CountUp(records)
            with ops.task_exit():
                made[key] = [ops.RetrieveCount(records), ops.RetrieveCount(instances)]
            return record

        return count

    with TaskGroup() as group:
        first = pipe(dataset.reader(), num_runtime_threads=2)
        second = pipe(ReaderWithLimit(first.reader(), 25), num_runtime_threads=3, processor=counted("limit"))
        target = Dataset(dataset.schema(), name="target")
        run_init(session, (target, None))
        pipe(second, target, num_runtime_threads=6, processor=counted("end"))
        limited = group.tasks()[1].add_outputs(made["limit"])
        ended = group.tasks()[2].add_outputs(made["end"])
    for run in (1, 2):
        session.run(group)
        assert int(limited[0].fetch()) == 25
        assert [int(output.fetch()) for output in ended] == [25, 6]
        assert len(columns_of(target, session)["label"]) == 25 * run


def test_two_producers_of_different_length_deliver_all(session) -> None:
    (short, few), (long, many) = numbers(3, name="short"), numbers(200, 3, name="long")
    run_init(session, (short, {"label": few}), (long, {"label": many}))
    with TaskGroup() as group:
        queue = Queue(4)
        pipe(short.reader(), queue)
        pipe(long.reader(), queue)
        target = collected(session, queue, short.schema(), group)
    session.run(group)
    assert sorted(columns_of(target, session)["label"]) == list(range(203))


def test_two_consumers_share_and_the_first_to_end_closes_nothing(session) -> None:
    with TaskGroup() as group:
        queue = pipe(CountUntil(50), capacity=2)
        small = collected(session, ReaderWithLimit(queue.reader(), 5), queue.schema(), group, name="small")
        rest = collected(session, queue, queue.schema(), group, name="rest")
    session.run(group)
    parts = [columns_of(dataset, session)["iter"] for dataset in (small, rest)]
    assert len(parts[0]) <= 5
    assert sorted(parts[0] + parts[1]) == list(range(50))


def test_a_producer_without_end_stops_when_nobody_reads_any_more(session) -> None:
    with TaskGroup() as group:
        queue = pipe(CounterReader(), num_runtime_threads=2, capacity=3)
        target = collected(session, ReaderWithLimit(queue.reader(), 10), queue.schema(), group)
    session.run(group)
    assert sorted(columns_of(target, session)["iter"])[:3] == [0, 1, 2]
    assert len(columns_of(target, session)["iter"]) == 10


@pytest.mark.parametrize("way", ["ops", "blob", "nets", "within if"])
def test_a_stop_comes_before_the_record_is_written(session, way) -> None:
    def stop_at_five(record):
        number = record.iter.leaf()
        if way == "nets":
            net = Net("look")
            five = net.Const(5)
            return ProcessorOutput([net], record, net.EQ([number, five]))
        five = ops.Const(5)
        is_five = ops.EQ([number, five])
        if way == "blob":
            return record, is_five
        if way == "within if":
            with ops.If(is_five):
                ops.stop()
        else:
            ops.stop_if(is_five)
        return record

    with TaskGroup() as group:
        queue = pipe(CounterReader(), processor=stop_at_five)
        target = collected(session, queue, queue.schema(), group)
    for run in (1, 2):
        session.run(group)
        assert columns_of(target, session)["iter"] == run * [0, 1, 2, 3, 4]


@pytest.mark.parametrize("failing", ["first", "middle", "last"])
def test_a_stage_that_fails_ends_the_others_at_once(session, failing) -> None:
    def stage(name):
        def fail(n):
            if name == failing and n == 7:
                raise ValueError(f"{name} does not like 7")
            return n

        return python_processor(fail)

    with TaskGroup() as group:
        first = pipe(CounterReader(), processor=stage("first"), capacity=1, num_runtime_threads=2)
        second = pipe(first, processor=stage("middle"), capacity=1)
        collected(session, second, second.schema(), group, processor=stage("last"))
    with pytest.raises(TaskGroupError, match="does not like 7"):
        session.run(group)


def test_plain_functions_of_arrays(session) -> None:
    source = make(session, {"uid": [1, 2, 6], "value": [1.4, 1.6, 1.7]})

    def total(uid, value):
        if uid[0] == 6:
            raise StopIteration
        return {"sum": uid + value}

    with TaskGroup() as group:
        queue = pipe(source.reader(), processor=python_processor(total, {"sum": np.float64}))
        target = collected(session, queue, queue.schema(), group)
        assert group.tasks()[0].name == "local/total"
    session.run(group)
    assert columns_of(target, session) == {"sum": [2.4, 3.6]}
    with TaskGroup() as group:
        queue = pipe(source.reader(), processor=python_processor(lambda uid, value: uid))
        collected(session, queue, queue.schema(), group, name="other")
    with pytest.raises(TaskGroupError, match=r"expected the columns \['uid', 'value'\].*found ndarray"):
        session.run(group)


def test_a_net_as_processor_runs_in_blobs_of_its_own(session) -> None:
    dataset, values = numbers(10)
    target = Dataset(Struct(("twice", np.int64)), name="target")
    run_init(session, (dataset, {"label": values}), (target, None))
    net, init = Net("net"), Net("init")
    given = new_record(net, dataset.schema())
    two = init.Const(2, "two")
    limit = init.Const(14, "limit")
    twice = net.Mul([given.label.leaf(), two], "twice")
    first = net.Python(lambda i, o: o[0].feed(np.bool_(i[0].view()[0] >= i[1].view())))(
        [twice, limit], ["over"]
    )
    processor = NetProcessor(
        net, first, [init], input_record=given, output_record=as_record({"twice": twice})
    )
    with TaskGroup() as group:
        queue = pipe(dataset.reader(), processor=processor)
        again = pipe(queue, processor=NetProcessor(Net("nothing")))
        assert again is None
    group = TaskGroup()
    with group:
        queue = pipe(dataset.reader(), processor=processor)
        pipe(queue, target)
    session.run(group)
    assert columns_of(target, session)["twice"] == [0, 2, 4, 6, 8, 10, 12]
    assert net.frozen
    with pytest.raises(BuildError, match="a record for NetProcessor"), TaskGroup():
        pipe(CounterReader(), processor=processor)


def test_a_processor_with_a_set_up_of_its_own_is_set_up_once_per_node(session) -> None:
    class Offset:
        name = "offset"

        def setup(self, net):
            net.Const(100, "offset")

        def __call__(self, record):
            ops.Add([record.iter.leaf(), "offset"], [record.iter.leaf()])
            return record

    with TaskGroup() as group:
        queue = pipe(CountUntil(3), processor=Offset(), num_runtime_threads=2)
        target = collected(session, queue, queue.schema(), group)
        assert [task.name for task in group.tasks()] == ["local/offset", "local/pipe_into:Dataset"]
    session.run(group)
    assert sorted(columns_of(target, session)["iter"]) == [100, 101, 102]


def test_without_threads_there_is_no_task(session) -> None:
    source = make(session, {"uid": [1, 2], "value": [0.5, 0.5]})
    with TaskGroup() as group:
        reader = pipe(source.reader(), processor=double_with_nets, num_threads=0)
        assert isinstance(reader, ProcessingReader)
        assert group.tasks() == []
        plain = pipe(source, num_runtime_threads=0)
        assert isinstance(plain, Reader)
        assert not isinstance(plain, ProcessingReader)
        target = collected(session, reader, SCHEMA, group)
    session.run(group)
    assert columns_of(target, session)["uid"] == [2, 4]


def test_a_processor_without_a_record_ends_the_pipe(session) -> None:
    seen = []
    lock = threading.Lock()

    def note(record):
        def see(inputs, outputs):
            with lock:
                seen.append(int(inputs[0].view()))

        ops.Python(see)([record.iter.leaf()], [])

    with TaskGroup() as group:
        assert pipe(pipe(CountUntil(20)), processor=note, num_runtime_threads=3) is None
    session.run(group)
    assert sorted(seen) == list(range(20))


def test_final_outputs(session) -> None:
    kept = {}

    def keep(record):
        kept["last"] = ops.Copy(record.iter.leaf(), "last")
        return record

    with TaskGroup() as group:
        queue, one = pipe_and_output(CountUntil(4), processor=keep, final_outputs="last")
        nothing, several = pipe_and_output(queue, processor=lambda record: None, final_outputs=["last"])
        assert nothing is None
        assert isinstance(several, list)
    session.run(group)
    assert one.fetch() == 3


def test_records_move_only_where_nobody_looks_at_them_again(session) -> None:
    def moves(processor, **options):
        with TaskGroup() as group:
            made, _ = pipe_and_output(ReaderWithDelay(CountUntil(3), 0), processor=processor, **options)
            pipe(made, processor=lambda record: None)
        nets = group.tasks()[0].get_step().all_nets()
        return [op.args["move"] == "large" for net in nets for op in net.ops if op.type == "SafeEnqueueBlobs"]

    def keeps(record):
        with ops.task_init():
            constant = ops.Const(1)
        return {"constant": constant}

    def conditional(record):
        with ops.If(ops.EQ([record.iter.leaf(), record.iter.leaf()])):
            ops.Const(1, "maybe")
        return {"maybe": ops.Copy("maybe", "other"), "iter": record.iter.leaf()}

    def maybe(record):
        with ops.If(ops.EQ([record.iter.leaf(), record.iter.leaf()])):
            ops.Const(1, "maybe")
        return {"maybe": from_blob_list(Scalar(), ["maybe"])}

    def twice(record):
        return {"a": record.iter.leaf(), "b": record.iter.leaf()}

    def accumulates(record):
        with ops.task_init():
            total = ops.Const(0, "total")
        return {"total": ops.Add([total, record.iter.leaf()], [total])}

    def everything(record):
        ops.Python(lambda i, o, ws: None)([], [], pass_workspace=True)
        return record

    def a_step(record):
        ops.net(lambda ws: None)
        return record

    def reports(record):
        with ops.task_reporter():
            ops.Const(1)
        return record

    assert moves(None) == [True]
    assert moves(lambda record: record) == [True]
    assert moves(conditional) == [True]
    for processor in (keeps, maybe, twice, accumulates, everything, a_step, reports):
        assert moves(processor) == [False], processor
    assert moves(lambda record: {"last": ops.Copy(record.iter.leaf(), "last")}, final_outputs="last") == [
        False
    ]


@pytest.mark.parametrize("workspace_type", list(WorkspaceType))
def test_what_is_accumulated_in_a_record_stays(session, workspace_type) -> None:
    def running_sum(record):
        with ops.task_init():
            total = ops.Const(0, "total")
        return {"total": ops.Add([total, record.iter.leaf()], [total])}

    with TaskGroup(workspace_type) as group:
        queue = pipe(CountUntil(5), processor=running_sum)
        target = collected(session, queue, queue.schema(), group)
    for _ in range(2):
        session.run(group)
    assert columns_of(target, session)["total"] == [0, 1, 3, 6, 10] * 2


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({"input": [1]}, "expected as input a Reader.*reader_from"),
        ({"input": CountUntil(1), "output": 3}, "expected as output a Writer"),
        ({"input": CountUntil(1), "output": Queue(1), "capacity": 3}, "capacity or an output, found both"),
        (
            {"input": CountUntil(1), "num_threads": 2, "num_runtime_threads": 2},
            "above 1, found both: 2 and 2",
        ),
        ({"input": CountUntil(1), "num_threads": -1}, "num_threads to be an integer of at least 1"),
        ({"input": CountUntil(1), "num_threads": True}, "num_threads"),
        ({"input": CountUntil(1), "num_threads": 0, "output": Queue(1)}, "neither an output"),
        ({"input": CountUntil(1), "processor": 3}, "expected as processor a function"),
        ({"input": CountUntil(1), "processor": lambda r: 3}, "expected of a processor a record"),
        (
            {"input": CountUntil(1), "processor": lambda r: None, "output": Queue(1)},
            "expected a record to write",
        ),
        ({"input": CountUntil(1), "processor": lambda r: Struct(("a", int))}, "a blob for each column"),
        (
            {"input": CountUntil(1), "processor": lambda r: ProcessorOutput(nets=[3])},
            "expected nets, steps and builders",
        ),
        ({"input": Queue(1)}, "expected a schema of Queue"),
    ],
)
def test_what_is_refused(arguments, says) -> None:
    with TaskGroup() as group, pytest.raises(BuildError, match=says):
        pipe(**arguments)
    assert group.tasks() == []


def test_more_that_is_refused() -> None:
    with pytest.raises(ContextError):
        pipe(CountUntil(1))

    def both(record):
        ops.Const(1)
        return [Net("n")], record

    with TaskGroup(), pytest.raises(BuildError, match="expected ops or returned nets, found both"):
        pipe(CountUntil(1), processor=both)
    reader = ProcessingReader(CountUntil(1), lambda record: None)
    reader.setup_ex(Net("a"), Net("b"))
    with TaskGroup(), pytest.raises(BuildError, match=r"expected a record of .* to read"):
        reader.read_ex(Net("a"), Net("b"))
    with pytest.raises(BuildError, match="expected a function of arrays"):
        python_processor(3)
    with pytest.raises(BuildError, match="expected a Net"):
        NetProcessor(3)
    assert isinstance(ExecutionStep("s"), ExecutionStep)


def test_a_queue_with_one_end_is_refused_when_the_group_is_compiled(session) -> None:
    with TaskGroup() as group:
        pipe(CountUntil(3))
    with pytest.raises(BuildError, match="found 0 readers and 1 writers"):
        session.run(group)
    with TaskGroup() as group:
        pipe(Queue(3, CountUntil(1).schema()), processor=lambda record: None)
    with pytest.raises(BuildError, match="found 1 readers and 0 writers"):
        session.run(group)
    queue = Queue(3)
    for number in range(2):
        with TaskGroup() as group:
            pipe(CountUntil(3), queue)
            pipe(queue, processor=lambda record: None)
        if number:
            with pytest.raises(BuildError, match="in one task group"):
                session.run(group)
        else:
            session.run(group)


def test_a_schema_of_a_processor_by_a_function_of_its_own(session) -> None:
    class Named:
        def schema_func(self, reader):
            return Struct(("n", np.int64))

        def __call__(self, record):
            return {"n": ops.Copy(record.iter.leaf())}

    reader = ProcessingReader(CountUntil(3), Named())
    assert reader.schema().field_names() == ["n"]
    with TaskGroup() as group:
        target = collected(session, reader, reader.schema(), group)
    session.run(group)
    assert columns_of(target, session)["n"] == [0, 1, 2]


def test_many_short_pipelines_end(session) -> None:
    with TaskGroup() as group:
        first = pipe(CountUntil(30), num_runtime_threads=3, capacity=2)
        second = pipe(first, processor=python_processor(lambda n: n + 1), num_runtime_threads=2, capacity=2)
        target = collected(session, second, second.schema(), group, threads=2)
    for run in range(1, 31):
        session.run(group)
        assert len(columns_of(target, session)["iter"]) == 30 * run


def test_a_pipeline_in_a_session_of_its_own_leaves_no_blob() -> None:
    with LocalSession() as session:
        with TaskGroup() as group:
            pipe(pipe(CountUntil(3)), processor=lambda record: None)
        session.run(group)
        assert session.workspace().blob_names() == []


def test_a_plain_function_may_be_the_end_of_a_pipe():
    seen = []

    def keep(x):
        if len(seen) == 3:
            raise StopIteration
        seen.append(int(x[0]))

    with TaskGroup() as group:
        pipe(reader_from([{"x": np.array([i])} for i in range(10)]), processor=python_sink(keep))
    with LocalSession() as session:
        session.run(group)
    assert seen == [0, 1, 2]
    with pytest.raises(BuildError, match="function of arrays"):
        python_sink(3)
