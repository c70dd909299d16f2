"""Decisions of one group run: events in, instructions out.

`GroupState` knows nothing of threads, clocks or workspaces. Whoever runs the group tells it what happened and
does what it answers, in order. An event that cannot happen in the present state is a mistake of the caller
and raises ``RuntimeError``; it changes nothing.

==================  ==================================================================================
event               meaning
==================  ==================================================================================
``begin``           once, before everything else
``task_started``    the thread of a task is there and asks whether to run it
``start_failed``    the thread of a task could not be started
``failure_found``   something in a running task failed; other parts of it may still run
``task_finished``   a task ran to its end
``task_failed``     a task ended by an error that was not reported before
``task_cancelled``  a task ended because it was told to stop
``cancel_requested``  somebody outside wants the group to stop; may be repeated
==================  ==================================================================================
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TypeAlias

from jobcore.errors import TaskFailure

__all__ = [
    "Cancel",
    "Finish",
    "GroupState",
    "Instruction",
    "Instructions",
    "Outcome",
    "Run",
    "Spawn",
    "Status",
    "because",
]


class Status(Enum):
    """How a group run ended."""

    SUCCESS = "success"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a group run.

    Attributes
    ----------
    status
        ``FAILED`` when anything failed; ``SUCCESS`` when every task ran to its end, an order that came too
        late included; ``CANCELLED`` otherwise.
    failures
        Every failure, in the order in which they were reported.
    reason
        Of the order to stop, or None when there was none.
    """

    status: Status
    failures: tuple[TaskFailure, ...] = ()
    reason: str | None = None


@dataclass(frozen=True, slots=True)
class Spawn:
    """Start the thread of a task."""

    task: int


@dataclass(frozen=True, slots=True)
class Run:
    """Run the task, in the thread that reported ``task_started``."""

    task: int


@dataclass(frozen=True, slots=True)
class Cancel:
    """Tell all running tasks to stop."""

    reason: str


@dataclass(frozen=True, slots=True)
class Finish:
    """The run is over: no task runs, and none will."""

    outcome: Outcome


# Made once: a group of one task is run millions of times, and each of these takes as long as its empty step.
_SPAWN = tuple(map(Spawn, range(16)))
_RUN = tuple((Run(task),) for task in range(16))
_SUCCESS = Outcome(Status.SUCCESS)
_FINISHED = (Finish(_SUCCESS),)

Instruction: TypeAlias = Spawn | Run | Cancel | Finish
Instructions: TypeAlias = tuple[Instruction, ...]


class GroupState:
    """The state of one run of `count` tasks, numbered from 0.

    Notes
    -----
    Not thread-safe: the caller holds a lock round each event, and performs the instructions after releasing it.
    ``Cancel`` comes at most once, ``Run`` never after it, ``Finish`` exactly once and last.
    """

    __slots__ = (
        "_begun",
        "_count",
        "_failures",
        "_outcome",
        "_reason",
        "_running",
        "_unfinished",
        "_waiting",
    )

    def __init__(self, count: int) -> None:
        self._count = count
        self._waiting = set(range(count))
        self._running: set[int] = set()
        self._unfinished = False
        self._failures: list[TaskFailure] = []
        self._reason: str | None = None
        self._begun = False
        self._outcome: Outcome | None = None

    @property
    def outcome(self) -> Outcome | None:
        """What ``Finish`` told, or None as long as the run is not over."""
        return self._outcome

    @property
    def failures(self) -> tuple[TaskFailure, ...]:
        """What has been reported so far, in order."""
        return tuple(self._failures)

    @property
    def running(self) -> frozenset[int]:
        """The tasks that have begun to run and have not ended."""
        return frozenset(self._running)

    def begin(self) -> Instructions:
        """Start the run: all tasks together. A group that was cancelled before is over already."""
        if self._begun:
            raise RuntimeError("begin() came twice")
        self._begun = True
        if self._reason is None and self._count:
            return (
                _SPAWN[: self._count] if self._count <= len(_SPAWN) else tuple(map(Spawn, range(self._count)))
            )
        return self._end()

    def task_started(self, task: int) -> Instructions:
        """Let the task run, unless the group is being cancelled or over: then it has ended already."""
        if self._reason is not None or self._outcome is not None:
            return ()
        self._check(task)
        if task not in self._waiting:
            raise RuntimeError(f"task {task} was started twice")
        self._running.add(task)
        self._waiting.discard(task)
        return _RUN[task] if task < len(_RUN) else (Run(task),)

    def start_failed(self, task: int, failure: TaskFailure) -> Instructions:
        """Count a task as failed that no thread could be started for.

        In a group that is being cancelled it would not have run, so nothing is amiss.
        """
        self._check(task)
        if self._reason is not None:
            return ()
        if task not in self._waiting:
            raise RuntimeError(f"task {task} has started, its start cannot fail")
        self._failures.append(failure)
        self._waiting.discard(task)
        return self._cancel(because(failure)) + self._end()

    def failure_found(self, task: int, failure: TaskFailure) -> Instructions:
        """Keep a failure inside a task that has not ended yet."""
        self._check_running(task)
        self._failures.append(failure)
        return self._cancel(because(failure))

    def task_finished(self, task: int) -> Instructions:
        """End a task that did all its work."""
        self._check_running(task)
        self._running.discard(task)
        return self._end()

    def task_failed(self, task: int, failure: TaskFailure) -> Instructions:
        """End a task by a failure."""
        return self.failure_found(task, failure) + self._leave(task)

    def task_cancelled(self, task: int, reason: str = "") -> Instructions:
        """End a task that stopped because it was told to.

        When this run gave no order, one came from outside (`reason`), and holds for all its tasks.
        """
        self._check_running(task)
        return self._cancel(reason) + self._leave(task)

    def cancel_requested(self, reason: str) -> Instructions:
        """Stop the group; without effect when it is stopping or over."""
        if self._outcome is not None:
            return ()
        return self._cancel(reason) + self._end()

    def _check(self, task: int) -> None:
        if not self._begun:
            raise RuntimeError("expected begin() first")
        if not 0 <= task < self._count:
            raise RuntimeError(f"expected a task from 0 to {self._count - 1}, found {task}")

    def _check_running(self, task: int) -> None:
        self._check(task)
        if task not in self._running:
            raise RuntimeError(f"task {task} is not running")

    def _cancel(self, reason: str) -> Instructions:
        # The main thread may be interrupted between any two of these lines, and a repeated request must then still
        # bring the run to its end: the reason first, so that no task begins any more, and the rest every time.
        first = self._reason is None
        if first:
            self._reason = reason
        if self._waiting:
            self._unfinished = True
            self._waiting.clear()
        return (Cancel(reason),) if first else ()

    def _leave(self, task: int) -> Instructions:
        self._unfinished = True
        self._running.discard(task)
        return self._end()

    def _end(self) -> Instructions:
        if self._outcome is not None or self._running or self._waiting:
            return ()
        if self._failures:
            status = Status.FAILED
        elif self._unfinished:
            status = Status.CANCELLED
        elif self._reason is None:
            self._outcome = _SUCCESS
            return _FINISHED
        else:
            status = Status.SUCCESS
        self._outcome = Outcome(status, tuple(self._failures), self._reason)
        return (Finish(self._outcome),)


def because(failure: TaskFailure) -> str:
    """Return the reason that a failure is for others to stop."""
    return f"task {failure.task!r} on node {failure.node!r} failed: {type(failure.error).__name__}"
