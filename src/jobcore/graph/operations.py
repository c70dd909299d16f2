"""`ops`: what can be written inside a `NetBuilder`, a task or a block of those: op types, constants and blocks."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jobcore.errors import BuildError
from jobcore.graph import registry
from jobcore.graph.blobref import BlobReference, BlobsLike
from jobcore.graph.blocks import (
    BranchBlock,
    ConditionBlock,
    GuardBlock,
    LoopBlock,
    ReporterBlock,
    SetupBlock,
    WhileBlock,
    else_of_last,
)
from jobcore.graph.builder import NetBuilder
from jobcore.graph.control import (
    LOCAL_REPORT,
    LOCAL_SETUP,
    REPORT_STEP,
    TASK_INSTANCE_SETUP,
    TASK_SETUP,
)
from jobcore.graph.net import bound_op
from jobcore.graph.step import Steppable

__all__ = ["Operations", "ops"]


class Operations:
    """The op types and blocks as functions that add to the open `NetBuilder`; use the module's object `ops`.

    ``ops.Add([x, y])`` adds an op and returns a reference to its output; ``help(ops.Add)`` tells what it
    does, ``dir(ops)`` lists them all.

    Raises
    ------
    AttributeError
        There is no such op; close names are listed.
    ContextError
        On a call outside ``with NetBuilder():`` and ``with Task():``.
    """

    def __getattr__(self, op_type: str) -> Callable[..., Any]:
        if op_type.startswith("_") or not registry.is_op(op_type):
            raise AttributeError(registry.unknown_op(op_type))

        def add_op(op_type: str, *args: Any, **kwargs: Any) -> Any:
            return NetBuilder.current().current_net().add_op(op_type, *args, **kwargs)

        return bound_op(op_type, add_op)

    def __dir__(self) -> list[str]:
        own = {name for name in vars(type(self)) if not name.startswith("_")}
        return sorted({*own, *registry.all_ops()})

    def net(self, net: Steppable | None = None, name: str | None = None) -> Any:
        """Append a net, step, builder or callable and return it; without one, return the current net.

        Parameters
        ----------
        net
            What to append. Ops after it go to a new net.
        name
            Start a new net of this name, behind the builder's name.

        Raises
        ------
        BuildError
            Both were given.
        """
        builder = NetBuilder.current()
        if net is None:
            return builder.current_net(name)
        if name is not None:
            raise BuildError(f"expected a net or a name, found both: {net!r} and {name!r}")
        return builder.add(net)

    def Const(self, value: object, blob_out: str | None = None, dtype: object = None) -> BlobReference:
        """Make `value` a blob; see `Net.Const`."""
        return NetBuilder.current().current_net().Const(value, blob_out, dtype)

    def Python(self, function: Callable[..., object] | tuple[Any, ...]) -> Callable[..., Any]:
        """Return a function that adds an op calling `function`; see `Net.Python`."""

        def add(inputs: BlobsLike = (), outputs: int | BlobsLike | None = None, **kwargs: Any) -> Any:
            return NetBuilder.current().current_net().Python(function)(inputs, outputs, **kwargs)

        return add

    # -- control flow

    def loop(self, iters: int | str | None = None, name: str | None = None) -> LoopBlock:
        """Return a block that is repeated: ``with ops.loop(10) as loop:``.

        Parameters
        ----------
        iters
            How often: a number, or a blob with an integer, which is read when the loop begins. 0 and less: never.
            Without it the loop is endless, and must contain a stop.
        name
            Of the block, behind the builder's name.

        Returns
        -------
        LoopBlock
            Its `iter()` is the blob of the round's number, from 0.

        Raises
        ------
        BuildError
            `iters` is neither; or, at the end of the block, the loop is endless and nothing in it can stop it.
        """
        return LoopBlock(iters, name)

    def stop_if(self, condition: str) -> None:
        """Stop when the blob `condition`, one boolean, is true; see `stop`."""
        NetBuilder.current().current_net().add_op("StopIf", condition, [])

    def stop(self) -> None:
        """Leave the innermost ``loop``, ``stop_guard``, ``WhileNet`` or repeated step; nothing more of it is run.

        It passes through ``If``, ``Elif``, ``Else`` and ``IfNet``. Outside all of those it ends the task's body, and
        the task goes on with its exit blocks. In a set-up, exit or reporter block it ends that block.
        """
        NetBuilder.current().current_net().add_op("Stop", [], [])

    def stop_guard(self, has_stopped_blob: str | None = None, name: str | None = None) -> GuardBlock:
        """Return a block that runs once and that a stop leaves, and nothing more.

        After it, `has_stopped()` is the blob that tells whether that happened; its name is `has_stopped_blob` if
        given.
        """
        return GuardBlock(has_stopped_blob, name)

    def If(self, condition: str, name: str | None = None) -> BranchBlock:
        """Return a block that runs when the blob `condition`, one boolean, is true.

        What it returns has ``Elif(condition)`` and ``Else()``, for blocks after this one; at most one of them runs.

        Raises
        ------
        BuildError
            `condition` is no blob.
        """
        return BranchBlock("If", condition, name)

    def IfNet(self, condition: str, name: str | None = None) -> BranchBlock:
        """Return a block as of `If`, in which new blobs are local: they go when it ends."""
        return BranchBlock("IfNet", condition, name, nets=True)

    def Else(self, name: str | None = None) -> BranchBlock:
        """Return the other branch of the ``IfNet`` block directly before.

        Raises
        ------
        BuildError
            There is none directly before.
        """
        return else_of_last(name)

    def WhileNet(self, name: str | None = None) -> WhileBlock:
        """Return a block that is repeated as long as its condition holds, and whose new blobs are local.

        It begins with ``with ops.Condition():``, whose last op makes one boolean; the rest is the body. The condition
        runs first, and again after each round.

        Raises
        ------
        BuildError
            At the end of the block: it has no condition.
        """
        return WhileBlock(name)

    def Condition(self, name: str | None = None) -> ConditionBlock:
        """Return the block for the condition of the ``WhileNet`` that is open.

        Raises
        ------
        BuildError
            None is open, it has a condition already, or its body has begun.
        """
        return ConditionBlock(name)

    # -- before, beside and after

    def task_init(self) -> SetupBlock:
        """Return a block that runs once per run of the task, before all its instances."""
        return SetupBlock("task_init", TASK_SETUP, before=True)

    def task_exit(self) -> SetupBlock:
        """Return a block that runs once per run of the task, after all its instances, and after a failure too."""
        return SetupBlock("task_exit", TASK_SETUP, before=False)

    def task_instance_init(self) -> SetupBlock:
        """Return a block that runs in each instance of the task, in its workspace, before the body."""
        return SetupBlock("task_instance_init", TASK_INSTANCE_SETUP, before=True)

    def task_instance_exit(self) -> SetupBlock:
        """Return a block that runs in each instance of the task after the body, and after a failure too."""
        return SetupBlock("task_instance_exit", TASK_INSTANCE_SETUP, before=False)

    def local_init(self) -> SetupBlock:
        """Return a block that runs once per node and run of the group, before all tasks."""
        return SetupBlock("local_init", LOCAL_SETUP, before=True)

    def local_exit(self, name: str | None = None) -> SetupBlock:
        """Return a block that runs once per node and run of the group, after all tasks, and after a failure too."""
        return SetupBlock("local_exit", LOCAL_SETUP, before=False, name=name)

    def task_reporter(self, interval_ms: float = 1000) -> ReporterBlock:
        """Return a block that runs every `interval_ms` milliseconds beside the task's body, and once after it.

        With several instances it runs beside all of them, once, in the task's workspace.

        Raises
        ------
        BuildError
            `interval_ms` is not above 0.
        """
        return ReporterBlock("task_reporter", REPORT_STEP, interval_ms)

    def local_reporter(self, interval_ms: float = 1000) -> ReporterBlock:
        """Return a block that runs every `interval_ms` milliseconds beside the tasks of the group, and once after.

        It works on the node's workspace, with what the group's local_init blocks made. Errors as for `task_reporter`.
        """
        return ReporterBlock("local_reporter", LOCAL_REPORT, interval_ms)

    def LogInfo(self, *what: str) -> None:
        """Write texts, and the values of blobs given as references, to the logger ``jobcore.log`` at level INFO."""
        net = NetBuilder.current().current_net()
        for item in what:
            if isinstance(item, BlobReference):
                net.add_op("LogInfo", [item], [])
            else:
                net.add_op("LogInfo", [], [], message=item)

    def __repr__(self) -> str:
        return "<ops of the open NetBuilder>"


ops = Operations()
"""The op types as functions; see `Operations`."""
