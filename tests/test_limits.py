"""Readers that end early, count, or take their time, with many instances at once."""

from __future__ import annotations

import numpy as np
import pytest

from jobcore import LocalSession, Net, Task, TaskGroup
from jobcore.data import (
    CounterReader,
    CountUntil,
    Dataset,
    Reader,
    ReaderWithDelay,
    ReaderWithLimit,
    ReaderWithLimitBase,
    ReaderWithTimeLimit,
    Scalar,
    Struct,
)
from jobcore.errors import BuildError, TaskGroupError
from reader_tools import copy_task, numbers, read_all, run_init
from session_tools import boom


class WithoutPeek(Reader):
    """A reader that only learns of the end by reading."""

    def __init__(self, inner):
        super().__init__(inner.schema())
        self.setup_ex, self.read_ex = inner.setup_ex, inner.read_ex


@pytest.mark.parametrize("workspace_type", ["private", "global"])
@pytest.mark.parametrize(
    ("num_iter", "rows", "finished"),
    [(None, 100, True), (0, 0, False), (10, 10, False), (99, 99, False), (100, 100, True), (110, 100, True)],
)
def test_a_limit_holds_for_all_instances_together(workspace_type, num_iter, rows, finished) -> None:
    source, values = numbers(100)
    reader = ReaderWithLimit(source.reader(), num_iter)
    columns, (data_finished,) = read_all(
        reader,
        (source, {"label": values}),
        instances=8,
        workspace_type=workspace_type,
        outputs=[reader.data_finished],
    )
    assert sorted(columns["label"]) == list(range(rows))
    assert bool(data_finished) is finished


def test_an_exact_limit_hides_the_end_of_a_source_that_cannot_tell() -> None:
    for num_iter, finished in ((100, False), (101, True), (None, True)):
        source, values = numbers(100)
        reader = ReaderWithLimit(WithoutPeek(source.reader()), num_iter)
        columns, found = read_all(
            reader, (source, {"label": values}), instances=3, outputs=[reader.data_finished]
        )
        assert sorted(columns["label"]) == list(range(100))
        assert found == [finished]


@pytest.mark.parametrize(
    ("rows", "instances", "delay", "duration", "least", "most", "finished"),
    [
        (100, 8, 0.01, 0, 100, 100, True),
        (100, 8, 0.01, None, 100, 100, True),
        # At most the reads begun at 0, 0.25, 0.5 and 0.75 s, by each of 4.
        (50, 4, 0.25, 1 - 0.0625, 0, 16, False),
        (50, 4, 0.02, 600, 50, 50, True),
    ],
)
def test_a_time_limit_holds_for_the_task(rows, instances, delay, duration, least, most, finished) -> None:
    source, values = numbers(rows)
    reader = ReaderWithTimeLimit(ReaderWithDelay(source.reader(), delay), duration)
    columns, found = read_all(
        reader,
        (source, {"label": values}),
        instances=instances,
        workspace_type="global",
        outputs=[reader.data_finished],
    )
    assert least <= len(columns["label"]) <= most
    assert len(set(columns["label"])) == len(columns["label"])
    assert found == [finished]


def test_a_limit_begins_anew_in_each_run_and_the_source_goes_on() -> None:
    session = LocalSession()
    source, values = numbers(10)
    target = Dataset(source.schema(), name="target")
    init = Net("init_cursor")
    reader = ReaderWithLimit(source.reader(init, cursor_name="cursor"), 4)
    run_init(session, (source, {"label": values}), (target, None))
    start = TaskGroup("global")
    Task(step=init, group=start)
    session.run(start)
    group = TaskGroup()
    task = copy_task(reader, target.writer(), group=group, instances=3)
    finished = task.add_output(reader.data_finished())
    seen = []
    for _ in range(4):
        session.run(group)
        seen.append((len(session.workspace().fetch("target/label")), bool(finished.fetch())))
    assert seen == [(4, False), (8, False), (10, True), (10, True)]
    assert sorted(session.workspace().fetch("target/label")) == list(range(10))


def test_limits_in_limits_lose_no_record() -> None:
    session = LocalSession()
    source, values = numbers(10)
    init = Net("init_cursor")
    inner = source.reader(init, cursor_name="cursor")
    run_init(session, (source, {"label": values}))
    start = TaskGroup("global")
    Task(step=init, group=start)
    session.run(start)
    reader = ReaderWithDelay(ReaderWithLimit(ReaderWithLimit(inner, 3), 7), 0)
    columns = read_all(reader, session=session)
    assert columns["label"].tolist() == [0, 1, 2]
    # Had the outer limit read on where the inner one stopped, the cursor would be further.
    assert read_all(inner, session=session)["label"].tolist() == list(range(3, 10))


@pytest.mark.parametrize("num_iter", [-1, 1.5, True, "3"])
def test_a_wrong_limit_is_refused_where_it_is_written(num_iter) -> None:
    with pytest.raises(BuildError, match="expected as num_iter a number of records"):
        ReaderWithLimit(CounterReader(), num_iter)


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "1"])
def test_wrong_times_are_refused_where_they_are_written(seconds) -> None:
    with pytest.raises(BuildError, match="expected as duration seconds"):
        ReaderWithTimeLimit(CounterReader(), seconds)
    with pytest.raises(BuildError, match="expected as delay seconds"):
        ReaderWithDelay(CounterReader(), seconds)


@pytest.mark.parametrize("instances", [1, 5])
def test_numbers_up_to_a_limit(instances) -> None:
    assert sorted(read_all(CountUntil(7), instances=instances)["iter"]) == list(range(7))
    assert len(read_all(CountUntil(0))["iter"]) == 0


def test_a_counter_made_before_goes_on() -> None:
    session = LocalSession()
    init = Net("init_counter")
    reader = ReaderWithLimit(CounterReader(init), 3)
    start = TaskGroup("global")
    Task(step=init, group=start)
    session.run(start)
    assert read_all(reader, session=session)["iter"].tolist() == [0, 1, 2]
    assert read_all(reader, session=session)["iter"].tolist() == [3, 4, 5]
    back = Net("back")
    reader.reset(back)
    again = TaskGroup("global")
    Task(step=back, group=again)
    session.run(again)
    assert read_all(reader, session=session)["iter"].tolist() == [0, 1, 2]


def test_an_endless_source_never_says_that_it_ended() -> None:
    reader = CountUntil(5)
    _, found = read_all(reader, instances=2, outputs=[reader.data_finished])
    assert found == [False]


def test_what_is_not_set_up_says_so() -> None:
    reader = ReaderWithLimit(CounterReader(), 1)
    with pytest.raises(BuildError, match="to be set up"):
        reader.data_finished()
    with pytest.raises(BuildError, match="to be set up"):
        CounterReader().read(Net("n"))
    with pytest.raises(BuildError, match="cannot read in a single net"):
        reader.read(Net("n"))


def test_a_limit_of_ones_own() -> None:
    class Never(ReaderWithLimitBase):
        def setup_limit(self, init_net, finish_net):
            pass

        def check_limit(self, net):
            return net.Const(True, net.next_blob("should_stop"))

    reader = Never(CounterReader())
    columns, found = read_all(reader, outputs=[reader.data_finished])
    assert (len(columns["iter"]), found) == (0, [False])
    bare = ReaderWithLimitBase(CounterReader())
    with pytest.raises(NotImplementedError, match="what its limit is"):
        bare.setup_ex(Net("a"), Net("b"))
    with pytest.raises(NotImplementedError, match="when its limit"):
        bare.check_limit(Net("a"))
    assert bare.schema() == Struct(("iter", Scalar(np.int64)))


@pytest.mark.parametrize("workspace_type", ["private", "global"])
def test_a_group_is_run_again_and_again(workspace_type) -> None:
    session = LocalSession()
    source, values = numbers(30)
    target = Dataset(source.schema(), name="target")
    run_init(session, (source, {"label": values}), (target, None))
    reader = ReaderWithLimit(ReaderWithTimeLimit(source.reader(), 600), 30)
    group = TaskGroup(workspace_type)
    task = copy_task(reader, target.writer(), group=group, instances=4)
    outputs = [task.add_output(r.data_finished()) for r in (reader, reader.reader)]
    for rounds in (1, 2, 3):
        session.run(group)
        assert len(session.workspace().fetch("target/label")) == 30 * rounds
        # The inner limit was never reached: it knows of the end only by peeking.
        assert [bool(output.fetch()) for output in outputs] == [True, True]


def test_a_failure_in_the_body_is_the_only_one_told() -> None:
    session = LocalSession()
    source, values = numbers(30)
    target = Dataset(source.schema(), name="target")
    run_init(session, (source, {"label": values}), (target, None))

    def third(inputs, outputs):
        if inputs[0].view()[0] >= 3:
            raise ValueError("no threes")

    def process(record):
        check = Net("check")
        check.Python(third)([record.label.leaf()], [])
        return [check], record

    group = TaskGroup()
    reader = ReaderWithLimit(source.reader(), 20)
    copy_task(reader, target.writer(), group=group, instances=4, process=process)
    with pytest.raises(TaskGroupError, match="no threes") as caught:
        session.run(group)
    assert all("no threes" in str(failure.error) for failure in caught.value.failures)


def test_a_failure_before_the_body_is_the_only_one_told() -> None:
    # The columns were never made: the order of rows cannot be.
    source, _ = numbers(30)
    group = TaskGroup()
    target = Dataset(source.schema(), name="target")
    session = LocalSession()
    run_init(session, (target, None))
    copy_task(ReaderWithLimit(source.random_reader(), 20), target.writer(), group=group, instances=4)
    with pytest.raises(TaskGroupError, match="source/label") as caught:
        session.run(group)
    assert len(caught.value.failures) == 1


def test_a_slow_source_does_not_delay_a_cancelled_group() -> None:
    group = TaskGroup()
    target = Dataset(CounterReader().schema(), name="target")
    session = LocalSession()
    run_init(session, (target, None))
    copy_task(ReaderWithDelay(CounterReader(), 3600), target.writer(), group=group, instances=3)
    Task(step=boom, group=group)
    with pytest.raises(TaskGroupError, match="boom"):
        session.run(group)
