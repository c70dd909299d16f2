"""The kernels that fill tensors with constants, ranges and random numbers."""

from __future__ import annotations

from typing import Any

import ml_dtypes
import numpy as np
import pytest

from jobcore._fast.counter import Counter
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, Net
from jobcore.workspace import Workspace
from op_tools import result, run, same

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
