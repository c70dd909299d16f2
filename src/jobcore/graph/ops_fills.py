"""Ops that make a tensor from what the program says: constants and fills."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BuildError
from jobcore.graph.args import cast, constant, data_type, elements, filled, optional, shape
from jobcore.graph.op import Op, OpContext
from jobcore.graph.registry import ArgSpec, register_op

__all__: list[str] = []


@register_op(
    "Const",
    num_inputs=0,
    num_outputs=1,
    args={"value": ArgSpec(constant, "a number, an array, a string or bytes", doc="What the blob becomes.")},
)
def const(ctx: OpContext) -> None:
    """Give the blob a constant value: a tensor with NumPy's dtype for it, a string, or bytes.

    No input; output: the value. ``ops.Const(value, blob_out=None, dtype=None)`` builds it.
    """
    ctx.outputs[0].feed(ctx.args["value"])


def _scalar(value: object) -> NDArray[Any]:
    array = np.array(value)
    if array.ndim != 0 or array.dtype.hasobject:
        raise TypeError("it is no single number")
    array.flags.writeable = False
    return array


def _check_constant_fill(op: Op) -> None:
    if op.args["dtype"] is None:
        return
    try:
        cast(op.args["value"], op.args["dtype"])
    except (TypeError, ValueError) as error:
        raise BuildError(f"argument 'value': {op.args['value']} as {op.args['dtype']}: {error}") from error


@register_op(
    "ConstantFill",
    num_inputs=0,
    num_outputs=1,
    args={
        "shape": shape("Shape of the tensor; () for a scalar."),
        "value": ArgSpec(_scalar, "a single number", np.float64(0.0), "What every element is."),
        "dtype": optional(data_type("Dtype of the tensor; by default NumPy's for the value.")),
    },
    check=_check_constant_fill,
)
def constant_fill(ctx: OpContext) -> None:
    """Make a tensor of ``shape`` with ``value`` (0.0) everywhere, of ``dtype`` or the value's own.

    No input; output: the tensor.
    """
    value, dtype = ctx.args["value"], ctx.args["dtype"]
    ctx.outputs[0].feed(np.full(ctx.args["shape"], value, value.dtype if dtype is None else dtype))


def _check_count(op: Op) -> None:
    wanted, values = op.args["shape"], op.args["values"]
    if wanted is not None and elements(wanted) != values.size:
        raise BuildError(
            f"shape {wanted} has {elements(wanted)} elements, but {values.size} values are given"
        )


def _register_given(suffix: str, dtype: np.dtype[Any] | None, items: str) -> None:
    def kernel(ctx: OpContext) -> None:
        values: NDArray[Any] = ctx.args["values"]
        wanted = ctx.args["shape"]
        ctx.outputs[0].feed(values if wanted is None else values.reshape(wanted))

    kernel.__doc__ = (
        f"Make a tensor of ``shape`` from ``values``, {items}.\n\n"
        "No input; output: the tensor. Without a shape it has that of the values."
    )
    register_op(
        f"GivenTensor{suffix}Fill",
        num_inputs=0,
        num_outputs=1,
        args={
            "shape": optional(shape("Shape of the tensor; by default that of the values.")),
            "values": ArgSpec(filled(dtype), f"a list of {items}", doc="The elements in C order."),
        },
        check=_check_count,
    )(kernel)


_register_given("", np.dtype(np.float32), "numbers kept as float32")
_register_given("Double", np.dtype(np.float64), "numbers kept as float64")
_register_given("Int", np.dtype(np.int32), "integers kept as int32")
_register_given("Int64", np.dtype(np.int64), "integers kept as int64")
_register_given("Bool", np.dtype(np.bool_), "booleans")
_register_given("String", None, "strings")
