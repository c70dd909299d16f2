"""Counters: 64-bit integers that any number of tasks count at once."""

from __future__ import annotations

import numpy as np

from jobcore._fast.counter import Counter
from jobcore.graph.args import integer
from jobcore.graph.kernels import counter
from jobcore.graph.op import OpContext
from jobcore.graph.registry import register_op

__all__: list[str] = []

_INIT = {"init_count": integer(minimum=0, default=0, doc="What the counter starts from.")}


@register_op("CreateCounter", num_inputs=0, num_outputs=1, args=_INIT)
def create_counter(ctx: OpContext) -> None:
    """Make a counter that starts at ``init_count`` (0), or set the counter that the blob is to it.

    No input; output: the counter. A counter that is there already stays the same one for everybody who
    holds it.
    """
    output = ctx.outputs[0]
    existing = output.value
    if isinstance(existing, Counter):
        existing.reset(ctx.args["init_count"])
    else:
        output.feed(Counter(ctx.args["init_count"]))


@register_op("CountUp", num_inputs=1, num_outputs=1)
def count_up(ctx: OpContext) -> None:
    """Add 1 to a counter.

    Input: the counter; output: its value before, int64, 0-d.
    """
    ctx.outputs[0].feed(np.int64(counter(ctx, 0).count_up()))


@register_op("CountDown", num_inputs=1, num_outputs=1)
def count_down(ctx: OpContext) -> None:
    """Subtract 1 from a counter, also below 0.

    Input: the counter; output: whether its value before was 0 or less, bool, 0-d. A counter that starts
    at 1 gives False, True, True.
    """
    ctx.outputs[0].feed(np.bool_(counter(ctx, 0).count_down()))


@register_op("ResetCounter", num_inputs=1, num_outputs=(0, 1), args=_INIT)
def reset_counter(ctx: OpContext) -> None:
    """Set a counter to ``init_count`` (0).

    Input: the counter; output, which may be left out with ``[]``: its value before, int64, 0-d.
    """
    before = counter(ctx, 0).reset(ctx.args["init_count"])
    if ctx.outputs:
        ctx.outputs[0].feed(np.int64(before))


@register_op("RetrieveCount", num_inputs=1, num_outputs=1)
def retrieve_count(ctx: OpContext) -> None:
    """Read a counter.

    Input: the counter; output: its value, int64, 0-d.
    """
    ctx.outputs[0].feed(np.int64(counter(ctx, 0).retrieve()))


@register_op("CheckCounterDone", num_inputs=1, num_outputs=1)
def check_counter_done(ctx: OpContext) -> None:
    """Tell whether a counter has run out, and leave it as it is.

    Input: the counter; output: whether its value is 0 or less, bool, 0-d.
    """
    ctx.outputs[0].feed(np.bool_(counter(ctx, 0).check_done()))
