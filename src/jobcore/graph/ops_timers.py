"""Timers: how long something took, in nanoseconds. A timer is a value of its blob and never checkpointed."""

from __future__ import annotations

import numpy as np

from jobcore._fast.timer import Timer
from jobcore.graph.args import optional, text
from jobcore.graph.kernels import timer
from jobcore.graph.op import OpContext
from jobcore.graph.registry import register_op
from jobcore.statistics import stat_registry

__all__: list[str] = []


@register_op(
    "TimerBegin",
    num_inputs=0,
    num_outputs=1,
    args={"counter_name": optional(text(doc="Name of a new timer; by default that of its blob."))},
)
def timer_begin(ctx: OpContext) -> None:
    """Start a timer, making it first where the blob is none yet.

    No input; output: the timer. One that is running already is a TimerStateError. Each end is also added to the
    statistics ``<counter_name>/time_ns/sum`` and ``.../count`` of the process.
    """
    output = ctx.outputs[0]
    existing = output.value
    if isinstance(existing, Timer):
        existing.begin()
        return
    name = ctx.args["counter_name"] or output.name
    stats = stat_registry()
    started = Timer(name, (stats.counter(f"{name}/time_ns/sum"), stats.counter(f"{name}/time_ns/count")))
    started.begin()
    output.feed(started)


@register_op("TimerGet", num_inputs=1, num_outputs=1)
def timer_get(ctx: OpContext) -> None:
    """Read a running timer.

    Input: the timer; output: nanoseconds since it was started, int64, 0-d. A stopped timer is a
    TimerStateError.
    """
    ctx.outputs[0].feed(np.int64(timer(ctx, 0).get()))


@register_op("TimerEnd", num_inputs=1, num_outputs=0)
def timer_end(ctx: OpContext) -> None:
    """Stop a timer, which adds the time to its sum and 1 to its count.

    Input: the timer; no output. A stopped timer is a TimerStateError.
    """
    timer(ctx, 0).end()


@register_op("TimerGetAndEnd", num_inputs=1, num_outputs=1)
def timer_get_and_end(ctx: OpContext) -> None:
    """Stop a timer and give the time.

    Input: the timer; output: nanoseconds since it was started, int64, 0-d. A stopped timer is a
    TimerStateError.
    """
    ctx.outputs[0].feed(np.int64(timer(ctx, 0).end()))
