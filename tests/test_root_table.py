"""The native parser of the root's table: right where it says anything, and silent about everything else."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import slow_table
from jobcore import load, save
from jobcore._fast.table import RootTable
from jobcore.errors import BlobValueError, FormatError
from jobcore.store import open_database
from jobcore.store.parsing import parse_root
from jobcore.store.root import columns_of, read_root

text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=8)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 300) | text,
    lambda inner: st.lists(inner, max_size=3),
    max_leaves=6,
)


@st.composite
def tables(draw: st.DrawFn) -> slow_table.Columns:
    names = draw(st.lists(text, max_size=5))
    chunks = draw(st.integers(0, 5))
    return (
        names,
        draw(st.lists(st.integers(0, 2**32 - 2), min_size=len(names), max_size=len(names))),
        draw(st.lists(json_values, max_size=3)),
        draw(st.lists(st.integers(0, 2**63 - 1), min_size=chunks, max_size=chunks)),
        draw(st.lists(st.integers(0, 2**32 - 1), min_size=chunks, max_size=chunks)),
    )


def columns(table: RootTable) -> slow_table.Columns:
    spec, places, sums = table.columns()
    return table.names, spec, json.loads(table.specs), places, sums


@given(tables(), st.binary(max_size=5))
def test_what_the_writer_makes_is_parsed(table: slow_table.Columns, before: bytes) -> None:
    found = RootTable.parse(before + slow_table.dump(table), len(before))
    assert found is not None
    assert columns(found) == table
    assert RootTable(table[0], table[1], table[3], table[4]).columns() == found.columns()


PIECES = [
    b"",
    b",",
    b"[",
    b"]",
    b"}",
    b'"',
    b"\\",
    b"-",
    b"0",
    b"9",
    b".5",
    b"e1",
    b" ",
    b"null",
    b"\x00",
    b"\xff",
]
PIECES += [
    b'"a"',
    b'],"place":[',
    b'],"specs":[',
    b'"name":[',
    b"99999999999999999999",
    b"\\ud800",
    b"\xc3",
    b"\n",
]


@given(
    tables(), st.lists(st.tuples(st.integers(0, 400), st.integers(0, 6), st.sampled_from(PIECES)), max_size=3)
)
@example((["a"], [0], [], [1], [2]), [(9, 0, b"\\ud800")])
@example((["a"], [0], [["],"]], [1], [2]), [(33, 0, b'],"place":[')])
def test_whatever_is_done_to_the_text_it_is_read_as_json_reads_it_or_not_at_all(
    table: slow_table.Columns, edits: list[tuple[int, int, bytes]]
) -> None:
    data = slow_table.dump(table)
    for at, cut, piece in edits:
        at %= len(data) + 1
        data = data[:at] + piece + data[at + cut :]
    found = RootTable.parse(data)
    if found is not None and is_json_list(found.specs):
        assert columns(found) == slow_table.parse(data)


def is_json_list(data: bytes) -> bool:
    try:
        return isinstance(json.loads(data), list)
    except ValueError:
        return False


@given(st.data())
def test_no_part_of_a_text_is_taken_for_a_whole_one(data: st.DataObject) -> None:
    whole = slow_table.dump(data.draw(tables()))
    assert RootTable.parse(whole[: data.draw(st.integers(0, len(whole) - 1))]) is None
    assert RootTable.parse(whole, len(whole)) is None
    assert RootTable.parse(whole, -1) is None
    assert RootTable.parse(whole + b"}") is None


@given(
    st.lists(st.integers(0, 3), max_size=6),
    st.lists(st.integers(0, 60), max_size=8),
    st.lists(st.integers(0, 3), min_size=1, max_size=3),
    st.lists(st.integers(0, 20), min_size=3, max_size=3),
)
def test_places_are_held_against_the_specs(
    spec: list[int], places: list[int], chunks: list[int], sizes: list[int]
) -> None:
    sizes = sizes[: len(chunks)]
    for given_places in (places, sorted(places)):
        table = RootTable([f"n{i}" for i in range(len(spec))], spec, given_places, [0] * len(places))
        assert table.fits(chunks, sizes) == slow_table.fits(spec, given_places, chunks, sizes)


def test_numbers_that_no_file_can_have_do_not_fit() -> None:
    table = RootTable(["a"], [0], [5], [1])
    assert table.fits([1], [2**63 - 1])
    assert not table.fits([1], [2**63])
    assert not table.fits([2**70], [1])
    assert not table.fits([2**63], [1])


@pytest.mark.parametrize(
    ("names", "spec", "places", "sums"),
    [
        (["a"], [], [], []),
        (["a"], [0], [1], []),
        (["a"], [-1], [], []),
        (["a"], [2**32], [], []),
        (["a"], [0], [2**63], [0]),
        (["a"], [0], [0], [2**32]),
        (["\ud800"], [0], [], []),
        ([1], [0], [], []),
        (["a"], ["0"], [], []),
    ],
)
def test_columns_that_no_table_can_have_are_refused(names: Any, spec: Any, places: Any, sums: Any) -> None:
    with pytest.raises(BlobValueError):
        RootTable(names, spec, places, sums)


HOSTILE = [
    b'"user":{"x":1,"blobs":{"name":["a"],"spec":[0],"specs":[],"place":[],"crc32":[]}}',
    b'"user":null,"blobs":{"name":[]}',
    b'"user":null},"other":{"x":1',
    b'"user":null,"more":1',
    b'"user": null',
    b'"user":NaN',
    b'"user":1e999',
    b'"user":"\\ud800"',
    b'"user":"\xff"',
]


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("root") / "x"
    save(path, {"a": np.arange(3), "b\n": np.ones((2, 2)), "c": "text"}, durable=False)
    with open_database(path) as database:
        return bytes(database._reader.root())


def both_ways(data: bytes) -> bool:
    """Tell whether the native way took it; where it did, both ways agree."""
    found = columns_of(memoryview(data))
    if found is None:
        return False
    try:
        header, table = parse_root(data, "x", 1)
    except FormatError:
        with pytest.raises(FormatError):
            read_root(data, "x", 1, found)
        return False
    quick = read_root(data, "x", 1, found)
    assert (quick.header, quick.table) == (header, table)
    return quick.columns is not None


def test_the_root_of_the_writer_is_read_natively(root: bytes) -> None:
    assert both_ways(root)


@pytest.mark.parametrize("user", HOSTILE)
def test_other_members_before_the_table_are_left_to_the_general_way(root: bytes, user: bytes) -> None:
    assert b'"user":null' in root
    assert not both_ways(root.replace(b'"user":null', user, 1))


@given(
    st.lists(
        st.tuples(st.integers(0, 10**6), st.integers(0, 6), st.sampled_from([*PIECES, *HOSTILE])), max_size=2
    )
)
def test_any_root_is_read_as_the_general_way_reads_it(
    root: bytes, edits: list[tuple[int, int, bytes]]
) -> None:
    for at, cut, piece in edits:
        at %= len(root) + 1
        root = root[:at] + piece + root[at + cut :]
    both_ways(root)


@given(
    st.dictionaries(
        text,
        st.tuples(st.sampled_from(["<f4", ">i2", "|u1", "<U3"]), st.lists(st.integers(0, 4), max_size=3)),
        max_size=12,
    )
)
def test_a_load_of_everything_gives_what_a_load_by_names_gives(
    tmp_path_factory: pytest.TempPathFactory, shapes: dict[str, tuple[str, list[int]]]
) -> None:
    blobs: dict[str, Any] = {
        name: np.arange(np.prod(shape, dtype=int)).astype(dtype).reshape(shape)
        for name, (dtype, shape) in shapes.items()
    }
    blobs["large"] = np.arange(70_000 + len(blobs))
    path = tmp_path_factory.getbasetemp() / "everything"
    save(path, blobs, durable=False, overwrite=True)
    everything, named = load(path), load(path, list(blobs))
    assert list(everything) == list(named) == list(blobs)
    for name, array in blobs.items():
        found = everything[name]
        assert found.dtype == named[name].dtype == array.dtype
        assert found.shape == named[name].shape == array.shape
        assert found.tobytes() == named[name].tobytes() == array.tobytes()
        assert found.flags.owndata
        assert found.flags.writeable


def test_a_long_name_and_names_that_are_escaped_are_found(tmp_path: Path) -> None:
    blobs = {"a/b" * 90: np.arange(3), 'q"\\\n': np.arange(4), "é" * 90: np.arange(5), "Z" * 64: np.arange(6)}
    save(tmp_path / "x", blobs, durable=False)
    found = load(tmp_path / "x")
    assert {name: list(array) for name, array in found.items()} == {
        name: list(array) for name, array in blobs.items()
    }
