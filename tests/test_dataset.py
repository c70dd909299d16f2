"""Data sets: filled, read in order and out of it, by many at once, over epochs and checkpoints."""

from __future__ import annotations

import numpy as np
import pytest

from jobcore import (
    CheckpointManager,
    Job,
    JobRunner,
    LocalSession,
    Net,
    Task,
    TaskGroup,
    Workspace,
    epoch_limiter,
)
from jobcore.data import Dataset, List, Map, ReaderWithLimit, Scalar, Struct, fetch_record, new_record
from jobcore.errors import BlobValueError, BuildError
from op_tools import run
from reader_tools import copy_task, numbers, read_all, rows_of, run_init

NESTED = Struct(
    ("dense", Scalar((np.float32, 3))),
    ("floats", Map(np.int32, np.float32)),
    ("int_lists", Map(np.int32, List(np.float32))),
    ("pairs", Map(np.int32, Map(np.int64, np.float32))),
    ("meta", Struct(("id", np.int64), ("embed", Scalar((np.float32, 2))), ("query", Scalar(str)))),
)
LENGTHS = {
    "floats:lengths": [1, 2, 3],
    "int_lists:lengths": [2, 0, 1],
    "int_lists:values:values:lengths": [2, 4, 3],
    "pairs:lengths": [1, 2, 1],
    "pairs:values:values:lengths": [1, 1, 2, 3],
}
SIZES = [3, 3, 6, 6, 3, 3, 3, 9, 3, 4, 4, 7, 7, 3, 3, 3]


def nested_columns():
    """Three rows whose columns have `SIZES` items; each item has a value of its own."""
    columns = {}
    for i, (name, dtype, size) in enumerate(
        zip(NESTED.field_names(), NESTED.field_types(), SIZES, strict=True)
    ):
        if name in LENGTHS:
            columns[name] = np.array(LENGTHS[name], np.int32)
        elif dtype.base.kind == "U":
            columns[name] = np.array([f"text {n}" * (n + 1) for n in range(size)])
        else:
            shape = (size, *dtype.shape)
            columns[name] = (1000 * i + np.arange(np.prod(shape))).reshape(shape).astype(dtype.base)
    return columns


class Bench:
    """A nested data set in a workspace, and nets run by hand."""

    def __init__(self):
        self.ws = Workspace()
        self.dataset = Dataset(NESTED, name="data")
        net = Net("make")
        self.dataset.init_from_columns(net, nested_columns())
        run(net, self.ws)

    def rows_by(self, reader, limit=20):
        """Read until nothing is left: a list of columns per batch."""
        net = Net("read")
        stop, record = reader.read_record(net)
        batches = []
        for _ in range(limit):
            run(net, self.ws)
            if self.ws.fetch(str(stop)):
                break
            batches.append([a.tolist() for a in fetch_record(record, self.ws).field_blobs()])
        return batches

    def columns(self):
        return [a.tolist() for a in fetch_record(self.dataset.content(), self.ws).field_blobs()]

    def set_up(self, reader):
        net = Net("setup")
        reader.setup_ex(net, net)
        run(net, self.ws)
        return reader


def joined(batches):
    return [[item for part in parts for item in part] for parts in zip(*batches, strict=True)]


@pytest.mark.parametrize("batch_size", [1, 2, 3, 5])
def test_nested_rows_come_in_order_and_again_after_a_reset(batch_size) -> None:
    bench = Bench()
    reader = bench.set_up(bench.dataset.reader(batch_size=batch_size))
    back = Net("back")
    reader.reset(back)
    for _ in range(2):
        batches = bench.rows_by(reader)
        assert len(batches) == -(-3 // batch_size)
        assert joined(batches) == bench.columns()
        assert bench.rows_by(reader) == []
        run(back, bench.ws)


def test_rows_that_make_no_whole_batch_are_left_out_on_demand() -> None:
    bench = Bench()
    batches = bench.rows_by(bench.set_up(bench.dataset.reader(batch_size=2, enforce_batch_size=True)))
    assert [len(batch[0]) for batch in batches] == [2]


def test_rows_come_in_a_given_order() -> None:
    bench = Bench()
    bench.ws.feed("order", np.array([2, 1, 0]))
    in_order = bench.rows_by(bench.set_up(bench.dataset.reader()))
    batches = bench.rows_by(bench.set_up(bench.dataset.random_reader(indices="order")))
    assert batches == in_order[::-1]
    twos = bench.rows_by(bench.set_up(bench.dataset.random_reader(indices="order", batch_size=2)))
    assert twos == [joined([in_order[2], in_order[1]]), in_order[0]]


def test_a_reader_that_begins_again_never_ends() -> None:
    bench = Bench()
    bench.ws.feed("order", np.array([2, 1, 0]))
    reader = bench.set_up(bench.dataset.random_reader(indices="order", batch_size=2, loop_over=True))
    ids = [batch[13] for batch in bench.rows_by(reader, limit=6)]
    all_ids = nested_columns()["meta:id"].tolist()
    assert [all_ids.index(i) for batch in ids for i in batch] == [2, 1, 0] * 4


def test_without_rows_even_that_ends() -> None:
    ws, net = Workspace(), Net("n")
    dataset = Dataset(["x"], name="none")
    dataset.init_empty(net)
    reader = dataset.random_reader(net, loop_over=True)
    stop, _ = reader.read(net)
    run(net, ws)
    assert ws.fetch(str(stop))


def test_rows_are_sorted_and_mixed() -> None:
    ws = Workspace()
    net = Net("make")
    dataset = Dataset(Struct(("len", np.int32), ("id", np.int64)), name="d")
    dataset.init_from_columns(net, {"len": [3, 1, 2] * 4, "id": rows_of(12)})
    by_length = dataset.random_reader(net, batch_size=4, sort_by_field="len", shuffle_size=1, seed=1)
    mixed = dataset.random_reader(net, batch_size=1, seed=7, cursor_name="mixed")
    run(net, ws)
    lengths = np.array([3, 1, 2] * 4)[ws.fetch(by_length.indices)].reshape(3, 4)
    # Whole batches change places; inside each the order stays.
    assert sorted(lengths.tolist()) == [[1] * 4, [2] * 4, [3] * 4]
    order = ws.fetch(mixed.indices)
    assert sorted(order) == list(range(12))
    assert order.tolist() != list(range(12))
    again = Net("again")
    mixed.shuffle(again)
    run(again, ws)
    assert ws.fetch(mixed.indices).tolist() != order.tolist()
    run(net, ws)
    assert ws.fetch(mixed.indices).tolist() == order.tolist()


def test_rows_are_copied_through_a_task_by_many() -> None:
    bench = Bench()
    session = LocalSession(bench.ws)
    for instances in (1, 4):
        target = Dataset(NESTED, name=f"copy{instances}")
        run_init(session, (target, None))
        group = TaskGroup()
        copy_task(bench.dataset.reader(), target.writer(), group=group, instances=instances)
        session.run(group)
        found = fetch_record(target.content(), bench.ws)
        assert sorted(found.meta.id.leaf()) == sorted(nested_columns()["meta:id"])
        if instances == 1:
            assert [a.tolist() for a in found.field_blobs()] == bench.columns()


def test_many_append_and_nobody_sees_half_a_row() -> None:
    session = LocalSession()
    source, target = (
        Dataset(Struct(("a", np.int64), ("b", List(np.int64))), name=name) for name in ("s", "t")
    )
    lengths = rows_of(300) % 4
    columns = {"a": rows_of(300), "b:lengths": lengths, "b:values": np.repeat(rows_of(300), lengths)}
    run_init(session, (source, columns), (target, None))
    group = TaskGroup()
    copy_task(source.reader(batch_size=3), target.writer(), group=group, instances=6)
    session.run(group)
    found = fetch_record(target.content(), session.workspace())
    assert sorted(found.a.leaf()) == list(range(300))
    assert np.array_equal(np.repeat(found.a.leaf(), found.b.lengths.leaf()), found.b.values.leaf())


def test_rows_are_trimmed_to_whole_batches() -> None:
    bench = Bench()
    net = Net("trim")
    bench.dataset.trim(net, 2)
    before = bench.columns()
    run(net, bench.ws)
    after = bench.columns()
    assert [len(column) for column in after] == [2, 2, 3, 3, 2, 2, 2, 6, 2, 3, 3, 4, 4, 2, 2, 2]
    assert all(
        column == whole[: len(column)]
        for column, whole, name in zip(after, before, NESTED.field_names(), strict=True)
        if name != "int_lists:values:values:values"
    )
    run(net, bench.ws)
    assert bench.columns() == after


def test_a_record_that_does_not_fit_is_refused() -> None:
    bench = Bench()
    net = Net("write")
    writer = bench.dataset.writer()
    with pytest.raises(BuildError, match="expected the columns"):
        writer.write_record(net, new_record(net, Struct(("dense", None))))
    with pytest.raises(BuildError, match="expected 16 columns"):
        writer.write(net, [])
    record = new_record(net, NESTED)
    writer.write_record(net, record)
    columns = nested_columns()
    columns["floats:lengths"] = columns["floats:lengths"] + 1
    for blob, column in zip(record.field_blobs(), columns.values(), strict=True):
        bench.ws.feed(blob, column)
    before = bench.columns()
    with pytest.raises(BlobValueError, match="expected 9 items, as 'floats:lengths' says, found 6"):
        run(net, bench.ws)
    assert bench.columns() == before


def test_a_data_set_is_named_filled_and_shown() -> None:
    net = Net("n")
    dataset = Dataset(["x", "y:z"])
    assert dataset.field_types() == [None, None]
    with pytest.raises(BuildError, match="found none yet"):
        dataset.content()
    dataset.init_empty(net)
    assert dataset.get_blobs() == ["n/x", "n/y:z"]
    # Nothing is left beside the columns, which a checkpoint would keep too.
    dataset.init_from_columns(net, {"x": [1], "y:z": [2.5]})
    ws = Workspace()
    run(net, ws)
    assert sorted(ws) == ["n/x", "n/y:z"]
    assert repr(dataset) == "Dataset(['x', 'y:z'])"
    assert Dataset(["x"], name="d").get_blobs() == ["d/x"]
    assert Dataset(dataset.content()).get_blobs() == dataset.get_blobs()
    with pytest.raises(BuildError, match="expected a cursor"):
        dataset.reader().read(net)
    with pytest.raises(BuildError, match="as sort_by_field, found 'q'"):
        dataset.random_reader(sort_by_field="q")
    with pytest.raises(BuildError, match="found both"):
        dataset.random_reader(indices="i", seed=1)
    with pytest.raises(BuildError, match="batch_size"):
        dataset.reader(net, batch_size=0).read(net)


def test_each_task_reads_from_the_begin() -> None:
    session = LocalSession()
    source, values = numbers(5)
    reader = source.reader()
    for workspace_type in ("private", "global"):
        for _ in range(2):
            columns = read_all(
                reader, (source, {"label": values}), session=session, workspace_type=workspace_type
            )
            assert columns["label"].tolist() == [0, 1, 2, 3, 4]


def reading_job(epochs, *, shuffled):
    """A job that reads 3 of 20 rows an epoch, with a cursor of its init group, and keeps what it read."""
    source, values = numbers(20)
    target = Dataset(source.schema(), name="target")
    with Job() as job:
        with job.init_group:
            net = Net("init")
            source.init_from_columns(net, {"label": values})
            target.init_empty(net)
            inner = source.random_reader(net, seed=3) if shuffled else source.reader(net)
            Task(step=net)
        limited = ReaderWithLimit(inner, 3)
        task = copy_task(limited, target.writer(), group=job.epoch_group, instances=2)
        job.add_stop_condition(task.add_output(limited.data_finished()))
        epoch_limiter(job, epochs)
    return job


@pytest.mark.parametrize("shuffled", [False, True], ids=["in_order", "shuffled"])
def test_a_resumed_job_reads_on_where_it_was(tmp_path, shuffled) -> None:
    wanted = None
    for path, parts in ((tmp_path / "whole", [99]), (tmp_path / "parts", [2, 5, 99])):
        for epochs in parts:
            session = LocalSession()
            job = reading_job(epochs, shuffled=shuffled).compile(LocalSession)
            resume = {} if epochs == parts[0] else {"resume_from_epoch": "latest"}
            JobRunner(job, CheckpointManager(str(path)), **resume).train(session)
            found = session.workspace().fetch("target/label").tolist()
            assert len(found) == min(3 * epochs, 20)
        # Two instances read 3 rows in any order among them.
        epochs_of = [sorted(found[i : i + 3]) for i in range(0, 20, 3)]
        wanted = epochs_of if wanted is None else wanted
        assert epochs_of == wanted
        assert sorted(found) == list(range(20))
    assert (wanted[0] == [0, 1, 2]) is not shuffled
