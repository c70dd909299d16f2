"""The kernels of arithmetic, comparison and logic, against NumPy."""

from __future__ import annotations

import operator
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from jobcore._fast.counter import Counter
from jobcore.errors import BlobKindError, BlobValueError
from jobcore.graph import Net
from jobcore.workspace import Workspace
from op_tools import result, run, same

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
