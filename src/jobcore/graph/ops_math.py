"""Element by element: arithmetic, comparison and logic, with NumPy's broadcasting and NumPy's result dtypes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BlobKindError, BlobValueError
from jobcore.graph.kernels import describe_blob, tensor
from jobcore.graph.op import OpContext
from jobcore.graph.registry import register_op

__all__: list[str] = []


def divide(a: NDArray[Any], b: NDArray[Any]) -> Any:
    """Return ``a // b`` for integers and booleans, ``a / b`` for everything else.

    Raises
    ------
    ZeroDivisionError
        Integers are divided by zero: there is no value that could say so.
    """
    if a.dtype.kind not in "iub" or b.dtype.kind not in "iub":
        return np.divide(a, b)
    quotient = np.floor_divide(a, b)
    if np.size(quotient) and not b.all():
        raise ZeroDivisionError("integer division by zero")
    return quotient


def promoted(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return `function` of two arrays with the result dtype of NumPy 2, whatever NumPy is installed.

    NumPy 1 looks at the value of a 0-d operand, so that a counter of 200 and one of 20 would give tensors of
    different dtypes.
    """

    def apply(a: NDArray[Any], b: NDArray[Any]) -> Any:
        if (a.ndim == 0) != (b.ndim == 0) and a.dtype.kind in "biufc" and b.dtype.kind in "biufc":
            common = np.result_type(a.dtype, b.dtype)
            a, b = a.astype(common, copy=False), b.astype(common, copy=False)
        return function(a, b)

    return apply


def _apply(ctx: OpContext, function: Callable[..., Any], inputs: list[NDArray[Any]]) -> None:
    try:
        # Overflow and NaN give what IEEE and two's complement give; a task's log is no place for warnings.
        with np.errstate(all="ignore"):
            result = function(*inputs)
    except (TypeError, ValueError, ZeroDivisionError) as error:
        found = " and ".join(
            f"{blob.name!r}: {a.dtype} {a.shape}" for blob, a in zip(ctx.inputs, inputs, strict=True)
        )
        kind = BlobKindError if isinstance(error, TypeError) else BlobValueError
        raise kind(f"{ctx.op.call()}: {error}; found {found}") from error
    # The whole result is there before anything is written, so an output may be one of the inputs.
    array = np.asarray(result)
    if type(array) is np.ndarray and array.ndim and array.flags.owndata and array.flags.c_contiguous:
        # Made by the function above for this call alone: no copy.
        ctx.outputs[0].adopt(array)
    else:
        ctx.outputs[0].feed(array)


def _register(
    op_type: str, function: Callable[..., Any], count: int, boolean: bool, does: str, rule: str
) -> None:
    def kernel(ctx: OpContext) -> None:
        inputs = [tensor(ctx, i) for i in range(count)]
        if boolean:
            for blob, array in zip(ctx.inputs, inputs, strict=True):
                if array.dtype != np.bool_:
                    raise BlobKindError(
                        f"{ctx.op.call()}: expected a tensor of bool, found {describe_blob(blob)}",
                        hint="compare first, with NE and 0 for example",
                    )
        _apply(ctx, function, inputs)

    operands = "Input: a tensor" if count == 1 else "Inputs: two tensors whose shapes broadcast"
    kernel.__doc__ = f"{does}\n\n{operands}; output: {rule} The output may be an input."
    register_op(op_type, num_inputs=count, num_outputs=1, inplace=True)(kernel)


_ARITHMETIC = "a tensor of NumPy's dtype for the result; integers wrap around."

_register("Add", promoted(np.add), 2, False, "Add element by element.", _ARITHMETIC)
_register("Sub", promoted(np.subtract), 2, False, "Subtract the second from the first.", _ARITHMETIC)
_register("Mul", promoted(np.multiply), 2, False, "Multiply element by element.", _ARITHMETIC)
_register(
    "Div",
    promoted(divide),
    2,
    False,
    "Divide the first by the second.",
    "integers of both inputs give an integer, rounded down as Python's // does, and dividing those by zero is "
    "an error; everything else gives what NumPy's / gives, infinities and NaN included.",
)
_register("Neg", np.negative, 1, False, "Change the sign.", _ARITHMETIC)

for _type, _function, _means in (
    ("EQ", np.equal, "equal"),
    ("NE", np.not_equal, "different"),
    ("LT", np.less, "less than the second"),
    ("LE", np.less_equal, "at most the second"),
    ("GT", np.greater, "greater than the second"),
    ("GE", np.greater_equal, "at least the second"),
):
    first = "the two are" if _means in ("equal", "different") else "the first is"
    _register(
        _type, _function, 2, False, f"Tell element by element whether {first} {_means}.", "a tensor of bool."
    )

_register("And", np.logical_and, 2, True, "Tell whether both are true; tensors of bool.", "a tensor of bool.")
_register(
    "Or", np.logical_or, 2, True, "Tell whether one or both are true; tensors of bool.", "a tensor of bool."
)
_register(
    "Xor", np.logical_xor, 2, True, "Tell whether exactly one is true; tensors of bool.", "a tensor of bool."
)
_register(
    "Not", np.logical_not, 1, True, "Turn true into false and back; a tensor of bool.", "a tensor of bool."
)
