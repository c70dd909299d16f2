"""Reporters: steps that run again and again beside others, and exactly once more when those have ended."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextvars import copy_context

from jobcore.errors import Cancelled, TaskFailure
from jobcore.runtime.cancel import CancelToken
from jobcore.runtime.context import StepContext
from jobcore.runtime.crew import BARE, Unwind
from jobcore.runtime.program import Place, ReporterProgram
from jobcore.runtime.shield import RunStep, drain, run_one
from jobcore.runtime.state import because
from jobcore.runtime.threads import WorkThread
from jobcore.runtime.waiting import wait_for
from jobcore.workspace import Workspace

__all__ = ["Reporters", "run_beside"]


class Reporters:
    """The reporters of one step, or of one node, each in a thread of its own.

    Parameters
    ----------
    programs
        What they run.
    workspace, context
        For all of them.
    run
        Runs a step.
    """

    __slots__ = ("_done", "_end", "_members", "_waits")

    def __init__(
        self,
        programs: Sequence[ReporterProgram],
        workspace: Workspace,
        context: StepContext,
        run: RunStep,
    ) -> None:
        # Up when the work beside them has ended.
        self._end = CancelToken()
        # Up then, and when the run is told to stop: no more reports but the last one.
        self._done = CancelToken(context.token)
        self._members = [_Reporter(program, workspace, context, run) for program in programs]
        self._waits: deque[Callable[[], object]] = deque()

    def start(self) -> None:
        """Start the threads; what the system refuses a thread to is a failure, and reports at the end only."""
        for member in self._members:
            thread = WorkThread(
                copy_context().run, (member.repeat, self._done, self._end), f"jobcore {member.name}"
            )
            try:
                thread.start()
            except RuntimeError as error:
                self._waits.append(member.report_last)
                member.blame(error)
            else:
                self._waits.append(member.wait)
                self._waits.append(thread.join)

    def finish(self) -> bool:
        """Let each report once more, wait for that, and return whether none has failed; may be repeated.

        Raises
        ------
        KeyboardInterrupt, SystemExit
            Raised into the calling thread meanwhile: it waits no longer, and the reporters end by themselves.
        """
        self._end.cancel("the work beside the reporter has ended")
        self._done.cancel("the work beside the reporter has ended")
        self._done.detach()
        drain(self._waits)
        return not any(member.failed for member in self._members)


class _Failures:
    """Where failures of one reporter go. Apart from the reporter, or the two would hold each other."""

    __slots__ = ("_outer", "_place", "any")

    def __init__(self, outer: StepContext, place: Place) -> None:
        self._outer = outer
        self._place = place
        self.any = False

    def report(self, failure: TaskFailure) -> None:
        self.any = True
        self._outer.fail(failure)
        # Inside an exit block the run's own token says nothing to those beside it.
        self._outer.stop(self._place, because(failure))


class _Reporter:
    """One reporter. One that has failed does not run again: its error is known."""

    __slots__ = ("_context", "_ended", "_failures", "_program", "_run", "_workspace", "name")

    def __init__(
        self, program: ReporterProgram, workspace: Workspace, outer: StepContext, run: RunStep
    ) -> None:
        self.name = f"{outer.label} / {program.step.place.path}"
        self._program = program
        self._workspace = workspace
        self._failures = _Failures(outer, program.step.place)
        self._context = StepContext(
            outer.node,
            outer.task,
            self._failures.report,
            outer.token,
            outer.roster,
            inline=False,
            label=self.name,
        )
        self._run = run
        self._ended = threading.Lock()
        self._ended.acquire()

    @property
    def failed(self) -> bool:
        """Whether a report, or a part of it, has failed."""
        return self._failures.any

    def repeat(self, done: CancelToken, end: CancelToken) -> None:
        """Report until `done` is up, and once more after `end` is; nothing is ever raised."""
        try:
            while not self.failed and not done.wait(self._program.interval_s):
                self._run(self._program.step, self._workspace, self._context)
        except Cancelled as error:
            if not self._context.passes(error):
                self.blame(error)
        except BaseException as error:  # noqa: BLE001 - reported: in this thread nobody else would hear of it
            self.blame(error)
        try:
            # Who is told to stop may still clean up.
            end.wait()
            self.report_last()
        finally:
            self._ended.release()

    def report_last(self) -> None:
        """Run the step once, shielded."""
        if not self.failed:
            run_one(self._program.step, self._workspace, self._context, self._run)

    def wait(self) -> None:
        """Wait for the last report."""
        wait_for(self._ended)

    def blame(self, error: BaseException) -> None:
        """Report that the reporter failed."""
        self._failures.report(self._context.blame(self._program.step.place, error))


def run_beside(
    programs: Sequence[ReporterProgram],
    workspace: Workspace,
    context: StepContext,
    run: RunStep,
    work: Callable[[], bool],
) -> bool:
    """Return what `work` does, with reporters beside it.

    Raises
    ------
    Cancelled
        The work was told to stop, or a reporter failed.
    """
    reporters = Reporters(programs, workspace, context, run)
    well = done = False
    try:
        try:
            reporters.start()
            stopped = work()
            done = True
        finally:
            well = reporters.finish()
            if done and not well:
                raise Unwind(context.token.reason or "")
    except BARE:
        # It may have come just before they were told; they would wait for that for ever, and the process for them.
        reporters.finish()
        raise
    return stopped
