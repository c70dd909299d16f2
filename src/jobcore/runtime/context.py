"""What a running step knows of the run that it is part of: where failures go, and who may tell it to stop."""

from __future__ import annotations

from collections.abc import Callable

from jobcore.errors import Cancelled, TaskFailure
from jobcore.runtime.cancel import CancelToken
from jobcore.runtime.crew import BARE, Unwind
from jobcore.runtime.program import Place
from jobcore.runtime.roster import Roster

__all__ = ["StepContext"]


class StepContext:
    """What a running step knows of its task.

    Parameters
    ----------
    node, task
        Names, for failures.
    report
        Told each failure at once; tells everybody to stop.
    token
        By which the step is told to stop.
    roster
        Where crews of concurrent parts are listed.
    inline
        The step runs in the thread that called the session.
    label
        What the threads and workspaces of its parts are named after; the task's name by default.

    Notes
    -----
    It never changes; all threads may use it.
    """

    __slots__ = ("_report", "inline", "label", "node", "roster", "task", "token")

    def __init__(
        self,
        node: str,
        task: str,
        report: Callable[[TaskFailure], None],
        token: CancelToken,
        roster: Roster,
        inline: bool,
        label: str | None = None,
    ) -> None:
        self.node = node
        self.task = task
        self._report = report
        self.token = token
        self.roster = roster
        self.inline = inline
        self.label = task if label is None else label

    def threaded(self, label: str | None = None) -> StepContext:
        """Return the context of a part that runs in a thread of its own."""
        if not self.inline and label is None:
            return self
        return StepContext(
            self.node, self.task, self._report, self.token, self.roster, False, label or self.label
        )

    def shielded(self) -> StepContext:
        """Return a context with a token that is not up, whatever happened to this one's."""
        token = CancelToken()
        # For `is_within` alone: it works for the same run, and is not told to stop with it.
        token.parent = self.token
        return StepContext(self.node, self.task, self._report, token, self.roster, self.inline, self.label)

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
        """Report a failure to the run: everybody is told to stop."""
        self._report(failure)

    def stop(self, place: Place, reason: str) -> None:
        """Cancel the token that the step itself looks at; what its callbacks raise is a failure at `place`."""
        try:
            self.token.cancel(reason)
        except BaseExceptionGroup as error:
            self.fail(self.blame(place, error))

    def failed(self, place: Place, error: BaseException) -> Unwind:
        """Report that `error` came out of the step or op at `place`; return what is to be raised instead."""
        self.fail(self.blame(place, error))
        return Unwind(self.token.reason or "")
