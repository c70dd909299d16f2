"""Runs a compiled step tree on a workspace, and tells where it failed."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TypeVar

from jobcore._fast.program import Program
from jobcore.graph import Guard, Loop, OpContext, When, While
from jobcore.runtime.conditions import read_condition, read_count, read_stop_blob, set_flag, set_index
from jobcore.runtime.context import StepContext
from jobcore.runtime.crew import BARE, Crew, Unwind
from jobcore.runtime.program import NetProgram, OpProgram, Part, Place, StepProgram, StopProgram
from jobcore.runtime.reporters import run_beside
from jobcore.runtime.shield import Shielded
from jobcore.runtime.state import Status
from jobcore.tracing import SpanStack, active_trace, span
from jobcore.workspace import Workspace

__all__ = ["run_step"]

T = TypeVar("T")


def run_step(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    """Run a step with all its rounds.

    The cancel token is looked at before each round, net, op and callable; the stop blob after each part.

    Returns
    -------
    bool
        Whether a stop is on its way outwards: nothing more of what is around the step is to run.

    Raises
    ------
    Cancelled
        The group is being cancelled. A failure has been reported by then.
    """
    if step.native is not None and step.sequential:
        return _run_native(step.native, workspace, context)
    if active_trace() is None:
        if not step.plain:
            return _run_step(step, workspace, context)
        context.token.check()
        _run_function(step, workspace, context)
        return False
    with span(step.place.path.rpartition(" / ")[2], "step", context.node):
        return _run_step(step, workspace, context)


def _run_step(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    control = step.control
    if isinstance(control, When) and not _taken(step, control, workspace, context):
        return False
    inner = Workspace(workspace, context.label) if step.own_workspace else workspace
    if step.init or step.exit:
        stopped = _run_framed(step, inner, context)
    elif step.reporters:
        stopped = run_beside(
            step.reporters, inner, context, run_step, lambda: _run_rounds(step, inner, context)
        )
    else:
        stopped = _run_rounds(step, inner, context)
    if isinstance(control, Guard):
        _at(step.place, context, set_flag, control.stopped, workspace, stopped)
    return stopped and not step.catches_stop


def _run_native(program: Program, workspace: Workspace, context: StepContext) -> bool:
    trace = active_trace()
    return program.run(workspace, context, None if trace is None else SpanStack(trace, context.node))


def _run_framed(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    """Run what comes before, the rounds, and in any case what comes after."""
    context.token.check()
    well = stopped = False
    after = Shielded(step.exit, workspace, context, run_step)
    try:
        try:
            for block in step.init:
                run_step(block, workspace, context)
            if step.reporters:
                stopped = run_beside(
                    step.reporters,
                    workspace,
                    context,
                    run_step,
                    lambda: _run_rounds(step, workspace, context),
                )
            else:
                stopped = _run_rounds(step, workspace, context)
            well = True
        finally:
            # What is under way comes out in any case: an interruption is more than a failure of this.
            if not after.finish() and well:
                raise Unwind(context.token.reason or "")
    except BARE:
        # It may have come just before the first of these.
        after.finish()
        raise
    return stopped


def _run_rounds(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    """Run the content as often as it is to run; return whether a stop left it."""
    if step.native is not None and step.instances == 1:
        return _run_native(step.native, workspace, context)
    control = step.control
    if isinstance(control, Loop):
        return _run_loop(step, control, workspace, context)
    if isinstance(control, While):
        return _run_while(step, control, workspace, context)
    if not step.parts and step.function is None:
        return False
    rounds = 0
    while step.num_iter is None or rounds < step.num_iter:
        rounds += 1
        context.token.check()
        if _run_content(step, workspace, context):
            return True
        if step.once:
            break
    return False


def _run_loop(step: StepProgram, loop: Loop, workspace: Workspace, context: StepContext) -> bool:
    count = loop.count
    if loop.count_blob is not None:
        count = _at(step.place, context, read_count, loop.count_blob, workspace)
    rounds = 0
    while True:
        if loop.index_blob is not None:
            _at(step.place, context, set_index, loop.index_blob, workspace, rounds)
        if count is not None and rounds >= count:
            return False
        context.token.check()
        if _run_content(step, workspace, context):
            return True
        rounds += 1


def _run_while(step: StepProgram, control: While, workspace: Workspace, context: StepContext) -> bool:
    condition, body = step.parts
    while True:
        context.token.check()
        if _run_part(condition, workspace, context):
            return True
        if not _at(step.place, context, read_condition, control.condition, workspace):
            return False
        if _run_part(body, workspace, context):
            return True


def _taken(step: StepProgram, when: When, workspace: Workspace, context: StepContext) -> bool:
    """Decide whether a branch runs, and note that it does."""

    def decide() -> bool:
        if when.taken is not None:
            if when.first:
                set_flag(when.taken, workspace, False)
            elif read_condition(when.taken, workspace):
                return False
        if when.condition is not None and not read_condition(when.condition, workspace):
            return False
        if when.taken is not None:
            set_flag(when.taken, workspace, True)
        return True

    context.token.check()
    return _at(step.place, context, decide)


def _run_content(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    """Run one round; return whether a stop, or the stop blob, ends the rounds."""
    if step.instances == 1:
        return _run_once(step, workspace, context)
    names = [f"{context.label} #{number}" for number in range(step.instances)]
    _run_at_once(names, [partial(_run_once, step, workspace)] * step.instances, step.place, context)
    return _stopped(step, workspace, context)


def _run_once(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    if step.native is not None:
        # Several instances: the program is one round.
        return _run_native(step.native, workspace, context)
    if step.function is not None:
        _run_function(step, workspace, context)
        return _stopped(step, workspace, context)
    if step.concurrent:
        parts = [part for part in step.parts if isinstance(part, StepProgram)]
        _run_at_once(
            [f"{context.label} / {part.place.path}" for part in parts],
            [partial(run_step, part, workspace) for part in parts],
            step.place,
            context,
        )
        return _stopped(step, workspace, context)
    for part in step.parts:
        if _run_part(part, workspace, context):
            return True
        if _stopped(step, workspace, context):
            return True
    return False


def _run_at_once(
    names: Sequence[str],
    works: Sequence[Callable[[StepContext], object]],
    place: Place,
    context: StepContext,
) -> None:
    """Run `works`, each in a thread with a context of its own, and wait for all of them.

    Raises
    ------
    Cancelled
        The group is being cancelled, or one of them failed.
    """

    def work(member: int, inline: bool) -> None:  # noqa: ARG001 - never inline: there are two at least
        works[member](context.threaded(names[member]))

    crew = Crew(
        names,
        work,
        lambda _, error: context.blame(place, error),
        context.token,
        context.roster,
        upward=context.fail,
    )
    try:
        outcome = crew.run()
    finally:
        crew.release()
    if outcome.status is not Status.SUCCESS:
        raise Unwind(outcome.reason or "")


def _run_part(part: Part, workspace: Workspace, context: StepContext) -> bool:
    if isinstance(part, StepProgram):
        return run_step(part, workspace, context)
    return _run_net(part, workspace, context)


def _run_net(net: NetProgram, workspace: Workspace, context: StepContext) -> bool:
    for op in net.ops:
        context.token.check()
        if isinstance(op, OpProgram):
            _run_op(op, workspace, context)
        elif _stops(op, workspace, context):
            return True
    return False


def _run_function(step: StepProgram, workspace: Workspace, context: StepContext) -> None:
    assert step.function is not None
    try:
        step.function(workspace)
    except BaseException as error:
        if context.passes(error):
            raise
        raise context.failed(step.place, error) from None


def _run_op(program: OpProgram, workspace: Workspace, context: StepContext) -> None:
    op = program.op
    try:
        # Looked up each time: a callable may have removed and made blobs in between.
        inputs = [workspace.blob(name) for name in op.inputs]
        outputs = [workspace.create_blob(name) for name in op.outputs]
        program.kernel(OpContext(op, workspace, inputs, outputs, op.args))
    except BaseException as error:
        if context.passes(error):
            raise
        raise context.failed(program.place, error) from None


def _stops(stop: StopProgram, workspace: Workspace, context: StepContext) -> bool:
    return stop.condition is None or _at(stop.place, context, read_condition, stop.condition, workspace)


def _stopped(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    return step.stop_blob is not None and _at(step.place, context, read_stop_blob, step.stop_blob, workspace)


def _at(place: Place, context: StepContext, function: Callable[..., T], *of: object) -> T:
    """Call a function of control flow; what it raises is a failure at `place`."""
    try:
        return function(*of)
    except BaseException as error:
        if context.passes(error):
            raise
        raise context.failed(place, error) from None
