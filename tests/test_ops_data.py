"""Cursors over columns: in order and out of it, by one and by many."""

from __future__ import annotations

import numpy as np
import pytest

import jobcore
from column_tools import BATCH, COLUMNS, FIELDS, do, tagged
from jobcore import LocalSession, Net, Task, TaskGroup, ops
from jobcore.errors import BlobKindError, BlobValueError, BuildError


@pytest.fixture
def ws():
    return tagged()


def test_a_cursor_counts_the_items_of_each_level(ws) -> None:
    seen = []
    for _ in range(4):
        do(ws, "CursorAtEnd", ["cursor", "id"], ["end"])
        do(ws, "ReadNextBatch", ["cursor", *COLUMNS], BATCH)
        do(ws, "GetCursorOffset", ["cursor"], ["at"])
        seen.append((ws["i"].tolist(), ws["v"].tolist(), ws["at"].tolist(), bool(ws["end"])))
    assert seen == [
        ([10], ["a", "b"], [1, 2], False),
        ([11], [], [2, 2], False),
        ([12], ["c"], [3, 3], False),
        ([], [], [3, 3], True),
    ]
    do(ws, "ResetCursor", ["cursor"])
    do(ws, "GetCursorOffset", ["cursor"], ["at"])
    assert ws["at"].tolist() == [0, 0]


def test_a_cursor_is_saved_and_goes_on(ws, tmp_path) -> None:
    do(ws, "ReadNextBatch", ["cursor", *COLUMNS], BATCH, batch_size=2)
    jobcore.save(tmp_path / "c.zarr.zip", {"cursor": ws.blob("cursor")})
    ws.feed("cursor", jobcore.load(tmp_path / "c.zarr.zip")["cursor"])
    do(ws, "ReadNextBatch", ["cursor", *COLUMNS], BATCH, batch_size=2)
    assert ws["i"].tolist() == [12]


def test_rows_that_come_later_are_read(ws) -> None:
    do(ws, "ReadNextBatch", ["cursor", *COLUMNS], BATCH, batch_size=5)
    do(ws, "ReadNextBatch", ["cursor", *COLUMNS], BATCH, batch_size=5)
    assert len(ws["i"]) == 0
    for name, more in (("i2", [13]), ("l2", np.array([1], np.int32)), ("v2", np.array(["wider text"]))):
        ws.feed(name, np.asarray(more))
    do(ws, "Append", [*COLUMNS, "i2", "l2", "v2"], fields=FIELDS)
    do(ws, "ReadNextBatch", ["cursor", *COLUMNS], BATCH, batch_size=5)
    assert (ws["i"].tolist(), ws["v"].tolist()) == ([13], ["wider text"])


def test_offsets_tell_where_each_row_begins(ws) -> None:
    do(ws, "ComputeOffset", ["cursor", *COLUMNS], ["offsets"])
    assert ws["offsets"].tolist() == [[0, 0], [1, 2], [2, 2], [3, 3]]
    ws.feed("order", np.array([2, 0, 2, 1]))
    do(ws, "ReadRandomBatch", ["cursor", "order", "offsets", *COLUMNS], BATCH, batch_size=3)
    assert (ws["i"].tolist(), ws["l"].tolist(), ws["v"].tolist()) == (
        [12, 10, 12],
        [1, 2, 1],
        ["c", "a", "b", "c"],
    )
    do(ws, "ReadRandomBatch", ["cursor", "order", "offsets", *COLUMNS], BATCH, batch_size=3)
    assert ws["i"].tolist() == [11]
    do(ws, "ReadRandomBatch", ["cursor", "order", "offsets", *COLUMNS], BATCH, batch_size=3)
    assert len(ws["i"]) == 0


def test_whole_batches_only_also_in_random_order(ws) -> None:
    do(ws, "ComputeOffset", ["cursor", *COLUMNS], ["offsets"])
    ws.feed("order", np.arange(3))
    sizes = []
    for _ in range(2):
        args = {"batch_size": 2, "enforce_batch_size": True}
        do(ws, "ReadRandomBatch", ["cursor", "order", "offsets", *COLUMNS], BATCH, **args)
        do(ws, "CursorAtEnd", ["cursor", "order"], ["end"], min_rows=2)
        sizes.append((len(ws["i"]), bool(ws["end"])))
    assert sizes == [(2, True), (0, True)]


def test_a_cursor_never_made_is_not_at_the_end(ws) -> None:
    ws.create_blob("later")
    do(ws, "CursorAtEnd", ["later", "id"], ["end"])
    assert not ws["end"]


@pytest.mark.parametrize(
    ("feed", "op", "inputs", "error", "says"),
    [
        (
            {"cursor": 3},
            "ReadNextBatch",
            ["cursor", *COLUMNS],
            BlobKindError,
            "expected a cursor, found 'cursor'",
        ),
        ({}, "ReadNextBatch", ["cursor", "id", "len"], BlobValueError, "expected 3 columns.*tags:lengths"),
        (
            {"val": 3},
            "ReadNextBatch",
            ["cursor", *COLUMNS],
            BlobKindError,
            "one dimension or more, found 'val'",
        ),
        (
            {"val": "x"},
            "ReadNextBatch",
            ["cursor", *COLUMNS],
            BlobKindError,
            "a column, a tensor, found 'val'",
        ),
        ({"len": np.array([1])}, "ComputeOffset", ["cursor", *COLUMNS], BlobValueError, "expected 3 items"),
        ({"len": np.array([1, -1, 3])}, "ComputeOffset", ["cursor", *COLUMNS], BlobValueError, "is negative"),
        ({"len": np.ones(3)}, "ComputeOffset", ["cursor", *COLUMNS], BlobValueError, "expected lengths"),
    ],
)
def test_columns_that_do_not_fit_a_cursor(ws, feed, op, inputs, error, says) -> None:
    for name, value in feed.items():
        ws.feed(name, value)
    outputs = ["offsets"] if op == "ComputeOffset" else BATCH[: len(inputs) - 1]
    with pytest.raises(error, match=says):
        do(ws, op, inputs, outputs)


@pytest.mark.parametrize(
    ("order", "offsets", "error", "says"),
    [
        ([3], None, BlobValueError, "rows from 0 to 2, found 3 to 3"),
        ([-1], None, BlobValueError, "found -1 to -1"),
        ([0.5], None, BlobKindError, "1-D int64, found 'order'"),
        ([0], np.zeros((4, 3), np.int64), BlobKindError, r"\(rows \+ 1, 2\)"),
        ([0], np.array([[0, 0], [1, 9]]), BlobValueError, "do not fit the columns"),
    ],
)
def test_orders_and_offsets_are_checked(ws, order, offsets, error, says) -> None:
    do(ws, "ComputeOffset", ["cursor", *COLUMNS], ["offsets"])
    ws.feed("order", np.array(order))
    if offsets is not None:
        ws.feed("offsets", offsets)
    with pytest.raises(error, match=says):
        do(ws, "ReadRandomBatch", ["cursor", "order", "offsets", *COLUMNS], BATCH)


def test_sorting_and_mixing(ws) -> None:
    ws.feed("id", np.array([3, 1, 2]))
    do(ws, "SortAndShuffle", ["cursor", *COLUMNS], ["order"], sort_by_field_idx=0)
    assert ws["order"].tolist() == [1, 2, 0]
    for column, found in ((2, "'tags:values'"), (9, "9 of 3")):
        with pytest.raises(BlobValueError, match=found):
            do(ws, "SortAndShuffle", ["cursor", *COLUMNS], ["order"], sort_by_field_idx=column)
    with pytest.raises(BlobKindError, match=r"expected a numpy\.random\.Generator"):
        do(ws, "SortAndShuffle", ["cursor", *COLUMNS, "id"], ["order"])
    orders = set()
    for seed in range(20):
        do(ws, "SortAndShuffle", ["cursor", *COLUMNS], ["order"], shuffle_size=3, seed=seed)
        orders.add(tuple(ws["order"]))
        assert sorted(ws["order"]) == [0, 1, 2]
        again = tuple(ws["order"])
        do(ws, "SortAndShuffle", ["cursor", *COLUMNS], ["order"], shuffle_size=3, seed=seed)
        assert tuple(ws["order"]) == again
    assert len(orders) > 3


@pytest.mark.parametrize(
    ("op", "inputs", "outputs", "args", "says"),
    [
        ("CreateTreeCursor", [], ["c"], {"fields": ["a", "a"]}, "named twice"),
        ("ReadNextBatch", ["c", "a", "b"], ["x"], {}, "expected 2 outputs"),
        ("ReadNextBatch", ["c", "a"], ["x"], {"batch_size": 0}, "at least 1"),
        ("ReadRandomBatch", ["c", "o", "f", "a"], ["x", "y"], {}, "expected 1 outputs"),
        ("Append", ["a", "b", "c"], [], {}, "found 3 inputs"),
        ("Append", ["a", "b", "x", "y"], ["b", "a"], {}, "expected the columns as outputs"),
        ("Append", ["a", "a", "x", "y"], [], {}, "each column once"),
        ("Append", ["a", "x"], [], {"fields": ["p", "q"]}, "expected 1 names"),
        ("AtomicAppend", ["m", "a", "b"], ["b"], {}, "expected the columns as outputs, a, found b"),
        ("TrimDataset", ["a"], ["a"], {"fields": ["x"], "multiple_of": 0}, "at least 1"),
        ("TrimDataset", ["a"], ["b"], {"fields": ["x"], "multiple_of": 2}, "expected the inputs as outputs"),
        ("CheckDatasetConsistency", ["a"], [], {"fields": []}, "expected 1 names"),
        ("CollectTensor", ["v", "t", "u"], [], {"num_to_collect": 1}, "found 3 inputs"),
        ("ReservoirSampling", ["r", "n", "d", "m"], ["r", "x"], {"num_to_collect": 1}, "first two inputs"),
    ],
)
def test_a_wrong_call_is_refused_where_it_is_written(op, inputs, outputs, args, says) -> None:
    with pytest.raises(BuildError, match=says):
        Net("n").add_op(op, inputs, outputs, **args)


def test_many_instances_read_each_row_once() -> None:
    group = TaskGroup("global")
    with group, Task(num_instances=8) as task:
        with ops.task_init():
            rows = ops.Const(np.arange(1000), "rows")
            cursor = ops.CreateTreeCursor([], "cursor", fields=["rows"])
            total = ops.Const(0, "total", dtype=np.int64)
            mutex = ops.CreateMutex([], "mutex")
        zero = ops.Const(0)
        with ops.loop():
            batch = ops.ReadNextBatch([cursor, rows], ["batch"], batch_size=7)
            ops.stop_if(ops.IsEmpty(batch))
            ops.Python(lambda i, o: o[0].feed(i[0].view().sum()))([batch], ["sum"])
            ops.AtomicFetchAdd64([mutex, total, "sum"], [total, "before"])
        ops.Copy(zero, "unused")
        task.add_output(total)
    LocalSession().run(group)
    assert task.outputs()[0].fetch() == 999 * 500
