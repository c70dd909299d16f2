"""Runs a compiled step tree on a workspace, and tells where it failed."""

from __future__ import annotations

import numpy as np

from jobcore.errors import BlobKindError, BlobNotFoundError, Cancelled, TaskFailure
from jobcore.graph import OpContext
from jobcore.runtime.cancel import CancelToken
from jobcore.runtime.crew import BARE, Crew, Unwind
from jobcore.runtime.program import NetProgram, OpProgram, Part, Place, StepProgram
from jobcore.runtime.roster import Roster
from jobcore.runtime.state import Status
from jobcore.workspace import Workspace

__all__ = ["StepContext", "run_in_crew", "run_step"]


class StepContext:
    """What a running step knows of its task.

    Parameters
    ----------
    node, task
        Names, for failures.
    crew, member
        The group run that failures go to, and the task's number in it.
    roster
        Where crews of concurrent parts are listed.
    inline
        The step runs in the thread that called the session.
    """

    __slots__ = ("_crew", "_member", "inline", "node", "roster", "task", "token")

    def __init__(self, node: str, task: str, crew: Crew, member: int, roster: Roster, inline: bool) -> None:
        self.node = node
        self.task = task
        self.token: CancelToken = crew.token
        self.roster = roster
        self.inline = inline
        self._crew = crew
        self._member = member

    def threaded(self) -> StepContext:
        """Return the context of a part that runs in a thread of its own."""
        if not self.inline:
            return self
        return StepContext(self.node, self.task, self._crew, self._member, self.roster, inline=False)

    def passes(self, error: BaseException) -> bool:
        """Tell whether an exception of a step is an order that is to go on, and no failure of the step."""
        if isinstance(error, Cancelled):
            # One that nobody ordered comes from the step itself, which has then not done its work.
            return self.token.cancelled or isinstance(error, Unwind)
        return self.inline and isinstance(error, BARE)

    def blame(self, place: Place, error: BaseException) -> TaskFailure:
        """Make a failure of an exception."""
        return TaskFailure(self.node, self.task, place.path, place.built_at, error)

    def fail(self, failure: TaskFailure) -> None:
        """Report a failure to the group: everybody is told to stop."""
        self._crew.fail(self._member, failure)

    def failed(self, place: Place, error: BaseException) -> Unwind:
        """Report that `error` came out of the step or op at `place`; return what is to be raised instead."""
        self.fail(self.blame(place, error))
        return Unwind(self.token.reason or "")


def run_step(step: StepProgram, workspace: Workspace, context: StepContext) -> None:
    """Run a step with all its iterations.

    The cancel token is looked at before each iteration, net, op and callable; the stop blob after each part.

    Raises
    ------
    Cancelled
        The group is being cancelled. A failure has been reported by then.
    """
    if not step.parts and step.function is None:
        return
    rounds = 0
    while step.num_iter is None or rounds < step.num_iter:
        rounds += 1
        context.token.check()
        if step.function is not None:
            _run_function(step, workspace, context)
            if step.stop_blob is not None and _stopped(step, workspace, context):
                return
        elif step.concurrent:
            _run_concurrently(step, workspace, context)
            if step.stop_blob is not None and _stopped(step, workspace, context):
                return
        else:
            for part in step.parts:
                _run_part(part, workspace, context)
                if step.stop_blob is not None and _stopped(step, workspace, context):
                    return


def run_in_crew(
    names: list[str],
    bodies: list[StepProgram],
    workspaces: list[Workspace],
    place: Place,
    context: StepContext,
) -> None:
    """Run `bodies`, each on its workspace and in its thread, and wait for all of them.

    Raises
    ------
    Cancelled
        The group is being cancelled, or one of them failed.
    """
    inside = context.threaded()
    crew = Crew(
        names,
        lambda member, _: run_step(bodies[member], workspaces[member], inside),
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


def _run_part(part: Part, workspace: Workspace, context: StepContext) -> None:
    if isinstance(part, NetProgram):
        for op in part.ops:
            context.token.check()
            _run_op(op, workspace, context)
    else:
        run_step(part, workspace, context)


def _run_concurrently(step: StepProgram, workspace: Workspace, context: StepContext) -> None:
    parts = [part for part in step.parts if isinstance(part, StepProgram)]
    names = [f"{context.task} / {part.place.path}" for part in parts]
    run_in_crew(names, parts, [workspace] * len(parts), step.place, context)


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


def _stopped(step: StepProgram, workspace: Workspace, context: StepContext) -> bool:
    assert step.stop_blob is not None
    try:
        return read_stop_blob(step.stop_blob, workspace)
    except BaseException as error:
        if context.passes(error):
            raise
        raise context.failed(step.place, error) from None


def read_stop_blob(name: str, workspace: Workspace) -> bool:
    """Return whether the stop blob says to stop; missing and empty count as no.

    Raises
    ------
    BlobKindError
        It is not a single boolean.
    """
    if not workspace.has_blob(name):
        return False
    try:
        blob = workspace.blob(name)
    except BlobNotFoundError:
        # Removed by another thread in between.
        return False
    if blob.kind == "empty":
        return False
    found = f"a blob of kind {blob.kind!r}"
    if blob.kind == "tensor":
        array = blob.view()
        if array.dtype == np.bool_ and array.size == 1:
            return bool(array.reshape(())[()])
        found = f"a tensor of dtype {array.dtype} and shape {array.shape}"
    raise BlobKindError(
        f"expected a single boolean in the stop blob {name!r}, found {found}",
        hint="write it with a comparison or logic op, or feed a bool",
    )
