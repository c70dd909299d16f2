"""Exit blocks: they run whatever happened, and to their end, but wait for ever for nothing."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context
from functools import partial

from jobcore.errors import Cancelled
from jobcore.runtime.cancel import enter_token
from jobcore.runtime.context import StepContext
from jobcore.runtime.crew import BARE
from jobcore.runtime.grace import Grace
from jobcore.runtime.program import StepProgram
from jobcore.workspace import Workspace

__all__ = ["RunStep", "Shielded", "drain", "run_one", "run_shielded"]

RunStep = Callable[[StepProgram, Workspace, StepContext], bool]


class Shielded:
    """Exit blocks that are to run, each once; see `run_shielded`."""

    __slots__ = ("_left", "_well")

    def __init__(
        self, blocks: Sequence[StepProgram], workspace: Workspace, context: StepContext, run: RunStep
    ) -> None:
        self._well = True
        self._left: deque[Callable[[], object]] = deque(
            partial(self._one, block, workspace, context, run) for block in blocks
        )

    def _one(self, block: StepProgram, workspace: Workspace, context: StepContext, run: RunStep) -> None:
        if not run_one(block, workspace, context, run):
            self._well = False

    def finish(self) -> bool:
        """Run those that have not begun, in order; return whether all have ended well. May be repeated.

        Raises
        ------
        KeyboardInterrupt, SystemExit
            Raised into the calling thread meanwhile. One that comes before the first block keeps it from running: who
            catches it calls again.
        """
        if self._left:
            drain(self._left)
        return self._well


def run_shielded(
    blocks: Sequence[StepProgram], workspace: Workspace, context: StepContext, run: RunStep
) -> bool:
    """Run each of `blocks` to its end, in order; return whether all did.

    Each gets a token of its own, which nobody cancels but a failure inside it, and its `Grace` when the run has been
    told to stop for that long. A failure is reported, and the next block runs. So it does after an interruption, which
    is raised again when the last block has ended.

    Raises
    ------
    KeyboardInterrupt, SystemExit
        Raised into the calling thread meanwhile.
    """
    return Shielded(blocks, workspace, context, run).finish()


def run_one(block: StepProgram, workspace: Workspace, context: StepContext, run: RunStep) -> bool:
    """Run one shielded block; return whether it ended well."""
    shield = context.shielded()
    grace = Grace(shield, block.place)

    def inside() -> None:
        enter_token(shield.token)
        run(block, workspace, shield)

    try:
        try:
            grace.begin(context.token)
            copy_context().run(inside)
        finally:
            grace.end()
    except Cancelled:
        # What failed in it has been reported.
        if grace.expired:
            context.fail(context.blame(block.place, grace.error()))
        return False
    except BaseException as error:
        # It may have come just before the end of the watch.
        grace.end()
        if not (context.inline and isinstance(error, BARE)):
            context.fail(context.blame(block.place, error))
            return False
        raise
    return True


def drain(actions: deque[Callable[[], object]]) -> None:
    """Call and remove all `actions`; an interruption ends the one that it hits, and comes out after the last.

    Raises
    ------
    KeyboardInterrupt, SystemExit
        The last one that came.
    """
    interruption: BaseException | None = None
    while actions:
        try:
            while actions:
                actions.popleft()()
        except BARE as error:
            interruption = error
    if interruption is not None:
        try:
            raise interruption
        finally:
            # This frame is part of its traceback.
            del interruption
