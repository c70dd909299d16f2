"""Ops on small tensors in native programs: what NumPy gives, and what the executor in Python leaves behind."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from itertools import product
from random import Random
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jobcore import LocalSession, Task, TaskGroup, Workspace, WorkspaceType, ops
from jobcore.errors import TaskGroupError
from jobcore.graph import ops_blobs, ops_fills, ops_math
from slow_program import in_python

ARITHMETIC = {"Add": np.add, "Sub": np.subtract, "Mul": np.multiply}
COMPARISON = {
    "EQ": np.equal,
    "NE": np.not_equal,
    "LT": np.less,
    "LE": np.less_equal,
    "GT": np.greater,
    "GE": np.greater_equal,
}
LOGIC = {"And": np.logical_and, "Or": np.logical_or, "Xor": np.logical_xor}
# C's types, of which two have the same width.
INTEGERS = [*"bBhHiIlLqQ"]
FLOATS = [*"fd"]
# Without a shape they are scalars that no native kernel knows.
ODD = "LQ"
KERNELS = {module.__file__ for module in (ops_math, ops_fills, ops_blobs)}
ROUNDS = 8


@contextmanager
def counted() -> Iterator[list[str]]:
    """Give the kernels in Python that run meanwhile in this thread."""
    found: list[str] = []

    def look(frame: Any, event: str, _: object) -> None:
        if event == "call" and frame.f_code.co_filename in KERNELS:
            found.append(frame.f_code.co_name)

    sys.setprofile(look)
    try:
        yield found
    finally:
        sys.setprofile(None)


def run(body: Callable[[], object], workspace: Workspace, rounds: int = ROUNDS) -> None:
    with TaskGroup(WorkspaceType.GLOBAL) as group, Task(name="t"), ops.loop(rounds):
        body()
    LocalSession(workspace).run(group)


def items(random: np.random.Generator, dtype: Any, shape: tuple[int, ...]) -> NDArray[Any]:
    """Return items of all sizes, the extreme ones among them."""
    kind = np.dtype(dtype)
    if kind == np.bool_:
        return random.integers(0, 2, shape).astype(kind)
    array: NDArray[Any]
    if kind.kind in "iu":
        info = np.iinfo(kind)
        array = random.integers(info.min, info.max, shape, kind, endpoint=True)
        special = [info.min, info.max, 0, 1]
    else:
        array = random.normal(size=shape).astype(kind)
        info = np.finfo(kind)
        special = [np.nan, np.inf, -np.inf, 0.0, -0.0, info.max, info.tiny, 1.0]
    flat = array.reshape(-1)
    flat[: len(special)] = special[: flat.size]
    random.shuffle(flat)
    return flat.reshape(shape)


def same(found: NDArray[Any], expected: NDArray[Any]) -> None:
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.dtype.char == expected.dtype.char
    # A NaN that comes of two may have the sign and the bits of either.
    number = expected.dtype.kind == "f"
    assert np.array_equal(found, expected, equal_nan=number)
    if number:
        there = ~np.isnan(expected)
        assert np.array_equal(np.signbit(found)[there], np.signbit(expected)[there])


CASES = [
    *product({**ARITHMETIC, **COMPARISON}.items(), [*INTEGERS, *FLOATS]),
    *product({"Div": np.divide}.items(), FLOATS),
    *product({**LOGIC, **COMPARISON}.items(), "?"),
]


@pytest.mark.parametrize(
    ("op", "function", "dtype"), [(op, function, dtype) for (op, function), dtype in CASES]
)
def test_two_operands_of_one_dtype_give_what_numpy_gives(op: str, function: Any, dtype: str) -> None:
    random = np.random.default_rng(7)
    shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = [((n,), (n,)) for n in (1, 7, 64, 100)]
    shapes += [
        ((3, 5), (3, 5)),
        ((33,), ()),
        ((), (33,)),
        ((), ()),
        ((0,), (0,)),
        ((0,), ()),
        ((2, 0), (2, 0)),
    ]
    for left, right in shapes:
        workspace = Workspace()
        a, b = items(random, dtype, left), items(random, dtype, right)
        workspace.feed("a", a)
        workspace.feed("b", b)
        with counted() as kernels:
            run(lambda: getattr(ops, op)(["a", "b"], "c"), workspace)
        with np.errstate(all="ignore"):
            same(workspace.fetch("c"), np.asarray(function(a, b)))
        same(workspace.fetch("a"), a)
        same(workspace.fetch("b"), b)
        # The first round makes the output.
        if dtype not in ODD or (left and right):
            assert kernels.count("kernel") == 1, (left, right)


@pytest.mark.parametrize(
    ("op", "function", "dtype"),
    [*(("Neg", np.negative, dtype) for dtype in [*INTEGERS, *FLOATS]), ("Not", np.logical_not, "?")],
)
def test_one_operand_gives_what_numpy_gives(op: str, function: Any, dtype: str) -> None:
    random = np.random.default_rng(8)
    for shape in [(), (1,), (9,), (64,), (3, 5), (0,)]:
        workspace = Workspace()
        a = items(random, dtype, shape)
        workspace.feed("a", a)
        with counted() as kernels:
            run(lambda: getattr(ops, op)("a", "b"), workspace)
        with np.errstate(all="ignore"):
            same(workspace.fetch("b"), np.asarray(function(a)))
        if dtype not in ODD or shape:
            assert kernels.count("kernel") == 1


@pytest.mark.parametrize(
    ("op", "left", "right", "out"),
    [
        ("Add", "a", "b", "a"),
        ("Sub", "a", "b", "b"),
        ("Mul", "a", "a", "a"),
        ("Sub", "a", "a", "b"),
        ("Sub", "one", "b", "b"),
        ("Sub", "a", "one", "a"),
    ],
)
def test_an_output_may_be_an_input(op: str, left: str, right: str, out: str) -> None:
    workspace = Workspace()
    blobs = {"a": np.arange(100.0), "b": np.linspace(-1, 1, 100), "one": np.float64(1.0)}
    for name, value in blobs.items():
        workspace.feed(name, value)
    with counted() as kernels:
        run(lambda: getattr(ops, op)([left, right], out), workspace)
    with np.errstate(all="ignore"):
        for _ in range(ROUNDS):
            blobs[out] = ARITHMETIC[op](blobs[left], blobs[right])
    for name, value in blobs.items():
        same(workspace.fetch(name), np.asarray(value))
    assert kernels.count("kernel") == 0


def test_dtypes_and_shapes_that_differ_are_left_to_numpy() -> None:
    random = np.random.default_rng(9)
    for left, right in product(["?", "i", "l", "q", "e", "f", "d", "D", ">f8", ">i4", "m8[s]"], repeat=2):
        for shapes in [((4,), (4,)), ((4,), (1,)), ((2, 1), (1, 3)), ((4,), ())]:
            a, b = (
                random.integers(0, 2, shape).astype(dtype)
                for dtype, shape in zip((left, right), shapes, strict=True)
            )
            try:
                expected = np.add(a, b)
            except TypeError:
                continue
            workspace = Workspace()
            workspace.feed("a", a)
            workspace.feed("b", b)
            run(lambda: ops.Add(["a", "b"], "c"), workspace, 3)
            assert np.array_equal(workspace.fetch("c"), expected)
            # NumPy 1 looks at the value of an operand without a shape; ops do not.
            if a.ndim == b.ndim:
                assert workspace.fetch("c").dtype == expected.dtype


@pytest.mark.parametrize("make", [np.zeros, np.ones])
def test_other_bytes_than_0_and_1_are_true(make: Any) -> None:
    odd = np.array([0, 1, 2, 255], np.uint8).view(np.bool_)
    other = make(4, np.bool_)
    workspace = Workspace()
    workspace.feed("a", odd)
    workspace.feed("b", other)
    plain = odd.view(np.uint8) != 0

    def body() -> None:
        for op in (*LOGIC, *COMPARISON):
            getattr(ops, op)(["a", "b"], op)
        ops.Not("a", "Not")

    run(body, workspace)
    for op, function in {**LOGIC, **COMPARISON}.items():
        assert workspace.fetch(op).view(np.uint8).tolist() == function(plain, other).tolist(), op
    assert workspace.fetch("Not").view(np.uint8).tolist() == (~plain).tolist()


# -- constants, copies, emptiness


@pytest.mark.parametrize(
    "value",
    [
        np.arange(12.0).reshape(3, 4),
        np.arange(3, dtype=">i2"),
        np.array(["a", "bcd"]),
        np.array([b"a", b"bcd"]),
        np.array([1 + 2j]),
        np.array([(1, 2.0)], "i4,f8"),
        np.zeros((0, 3)),
        np.float32(0.5),
        np.uint8(3),
        np.datetime64("2026-01-01"),
        np.asfortranarray(np.arange(6).reshape(2, 3)),
        np.arange(3000.0),
        "text",
        b"bytes",
        7,
        True,
    ],
    ids=lambda value: f"{getattr(value, 'dtype', type(value).__name__)}{getattr(value, 'shape', '')}",
)
def test_a_constant_is_what_it_was_whatever_becomes_of_its_blob(value: Any) -> None:
    seen: list[Any] = []
    spoilt = {"U": "?", "S": b"?"}.get(getattr(value, "dtype", np.dtype("O")).char)

    def look(workspace: Workspace) -> None:
        seen.append(workspace.fetch("x"))
        if isinstance(value, np.ndarray):
            array = workspace.fetch("x")
            array.fill(spoilt if spoilt is not None else np.zeros((), value.dtype)[()])
            workspace.feed("x", array)

    with TaskGroup() as group, Task(name="t"), ops.loop(4):
        ops.Const(value, "x")
        ops.net(look)
    LocalSession(Workspace()).run(group)
    for found in seen:
        assert type(found) is type(seen[0])
        if isinstance(found, np.ndarray):
            assert (found.dtype, found.shape) == (np.asarray(value).dtype, np.shape(value))
            assert found.flags.c_contiguous == np.asarray(value).flags.c_contiguous
        assert np.array_equal(found, value)


def test_fills_run_natively() -> None:
    def body() -> None:
        ops.Const(np.arange(5), "Const")
        ops.ConstantFill([], "full", shape=(2, 3), value=7.0, dtype=np.float32)
        ops.ConstantFill([], "scalar", shape=(), value=7, dtype=np.int32)
        ops.GivenTensorFill([], "f", values=[1, 2, 3, 4], shape=(2, 2))
        ops.GivenTensorIntFill([], "i", values=[1, 2])
        ops.GivenTensorStringFill([], "s", values=["a", "bc"])

    workspace = Workspace()
    with counted() as kernels:
        run(body, workspace, 20)
    same(workspace.fetch("full"), np.full((2, 3), 7, np.float32))
    same(workspace.fetch("scalar"), np.array(7, np.int32))
    same(workspace.fetch("f"), np.array([[1, 2], [3, 4]], np.float32))
    same(workspace.fetch("i"), np.array([1, 2], np.int32))
    assert workspace.fetch("s").tolist() == ["a", "bc"]
    assert len([name for name in kernels if name in ("const", "constant_fill", "kernel")]) == 6


def test_a_fill_larger_than_memory_is_not_made_before_it_runs() -> None:
    with TaskGroup() as group, Task(name="t"), ops.If(ops.Const(False)):
        ops.ConstantFill([], "huge", shape=(2**40, 2**10), value=0.0)
    LocalSession(Workspace()).run(group)


def test_a_copy_is_independent_and_native() -> None:
    workspace = Workspace()
    workspace.feed("a", np.arange(6.0).reshape(2, 3))

    def body() -> None:
        ops.Copy("a", "b")
        ops.Add(["a", "b"], "a")
        ops.Copy("b", "b")

    with counted() as kernels:
        run(body, workspace)
    same(workspace.fetch("b"), np.arange(6.0).reshape(2, 3) * 2 ** (ROUNDS - 1))
    same(workspace.fetch("a"), np.arange(6.0).reshape(2, 3) * 2**ROUNDS)
    assert len(kernels) <= 2


@pytest.mark.parametrize(
    ("value", "empty"),
    [
        (np.zeros(3), False),
        (np.zeros((3, 0)), True),
        (1, False),
        (np.float32(1), False),
        ("", True),
        (b"x", False),
    ],
)
def test_emptiness(value: Any, empty: bool) -> None:
    workspace = Workspace()
    workspace.feed("x", value)
    run(lambda: ops.IsEmpty("x", "e"), workspace)
    assert workspace.fetch("e").item() is empty


# -- what others see


def test_an_array_that_somebody_has_does_not_change() -> None:
    kept: list[tuple[NDArray[Any], NDArray[Any]]] = []

    def keep(workspace: Workspace) -> None:
        for array in (workspace.fetch("x"), workspace.blob("x").view(), workspace.blob("x").value):
            kept.append((array, array.copy()))

    with TaskGroup() as group, Task(name="t"):
        ops.Const(np.zeros(4), "x")
        ops.Const(np.ones(4), "one")
        with ops.loop(10):
            ops.Add(["x", "one"], "x")
            ops.net(keep)
    LocalSession(Workspace()).run(group)
    assert [array[0] for array, _ in kept] == [float(1 + i // 3) for i in range(30)]
    assert all(np.array_equal(array, then) for array, then in kept)


def test_a_bound_array_gets_what_is_written() -> None:
    mine = np.zeros(4)
    workspace = Workspace()
    workspace.bind("x", mine)
    workspace.feed("one", np.ones(4))
    run(lambda: ops.Add(["x", "one"], "x"), workspace)
    assert mine.tolist() == [ROUNDS] * 4


def test_what_python_feeds_in_between_is_what_counts() -> None:
    found: list[Any] = []
    shapes: list[Any] = [(3,), (3,), (2, 2), (3,), (), (5000,), (3,)]
    dtypes = "ddfdldd"
    turn = iter(range(len(shapes)))

    def feed(workspace: Workspace) -> None:
        i = next(turn)
        workspace.feed("x", np.full(shapes[i], i, dtypes[i]))

    def look(workspace: Workspace) -> None:
        found.append(workspace.fetch("y"))

    with TaskGroup() as group, Task(name="t"), ops.loop(len(shapes)):
        ops.net(feed)
        ops.Add(["x", "x"], "y")
        ops.net(look)
    LocalSession(Workspace()).run(group)
    for i, array in enumerate(found):
        same(array, np.full(shapes[i], 2 * i, dtypes[i]))


def test_an_error_in_a_later_round_is_that_of_python(monkeypatch: pytest.MonkeyPatch) -> None:
    def text() -> str:
        values = iter([np.array([True, False])] * 3 + [np.array([1, 2])])
        with TaskGroup() as group, Task(name="t"), ops.loop(5):
            ops.net(lambda workspace: workspace.feed("x", next(values)))
            ops.And(["x", "x"], "y")
        with pytest.raises(TaskGroupError, match="expected a tensor of bool") as caught:
            LocalSession(Workspace()).run(group)
        return str(caught.value)

    native = text()
    with in_python(monkeypatch):
        assert text() == native


def test_nobody_sees_half_a_tensor() -> None:
    rounds, width = 20_000, 2048
    with TaskGroup(WorkspaceType.GLOBAL) as group:
        with Task(name="there"), ops.loop(rounds):
            ops.Copy("a", "b")
            ops.Sub(["b", "one"], "c")
        with Task(name="back"), ops.loop(rounds):
            ops.Copy("b", "a")
            ops.Add(["a", "one"], "d")
        with Task(name="anew"), ops.loop(rounds):
            ops.Const(np.full(width, 1.0), "a")
            ops.Const(np.full(width, 2.0), "b")
            ops.Add(["a", "b"], "b")
    workspace = Workspace()
    for name in "abcd":
        workspace.feed(name, np.full(width, 5.0))
    workspace.feed("one", np.float64(1.0))
    over = threading.Event()
    torn: list[NDArray[Any]] = []

    def look() -> None:
        while not over.is_set():
            for name in "abcd":
                array = workspace.fetch(name)
                if not (array == array[0]).all():
                    torn.append(array)

    watcher = threading.Thread(target=look)
    watcher.start()
    try:
        LocalSession(workspace).run(group)
    finally:
        over.set()
        watcher.join()
    assert not torn
    for name in "abcd":
        assert len(set(workspace.fetch(name).tolist())) == 1


# -- random programs

NAMES = [f"x{i}" for i in range(6)]
SHAPES: list[tuple[int, ...]] = [(), (3,), (3,), (2, 3), (0,)]
OPS = [*ARITHMETIC, *COMPARISON, *LOGIC, "Div", "Neg", "Not", "Copy", "Const", "IsEmpty", "fetch", "feed"]


def make_value(random: Random) -> NDArray[Any]:
    seed = np.random.default_rng(random.randrange(2**32))
    return items(seed, random.choice(["?", "b", "H", "i", "l", "f", "d"]), random.choice(SHAPES))


def step(random: Random) -> Callable[[], object]:
    """Return what builds one op on any blobs."""
    op, blobs, out = random.choice(OPS), random.choices(NAMES, k=2), random.choice(NAMES)
    value = make_value(random)
    if op == "fetch":
        return lambda: ops.net(lambda workspace: workspace.feed("seen", workspace.fetch(out)))
    if op == "feed":
        return lambda: ops.net(lambda workspace: workspace.feed(out, value))
    if op == "Const":
        return lambda: ops.Const(value, out)
    if op in ("Neg", "Not", "Copy", "IsEmpty"):
        return lambda: getattr(ops, op)(blobs[0], out)
    return lambda: getattr(ops, op)(blobs, out)


@pytest.mark.parametrize("seed", range(150))
def test_random_programs_leave_the_same(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(seed)
    values = [make_value(random) for _ in NAMES]
    steps = [step(random) for _ in range(random.randint(1, 12))]

    def outcome() -> tuple[str, dict[str, NDArray[Any]]]:
        workspace = Workspace()
        for name, value in zip(NAMES, values, strict=True):
            workspace.feed(name, value)
        try:
            run(lambda: [build() for build in steps], workspace, 4)
            text = ""
        except Exception as error:
            text = str(error)
        return text, {name: workspace.fetch(name) for name in workspace.blob_names()}

    native_text, native = outcome()
    with in_python(monkeypatch):
        python_text, python = outcome()
    assert native_text == python_text
    assert list(native) == list(python)
    for name, found in native.items():
        same(found, python[name])
