"""Readers side by side, as one."""

from __future__ import annotations

import numpy as np
import pytest

from jobcore import BlobReference, LocalSession, Net, Task, TaskGroup
from jobcore.data import (
    CompositeReader,
    CompositeReaderBuilder,
    CounterReader,
    CountUntil,
    PipedReaderBuilder,
    Reader,
    ReaderBuilder,
    ReaderWithLimit,
)
from jobcore.errors import BuildError
from reader_tools import numbers, read_all, run_init

NAMES = ["source0", "source1", "source2"]


def sources(*counts):
    made = [numbers(count, 100 * i, name=f"source{i}") for i, count in enumerate(counts)]
    return [dataset for dataset, _ in made], [(dataset, {"label": values}) for dataset, values in made]


class Builder(ReaderBuilder):
    """Readers of a data set, ended by a limiter where one is given."""

    def __init__(self, dataset, name):
        self.dataset, self.name, self.limiter, self.calls = dataset, name, None, 0

    def schema(self):
        return self.dataset.schema()

    def setup(self, limiter=None):
        self.limiter = limiter
        self.calls += 1
        return {self.name: BlobReference(f"{self.name}_finished")}

    def new_reader(self, **kwargs):
        reader = self.dataset.reader(**kwargs)
        return reader if self.limiter is None else self.limiter(reader)


@pytest.mark.parametrize("workspace_type", ["private", "global"])
@pytest.mark.parametrize("built", [False, True], ids=["reader", "builder"])
def test_each_source_comes_whole_through_three_instances(built, workspace_type) -> None:
    datasets, filled = sources(100, 100, 100)
    if built:
        builder = CompositeReaderBuilder(NAMES, [Builder(d, n) for d, n in zip(datasets, NAMES, strict=True)])
        assert list(builder.setup()) == NAMES
        reader = builder.new_reader(batch_size=1)
        assert builder.schema() == reader.schema()
    else:
        reader = CompositeReader(NAMES, [dataset.reader() for dataset in datasets])
    columns = read_all(reader, *filled, instances=3, workspace_type=workspace_type)
    for i, name in enumerate(NAMES):
        assert sorted(columns[f"{name}:label"]) == list(range(100 * i, 100 * i + 100))


def test_the_shortest_source_ends_it() -> None:
    datasets, filled = sources(5, 8)
    columns = read_all(CompositeReader(["a", "b"], [dataset.reader() for dataset in datasets]), *filled)
    assert columns["a:label"].tolist() == [0, 1, 2, 3, 4]
    assert columns["b:label"].tolist() == [100, 101, 102, 103, 104]


def test_a_limit_on_one_of_them_ends_all_and_stops_its_own_source_at_once() -> None:
    session = LocalSession()
    (first, second), filled = sources(8, 8)
    init = Net("init_cursor")
    inner = second.reader(init, cursor_name="cursor")
    run_init(session, *filled)
    start = TaskGroup("global")
    Task(step=init, group=start)
    session.run(start)
    limited = ReaderWithLimit(inner, 3)
    columns = read_all(CompositeReader(["a", "b"], [first.reader(), limited]), session=session)
    assert (len(columns["a:label"]), len(columns["b:label"])) == (3, 3)
    assert session.workspace().fetch("cursor")["offsets"] == [3]


def test_it_can_be_limited_and_knows_its_end() -> None:
    for num_iter, finished in ((4, False), (5, True), (6, True)):
        datasets, filled = sources(5, 8)
        reader = ReaderWithLimit(CompositeReader(["a", "b"], [d.reader() for d in datasets]), num_iter)
        columns, found = read_all(reader, *filled, outputs=[reader.data_finished])
        assert (len(columns["a:label"]), found) == (min(num_iter, 5), [finished])


def test_all_go_back_together() -> None:
    session = LocalSession()
    datasets, filled = sources(3, 3)
    init, back = Net("init_cursors"), Net("back")
    reader = CompositeReader(["a", "b"], [dataset.reader(init) for dataset in datasets])
    reader.reset(back)
    run_init(session, *filled)
    for net, rows in ((init, 3), (None, 0), (back, 3)):
        if net is not None:
            group = TaskGroup("global")
            Task(step=net, group=group)
            session.run(group)
        assert len(read_all(reader, session=session)["b:label"]) == rows


def test_readers_of_one_net_each_can_be_read_in_one_net() -> None:
    net = Net("n")
    datasets, _ = sources(1, 1)
    reader = CompositeReader(["a", "b"], [dataset.reader(Net("init")) for dataset in datasets])
    stop, record = reader.read_record(net)
    assert record.field_names() == ["a:label", "b:label"]
    assert net.ops[-1].outputs == (str(stop),)
    step, _ = reader.execution_step()
    assert step.should_stop_blob is not None


@pytest.mark.parametrize(
    ("names", "count"),
    [(["a"], 2), ([], 0), (["a", "a"], 2), ("ab", 2)],
    ids=["few", "none", "twice", "text"],
)
def test_names_must_fit(names, count) -> None:
    with pytest.raises(BuildError, match=r"expected (as many names|each name once)"):
        CompositeReader(names, [CounterReader()] * count)
    with pytest.raises(BuildError, match=r"expected (as many names|each name once)"):
        CompositeReaderBuilder(names, [ReaderBuilder()] * count)


def test_only_the_last_builder_gets_the_limiter() -> None:
    datasets, filled = sources(8, 8)
    builders = [Builder(dataset, f"b{i}") for i, dataset in enumerate(datasets)]
    builder = CompositeReaderBuilder(["a", "b"], builders)
    builder.setup(limiter=lambda reader: ReaderWithLimit(reader, 2))
    assert builders[0].limiter is None
    assert len(read_all(builder.new_reader(), *filled)["a:label"]) == 2


def test_builders_must_not_share_what_tells_their_end() -> None:
    (first, second), _ = sources(1, 1)
    with pytest.raises(BuildError, match="found 'same'"):
        CompositeReaderBuilder(["a", "b"], [Builder(first, "same"), Builder(second, "same")]).setup()


def test_a_piped_builder_puts_something_behind_each_reader() -> None:
    (dataset,), filled = sources(9)
    builder = PipedReaderBuilder(Builder(dataset, "b"), lambda reader, batch_size: ReaderWithLimit(reader, 2))
    builder.setup()
    assert isinstance(builder.new_reader(batch_size=3), Reader)
    assert len(read_all(builder.new_reader(batch_size=3), *filled)["label"]) == 6
    assert builder.schema() == dataset.schema()


def test_composites_can_be_nested() -> None:
    inner = CompositeReader(["x", "y"], [CountUntil(4), CounterReader()])
    columns = read_all(CompositeReader(["in", "z"], [inner, CounterReader()]))
    assert {name: values.tolist() for name, values in columns.items()} == {
        name: [0, 1, 2, 3] for name in ("in:x:iter", "in:y:iter", "z:iter")
    }
    assert all(values.dtype == np.int64 for values in columns.values())
