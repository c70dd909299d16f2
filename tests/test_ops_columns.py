"""Columns as a whole: levels, growth, whole rows or none, packed records."""

from __future__ import annotations

import threading

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from column_tools import BATCH, COLUMNS, FIELDS, do, tagged, workspace
from jobcore import LocalSession, Task, TaskGroup, ops
from jobcore.errors import BlobKindError, BlobValueError
from jobcore.graph.rooms import extended
from jobcore.graph.trees import column_tree


@pytest.fixture
def ws():
    return tagged()


def test_levels_are_found_by_names() -> None:
    assert column_tree(("lengths", "values:lengths", "values:values")).level_of == (0, 1, 2)
    assert column_tree(("lengths_of_rope", "a:values", "a")).level_of == (0, 0, 0)
    outer = column_tree(("a", "b:lengths", "b:values:c:lengths", "b:values:c:values", "b:values:d"))
    assert (outer.level_of, outer.parents) == ((0, 0, 1, 2, 1), ((0, 1), (1, 2)))


@given(
    st.lists(
        st.tuples(st.integers(0, 99), st.lists(st.lists(st.integers(0, 99), max_size=3), max_size=3)),
        max_size=9,
    ),
    st.data(),
)
def test_rows_in_columns_are_the_rows_in_lists(rows, data) -> None:
    fields = ("id", "x:lengths", "x:values:lengths", "x:values:values")
    tree = column_tree(fields)

    def columns_of(some):
        inner = [row for _, xs in some for row in xs]
        return [
            np.array(values, np.int64)
            for values in (
                [i for i, _ in some],
                [len(xs) for _, xs in some],
                [len(row) for row in inner],
                [x for row in inner for x in row],
            )
        ]

    columns = columns_of(rows)
    assert tree.sizes(columns) == [len(rows), len(columns[2]), len(columns[3])]
    cuts = sorted(data.draw(st.lists(st.integers(0, len(rows)), max_size=4)))
    places = [[0] * 3]
    for cut in [*cuts, len(rows)]:
        places.append(tree.advance(columns, places[-1], cut - places[-1][0]))
        part = tree.cut(columns, places[-2], places[-1])
        for found, expected in zip(part, columns_of(rows[places[-2][0] : cut]), strict=True):
            assert found.tolist() == expected.tolist()
    picked = data.draw(st.lists(st.integers(0, len(rows) - 1), max_size=6)) if rows else []
    gathered = tree.gather(columns, tree.offsets(columns), np.array(picked, np.int64))
    for found, expected in zip(gathered, columns_of([rows[i] for i in picked]), strict=True):
        assert found.tolist() == expected.tolist()


def test_what_grows_shares_its_room_and_nothing_else() -> None:
    old = extended(np.arange(100), np.arange(1))
    more = extended(old, np.arange(5))
    assert np.shares_memory(old, more)
    # The rows behind `old` are taken: a second one that goes on from it gets memory of its own.
    other = extended(old, np.arange(7, 9))
    assert not np.shares_memory(old, other)
    assert more[100:].tolist() == [0, 0, 1, 2, 3, 4]
    assert other[100:].tolist() == [0, 7, 8]
    assert not np.shares_memory(extended(old[:50], np.arange(3)), old)
    assert not np.shares_memory(extended(old.astype("f4"), np.arange(3, dtype="f4")), old)


def test_appending_to_a_copy_leaves_the_column_alone() -> None:
    ws = workspace(a=np.arange(10), more=np.array([7]))
    do(ws, "Append", ["a", "more"])
    do(ws, "Copy", ["a"], ["b"])
    seen = ws.view("a")
    for name, value in (("a", 1), ("b", 2), ("a", 3)):
        ws.feed("more", np.array([value]))
        do(ws, "Append", [name, "more"])
    assert ws["a"].tolist() == [*range(10), 7, 1, 3]
    assert ws["b"].tolist() == [*range(10), 7, 2]
    assert seen.tolist() == [*range(10), 7]


@pytest.mark.parametrize(
    ("old", "new", "error", "says"),
    [
        (np.arange(3), np.ones(2), BlobKindError, "expected rows of int64 for 'a', found 'new': float64"),
        (np.ones((3, 2)), np.ones((3, 3)), BlobValueError, r"expected rows of shape \(2,\)"),
        (np.arange(3), np.array(["x"]), BlobKindError, "expected rows of int64"),
        ({"a": 1}, np.ones(2), BlobKindError, "a column, a tensor, found 'a': state"),
    ],
)
def test_rows_that_do_not_fit_go_into_no_column(old, new, error, says) -> None:
    ws = workspace(first=np.arange(3), a=old, more=np.arange(len(new)), new=new)
    with pytest.raises(error, match=says):
        do(ws, "Append", ["first", "a", "more", "new"])
    assert ws["first"].tolist() == [0, 1, 2]


def test_the_first_rows_decide_and_scalars_are_a_row() -> None:
    ws = workspace(e=np.zeros(0, np.float32), n=np.array(3), text=np.zeros(0, "U1"), t=np.array("long"))
    ws.create_blob("never")
    for _ in range(2):
        do(ws, "Append", ["e", "never", "text", "n", "n", "t"])
    assert (ws["e"].tolist(), ws["never"].tolist(), ws["text"].tolist()) == ([3, 3], [3, 3], ["long", "long"])
    assert ws["e"].dtype == np.int64
    do(ws, "CreateMutex", [], ["m"])
    do(ws, "AtomicAppend", ["m", "e", "n"], ["e"])
    assert len(ws["e"]) == 3


def test_consistency(ws) -> None:
    do(ws, "CheckDatasetConsistency", COLUMNS, [], fields=FIELDS)
    ws.feed("val", np.array(["a"]))
    with pytest.raises(
        BlobValueError, match="'tags:values': expected 3 items, as 'tags:lengths' says, found 1"
    ):
        do(ws, "CheckDatasetConsistency", COLUMNS, [], fields=FIELDS)


def test_records_are_packed_and_unpacked(ws) -> None:
    do(ws, "PackRecords", COLUMNS, ["packed"], fields=FIELDS)
    do(ws, "UnPackRecords", ["packed"], BATCH, fields=FIELDS)
    for column, back in zip(COLUMNS, BATCH, strict=True):
        assert ws[back].tolist() == ws[column].tolist()
        assert ws[back].dtype == ws[column].dtype
    with pytest.raises(BlobValueError, match="expected packed records of a, b, c"):
        do(ws, "UnPackRecords", ["packed"], BATCH, fields=["a", "b", "c"])
    with pytest.raises(BlobKindError, match="expected packed records"):
        do(ws, "UnPackRecords", ["id"], BATCH, fields=FIELDS)


def test_readers_beside_appenders_see_whole_rows() -> None:
    group = TaskGroup("global")
    seen = []

    def look(inputs, outputs):
        a, b = (blob.view() for blob in inputs)
        seen.append(a.tolist() == b.tolist())

    with group:
        with Task(name="make"), ops.local_init():
            ops.Const(np.zeros(0, np.int64), "a")
            ops.Const(np.zeros(0, np.int64), "b")
            ops.CreateTreeCursor([], "cursor", fields=["a", "b"])
        with Task(name="append", num_instances=3), ops.loop(200) as loop:
            ops.Append(["a", "b", loop.iter(), loop.iter()])
        with Task(name="read", num_instances=3), ops.loop(300):
            ops.ReadNextBatch(["cursor", "a", "b"], ["x", "y"], batch_size=5)
            ops.Python(look)(["x", "y"], [])
    session = LocalSession()
    session.run(group)
    assert all(seen)
    assert sorted(session.workspace()["a"]) == sorted([*range(200)] * 3)


def test_locks_do_not_wait_for_themselves() -> None:
    ws = workspace(a=np.arange(3))
    do(ws, "CreateMutex", [], ["m"])
    threads = [threading.Thread(target=do, args=(ws, "AtomicAppend", ["m", "a", "b"])) for _ in range(8)]
    ws.feed("b", np.arange(2))
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
    assert len(ws["a"]) == 19
