"""The interfaces of readers, writers and pipes, by the smallest classes that fill them."""

from __future__ import annotations

import numpy as np
import pytest

from jobcore import LocalSession, Net, Plan, Task, TaskGroup
from jobcore.data import (
    CounterReader,
    Pipe,
    PipedReaderBuilder,
    Reader,
    ReaderBuilder,
    ReaderWithLimit,
    Scalar,
    Struct,
    Writer,
    as_record,
    new_record,
)
from jobcore.errors import BuildError
from jobcore.graph import execution_step
from reader_tools import read_all

SCHEMA = Struct(("n", Scalar(np.int64)))


class Countdown(Reader):
    """Gives n - 1, n - 2 and so on to 0, by the fewest methods."""

    def __init__(self, start):
        super().__init__(SCHEMA)
        self.start = start

    def setup_ex(self, init_net, finish_net):
        self.counter = init_net.CreateCounter([], "left", init_count=self.start)

    def read(self, net):
        stop = net.CountDown(self.counter, "stop")
        return stop, [net.RetrieveCount(self.counter, "now")]


def test_a_reader_defines_one_method() -> None:
    assert read_all(Countdown(4))["n"].tolist() == [3, 2, 1, 0]


def test_what_a_reader_leaves_out_says_so() -> None:
    net = Net("n")
    with pytest.raises(NotImplementedError, match="Reader defines neither read nor read_ex"):
        Reader(SCHEMA).read_ex(net, net)
    with pytest.raises(NotImplementedError, match="cannot go back"):
        Reader(SCHEMA).reset(net)
    with pytest.raises(BuildError, match="expected a schema"):
        Reader().schema()
    assert Reader().peek_end(net) is None
    assert Reader(SCHEMA).schema() == SCHEMA
    assert Reader().setup_ex(net, net) is None
    assert net.ops == ()


def test_a_reader_is_a_step_that_more_is_added_to() -> None:
    init, take = Net("init"), Net("take")
    reader = Countdown(3)
    reader.setup_ex(init, Net("finish"))
    step, record = reader.execution_step("rounds")
    take.Add(["sum", record.n.leaf()], "sum")
    step.add_net(take)
    group = TaskGroup("global")
    Task(step=execution_step("all", [init, lambda ws: ws.feed("sum", 0), step]), group=group)
    session = LocalSession()
    session.run(group)
    assert session.workspace().fetch("sum") == 3


def test_such_a_step_can_be_stopped_from_outside() -> None:
    init, take = Net("init"), Net("take")
    reader = CounterReader(init)
    step, record = reader.execution_step(external_should_stop="enough")
    take.GE([record.iter.leaf(), "most"], "enough")
    step.add_substep(execution_step("take", take)) if step.substeps else step.add_net(take)
    plan = Plan("p")
    plan.add_step(init)
    plan.add_step(step)
    session = LocalSession()
    session.workspace().feed("most", 4)
    session.workspace().feed("enough", False)
    session.run(plan)
    assert session.workspace().fetch(str(record.iter.leaf())) == 5


def test_a_reader_with_more_than_rounds_is_no_mere_step() -> None:
    reader = ReaderWithLimit(CounterReader(), 3)
    reader.setup_ex(Net("init"), Net("finish"))
    with pytest.raises(BuildError, match="without an init or finish of its own"):
        reader.execution_step()


class Keeper(Writer):
    """Keeps the last record."""

    def __init__(self, *names):
        self.names = list(names)

    def write(self, net, fields):
        for field, name in zip(fields, self.names, strict=True):
            net.Copy(field, name)

    def commit(self, finish_net):
        finish_net.Const(True, "committed")


def test_a_writer_takes_the_columns_of_its_first_record() -> None:
    net, finish = Net("n"), Net("finish")
    writer = Keeper("kept")
    assert writer.schema() is None
    record = new_record(net, SCHEMA)
    writer.write_record(net, record)
    writer.setup_ex(Net("init"), finish)
    assert writer.schema() == SCHEMA
    assert [op.type for op in (*net.ops, *finish.ops)] == ["Copy", "Const"]
    assert len(writer.write_record_ex(record, net, finish)) == 1
    for other, says in (
        (Struct(("m", np.int64)), r"expected the columns \['n'\], found \['m'\]"),
        (Struct(("n", np.int32)), "expected int64 in column 'n', found int32"),
    ):
        with pytest.raises(BuildError, match=says):
            writer.write_record(net, new_record(net, other))
    with pytest.raises(BuildError, match="expected a record to write, found list"):
        writer.write_record(net, [record.n.leaf()])
    # A dtype that is not known fits any.
    writer.write_record(net, as_record({"n": record.n.leaf()}))
    with pytest.raises(NotImplementedError, match="Writer defines neither"):
        Writer().write(net, [])


def test_the_first_writer_of_a_pipe_says_what_it_carries() -> None:
    net = Net("n")
    pipe = Pipe(obj_key=TaskGroup.LOCAL_SETUP)
    pipe._new_reader(net)
    pipe._new_writer(SCHEMA, net)
    pipe._new_writer(SCHEMA, net)
    assert (pipe.num_readers(), pipe.num_writers(), pipe.schema()) == (1, 2, SCHEMA)
    assert net.get_attributes(TaskGroup.LOCAL_SETUP) == [pipe]
    with pytest.raises(BuildError, match="a writer of Pipe: expected the columns"):
        pipe._new_writer(Struct(("m", np.int64)), net)
    assert pipe.num_writers() == 2
    with pytest.raises(NotImplementedError, match="no readers"):
        pipe.reader()
    with pytest.raises(NotImplementedError, match="no writers"):
        pipe.writer()


def test_a_builder_defines_what_it_makes() -> None:
    builder = ReaderBuilder()
    assert builder.setup() is None
    with pytest.raises(NotImplementedError, match="what it reads"):
        builder.schema()
    with pytest.raises(NotImplementedError, match="makes no readers"):
        builder.new_reader()


def test_a_pipe_behind_a_builder_is_read() -> None:
    class Counted(ReaderBuilder):
        def new_reader(self, **kwargs):
            return CounterReader()

    class Through(Pipe):
        def reader(self):
            return Countdown(2)

    assert isinstance(PipedReaderBuilder(Counted(), lambda reader: Through()).new_reader(), Countdown)
    assert isinstance(PipedReaderBuilder(Counted(), lambda reader: reader).new_reader(), CounterReader)


def test_readers_show_themselves() -> None:
    assert repr(Countdown(1)) == "Countdown(['n'])"
    assert repr(Keeper()) == "Keeper"
