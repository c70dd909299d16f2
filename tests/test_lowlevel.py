"""Blobs by themselves, the native table, and the rule that tells kinds apart."""

from __future__ import annotations

import copy
import ctypes
import doctest
import pickle
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jobcore.lowlevel
import jobcore.workspace
from jobcore import Counter, Timer, Workspace
from jobcore.errors import BlobKindError, BlobNotFoundError, BlobValueError, JobcoreError
from jobcore.lowlevel import BLOB_KINDS, Blob, BlobTable, classify
from slow_workspace import SlowBlob

BIG = 40_000  # items of float64 from which a copy lets the GIL go


def address(array: Any) -> int:
    return int(array.ctypes.data)


@pytest.fixture
def blob() -> Blob:
    return Blob("x", classify)


@pytest.mark.parametrize("module", [jobcore.lowlevel, jobcore.workspace])
def test_the_documented_examples_run(module: Any) -> None:
    found = doctest.testmod(module)
    assert found.attempted
    assert not found.failed


@pytest.mark.parametrize(
    ("first", "second", "again"),
    [
        (lambda: 1.0, lambda: 2.0, True),
        (lambda: 1, lambda: True, False),
        (lambda: np.zeros(3), lambda: np.ones(3), True),
        (lambda: np.zeros(BIG), lambda: np.ones(BIG), True),
        (lambda: np.zeros(BIG), lambda: np.ones(2 * BIG)[::2], True),
        (lambda: np.zeros(3), lambda: np.ones((2, 3))[1], True),
        (lambda: np.zeros((2, 3)), lambda: np.ones((3, 2)).T, False),
        (lambda: np.zeros((3, 2)).T, lambda: np.ones((3, 2)).T, True),
        (lambda: np.zeros((2, 3)), lambda: np.ones((3, 2)), False),
        (lambda: np.zeros(2, ">f4"), lambda: np.ones(2, ">f4"), True),
        (lambda: np.zeros(2, "f4"), lambda: np.ones(2, ">f4"), False),
        (lambda: np.zeros(2, "l"), lambda: np.ones(2, "q"), False),
        (lambda: np.zeros(2, [("a", "i4")]), lambda: np.ones(2, [("a", "i4")]), True),
        (lambda: np.zeros(2, [("a", "i4")]), lambda: np.ones(2, [("b", "i4")]), False),
        (lambda: np.zeros(2, "M8[s]"), lambda: np.ones(2, "M8[ms]"), False),
        (lambda: np.zeros(2), lambda: np.ones(2, np.dtype("f8", metadata={"a": 1})), False),
    ],
)
def test_memory_is_used_again_only_for_an_equal_array(
    blob: Blob, first: Callable[[], Any], second: Callable[[], Any], again: bool
) -> None:
    blob.feed(first())
    value = second()
    before = address(blob.value)
    blob.feed(value)
    # New memory is made while the old is still there, so it is somewhere else.
    assert (address(blob.value) == before) is again
    assert blob.dtype == np.asarray(value).dtype
    np.testing.assert_array_equal(blob.fetch(), value)


@pytest.mark.parametrize("items", [1, 3, BIG])
@pytest.mark.parametrize(
    "hold",
    [
        lambda blob: blob.view(),
        lambda blob: blob.value,
        lambda blob: blob.view()[:1],
        lambda blob: memoryview(blob.view()),
        lambda blob: np.frombuffer(blob.view(), "u1"),
        lambda blob: np.asarray(blob.value).T,
        lambda blob: iter(blob.view().flat),
    ],
    ids=["view", "value", "slice", "memoryview", "frombuffer", "transposed", "iterator"],
)
def test_whoever_holds_the_array_keeps_what_it_shows(
    blob: Blob, hold: Callable[[Blob], Any], items: int
) -> None:
    blob.feed(np.zeros(items))
    held = hold(blob)
    blob.feed(np.ones(items))
    assert not np.asarray(held if not hasattr(held, "__next__") else list(held)).any()
    assert blob.fetch().all()
    where = address(blob.value)
    del held
    blob.feed(np.full(items, 2.0))
    assert address(blob.value) == where


def test_a_scalar_view_keeps_its_number(blob: Blob) -> None:
    blob.feed(1.5)
    view = blob.view()
    blob.feed(2.5)
    assert (view, blob.fetch()) == (1.5, 2.5)


def test_no_way_leads_from_a_view_to_writing(blob: Blob) -> None:
    blob.feed(np.zeros(3))
    for array in (blob.view(), blob.view()[1:], blob.view().T):
        with pytest.raises(ValueError, match="read-only"):
            array[0] = 1
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True


@pytest.mark.parametrize("items", [4, BIG])
@pytest.mark.parametrize("bound", [False, True])
def test_a_source_that_overlaps_is_read_before_it_is_written(blob: Blob, items: int, bound: bool) -> None:
    start = np.arange(float(items))
    if bound:
        blob.bind(start.copy())
    else:
        blob.feed(start)
    blob.feed(blob.value)
    np.testing.assert_array_equal(blob.fetch(), start)
    blob.feed(blob.value[::-1])
    np.testing.assert_array_equal(blob.fetch(), start[::-1])
    blob.feed(blob.view()[::-1])
    np.testing.assert_array_equal(blob.fetch(), start)
    # Memory that is the blob's own, though the array does not hold it: no reference tells.
    raw = (ctypes.c_double * items).from_address(address(blob.value))
    blob.feed(np.frombuffer(raw)[::-1])
    np.testing.assert_array_equal(blob.fetch(), start[::-1])
    blob.feed(np.frombuffer(raw))
    np.testing.assert_array_equal(blob.fetch(), start[::-1])


def test_a_blob_fed_with_itself_is_as_before(blob: Blob) -> None:
    for value in (np.arange(3), "text", [1], Counter(), None):
        blob.feed(value)
        kept = blob.value
        blob.feed(blob, transient=True)
        assert blob.value is kept
        assert blob.transient
        blob.feed(blob, transient=False)
    blob.feed(kept_object := object(), transient=True)
    with pytest.raises(BlobKindError):
        blob.feed(blob, transient=False)
    assert blob.fetch() is kept_object


@given(
    values=st.lists(
        st.sampled_from(
            [1, 2.5, "a", b"b", None, [1, 2], np.arange(4), np.zeros((2, 2), order="F"), Counter(), object()]
        ),
        min_size=1,
    ),
    transient=st.sampled_from([None, True, False]),
)
def test_feeding_a_blob_with_another_agrees_with_the_twin(values: list[Any], transient: bool | None) -> None:
    fast, slow = (Blob("s", classify), Blob("t", classify)), (SlowBlob("s"), SlowBlob("t"))
    for value in values:
        outcomes = []
        for source, target in (fast, slow):
            source.feed(value, transient=True)
            try:
                target.feed(source, transient)  # type: ignore[arg-type]  # each with its own kind
                outcomes.append((target.kind, target.transient, repr(target.value)))
            except JobcoreError as error:
                outcomes.append((type(error),))
        assert outcomes[0] == outcomes[1]


def test_take_buffer_hands_out_its_own_memory_when_nobody_sees_it(blob: Blob) -> None:
    blob.feed(np.zeros((2, 3)))
    where = address(blob.value)
    array = blob.take_buffer([2, np.int8(3)], float)
    assert address(array) == where
    assert array.flags.writeable
    assert blob.kind == "empty"
    array[...] = 5
    blob.adopt(array)
    assert blob.value is array
    assert not array.flags.writeable
    assert (blob.fetch() == 5).all()


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [((2, 3), "f8"), (6, "f8"), ((2, 3), "f4"), ((2, 3), ">f8"), ((), "f8"), ((0,), "i1"), ((2, 3), "V2")],
)
def test_take_buffer_is_new_memory_otherwise_and_leaves_the_value(blob: Blob, shape: Any, dtype: str) -> None:
    blob.feed(np.ones((2, 3)))
    seen = blob.view()
    array = blob.take_buffer(shape, dtype)
    assert array.dtype == dtype
    assert array.shape == (shape if isinstance(shape, tuple) else (shape,))
    assert array.flags.writeable
    array.view("u1" if array.shape else array.dtype)[...] = 0
    assert (seen == 1).all()
    assert (blob.fetch() == 1).all()
    blob.adopt(array)
    assert (seen == 1).all()


def test_take_buffer_refuses_what_nothing_can_fill(blob: Blob) -> None:
    for dtype in ("O", [("a", "O")]):
        with pytest.raises(BlobKindError, match=r"'x': expected a dtype of fixed-width items, found"):
            blob.take_buffer(3, dtype)
    with pytest.raises(TypeError):
        blob.take_buffer("abc", "f8")  # type: ignore[arg-type]  # the point of the test
    blob.bind(np.zeros(3))
    with pytest.raises(BlobValueError, match=r"expected float64 \(3,\), found float32 \(3,\)"):
        blob.take_buffer(3, "f4")


def test_a_bound_blob_lends_and_adopts_the_bound_array(blob: Blob) -> None:
    outside = np.zeros((3, 4))[:, ::2]
    blob.bind(outside)
    array = blob.take_buffer((3, 2), "f8")
    assert array is outside
    array[...] = 3
    blob.adopt(array, transient=True)
    assert blob.value is outside
    assert (blob.bound, blob.transient, outside.flags.writeable) == (True, True, True)
    blob.adopt(np.ones((3, 2)))
    assert (outside == 1).all()
    with pytest.raises(BlobValueError, match="bound"):
        blob.adopt(np.ones(3))


@pytest.mark.parametrize(
    ("array", "error"),
    [
        ([1], BlobValueError),
        (np.arange(6)[::2], BlobValueError),
        (np.ma.array([1]), BlobValueError),
        (np.array([None]), BlobKindError),
    ],
)
def test_adopt_takes_plain_whole_arrays_only(blob: Blob, array: Any, error: type[JobcoreError]) -> None:
    blob.feed(1)
    with pytest.raises(error, match="'x'"):
        blob.adopt(array)
    assert blob.fetch() == 1


def test_adopted_memory_that_others_own_is_never_written(blob: Blob) -> None:
    raw = bytearray(b"\1" * 16)
    blob.adopt(np.frombuffer(raw, "i8"))
    blob.feed(np.zeros(2, "i8"))
    assert raw == b"\1" * 16
    other = Blob("y", classify)
    other.feed(np.arange(3))
    blob.adopt(other.value)
    blob.feed(np.zeros(3, int))
    assert other.fetch().tolist() == [0, 1, 2]


def test_a_blob_without_a_rule_takes_what_needs_no_python() -> None:
    blob = Blob("x")
    for value in (1, 1.5, True, 2j, "t", b"t", np.zeros(2), np.int8(3), Counter(), Timer()):
        blob.feed(value)
        assert blob.kind in BLOB_KINDS
    for value in ([1], None, random.Random(), object(), np.array([None])):
        with pytest.raises(BlobKindError, match=r"blob 'x': expected .*, found .*transient=True"):
            blob.feed(value)
    assert blob.kind == "timer"
    blob.feed([1], transient=True)
    assert (blob.kind, blob.fetch()) == ("object", [1])


@pytest.mark.parametrize(
    "answer",
    [
        ("string", 5),
        ("bytes", "text"),
        ("tensor", [1]),
        ("counter", Timer()),
        ("matrix", 1),
        ("tensor", None),
    ],
)
def test_a_rule_that_breaks_its_word_is_found_out(answer: tuple[str, Any]) -> None:
    blob = Blob("x", lambda name, value: answer)
    with pytest.raises(BlobKindError, match=r"blob 'x': expected the rule to give"):
        blob.feed(object())
    assert blob.kind == "empty"


def test_an_error_of_the_rule_comes_through() -> None:
    def rule(name: str, value: object) -> tuple[str, Any]:
        raise ZeroDivisionError(name)

    with pytest.raises(ZeroDivisionError, match="x"):
        Blob("x", rule).feed(object(), transient=True)


def test_a_table_of_its_own_takes_more_by_its_rule() -> None:
    class Sets(BlobTable):
        @staticmethod
        def _classify(name: str, value: object) -> tuple[str, Any]:
            return "state", sorted(value) if isinstance(value, set) else value

    table = Sets(name="t")
    table["s"] = {2, 1}
    assert table["s"] == [1, 2]
    assert Sets(table)["s"] == [1, 2]
    with pytest.raises(BlobKindError):
        BlobTable()["s"] = {1}
    with pytest.raises(BlobKindError, match="expected a workspace as parent, found str"):
        BlobTable("parent")  # type: ignore[arg-type]  # the point of the test


def test_closest_names_are_found_among_many() -> None:
    table = BlobTable()
    for n in range(3_000):
        table[f"layer{n:04}/w"] = 0
    with pytest.raises(BlobNotFoundError, match="close names: 'layer"):
        table["layer001/w"]


def test_sizes(blob: Blob) -> None:
    for value, size in [
        (np.zeros((2, 3), "f4"), 24),
        ("é", 2),
        (b"abc", 3),
        ([1], 0),
        (Counter(), 0),
        (1, 8),
    ]:
        blob.feed(value)
        assert blob.nbytes == size
        assert (blob.dtype is None) is (blob.shape is None) is (blob.kind != "tensor")


@pytest.mark.parametrize("value", [Blob("x"), BlobTable(), Workspace()])
def test_no_half_copies(value: Any) -> None:
    for duplicate in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            duplicate(value)


def test_a_blob_cannot_be_derived_from_and_keeps_its_name(blob: Blob) -> None:
    with pytest.raises(TypeError):
        type("Derived", (Blob,), {})
    with pytest.raises(AttributeError):
        blob.name = "y"  # type: ignore[misc]  # the point of the test
    blob.__init__("y")  # type: ignore[misc]  # the point of the test
    assert blob.name == "x"


def test_classify_tells_kind_and_kept_value_without_copying_arrays() -> None:
    array = np.arange(3)
    generator = np.random.default_rng()
    counter, timer, state = Counter(), Timer(), {"a": [1]}
    for value, kind in [(array, "tensor"), (generator, "rng"), (counter, "counter"), (timer, "timer")]:
        assert classify("x", value) == (kind, value) or kind == "tensor"
        assert classify("x", value)[1] is value
    assert classify("x", state) == ("state", state)
    assert classify("x", state)[1] is not state
    for value, kind in [(1, "tensor"), ("t", "string"), (b"t", "bytes"), (None, "state")]:
        assert classify("x", value)[0] == kind
    filled = Blob("y")
    assert classify("x", filled) == ("empty", None)
    filled.feed(array)
    assert classify("x", filled)[1] is filled.value


@pytest.mark.parametrize("value", [random.Random(1), np.random.RandomState(1), np.random.default_rng(1)])
def test_every_generator_is_live(blob: Blob, value: Any) -> None:
    blob.feed(value)
    assert blob.kind == "rng"
    assert blob.fetch() is value
