"""What a workspace does, one thread at a time."""

from __future__ import annotations

import enum
import gc
import tracemalloc
import warnings
import weakref
from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jobcore import Counter, Timer, Workspace
from jobcore.errors import BlobKindError, BlobValueError
from jobcore.graph import BlobReference

BIG = 40_000  # items of float64 from which a copy lets the GIL go


@pytest.fixture
def ws() -> Workspace:
    return Workspace(name="w")


class Gray(str, enum.Enum):  # noqa: UP042 - whose str() is not its text, unlike that of a StrEnum
    DARK = "dark"


class Level(enum.IntEnum):
    HIGH = 3


def matrix() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PendingDeprecationWarning)
        return np.matrix([[1, 2]])


@pytest.mark.parametrize(
    ("value", "kind", "expected"),
    [
        (True, "tensor", np.array(True)),
        (3, "tensor", np.array(3)),
        (2**64 - 1, "tensor", np.array(2**64 - 1, "u8")),
        (-(2**63), "tensor", np.array(-(2**63))),
        (Level.HIGH, "tensor", np.array(3)),
        (0.5, "tensor", np.array(0.5)),
        (np.float64(0.5), "tensor", np.array(0.5)),
        (np.float16(0.5), "tensor", np.array(0.5, "f2")),
        (np.str_("é"), "tensor", np.array("é")),
        (np.datetime64("2020-01-01"), "tensor", np.array("2020-01-01", "M8[D]")),
        (2 + 1j, "tensor", np.array(2 + 1j)),
        (matrix(), "tensor", np.array([[1, 2]])),
        (np.ma.array([1, 2]), "tensor", np.array([1, 2])),
        ("text", "string", "text"),
        (Gray.DARK, "string", "dark"),
        (BlobReference("x/y"), "string", "x/y"),
        (bytearray(b"ab"), "bytes", b"ab"),
        (memoryview(b"abcd")[::2], "bytes", b"ac"),
        (None, "state", None),
        ((1, [2, {"k": 2**70}]), "state", (1, [2, {"k": 2**70}])),
    ],
)
def test_the_kind_follows_from_what_is_fed(ws: Workspace, value: Any, kind: str, expected: Any) -> None:
    ws["x"] = value
    assert ws.blob("x").kind == kind
    found = ws["x"]
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert found.dtype == expected.dtype
    np.testing.assert_equal(found, expected)


def test_scalars_change_their_type_with_what_is_fed(ws: Workspace) -> None:
    for value in (1, 2.0, 2**63, True, 1j, np.float32(3), 7, np.array(4.0), -5):
        ws["x"] = value
        assert ws["x"] == value
        assert ws["x"].dtype == np.asarray(value).dtype
        assert ws.blob("x").nbytes == np.asarray(value).nbytes


@pytest.mark.parametrize("shape", [(), (0,), (3, 0, 2), (2, 3)])
@pytest.mark.parametrize(
    "code", [c for c in np.typecodes["All"] if c != "O"] + ["S5", "U5", "V5", ">f4", ">c8"]
)
def test_every_dtype_of_numpy_comes_back_as_it_was(ws: Workspace, code: str, shape: tuple[int, ...]) -> None:
    array = np.empty(shape, np.dtype(code) if code not in "mM" else code + "8[ms]")
    array = array if array.dtype.itemsize else np.empty(shape, array.dtype.char + "3")
    array.reshape(-1).view("u1")[...] = 1 if array.dtype.kind != "U" else 0
    check_round_trip(ws, array)


@pytest.mark.parametrize(
    "array",
    [
        np.array([(1, [2, 3])], np.dtype([("a", "u1"), ("b", ">i4", 2)], align=True)),
        np.zeros(2, [("", "i1")]),
        np.zeros((3, 2), "V0"),
        np.zeros(3, np.dtype("f8", metadata={"unit": "m"})),
        np.asfortranarray(np.arange(6.0).reshape(2, 3)),
        np.arange(24.0).reshape(2, 3, 4).transpose(1, 0, 2),
        np.arange(10)[::-3],
        np.broadcast_to(np.float32(2), (3, 2)),
        np.frombuffer(b"\1\0\0\0\0\0\0\0\0", "i4", 2, 1),
    ],
    ids=str,
)
def test_every_layout_and_structure_comes_back_as_it_was(ws: Workspace, array: Any) -> None:
    check_round_trip(ws, array)


def test_text_of_no_width_is_copied_as_numpy_copies_it(ws: Workspace) -> None:
    array = np.zeros(3, [("empty", "S0"), ("n", "i1")])["empty"]
    for _ in range(2):
        ws["x"] = array
        assert ws["x"].dtype == array.copy().dtype
        assert ws["x"].tolist() == [b""] * 3
    ws.bind("bound", array)
    ws["bound"] = array
    assert ws["bound"].tolist() == [b""] * 3


def test_every_dtype_of_ml_dtypes_comes_back_as_it_was(ws: Workspace) -> None:
    kinds = [t for t in vars(ml_dtypes).values() if isinstance(t, type) and issubclass(t, np.generic)]
    assert len(kinds) > 10
    for kind in kinds:
        for shape in [(), (0,), (3, 2)]:
            check_round_trip(ws, np.ones(shape, kind))
        ws["x"] = kind(1)
        assert ws["x"].dtype == np.dtype(kind)


def test_strings_of_variable_width_are_copied_deeply(ws: Workspace) -> None:
    array = np.array(["short", "long " * 20], np.dtypes.StringDType())
    ws["x"] = array
    view = ws.view("x")
    array[:] = ["gone", "away"]
    assert ws["x"].tolist() == view.tolist() == ["short", "long " * 20]
    ws["x"] = array
    assert ws["x"].tolist() == ["gone", "away"]
    assert view.tolist() == ["short", "long " * 20]


def check_round_trip(ws: Workspace, array: Any) -> None:
    for _ in range(2):  # into new memory, and into that of the round before
        ws["x"] = array
        found = ws["x"]
        assert found.dtype == array.dtype
        assert found.dtype.metadata == array.dtype.metadata
        assert found.shape == array.shape
        assert found.tobytes() == array.tobytes()
        assert found.flags.c_contiguous or array.flags.f_contiguous
        assert not np.shares_memory(found, array)
        assert (ws.blob("x").dtype, ws.blob("x").shape) == (array.dtype, array.shape)
        assert ws.blob("x").nbytes == array.nbytes


class OwnArray:
    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


class OnlyDLPack:
    def __init__(self, array: Any) -> None:
        self.array = array

    def __dlpack__(self, **options: Any) -> Any:
        return self.array.__dlpack__(**options)

    def __dlpack_device__(self) -> Any:
        return self.array.__dlpack_device__()


@pytest.mark.parametrize("wrap", [OwnArray, OnlyDLPack])
def test_arrays_of_other_libraries_are_copied(ws: Workspace, wrap: Any) -> None:
    inner = np.arange(3.0)
    ws["x"] = wrap(inner)
    inner[:] = -1
    assert ws["x"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("generator", [np.random.default_rng(1), np.random.RandomState(1)])
def test_generators_counters_and_timers_are_live(ws: Workspace, generator: Any) -> None:
    for value in (generator, Counter(2), Timer()):
        ws["x"] = value
        assert ws["x"] is value
        assert ws.blob("x").value is value


def test_a_state_is_copied_in_and_out(ws: Workspace) -> None:
    state = {"lr": [0.1], "mean": np.zeros(2)}
    ws["s"] = state
    state["lr"].append(0.2)  # type: ignore[attr-defined]  # a list
    fetched = ws["s"]
    fetched["mean"] += 1
    assert ws["s"]["lr"] == [0.1]
    assert ws["s"]["mean"].tolist() == [0, 0]


def test_only_a_transient_blob_takes_any_object(ws: Workspace) -> None:
    thing = object()
    ws.feed("t", thing, transient=True)
    assert ws["t"] is thing
    ws["t"] = [thing]  # the flag stays, and so does the licence
    assert (ws.blob("t").kind, ws.blob("t").transient) == ("object", True)
    ws["t"] = 1.5
    assert (ws.blob("t").kind, ws.blob("t").transient) == ("tensor", True)
    ws.feed("t", 2.5, transient=False)
    with pytest.raises(BlobKindError, match="pass transient=True"):
        ws["t"] = thing
    assert ws["t"] == 2.5
    ws.feed("big", 2**64, transient=True)
    assert ws["big"] == 2**64


@pytest.mark.parametrize("items", [3, BIG])
def test_a_bound_blob_is_the_outside_array(ws: Workspace, items: int) -> None:
    outside = np.zeros((items, 2))[:, 0]
    ws.bind("x", outside)
    seen = ws.view("x")
    ws["x"] = np.arange(float(items))
    assert outside.tolist() == seen.tolist() == ws["x"].tolist() == list(range(items))
    outside[1] = 7
    assert seen[1] == ws["x"][1] == 7
    ws["copy"] = ws.blob("x")
    assert not np.shares_memory(ws.view("copy"), outside)
    ws["x"] = outside[::-1]  # the source overlaps what is written
    assert outside[-1] == 0
    assert outside[0] == items - 1
    outside.flags.writeable = False
    with pytest.raises(BlobValueError, match="read-only now"):
        ws.feed("x", np.zeros(items))
    ws.blob("x").reset()
    assert (ws.blob("x").kind, ws.blob("x").bound) == ("empty", False)
    ws["x"] = "free again"


def test_binding_takes_the_visible_blob_and_subclasses(ws: Workspace, tmp_path: Any) -> None:
    ws["x"] = 1
    child = Workspace(ws)
    mapped = np.memmap(tmp_path / "m", "f4", "w+", shape=(4,))
    child.bind("x", mapped)
    child["x"] = np.ones(4, "f4")
    assert ws.blob("x").value is mapped
    assert type(ws.view("x")) is type(ws["x"]) is np.ndarray
    assert mapped.tolist() == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "name", ["a", "a/b:c#%0", " ", "\0", "é" * 5000, "\U0001d518", ".", "..", "zarr.json", "\n"]
)
def test_any_text_is_a_name(ws: Workspace, name: str) -> None:
    ws[name] = 1
    assert name in ws
    assert ws.blob_names() == [name]
    assert ws[BlobReference(name)] == 1
    ws.remove_blob(name)
    assert not ws.has_blob(name)


def test_a_name_that_compares_as_it_likes_is_a_plain_name(ws: Workspace) -> None:
    class Odd(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            return False

        def __hash__(self) -> int:
            return 1

        def __str__(self) -> str:
            return "something else"

    ws[Odd("x")] = 1
    assert type(ws.blob_names()[0]) is str
    assert ws["x"] == ws[Odd("x")] == 1


def test_a_visible_name_is_reused_and_own_names_are_found_first(ws: Workspace) -> None:
    child = Workspace(ws, "child")
    child["own"] = 1
    ws["own"] = 2  # created in the parent later: the nearer one is seen
    ws["shared"] = 3
    child["shared"] = 4
    assert ws["shared"] == 4
    assert (child["own"], ws["own"]) == (1, 2)
    assert child.blob_names() == ["own", "shared"]
    assert child.blob_names(False) == [b.name for b in child.local_blobs()] == ["own"]
    assert child.create_blob("shared") is ws.blob("shared")
    del child["own"]
    assert child["own"] == 2
    child.reset()
    assert len(child) == 2
    assert child.parent is ws
    assert ws.parent is None


def test_an_empty_workspace_is_true_and_describes_itself(ws: Workspace) -> None:
    assert ws
    assert repr(Workspace(ws, "c")) == "<Workspace 'c': 0 blobs, parent 'w'>"
    ws.feed("x", np.zeros((2, 3), "f4"), transient=True)
    assert repr(ws.blob("x")) == "<Blob 'x': tensor, float32 (2, 3), transient>"
    ws.bind("x", np.zeros(1))
    assert repr(ws.blob("x")) == "<Blob 'x': tensor, float64 (1,), bound, transient>"
    assert repr(ws) == "<Workspace 'w': 1 blobs>"


def test_counters_are_found_or_made(ws: Workspace) -> None:
    child = Workspace(ws)
    ws.create_blob("declared")
    made = child.counter("declared", 4)
    assert ws.blob("declared").value is made
    assert child.counter("declared", 9) is made
    assert made.retrieve() == 4
    assert child.counter("own").retrieve() == 0
    assert not ws.has_blob("own")
    with pytest.raises(BlobValueError, match="at least 0"):
        ws.counter("bad", -1)
    assert "bad" not in ws


def test_memory_goes_when_a_value_is_replaced_removed_or_dropped() -> None:
    ws: Workspace | None = Workspace()
    assert ws is not None
    gc.disable()  # references alone must do it
    try:
        things = [Held() for _ in range(4)]
        refs = [weakref.ref(thing) for thing in things]
        for number, thing in enumerate(things):
            ws.feed(f"t{number}", thing, transient=True)
        del thing, things
        ws["t0"] = 1
        ws.remove_blob("t1")
        ws.blob("t2").reset()
        assert [ref() is None for ref in refs] == [True, True, True, False]
        table = weakref.ref(ws)
        child = Workspace(ws)
        ws = None
        assert table() is child.parent
        del child
        assert table() is None
        assert refs[3]() is None
    finally:
        gc.enable()


class Held:
    """An object that can be watched by a weak reference."""


def test_tensors_cost_their_own_size_and_no_more() -> None:
    mib = 2**20
    source = np.zeros(mib, "u1")
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        ws = Workspace()
        for _ in range(50):
            ws["x"] = source
        after, peak = tracemalloc.get_traced_memory()
        assert mib <= after - before < 1.1 * mib
        assert peak - before < 1.1 * mib  # fed into the same memory
        ws["x"] = source[: mib // 2]
        assert tracemalloc.get_traced_memory()[0] - before < 0.6 * mib
        del ws
        assert tracemalloc.get_traced_memory()[0] - before < 0.1 * mib
    finally:
        tracemalloc.stop()


def test_cycles_through_objects_are_collected() -> None:
    ws = Workspace()
    thing = Held()
    thing.home = ws  # type: ignore[attr-defined]  # takes any attribute
    thing.blob = ws.create_blob("x")  # type: ignore[attr-defined]  # takes any attribute
    ws.feed("x", thing, transient=True)
    ref = weakref.ref(thing)
    del ws, thing
    gc.collect()
    assert ref() is None


def test_a_value_may_use_its_blob_while_it_dies(ws: Workspace) -> None:
    seen = []

    class Last:
        def __del__(self) -> None:
            seen.append(ws["x"])
            ws["x"] = "from the grave"

    ws.feed("x", Last(), transient=True)
    ws["x"] = "successor"
    assert seen == ["successor"]
    assert ws["x"] == "from the grave"
