"""The kernels of the op types, run one op after another on a workspace."""

from __future__ import annotations

import operator
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore.errors import (
    BlobKindError,
    BlobValueError,
    BuildError,
    CheckpointNotFoundError,
    ChecksumError,
    MismatchError,
    SaveError,
    TimerStateError,
    UnsupportedBlobError,
)
from jobcore.graph import BlobReference, NameScope, Net, OpContext, schema
from jobcore.store import inspect, write_database
from jobcore.workspace import Workspace


def run(net: Net, ws: Workspace) -> None:
    """Run the ops of a net in order."""
    for op in net.ops:
        inputs = [ws.blob(name) for name in op.inputs]
        outputs = [ws.create_blob(name) for name in op.outputs]
        schema(op.type).kernel(OpContext(op, ws, inputs, outputs, op.args))


def result(op_type: str, *values: Any, **args: Any) -> Any:
    """Run one op on fresh blobs with these values, and fetch its output."""
    net, ws = Net("n"), Workspace()
    names = [f"in{i}" for i in range(len(values))]
    for name, value in zip(names, values, strict=True):
        ws.feed(name, value)
    net.add_op(op_type, names, ["out"], **args)
    run(net, ws)
    return ws.fetch("out")


def same(found: Any, expected: Any) -> None:
    expected = np.asarray(expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    assert found.tobytes() == expected.tobytes()


# ----------------------------------------------------------------------------------------------------- counters


def test_counting() -> None:
    net, ws = Net("n"), Workspace()
    c = net.CreateCounter([], "c", init_count=1)
    down = [net.CountDown(c) for _ in range(3)]
    up, value, done = net.CountUp(c), net.RetrieveCount(c), net.CheckCounterDone(c)
    reset = [net.ResetCounter(c, init_count=5), net.ResetCounter(c)]
    assert net.ResetCounter(c, [], init_count=7) is None
    run(net, ws)
    for ref, expected in zip(
        [*down, up, value, done, *reset], [False, True, True, -2, -1, True, -1, 5], strict=True
    ):
        found = ws.fetch(ref)
        same(found, np.bool_(expected) if isinstance(expected, bool) else np.int64(expected))
    assert ws.fetch("c").retrieve() == 7


def test_creating_a_counter_again_resets_the_one_that_others_hold() -> None:
    net, ws = Net("n"), Workspace()
    net.CreateCounter([], "c", init_count=3)
    run(net, ws)
    held = ws.fetch("c")
    held.count_up()
    run(net, ws)
    assert ws.fetch("c") is held
    assert held.retrieve() == 3


def test_a_counter_is_made_in_place_of_another_kind() -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("c", 1.5)
    net.CreateCounter([], "c")
    run(net, ws)
    assert isinstance(ws.fetch("c"), Counter)


@pytest.mark.parametrize(
    "op_type", ["CountUp", "CountDown", "ResetCounter", "RetrieveCount", "CheckCounterDone"]
)
def test_only_counters_count(op_type: str) -> None:
    with pytest.raises(
        BlobKindError, match=rf"op {op_type} \(in0\).*expected a counter, found 'in0': float64 \(2,\)"
    ):
        result(op_type, np.zeros(2))
    net, ws = Net("n"), Workspace()
    ws.create_blob("c")
    net.add_op(op_type, "c")
    with pytest.raises(BlobValueError, match="expected a counter in 'c', but the blob is empty"):
        run(net, ws)


# ------------------------------------------------------------------------------------------------------- timers


def test_timing() -> None:
    net, ws = Net("n"), Workspace()
    t = net.TimerBegin([], "t", counter_name="load")
    first, second = net.TimerGet(t), net.TimerGetAndEnd(t)
    net.TimerBegin([], t)
    net.TimerEnd(t)
    run(net, ws)
    timer = ws.fetch("t")
    assert isinstance(timer, Timer)
    assert (timer.name, timer.count, timer.running) == ("load", 2, False)
    for ref in (first, second):
        assert (ws.fetch(ref).dtype, ws.fetch(ref).shape) == (np.int64, ())
    assert 0 <= ws.fetch(first) <= ws.fetch(second) <= timer.sum_ns


def test_a_timer_is_named_after_its_blob() -> None:
    net, ws = Net("n"), Workspace()
    net.TimerBegin()
    run(net, ws)
    assert ws.fetch("n/TimerBegin").name == "n/TimerBegin"


@pytest.mark.parametrize("op_type", ["TimerGet", "TimerEnd", "TimerGetAndEnd"])
def test_a_stopped_timer_tells_no_time(op_type: str) -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("t", Timer("t"))
    net.add_op(op_type, "t")
    with pytest.raises(TimerStateError):
        run(net, ws)
    ws.feed("t", 3)
    with pytest.raises(BlobKindError, match=r"expected a timer, found 't': int64 \(\)"):
        run(net, ws)


def test_a_running_timer_cannot_be_started() -> None:
    net, ws = Net("n"), Workspace()
    net.TimerBegin([], "t")
    net.TimerBegin([], "t")
    with pytest.raises(TimerStateError):
        run(net, ws)


# -------------------------------------------------------------------------------------------------------- fills

CONSTANTS = [
    (5, np.int64(5)),
    (True, np.bool_(True)),
    (2.5, np.float64(2.5)),
    (1j, np.complex128(1j)),
    (np.float32(0.1), np.float32(0.1)),
    (np.int16(-3), np.int16(-3)),
    (2**63, np.uint64(2**63)),
    ([1, 2], np.array([1, 2])),
    ([[True], [False]], np.array([[True], [False]])),
    ([], np.array([])),
    (np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(6, dtype=np.uint8).reshape(2, 3)),
    (np.array([1, 2], ">i4"), np.array([1, 2], ">i4")),
    (np.zeros((0, 3), np.float16), np.zeros((0, 3), np.float16)),
    (np.array(1.5, ml_dtypes.bfloat16), np.array(1.5, ml_dtypes.bfloat16)),
    (["a", "bcd"], np.array(["a", "bcd"])),
    (np.datetime64("2020-01-01"), np.datetime64("2020-01-01")),
    (np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]), np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")])),
]


@pytest.mark.parametrize(("value", "expected"), CONSTANTS, ids=lambda v: repr(v)[:30])
def test_a_constant_keeps_numpys_dtype(value: Any, expected: Any) -> None:
    net, ws = Net("n"), Workspace()
    ref = net.Const(value)
    run(net, ws)
    same(ws.fetch(ref), expected)


@pytest.mark.parametrize(
    ("value", "dtype", "expected"),
    [
        (1, "float32", np.float32(1)),
        ([1, 2], np.int16, np.array([1, 2], np.int16)),
        (1.5, ml_dtypes.bfloat16, np.array(1.5, ml_dtypes.bfloat16)),
        ("ab", "U5", np.array("ab", "U5")),
    ],
)
def test_a_constant_of_a_given_dtype(value: Any, dtype: Any, expected: Any) -> None:
    net, ws = Net("n"), Workspace()
    assert net.Const(value, "x", dtype) == "x"
    run(net, ws)
    same(ws.fetch("x"), expected)


@pytest.mark.parametrize("value", ["", "text", b"", b"\0bytes", bytearray(b"array")])
def test_text_and_bytes_are_constants(value: Any) -> None:
    net, ws = Net("n"), Workspace()
    net.Const(value, "x")
    run(net, ws)
    assert ws.fetch("x") == value
    assert ws.blob("x").kind == ("string" if isinstance(value, str) else "bytes")


@pytest.mark.parametrize(
    ("value", "options", "message"),
    [
        (None, {}, "does not make an array"),
        ({"a": 1}, {}, "does not make an array"),
        (Counter(), {}, "does not make an array"),
        (2**64, {}, "does not make an array"),
        (np.array([object()]), {}, "does not make an array"),
        ([[1], [1, 2]], {}, "inhomogeneous"),
        (BlobReference("x"), {}, "use Copy"),
        ("a", {"dtype": "int8"}, "Const: a value of type str as int8"),
        (300, {"dtype": "uint8"}, "out of bounds"),
        (1, {"dtype": object}, "cannot hold Python objects"),
        (1, {"dtype": "floaty"}, "floaty"),
    ],
)
def test_what_is_no_constant_is_refused(value: Any, options: Any, message: str) -> None:
    net = Net("n")
    with pytest.raises(BuildError, match=message):
        net.Const(value, **options)
    assert net.ops == ()


@pytest.mark.parametrize(
    ("op_type", "args", "expected"),
    [
        ("ConstantFill", {"shape": (2, 3)}, np.zeros((2, 3))),
        ("ConstantFill", {"shape": 2, "value": 3}, np.array([3, 3])),
        ("ConstantFill", {"shape": [], "value": True}, np.bool_(True)),
        ("ConstantFill", {"shape": (0, 2), "value": np.float32(1)}, np.zeros((0, 2), np.float32)),
        ("ConstantFill", {"shape": 1, "value": 7, "dtype": "uint8"}, np.array([7], np.uint8)),
        ("ConstantFill", {"shape": 1, "value": 0.1, "dtype": np.float16}, np.array([0.1], np.float16)),
        (
            "ConstantFill",
            {"shape": 2, "value": 2, "dtype": ml_dtypes.bfloat16},
            np.array([2, 2], ml_dtypes.bfloat16),
        ),
        ("GivenTensorFill", {"values": [1, 2.5]}, np.array([1, 2.5], np.float32)),
        ("GivenTensorDoubleFill", {"values": 0.1, "shape": (1, 1)}, np.array([[0.1]])),
        ("GivenTensorIntFill", {"values": range(4), "shape": (2, 2)}, np.array([[0, 1], [2, 3]], np.int32)),
        ("GivenTensorInt64Fill", {"values": [[1], [2]], "shape": 2}, np.array([1, 2])),
        ("GivenTensorInt64Fill", {"values": [], "shape": (0, 4)}, np.zeros((0, 4), np.int64)),
        ("GivenTensorBoolFill", {"values": [True, False]}, np.array([True, False])),
        ("GivenTensorStringFill", {"values": ["a", "bc"], "shape": (2, 1)}, np.array([["a"], ["bc"]])),
        ("GivenTensorStringFill", {"values": [b"ab"]}, np.array([b"ab"])),
    ],
)
def test_fills(op_type: str, args: Any, expected: Any) -> None:
    same(result(op_type, **args), expected)


@pytest.mark.parametrize(
    ("op_type", "args", "message"),
    [
        ("ConstantFill", {}, "'shape' is missing"),
        ("ConstantFill", {"shape": -1}, "a size is negative"),
        ("ConstantFill", {"shape": 1.5}, "expected a shape"),
        ("ConstantFill", {"shape": 1, "value": [1]}, "no single number"),
        ("ConstantFill", {"shape": 1, "value": 1.5, "dtype": int}, "without loss"),
        ("ConstantFill", {"shape": 1, "value": 300, "dtype": np.uint8}, "does not fit uint8"),
        ("ConstantFill", {"shape": 1, "value": -1, "dtype": np.uint64}, "does not fit uint64"),
        ("ConstantFill", {"shape": 1, "value": 1, "dtype": bool}, "without loss"),
        ("GivenTensorFill", {"values": [1, 2], "shape": 3}, r"shape \(3,\) has 3 elements, but 2 values"),
        ("GivenTensorIntFill", {"values": [2**31]}, "does not fit int32"),
        ("GivenTensorInt64Fill", {"values": [1.0]}, "without loss"),
        ("GivenTensorInt64Fill", {"values": [2**63]}, "does not fit int64"),
        ("GivenTensorBoolFill", {"values": [1]}, "without loss"),
        ("GivenTensorFill", {"values": ["a"]}, "without loss"),
        ("GivenTensorFill", {"values": [None]}, "plain items"),
        ("GivenTensorStringFill", {"values": [1]}, "not made of strings"),
    ],
)
def test_a_wrong_fill_fails_when_it_is_built(op_type: str, args: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        Net("n").add_op(op_type, **args)


# --------------------------------------------------------------------------------------- arithmetic, comparison

BINARY = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "EQ": operator.eq,
    "NE": operator.ne,
    "LT": operator.lt,
    "LE": operator.le,
    "GT": operator.gt,
    "GE": operator.ge,
}
NUMBERS = st.sampled_from([np.int8, np.uint8, np.int32, np.int64, np.float32, np.float64])


@given(
    st.sampled_from(sorted(BINARY)), hnp.mutually_broadcastable_shapes(num_shapes=2, max_side=3), st.data()
)
def test_ops_give_what_numpy_gives(op_type: str, shapes: Any, data: st.DataObject) -> None:
    a, b = (data.draw(hnp.arrays(data.draw(NUMBERS), shape)) for shape in shapes.input_shapes)
    with np.errstate(all="ignore"):
        expected = BINARY[op_type](a, b)
    same(result(op_type, a, b), expected)


INT_MIN = np.iinfo(np.int64).min


@pytest.mark.parametrize(
    ("a", "b", "expected"),
    [
        (7, 2, np.int64(3)),
        (-7, 2, np.int64(-4)),
        ([7, -7], np.int32(-2), np.array([-4, 3])),
        (np.uint8(200), np.uint8(3), np.uint8(66)),
        (np.array([7], np.int8), np.array([2], np.int16), np.array([3], np.int16)),
        (7, 2.0, np.float64(3.5)),
        (np.float32(1), np.float32(0), np.float32(np.inf)),
        (0.0, 0, np.float64(np.nan)),
        (INT_MIN, -1, np.int64(INT_MIN)),
        (np.zeros((0,), np.int64), 0, np.zeros((0,), np.int64)),
        (np.timedelta64(7, "s"), np.timedelta64(2, "s"), np.float64(3.5)),
    ],
)
def test_division(a: Any, b: Any, expected: Any) -> None:
    found = result("Div", np.asarray(a), np.asarray(b))
    if np.isnan(expected).any():
        assert np.isnan(found)
    else:
        same(found, expected)


def test_integer_division_by_zero_is_an_error() -> None:
    with pytest.raises(
        BlobValueError, match=r"op Div .*division by zero; found 'in0': int64 \(2,\) and 'in1': int64"
    ):
        result("Div", np.array([1, 2]), np.array([1, 0]))


@pytest.mark.parametrize(
    ("op_type", "values", "expected"),
    [
        ("Add", (INT_MIN, -1), np.int64(2**63 - 1)),
        ("Mul", (np.float32(3e38), np.float32(10)), np.float32(np.inf)),
        ("Add", (np.array([1], np.int8), np.int64(1)), np.array([2])),
        ("Mul", (np.float64(2), np.array([1], np.float32)), np.array([2.0])),
        ("Neg", (np.array([1, -2], np.int8),), np.array([-1, 2], np.int8)),
        ("Neg", (np.uint8(1),), np.uint8(255)),
        ("Neg", (0.0,), np.float64(-0.0)),
        ("EQ", (np.nan, np.nan), np.bool_(False)),
        ("EQ", (np.array(["a", "b"]), np.array("b")), np.array([False, True])),
        ("And", (np.array([True, True]), np.array([True, False])), np.array([True, False])),
        ("Or", (np.array([[True], [False]]), False), np.array([[True], [False]])),
        ("Xor", (True, np.array([True, False])), np.array([False, True])),
        ("Not", (np.array([True, False]),), np.array([False, True])),
        ("Not", (False,), np.bool_(True)),
    ],
)
def test_edges(op_type: str, values: Any, expected: Any) -> None:
    same(result(op_type, *map(np.asarray, values)), expected)


@pytest.mark.parametrize(
    ("op_type", "values", "error", "message"),
    [
        (
            "Add",
            (np.zeros(2), np.zeros(3)),
            BlobValueError,
            r"'in0': float64 \(2,\) and 'in1': float64 \(3,\)",
        ),
        (
            "Sub",
            (np.array(True), np.array(True)),
            BlobKindError,
            r"op Sub \(in0, in1\) -> \(out\).*bool \(\)",
        ),
        ("Neg", (np.array(True),), BlobKindError, "'in0': bool"),
        ("Add", (np.array(1), np.array("a")), BlobKindError, "<U1"),
        ("Add", (np.zeros(2), "text"), BlobKindError, "expected a tensor, found 'in1': string"),
        ("LT", (Counter(), np.zeros(2)), BlobKindError, "expected a tensor, found 'in0': counter"),
        (
            "And",
            (np.array(True), np.array(1)),
            BlobKindError,
            r"expected a tensor of bool, found 'in1': int64 \(\)",
        ),
        ("Not", (np.zeros(2),), BlobKindError, "expected a tensor of bool"),
    ],
)
def test_wrong_operands_are_named(op_type: str, values: Any, error: Any, message: str) -> None:
    with pytest.raises(error, match=message):
        result(op_type, *values)


@pytest.mark.parametrize(
    ("op_type", "inputs", "output", "expected"),
    [
        ("Add", ["x", "y"], "x", [4, 6]),
        ("Sub", ["x", "y"], "y", [-2, -2]),
        ("Div", ["y", "x"], "x", [3, 2]),
        ("Mul", ["x", "x"], "x", [1, 4]),
        ("Neg", ["x"], "x", [-1, -2]),
        ("LT", ["x", "y"], "x", [True, True]),
        ("Copy", ["x"], "x", [1, 2]),
    ],
)
def test_an_output_may_be_an_input(op_type: str, inputs: list[str], output: str, expected: list[Any]) -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("x", np.array([1, 2]))
    ws.feed("y", np.array([3, 4]))
    before = ws.view(output)
    shown = before.tolist()
    net.add_op(op_type, inputs, output)
    run(net, ws)
    same(ws.fetch(output), np.array(expected))
    assert before.tolist() == shown, "a view taken before must not change"


def test_or_of_a_blob_with_itself_in_place() -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("x", np.array([True, False]))
    net.Or(["x", "x"], "x")
    run(net, ws)
    same(ws.fetch("x"), np.array([True, False]))


# -------------------------------------------------------------------------------------------------------- blobs


@pytest.mark.parametrize("value", [np.arange(3), "text", b"bytes", {"a": [1]}])
def test_a_copy_is_independent(value: Any) -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("x", value)
    ref = net.Copy("x")
    run(net, ws)
    ws.feed("x", 0)
    found = ws.fetch(ref)
    assert found.tolist() == value.tolist() if isinstance(value, np.ndarray) else found == value


@pytest.mark.parametrize("value", [Counter(), Timer("t"), np.random.default_rng(0)])
def test_handles_are_not_copied(value: Any) -> None:
    with pytest.raises(BlobKindError, match="expected a tensor, a string, bytes or a state, found 'in0'"):
        result("Copy", value)


@pytest.mark.parametrize(
    ("value", "empty"),
    [(np.zeros((2, 0)), True), (np.zeros(()), False), ("", True), ("a", False), (b"", True), (b"a", False)],
)
def test_is_empty(value: Any, empty: bool) -> None:
    same(result("IsEmpty", value), np.bool_(empty))


def test_is_empty_of_other_blobs() -> None:
    net, ws = Net("n"), Workspace()
    ws.create_blob("x")
    net.IsEmpty("x", "y")
    run(net, ws)
    same(ws.fetch("y"), np.bool_(True))
    with pytest.raises(BlobKindError, match="found 'in0': counter"):
        result("IsEmpty", Counter())


def test_all_blob_names() -> None:
    node = Workspace(name="node")
    node.feed("w", 1)
    ws = Workspace(node)
    ws.create_blob("empty")
    ws.feed("größe/a:b", 2)
    net = Net("n")
    every, own = net.GetAllBlobNames([], "every"), net.GetAllBlobNames([], "own", include_shared=False)
    run(net, ws)
    names = ws.fetch(every)
    assert names.dtype.kind == "U"
    assert names.shape == (4,)
    assert set(names.tolist()) == {"w", "empty", "größe/a:b", "every"}
    assert set(ws.fetch(own).tolist()) == {"empty", "größe/a:b", "every", "own"}


def test_a_name_that_a_string_tensor_would_cut_is_an_error() -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("x\0", 1)
    net.GetAllBlobNames()
    with pytest.raises(BlobValueError, match=r"cannot hold the names \['x\\x00'\]"):
        run(net, ws)


def test_python_functions_get_blobs_and_the_workspace() -> None:
    seen: list[Any] = []

    def double(inputs: Any, outputs: Any) -> str:
        outputs[0].feed(inputs[0].fetch() * 2)
        return "ignored"

    def peek(inputs: Any, outputs: Any, workspace: Any) -> None:
        seen.append((inputs, outputs, workspace))

    net, ws = Net("n"), Workspace()
    ws.feed("x", np.array([1, 2]))
    net.Python(double)("x", "x")
    net.Python(peek)([], [], pass_workspace=True)
    run(net, ws)
    run(net, ws)
    assert ws.fetch("x").tolist() == [4, 8]
    assert seen == [([], [], ws)] * 2


# ----------------------------------------------------------------------------------------------- save, load, exists


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "model.zarr.zip"


def test_save_and_load_every_kind(db: Path) -> None:
    ws = Workspace()
    rng = np.random.default_rng(3)
    values = {
        "t": np.arange(3.0),
        "c": Counter(4),
        "s": "text",
        "b": b"bytes",
        "d": {"k": [1, None]},
        "r": rng,
    }
    for name, value in values.items():
        ws.feed(name, value)
    net = Net("save")
    net.Save(list(values), db=db)
    run(net, ws)
    assert [blob.name for blob in inspect(db).blobs] == list(values)
    held = values["c"]
    assert isinstance(held, Counter)
    held.count_up()
    expected = np.random.default_rng(3).random()
    rng.random()
    ws.feed("t", np.zeros(3))
    ws.remove_blob("s")
    load = Net("load")
    load.Load([], list(values), db=str(db))
    run(load, ws)
    assert ws.fetch("t").tolist() == [0, 1, 2]
    assert ws.fetch("c") is held
    assert held.retrieve() == 4
    assert (ws.fetch("s"), ws.fetch("b"), ws.fetch("d")) == ("text", b"bytes", {"k": [1, None]})
    assert ws.fetch("r") is rng
    assert rng.random() == expected


def saved(path: Path, **blobs: Any) -> str:
    write_database(path, blobs)
    return str(path)


def load_op(ws: Workspace, outputs: list[str] | None = None, **args: Any) -> None:
    net = Net("load")
    net.Load([], [] if outputs is None else outputs, **args)
    run(net, ws)


def test_names_in_the_database_can_be_chosen(db: Path) -> None:
    ws = Workspace()
    for name, value in (("n/x", 1), ("n/n/y", 2), ("z", 3)):
        ws.feed(name, value)
    for options, names in (
        ({"strip_prefix": "n/"}, ["x", "n/y", "z"]),
        ({"blob_name_overrides": ["1", BlobReference("2"), "3"]}, ["1", "2", "3"]),
        ({}, ["n/x", "n/n/y", "z"]),
    ):
        net = Net("s")
        with NameScope("n"):
            net.Save(["x", "n/y", BlobReference("z")], db=db, overwrite=True, **options)
        run(net, ws)
        assert [blob.name for blob in inspect(db).blobs] == names


def test_names_of_the_blobs_can_be_chosen(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", **{"n/x": 1, "y": 2})
    for outputs, options, expected in (
        (["x"], {"strip_prefix": "n/"}, {"x": 1}),
        (["m/n/x", "m/y"], {"add_prefix": "m/"}, {"m/n/x": 1, "m/y": 2}),
        (["m/x"], {"add_prefix": "m/", "strip_prefix": "n/"}, {"m/x": 1}),
        (["p", "q"], {"source_blob_names": ["y", "n/x"]}, {"p": 2, "q": 1}),
        (None, {"load_all": True}, {"n/x": 1, "y": 2}),
        (None, {"load_all": True, "strip_prefix": "n/", "add_prefix": "m/"}, {"m/x": 1, "m/y": 2}),
        (["y"], {"load_all": True}, {"n/x": 1, "y": 2}),
    ):
        ws = Workspace()
        load_op(ws, outputs, db=path, **options)
        assert {name: int(ws.fetch(name)) for name in ws} == expected


def test_scopes_go_into_outputs_and_not_into_names_of_the_database(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", y=2)
    ws = Workspace()
    with NameScope("s"):
        load_op(ws, ["x"], db=path, source_blob_names=["y"])
    assert int(ws.fetch("s/x")) == 2


def test_several_databases_at_once(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{i}.zarr.zip", **{f"x{i}": i, f"y{i}": -i}) for i in range(3)]
    ws = Workspace()
    load_op(ws, ["x2", "y0"], dbs=paths)
    assert sorted(ws) == ["x2", "y0"]
    load_op(ws, dbs=paths, load_all=True)
    assert len(ws) == 6
    clash = saved(tmp_path / "clash.zarr.zip", x1=1)
    with pytest.raises(MismatchError, match=r"'x1' is in .*1.zarr.zip and in .*clash.zarr.zip"):
        load_op(ws, ["x1"], dbs=[*paths, clash])


def test_a_load_that_is_incomplete(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", x=1)
    ws = Workspace()
    ws.feed("y", 7)
    with pytest.raises(MismatchError, match="2 outputs are not stored: 'y', 'z'"):
        load_op(ws, ["x", "y", "z"], db=path)
    assert ws.blob("x").kind == "empty", "nothing is loaded when something is missing"
    load_op(ws, ["x", "y", "z"], db=path, allow_incomplete=True)
    assert (int(ws.fetch("x")), int(ws.fetch("y")), ws.blob("z").kind) == (1, 7, "empty")
    with pytest.raises(MismatchError, match="not stored: 'w'"):
        load_op(ws, ["w"], db=path, load_all=True)


def test_bound_arrays_are_filled_in_place_or_nothing_is(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", x=np.arange(3.0), y=np.arange(2.0), s="text")
    ws = Workspace()
    x, y = np.zeros(6)[::2], np.zeros(3)
    ws.bind("x", x)
    ws.bind("y", y)
    with pytest.raises(
        MismatchError, match=r"'y' is bound to an array of float64 \(3,\), float64 \(2,\) is stored"
    ):
        load_op(ws, ["x", "y"], db=path)
    assert not x.any()
    load_op(ws, ["x"], db=path)
    assert x.tolist() == [0, 1, 2]
    with pytest.raises(MismatchError, match="a value of type str is stored"):
        load_op(ws, ["x"], db=path, source_blob_names=["s"])


def test_nothing_is_loaded_from_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr.zip"
    saved(path, x=np.arange(100.0), y=np.full(100, 7.0))
    data = bytearray(path.read_bytes())
    data[data.index(np.float64(7.0).tobytes() * 50)] ^= 1
    path.write_bytes(data)
    ws = Workspace()
    ws.feed("x", 0)
    with pytest.raises(ChecksumError, match="'y'"):
        load_op(ws, ["x", "y"], db=path)
    assert int(ws.fetch("x")) == 0
    assert ws.blob("y").kind == "empty"


def test_what_cannot_be_saved_is_an_error(db: Path) -> None:
    ws = Workspace()
    ws.feed("timer", Timer("t"))
    ws.feed("x", 1)
    ws.create_blob("empty")
    for name, error, message in (
        ("timer", UnsupportedBlobError, "timer"),
        ("empty", BlobValueError, "a value to save in 'empty', but the blob is empty"),
    ):
        net = Net("s")
        net.Save(["x", name], db=db)
        with pytest.raises(error, match=message):
            run(net, ws)
        assert not db.exists()


def test_a_transient_blob_that_is_named_is_saved(db: Path) -> None:
    ws = Workspace()
    ws.feed("x", 1, transient=True)
    net = Net("s")
    net.Save("x", db=db)
    run(net, ws)
    assert [blob.name for blob in inspect(db).blobs] == ["x"]


def test_a_file_is_only_replaced_on_demand(db: Path) -> None:
    ws = Workspace()
    ws.feed("x", 1)
    net = Net("s")
    net.Save("x", db=db)
    run(net, ws)
    ws.feed("x", 2)
    with pytest.raises(SaveError):
        run(net, ws)
    load_op(ws, ["x"], db=db)
    assert int(ws.fetch("x")) == 1


def test_loading_from_nowhere(db: Path) -> None:
    with pytest.raises(CheckpointNotFoundError):
        load_op(Workspace(), ["x"], db=db)


WRONG_STORE_OPS: list[tuple[Callable[[Net], object], str]] = [
    (lambda n: n.Save("x"), "'db' is missing"),
    (lambda n: n.Save("x", db=""), "'db': expected a path.*it is empty"),
    (lambda n: n.Save("x", db=3), "'db': expected a path"),
    (lambda n: n.Save("x", db="d", db_type="leveldb"), "none of zarr"),
    (
        lambda n: n.Save("x", db="d", strip_prefix="a", blob_name_overrides=["b"]),
        "or strip_prefix, found both",
    ),
    (lambda n: n.Save(["x", "y"], db="d", blob_name_overrides=["b"]), "each of the 2 inputs .* found 1"),
    (lambda n: n.Save(["x", "y"], db="d", blob_name_overrides=["b", "b"]), "would be saved as 'b'"),
    (lambda n: n.Save("x", db="d", blob_name_overrides="x"), "one item and no list"),
    (lambda n: n.Save(["x", "x"], db="d"), "two inputs would be saved as 'x'"),
    (lambda n: n.Save(["a/x", "b/x"], db="d", strip_prefix="/"), "two inputs would be saved as 'x'"),
    (lambda n: n.Save("a/", db="d", strip_prefix="a/"), "nothing is left of the name 'a/'"),
    (lambda n: n.Load([], "x"), "expected db or dbs, found neither"),
    (lambda n: n.Load([], "x", db="d", dbs=["e"]), "expected db or dbs, found both"),
    (lambda n: n.Load([], "x", dbs=["e", "e"]), "dbs names twice the database 'e'"),
    (lambda n: n.Load(db="d"), "outputs or load_all, found neither"),
    (lambda n: n.Load([], ["x", "x"], db="d"), "an output is named twice"),
    (lambda n: n.Load([], ["x", "y"], db="d", source_blob_names=["a"]), "each of the 2 outputs .* found 1"),
    (lambda n: n.Load([], ["x", "y"], db="d", source_blob_names=["a", "a"]), "would be loaded from 'a'"),
    (
        lambda n: n.Load([], "x", db="d", source_blob_names=["a"], strip_prefix="p"),
        "or strip_prefix, found both",
    ),
    (lambda n: n.Load([], "x", db="d", source_blob_names=["a"], add_prefix="p"), "or add_prefix, found both"),
    (lambda n: n.Load([], "x", db="d", source_blob_names=["a"], load_all=True), "or load_all, found both"),
    (lambda n: n.Load([], "x", db="d", db_type="minidb"), "none of zarr"),
    (lambda n: n.DBExists(db_name="d", db_type="minidb"), "none of zarr"),
]


@pytest.mark.parametrize(("build", "message"), WRONG_STORE_OPS)
def test_arguments_that_clash_fail_when_the_op_is_built(build: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        build(Net("n"))


def test_two_blobs_cannot_become_one(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", **{"a/x": 1, "b/x": 2, "c/": 3})
    with pytest.raises(MismatchError, match="'a/x' and 'b/x' of the database would both become 'x'"):
        load_op(Workspace(), ["x"], db=path, strip_prefix="/")
    with pytest.raises(MismatchError, match="nothing is left of the name 'c/'"):
        load_op(Workspace(), db=path, strip_prefix="c/", load_all=True)


@pytest.mark.parametrize("content", ["good", "missing", "cut", "text", "folder"])
def test_a_database_exists_only_when_it_is_whole(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.zarr.zip"
    if content in ("good", "cut"):
        saved(path, x=np.arange(9))
    if content == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif content == "text":
        path.write_text("not a database")
    elif content == "folder":
        path.mkdir()
    same(result("DBExists", db_name=path), np.bool_(content == "good"))
