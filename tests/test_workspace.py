"""What a workspace does, one thread at a time."""

from __future__ import annotations

import enum
import gc
import tracemalloc
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from jobcore import Counter, Timer, Workspace
from jobcore.errors import BlobKindError, BlobNotFoundError, BlobValueError, JobcoreError
from jobcore.graph import BlobReference
from slow_workspace import SlowWorkspace

NAMES = st.sampled_from(["a", "b", "é/\0 ~", "c" * 300])
# Few shapes, dtypes and layouts, so that a feed often meets memory that it may use again.
ARRAYS: list[Callable[[int], Any]] = [
    lambda n: np.full(3, n, "f8"),
    lambda n: np.full((2, 3), n, "f8", order="F"),
    lambda n: np.full((2, 6), n, "f8")[:, ::2],
    lambda n: np.full((2, 3), n, "f8"),
    lambda n: np.full((), n, "i8"),
    lambda n: np.full((), n, ">i8"),
    lambda n: np.zeros((0, 4), "f4"),
    lambda n: np.array([(n, b"x")], [("n", "i2"), ("s", "S3")]),
    lambda n: np.full(70_000, n, "f8"),
    lambda n: np.full((40_000, 2), n, "f8")[:, 0],
]
BIG = 40_000  # items of float64 from which a copy lets the GIL go


def arrays() -> st.SearchStrategy[Any]:
    return st.builds(lambda make, n: make(n), st.sampled_from(ARRAYS), st.integers(0, 99))


def values() -> st.SearchStrategy[Any]:
    small = st.integers(0, 99)
    return st.one_of(
        arrays(),
        small,
        small.map(float),
        small.map(np.float32),
        st.booleans(),
        st.sampled_from([2**63, 2**64, -(2**63), 1j, None, "text", "é", b"bytes", object(), Timer()]),
        st.lists(small, max_size=2).map(lambda items: {"items": items}),
        small.map(Counter),
        small.map(np.random.default_rng),
        st.just(np.array([None])),
    )


def same(fast: Any, slow: Any) -> bool:
    if isinstance(slow, np.ndarray):
        return (
            type(fast) is np.ndarray
            and fast.dtype == slow.dtype
            and fast.shape == slow.shape
            and fast.tobytes() == slow.tobytes()
        )
    if isinstance(slow, str | bytes | dict | None):
        return type(fast) is type(slow) and bool(fast == slow)
    return fast is slow


class Twins(RuleBasedStateMachine):
    """A chain of three workspaces beside a chain of three slow ones, which must never be told apart."""

    def __init__(self) -> None:
        super().__init__()
        root, slow_root = Workspace(name="root"), SlowWorkspace()
        self.fast = [root, Workspace(root, "mid")]
        self.fast.append(Workspace(self.fast[1], "leaf"))
        self.slow = [slow_root, SlowWorkspace(slow_root)]
        self.slow.append(SlowWorkspace(self.slow[1]))
        self.views: list[tuple[Any, bytes]] = []
        self.bound: list[tuple[Any, Any]] = []

    def both(self, which: int, method: str, *args: Any) -> Any:
        """Call both twins; the results or the types of the errors agree."""
        outcomes: list[Any] = []
        for side in (self.fast, self.slow):
            try:
                outcomes.append(getattr(side[which], method)(*args))
            except JobcoreError as error:
                outcomes.append(type(error))
        fast, slow = outcomes
        assert same(fast, slow) or type(slow).__name__.startswith("Slow"), (method, args, fast, slow)
        return fast

    @rule(
        which=st.integers(0, 2),
        name=NAMES,
        value=values(),
        transient=st.sampled_from([None, None, True, False]),
    )
    def feed(self, which: int, name: str, value: Any, transient: bool | None) -> None:
        self.both(which, "feed", name, value, transient)

    @rule(which=st.integers(0, 2), name=NAMES)
    def fetch(self, which: int, name: str) -> None:
        fast = self.both(which, "fetch", name)
        if isinstance(fast, np.ndarray):
            assert fast.flags.owndata
            assert fast.flags.writeable
            slow = self.slow[which].fetch(name)
            assert fast.flags.f_contiguous == slow.flags.f_contiguous
            fast.fill(0)  # changes nobody's value but the caller's

    @rule(which=st.integers(0, 2), name=NAMES)
    def view(self, which: int, name: str) -> None:
        fast = self.both(which, "view", name)
        if isinstance(fast, np.ndarray):
            assert not fast.flags.writeable
            if not self.fast[which].blob(name).bound:
                self.views.append((fast, fast.tobytes()))

    @precondition(lambda self: self.views)
    @rule(data=st.data())
    def drop_a_view(self, data: Any) -> None:
        self.views.pop(data.draw(st.integers(0, len(self.views) - 1)))

    @rule(which=st.integers(0, 2), name=NAMES, array=arrays())
    def bind(self, which: int, name: str, array: Any) -> None:
        twin = np.zeros_like(array)[...]
        twin[...] = array
        self.bound.append((array, twin))
        self.fast[which].bind(name, array)
        self.slow[which].bind(name, twin)
        assert self.fast[which].blob(name).value is array

    @rule(which=st.integers(0, 2), name=NAMES)
    def bind_what_cannot_be_bound(self, which: int, name: str) -> None:
        fixed = np.zeros(3)
        fixed.flags.writeable = False
        self.both(which, "bind", name, fixed)

    @rule(which=st.integers(0, 2), name=NAMES, source=NAMES, transient=st.sampled_from([None, True, False]))
    def feed_from_another(self, which: int, name: str, source: str, transient: bool | None) -> None:
        if not self.fast[which].has_blob(source):
            return
        outcomes = []
        for side in (self.fast[which], self.slow[which]):
            try:
                side.feed(name, side.blob(source), transient)
                outcomes.append(None)
            except JobcoreError as error:
                outcomes.append(type(error))
        assert outcomes[0] == outcomes[1]

    @rule(which=st.integers(0, 2), name=NAMES, backwards=st.booleans())
    def feed_its_own_value(self, which: int, name: str, backwards: bool) -> None:
        if self.fast[which].has_blob(name) and self.fast[which].blob(name).kind == "tensor":
            own = self.fast[which].blob(name).value
            own = own[::-1] if backwards and own.ndim else own
            expected = own.copy()
            self.fast[which].feed(name, own)
            self.slow[which].feed(name, expected)

    @rule(which=st.integers(0, 2), name=NAMES, kept=st.booleans())
    def load_in_place(self, which: int, name: str, kept: bool) -> None:
        if not self.fast[which].has_blob(name):
            return
        blob = self.fast[which].blob(name)
        if (
            blob.kind == "tensor"
            and blob.dtype is not None
            and blob.shape is not None
            and not blob.dtype.names
        ):
            array = blob.take_buffer(blob.shape, blob.dtype)
            array.fill(7)
            blob.adopt(array, kept)
            self.slow[which].feed(name, array, kept)

    @rule(which=st.integers(0, 2), name=NAMES, flag=st.booleans())
    def set_transient(self, which: int, name: str, flag: bool) -> None:
        if self.fast[which].has_blob(name):
            outcomes = []
            for change in (
                lambda: setattr(self.fast[which].blob(name), "transient", flag),
                lambda: self.slow[which].blob(name).set_transient(flag),
            ):
                try:
                    outcomes.append(change())
                except BlobKindError as error:
                    outcomes.append(type(error))
            assert outcomes[0] == outcomes[1]

    @rule(which=st.integers(0, 2), name=NAMES)
    def reset_blob(self, which: int, name: str) -> None:
        if self.fast[which].has_blob(name):
            self.fast[which].blob(name).reset()
            self.slow[which].blob(name).reset()

    @rule(which=st.integers(0, 2), name=NAMES)
    def create(self, which: int, name: str) -> None:
        assert self.both(which, "create_blob", name).name == name

    @rule(which=st.integers(0, 2), name=NAMES)
    def remove(self, which: int, name: str) -> None:
        self.both(which, "remove_blob", name)

    @rule(which=st.integers(0, 2), name=NAMES, start=st.integers(-1, 2))
    def counter(self, which: int, name: str, start: int) -> None:
        fast = slow = None
        try:
            fast = self.fast[which].counter(name, start).retrieve()
        except JobcoreError as error:
            fast = type(error)
        try:
            slow = self.slow[which].counter(name, start).retrieve()
        except JobcoreError as error:
            slow = type(error)
        # An existing counter is given whatever the start is; the slow twin checks the start first.
        assert fast == slow or (start < 0 and slow is BlobValueError)
        if isinstance(fast, int) and slow == fast:
            # From here on both hold one and the same handle, or their counts would part.
            shared = self.fast[which].counter(name)
            self.slow[which].blob(name).value = shared

    @rule(which=st.sampled_from([0, 1, 2, 2]))
    def reset_workspace(self, which: int) -> None:
        self.both(which, "reset")

    @invariant()
    def nobody_can_tell_them_apart(self) -> None:
        for fast, slow in zip(self.fast, self.slow, strict=True):
            assert fast.blob_names() == list(fast) == slow.blob_names()
            assert fast.blob_names(include_shared=False) == list(slow.own)
            assert [blob.name for blob in fast.local_blobs()] == list(slow.own)
            assert len(fast) == len(slow.blob_names())
            for blob, twin in zip(fast.local_blobs(), slow.own.values(), strict=True):
                assert (blob.kind, blob.transient, blob.bound) == (twin.kind, twin.transient, twin.bound)
                assert same(blob.value, twin.value), (blob, twin.value)

    @invariant()
    def views_never_change(self) -> None:
        for view, content in self.views:
            assert view.tobytes() == content

    @invariant()
    def bound_arrays_hold_what_was_fed(self) -> None:
        for array, twin in self.bound:
            assert same(array, twin)


Twins.TestCase.settings = settings(max_examples=60, stateful_step_count=40)
TestTwins = Twins.TestCase


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


UNSUPPORTED = object()


@pytest.mark.parametrize(
    ("value", "error", "says"),
    [
        (UNSUPPORTED, BlobKindError, ["found object", "a Counter", "state", "transient=True"]),
        ({1, 2}, BlobKindError, ["found set"]),
        (np.float64, BlobKindError, ["found type"]),
        (np.array([None]), BlobKindError, ["without Python objects", "object (1,)"]),
        (np.zeros(2, [("a", "O")]), BlobKindError, ["without Python objects"]),
        (np.ma.array([1, 2], mask=[0, 1]), BlobValueError, ["masked", ".mask"]),
        (2**64, BlobValueError, ["65 bits", "state"]),
        (-(2**63) - 1, BlobValueError, ["64 bits", "state"]),
        ("\ud800", BlobValueError, ["lone surrogate", "bytes"]),
        ([{"k": UNSUPPORTED}], BlobKindError, ["x[0]['k']"]),
        (
            OwnArray(RuntimeError("needs grad")),
            BlobKindError,
            ["OwnArray", "RuntimeError: needs grad", "detach"],
        ),
        (OwnArray(np.array([{}])), BlobKindError, ["without Python objects"]),
    ],
    ids=lambda v: type(v).__name__,
)
def test_what_cannot_be_a_blob_is_refused_and_leaves_none(
    ws: Workspace, value: Any, error: type[JobcoreError], says: list[str]
) -> None:
    with pytest.raises(error) as caught:
        ws["x"] = value
    assert all(text in str(caught.value) for text in [*says, "x"]), str(caught.value)
    assert "x" not in ws
    ws["x"] = 1
    with pytest.raises(error):
        ws["x"] = value
    assert ws["x"] == 1


def raised(error: type[JobcoreError], call: Callable[..., Any], *args: Any) -> str:
    with pytest.raises(error) as caught:
        call(*args)
    return str(caught.value)


def test_errors_name_the_blob_and_what_was_expected_and_found(ws: Workspace) -> None:
    ws["weights"] = np.zeros(3)
    ws["label"] = "cat"
    ws.create_blob("later")
    ws.bind("bound", np.zeros((2, 3), "f4"))
    assert raised(BlobNotFoundError, ws.fetch, "wieghts") == (
        "no blob 'wieghts' among the 4 of workspace 'w' (close names: 'weights')"
    )
    assert raised(BlobNotFoundError, Workspace(ws, "task").view, "zzzzz") == (
        "no blob 'zzzzz' among the 4 of workspace 'task' and its ancestors"
    )
    assert raised(BlobValueError, ws.fetch, "later") == (
        "blob 'later' is empty: expected a value, found none (feed it first)"
    )
    assert "'later' is empty" in raised(BlobValueError, ws.view, "later")
    assert raised(BlobKindError, ws.view, "label") == (
        "blob 'label': expected a tensor to view, found a string (use fetch)"
    )
    assert raised(BlobKindError, ws.counter, "label") == "blob 'label': expected a counter, found a string"
    assert "blob 'bound' is bound: expected float32 (2, 3), found float64 (2, 3)" in raised(
        BlobValueError, ws.feed, "bound", np.zeros((2, 3))
    )
    assert "expected float32 (2, 3), found float32 (3, 2)" in raised(
        BlobValueError, ws.feed, "bound", np.zeros((3, 2), "f4")
    )
    assert "expected ndarray float32 (2, 3), found string str" in raised(
        BlobKindError, ws.feed, "bound", "text"
    )
    assert "expected ndarray float32 (2, 3), found object" in raised(
        BlobKindError, ws.feed, "bound", object(), True
    )
    assert raised(BlobNotFoundError, Workspace(ws).remove_blob, "label").startswith(
        "blob 'label' belongs to an ancestor of workspace ''"
    )
    with pytest.raises(KeyError):
        ws["missing"]
    with pytest.raises(BlobNotFoundError, match="no blob 'gone'"):
        del ws["gone"]


@pytest.mark.parametrize(
    ("array", "error", "says"),
    [
        ([1, 2], BlobValueError, "found list"),
        (np.broadcast_to(0.0, 3), BlobValueError, "read-only"),
        (np.ma.array([1.0]), BlobValueError, "found MaskedArray"),
        (np.array([None]), BlobKindError, "fixed-width"),
    ],
)
def test_only_plain_writable_memory_can_be_bound(
    ws: Workspace, array: Any, error: type[JobcoreError], says: str
) -> None:
    assert says in raised(error, ws.bind, "x", array)
    assert "x" not in ws


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
    assert "read-only now" in raised(BlobValueError, ws.feed, "x", np.zeros(items))
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


def test_a_failed_feed_leaves_flag_and_value_alone(ws: Workspace) -> None:
    ws.bind("x", np.zeros(2))
    with pytest.raises(BlobValueError):
        ws.feed("x", np.zeros(3), transient=True)
    assert not ws.blob("x").transient
    ws.feed("o", object(), transient=True)
    with pytest.raises(BlobKindError, match=r"'o'.*only a transient blob"):
        ws.blob("o").transient = False
    with pytest.raises(BlobKindError):
        ws.feed("o", object(), transient=False)
    assert ws.blob("o").transient


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


@pytest.mark.parametrize(
    ("name", "error", "says"),
    [
        ("", BlobValueError, "empty"),
        ("a\udc80", BlobValueError, "lone surrogate at 1"),
        (5, BlobKindError, "found int"),
        (None, BlobKindError, "found NoneType"),
        (b"x", BlobKindError, "found bytes"),
    ],
)
def test_other_names_are_refused_everywhere(
    ws: Workspace, name: Any, error: type[JobcoreError], says: str
) -> None:
    for call in (ws.create_blob, ws.counter):
        assert says in raised(error, call, name)
    assert says in raised(error, ws.feed, name, 1)
    assert says in raised(error, ws.bind, name, np.zeros(1))
    assert len(ws) == 0
    if not isinstance(name, str):
        for call in (ws.fetch, ws.view, ws.blob, ws.has_blob, ws.remove_blob, ws.__contains__):
            assert says in raised(error, call, name)


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


def test_parent_and_name_are_set_once(ws: Workspace) -> None:
    child = Workspace(ws)
    with pytest.raises(BlobValueError, match="set once"):
        ws.__init__(child)  # type: ignore[misc]  # it would make a ring
    assert "nothing" not in child
    for bad in ("parent", 3):
        assert "expected a Workspace as parent" in raised(BlobKindError, Workspace, bad)
    assert "expected a str as name" in raised(BlobKindError, Workspace, None, 3)


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
