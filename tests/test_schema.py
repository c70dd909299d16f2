"""Records: their columns, their parts, and their values in a workspace."""

from __future__ import annotations

import numpy as np
import pytest

from jobcore import BlobReference, Net, Workspace
from jobcore.data import (
    List,
    Map,
    NamedTuple,
    Scalar,
    Struct,
    Tuple,
    as_record,
    const_record,
    feed_record,
    fetch_record,
    from_blob_list,
    from_column_list,
    init_empty_record,
    new_record,
)
from jobcore.errors import BuildError
from op_tools import run


def nested():
    return Struct(
        ("uid", Scalar(np.int64)),
        ("tags", List(Scalar(str))),
        ("scores", Map(np.int32, List((np.float32, 3)))),
        ("user:name", Scalar(str)),
        ("user:age", Scalar()),
    )


NAMES = [
    "uid",
    "tags:lengths",
    "tags:values",
    "scores:lengths",
    "scores:values:keys",
    "scores:values:values:lengths",
    "scores:values:values:values",
    "user:name",
    "user:age",
]


def test_columns_are_named_by_path_and_have_types() -> None:
    record = nested()
    assert record.field_names() == NAMES
    assert record.field_types()[0] == np.int64
    assert record.field_types()[1] == np.int32
    assert record.field_types()[6] == np.dtype((np.float32, 3))
    assert record.field_types()[8] is None
    assert len(record.all_scalars()) == len(NAMES)
    assert not record.has_blobs()


def test_parts_are_found_by_attribute_name_path_and_number() -> None:
    record = nested()
    assert record.user.name is record["user:name"]
    assert record[0] is record.uid
    assert record.scores.keys is record["scores:values:keys"]
    assert record[["uid", "user:age"]].field_names() == ["uid", "user:age"]
    assert ("user:age" in record, "user:height" in record) == (True, False)
    assert list(record) == ["uid", "tags", "scores", "user"]
    with pytest.raises(AttributeError, match="no field 'id'; it has uid, tags"):
        _ = record.id
    for path in ("id", "uid:x", "tags:keys", "user:x"):
        with pytest.raises(KeyError, match=r"no field|fields lengths and values"):
            record[path]


def test_records_are_joined_and_taken_apart() -> None:
    left = Struct(("a", Scalar()), ("s:x", Scalar()))
    right = Struct(("b", Scalar()), ("s:y", Scalar()))
    both = left + right
    assert both.field_names() == ["a", "s:x", "s:y", "b"]
    assert (both - right).field_names() == left.field_names()
    assert (both - both).field_names() == []
    with pytest.raises(BuildError, match="'a' twice"):
        left + Struct(("a", Scalar()))


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ([("lengths", Scalar())], "'lengths'"),
        ([("a", Scalar()), ("a", Scalar())], "'a' twice"),
        ([("a", Scalar()), ("a:b", Scalar())], "'a' twice"),
        ([("", Scalar())], "empty"),
        ([("a:", Scalar())], "empty"),
        ([("a", object)], "plain items"),
        ([("a", "no dtype")], "expected a NumPy dtype"),
        (["a"], "pair of name and field"),
    ],
)
def test_a_wrong_record_is_refused(fields, says) -> None:
    with pytest.raises(BuildError, match=says):
        Struct(*fields)


def test_tuples_number_their_fields() -> None:
    assert Tuple(np.int32, np.int64).field_names() == ["field_0", "field_1"]
    assert NamedTuple("x", np.int32, List(np.int64)).field_names() == ["x_0", "x_1:lengths", "x_1:values"]


def test_records_are_equal_by_columns_and_types_alone() -> None:
    assert nested() == nested()
    assert nested() == new_record(Net("n"), nested())
    assert Struct(("a", np.int32)) != Struct(("a", np.int64))
    assert Struct(("a", np.int32)) != 3


def test_blobs_come_with_new_record_and_go_with_clone_schema() -> None:
    record = new_record(Net("net"), nested())
    assert [str(blob) for blob in record.field_blobs()] == [f"net/{name}" for name in NAMES]
    assert record.has_blobs()
    assert type(record.scores) is Map
    copy = record.clone()
    copy.uid.set(blob="other")
    assert (str(record.uid.leaf()), str(copy.uid.leaf())) == ("net/uid", "other")
    assert not record.clone_schema().has_blobs()
    with pytest.raises(BuildError, match="none for 'uid', 'tags:lengths'"):
        nested().field_blobs()
    with pytest.raises(BuildError, match="found none"):
        Scalar().leaf()
    with pytest.raises(BuildError, match="expected a blob or an array"):
        Scalar().set(blob=3)


def test_blobs_are_given_in_order() -> None:
    record = from_blob_list(Struct(("a", Scalar()), ("b", List(Scalar()))), ["x", "y", "z"])
    assert (record.a.leaf(), record.b.lengths.leaf(), record.b.values.leaf()) == ("x", "y", "z")
    with pytest.raises(BuildError, match=r"expected 3 blobs.*found 1"):
        from_blob_list(record, ["x"])


def test_a_record_is_rebuilt_from_its_columns() -> None:
    record = nested()
    rebuilt = from_column_list(record.field_names(), record.field_types(), [f"b{i}" for i in range(9)])
    assert rebuilt == record
    assert rebuilt.scores.values.values.values.leaf() == "b6"
    for names, says in (
        (["a", "a"], "'a' twice"),
        (["a", "a:b"], "'a' to be a column"),
        (["a:b", "a"], "'a' twice"),
        (["a:lengths"], "lengths and values in 'a'"),
        (["lengths", "values"], "named fields"),
    ):
        with pytest.raises(BuildError, match=says):
            from_column_list(names)
    with pytest.raises(BuildError, match="expected 1 dtypes"):
        from_column_list(["a"], [])


def test_almost_anything_becomes_a_record() -> None:
    blob = BlobReference("b")
    assert as_record(blob).leaf() is blob
    assert as_record({"x": blob, "y": np.int32}).field_names() == ["x", "y"]
    assert as_record([("x", blob), ("y", [blob, blob])]).field_names() == ["x", "y:field_0", "y:field_1"]
    assert as_record((np.int32, (2, 3))).dtype.shape == (2, 3)
    record = nested()
    assert as_record(record) is record


def test_values_go_into_a_workspace_and_come_back() -> None:
    ws = Workspace()
    record = new_record(
        Net("n"), Struct(("id", np.int32), ("v", (np.float32, 2)), ("t", List(str)), ("any", None))
    )
    feed_record(record, [[1, 2], [[1, 2], [3, 4]], [1, 2], ["a", "bcd", "e"], [0.5, 1]], ws)
    back = fetch_record(record, ws)
    assert back.id.leaf().dtype == np.int32
    assert back.v.leaf().dtype == np.float32
    assert back.v.leaf().tolist() == [[1, 2], [3, 4]]
    assert back.t.values.leaf().tolist() == ["a", "bcd", "e"]
    feed_record(record, {name: [] for name in record.field_names()}, ws)
    assert fetch_record(record, ws).v.leaf().shape == (0, 2)
    feed_record(record, back, ws)
    assert fetch_record(record, ws).any.leaf().tolist() == [0.5, 1]


@pytest.mark.parametrize(
    ("arrays", "says"),
    [
        ([[1]], "expected 2 columns"),
        ({"id": [1]}, r"expected the columns \['id', 'v'\]"),
        ([["x"], [[1, 2]]], "column 'id'"),
        ([[1], [1, 2]], r"column 'v': expected rows of shape \(2,\)"),
        ([1, [[1, 2]]], r"column 'id': expected rows of shape \(\)"),
    ],
)
def test_values_that_do_not_fit_are_refused_and_nothing_is_fed(arrays, says) -> None:
    ws = Workspace()
    record = new_record(Net("n"), Struct(("id", np.int32), ("v", (np.float32, 2))))
    with pytest.raises(BuildError, match=says):
        feed_record(record, arrays, ws)
    assert len(ws) == 0


def test_records_are_made_of_constants_and_of_nothing() -> None:
    net, ws = Net("n"), Workspace()
    full = const_record(net, {"a": [1, 2], "s:b": [[1.0], [2.0]]})
    typed = const_record(net, [[1, 2]], Struct(("c", np.int8)))
    empty = init_empty_record(net, Struct(("i", np.int8), ("v", (np.int16, 3)), ("t", str), ("any", None)))
    run(net, ws)
    assert full.field_names() == ["a", "s:b"]
    assert fetch_record(full, ws).s.b.leaf().tolist() == [[1], [2]]
    assert fetch_record(typed, ws).c.leaf().dtype == np.int8
    arrays = fetch_record(empty, ws).field_blobs()
    assert [(a.dtype.str, a.shape) for a in arrays] == [
        ("|i1", (0,)),
        ("<i2", (0, 3)),
        ("<U1", (0,)),
        ("<f4", (0,)),
    ]
    with pytest.raises(BuildError, match="schema that names them"):
        const_record(net, [[1]])
