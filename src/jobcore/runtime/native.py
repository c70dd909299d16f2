"""Which ops run natively, and what their kernels need to know of the arguments."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from jobcore._fast.program import SMALL_BYTES
from jobcore.graph import Op, schema

__all__ = ["native_kernel_of"]

Constant: TypeAlias = bool | int | float | NDArray[Any] | None

_SCALARS = {np.dtype(np.bool_): bool, np.dtype(np.int64): int, np.dtype(np.float64): float}

# Of ops on queues: whether there is no more to one than to copy, and to wait for as long as it takes.
_IS_PLAIN: dict[str, Callable[[Mapping[str, Any]], bool]] = {
    "EnqueueBlobs": lambda args: args["move"] is not True,
    "SafeEnqueueBlobs": lambda args: args["move"] is not True,
    "DequeueBlobs": lambda args: not args["timeout_secs"],
    "SafeDequeueBlobs": lambda args: args["num_records"] == 1,
}


def native_kernel_of(op: Op) -> tuple[object | None, Constant]:
    """Return the native kernel of an op, None if there is no use for one, and what it must know of the arguments."""
    kernel = schema(op.type).native
    if kernel is None:
        return None, None
    if op.type in ("CreateCounter", "ResetCounter"):
        return kernel, int(op.args["init_count"])
    is_plain = _IS_PLAIN.get(op.type)
    if is_plain is not None:
        # A move empties blobs, which no native kernel does; one that looked at them would even prevent it. What is to
        # be moved only if it is large is left to the Python kernel where it is large.
        return (kernel, True) if is_plain(op.args) else (None, None)
    fill = _FILLS.get(op.type)
    if fill is None:
        return kernel, None
    constant = fill(op.args)
    return (None, None) if constant is None else (kernel, constant)


def _const(args: Mapping[str, Any]) -> Constant:
    value = args["value"]
    return _constant(value) if isinstance(value, np.ndarray) else None


def _constant_fill(args: Mapping[str, Any]) -> Constant:
    value, dtype, shape = args["value"], args["dtype"], args["shape"]
    dtype = value.dtype if dtype is None else dtype
    # Counted before it is made: it may be larger than the memory.
    if np.dtype(dtype).itemsize * _elements(shape) > SMALL_BYTES:
        return None
    return _constant(np.full(shape, value, dtype))


def _given(args: Mapping[str, Any]) -> Constant:
    values, shape = args["values"], args["shape"]
    return _constant(values if shape is None else values.reshape(shape))


def _elements(shape: tuple[int, ...]) -> int:
    count = 1
    for length in shape:
        count *= length
    return count


def _constant(array: NDArray[Any]) -> Constant:
    """Return an array as native kernels take it, None if they do not."""
    if array.shape == () and array.dtype in _SCALARS:
        found: bool | int | float = _SCALARS[array.dtype](array)
        return found
    small = array.nbytes <= SMALL_BYTES and array.itemsize > 0 and not array.dtype.hasobject
    return array if small and array.flags.c_contiguous else None


_FILLS: dict[str, Callable[[Mapping[str, Any]], Constant]] = {
    "Const": _const,
    "ConstantFill": _constant_fill,
    **{f"GivenTensor{kind}Fill": _given for kind in ("", "Double", "Int", "Int64", "Bool", "String")},
}
