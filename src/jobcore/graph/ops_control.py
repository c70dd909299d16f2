"""Ops that stop, and one that says something. The executor acts on the stops; see `jobcore.graph.control`."""

from __future__ import annotations

import logging

from jobcore.errors import BuildError
from jobcore.graph.args import text
from jobcore.graph.op import OpContext
from jobcore.graph.registry import register_op

__all__: list[str] = []

_log = logging.getLogger("jobcore.log")


@register_op("Stop", num_inputs=0, num_outputs=0)
def stop(ctx: OpContext) -> None:
    """Leave the innermost loop, stop guard, WhileNet or repeated step; passes through If, Elif and Else.

    No input, no output. Outside those it ends the task's body, which counts as success. In a concurrent
    substep, an instance or a reporter it ends that; in a set-up or exit block, the block.
    """
    raise _acted_on(ctx)


@register_op("StopIf", num_inputs=1, num_outputs=0)
def stop_if(ctx: OpContext) -> None:
    """Do what Stop does when the input is true.

    Input: a single boolean; no output.
    """
    raise _acted_on(ctx)


def _acted_on(ctx: OpContext) -> BuildError:
    return BuildError(f"{ctx.op.describe()}: a stop is acted on by what runs the step, and has no kernel")


@register_op(
    "LogInfo", num_inputs=(0, 1), num_outputs=0, args={"message": text(default="", doc="What to say.")}
)
def log_info(ctx: OpContext) -> None:
    """Write ``message``, or name and value of the input, to the logger ``jobcore.log``, at level INFO.

    Input, which may be left out: a blob of any kind; no output.
    """
    parts = [ctx.args["message"]] if ctx.args["message"] else []
    for blob in ctx.inputs:
        value = blob.view() if blob.kind == "tensor" else blob.value
        parts.append(f"{blob.name} = {value}")
    _log.info("%s", ": ".join(parts))
