"""Statistics from inside a net: export and merge registries, and put numbers into the one of the process."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np

from jobcore.errors import BlobKindError, BlobValueError
from jobcore.graph.args import boolean, integer, optional, text
from jobcore.graph.kernels import describe_blob, tensor, wrong_kind
from jobcore.graph.op import OpContext
from jobcore.graph.registry import ArgSpec, register_op
from jobcore.statistics import StatRegistry, stat_registry

__all__: list[str] = []

_INT64 = np.iinfo(np.int64)


def _registry_in(ctx: OpContext, index: int) -> StatRegistry:
    if len(ctx.inputs) <= index:
        return stat_registry()
    found = ctx.inputs[index].value
    if not isinstance(found, StatRegistry):
        raise wrong_kind(ctx, ctx.inputs[index], "a registry of statistics")
    return found


@register_op("StatRegistryCreate", num_inputs=0, num_outputs=1)
def create(ctx: OpContext) -> None:
    """Make a registry of statistics of its own.

    No input; output: the registry, a transient object.
    """
    ctx.outputs[0].feed(StatRegistry(), transient=True)


@register_op(
    "StatRegistryExport",
    num_inputs=(0, 1),
    num_outputs=3,
    args={"reset": boolean(True, "Set each number to 0 in the same step.")},
    default_outputs=3,
)
def export(ctx: OpContext) -> None:
    """Read all numbers of a registry, and set them to 0 unless ``reset=False``.

    Input, which may be left out: the registry, by default that of the process. Outputs: names, a 1-D tensor of
    strings; values, int64; times of reading in nanoseconds since 1970, int64.
    """
    found = _registry_in(ctx, 0).export(reset=ctx.args["reset"])
    ctx.outputs[0].feed(np.array([one.name for one in found], np.str_))
    ctx.outputs[1].feed(np.array([one.value for one in found], np.int64))
    ctx.outputs[2].feed(np.array([one.time_ns for one in found], np.int64))


@register_op("StatRegistryUpdate", num_inputs=(2, 3), num_outputs=0)
def update(ctx: OpContext) -> None:
    """Add values to the numbers of a registry.

    Inputs: names, a 1-D tensor of strings; values, as many integers; and the registry, by default that of the
    process. No output.
    """
    names, values = tensor(ctx, 0), tensor(ctx, 1)
    if names.dtype.kind != "U" or values.dtype.kind not in "iu":
        raise BlobKindError(
            f"{ctx.op.call()}: expected strings and integers, found {describe_blob(ctx.inputs[0])} and "
            f"{describe_blob(ctx.inputs[1])}"
        )
    _registry_in(ctx, 2).update(names.ravel().tolist(), values.ravel().tolist())


_PUT = {
    "stat_name": optional(text(doc="Name of the statistic; by default that of the input blob.")),
    "magnitude_expand": integer(minimum=1, default=1, doc="Factor, for fractions that would be cut off."),
    "bound": boolean(False, "Keep what does not fit 64 bits at their ends, and take NaN for 0."),
    "default_value": optional(
        ArgSpec(float, "a number", doc="Is put where the input is empty; an error by default.")
    ),
}


def _number(ctx: OpContext) -> tuple[str, int]:
    """Return the name of the statistic and the input as the integer to put."""
    args, blob = ctx.args, ctx.inputs[0]
    name = args["stat_name"] or blob.name
    if blob.kind == "empty" or (blob.kind == "tensor" and math.prod(blob.shape or ()) == 0):
        if args["default_value"] is None:
            raise BlobValueError(
                f"{ctx.op.call()}: expected a number in {blob.name!r}, found nothing",
                hint="give a default_value",
            )
        value = args["default_value"]
    else:
        array = tensor(ctx, 0)
        if array.size != 1 or array.dtype.kind not in "biuf":
            raise BlobKindError(f"{ctx.op.call()}: expected a single number, found {describe_blob(blob)}")
        value = array.reshape(()).item()
    if isinstance(value, float) and not math.isfinite(value):
        if not args["bound"]:
            raise BlobValueError(
                f"{ctx.op.call()}: expected a finite number, found {value}", hint="bound=True"
            )
        return name, 0 if math.isnan(value) else int(_INT64.max if value > 0 else _INT64.min)
    number = int(value * args["magnitude_expand"])
    if not _INT64.min <= number <= _INT64.max:
        if not args["bound"]:
            raise BlobValueError(
                f"{ctx.op.call()}: expected a number that fits 64 bits, found {value} x {args['magnitude_expand']}",
                hint="bound=True keeps it at the end of the range",
            )
        number = int(min(max(number, _INT64.min), _INT64.max))
    return name, number


def _register_put(op_type: str, does: str, put: Callable[[StatRegistry, str, int], None]) -> None:
    def kernel(ctx: OpContext) -> None:
        name, number = _number(ctx)
        put(stat_registry(), name, number)

    kernel.__doc__ = (
        f"{does}\n\n"
        "Input: a single number, times ``magnitude_expand`` and cut to an integer; no output. The registry is that "
        "of the process."
    )
    register_op(op_type, num_inputs=1, num_outputs=0, args=_PUT)(kernel)


def _average(stats: StatRegistry, name: str, number: int) -> None:
    stats.add(f"{name}/stat_value/sum", number)
    stats.add(f"{name}/stat_value/count")


def _deviation(stats: StatRegistry, name: str, number: int) -> None:
    _average(stats, name, number)
    # A square that does not fit stays at the end of the range, as a wrapped one would be less than nothing.
    stats.add(f"{name}/stat_value/sumsq", min(number * number, int(_INT64.max)))


_register_put(
    "AveragePut", "Add a number to ``<stat_name>/stat_value/sum``, and 1 to ``.../count``.", _average
)
_register_put(
    "IncrementPut",
    "Add a number to ``<stat_name>/stat_value``.",
    lambda stats, name, number: stats.add(f"{name}/stat_value", number),
)
_register_put(
    "StdDevPut",
    "Add a number to ``<stat_name>/stat_value/sum``, its square to ``.../sumsq``, and 1 to ``.../count``.",
    _deviation,
)
