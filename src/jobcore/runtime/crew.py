"""Threads of one parallel section: the tasks of a group, its concurrent substeps, or a task's instances.

A `Crew` does what `GroupState` decides. It starts its members, waits so that signals get through, and joins
them; a section of one member runs in the calling thread.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from contextvars import copy_context
from typing import Any, TypeAlias

from jobcore.errors import Cancelled, TaskFailure
from jobcore.runtime.cancel import CancelToken
from jobcore.runtime.roster import INTERRUPTED, Roster
from jobcore.runtime.state import Cancel, Finish, GroupState, Instructions, Outcome, Status, because
from jobcore.runtime.threads import WorkThread
from jobcore.runtime.waiting import wait_for

__all__ = ["BARE", "Crew", "Unwind"]

_log = logging.getLogger("jobcore.runtime")

# In the calling thread these come from a signal (Ctrl-C, a SIGTERM handler that exits) and concern the whole program,
# so they pass through as they are. In a thread of a task's own nobody else would hear of them: there they are failures.
BARE: tuple[type[BaseException], ...] = (KeyboardInterrupt, SystemExit)

Member: TypeAlias = Callable[[int, bool], None]
"""Work of one member: its number, and whether it runs in the calling thread."""

Blame: TypeAlias = Callable[[int, BaseException], TaskFailure]
"""Makes a failure of an exception that the member did not report itself."""


class Unwind(Cancelled):
    """Ends a member of which it is known already why it stops: its failure is reported, or its own crew has stopped."""


class Crew:
    """The members of one parallel section, from their start to their end.

    Parameters
    ----------
    names
        One thread name per member.
    work, blame
        What a member does, and how an exception of it becomes a failure.
    token
        Cancelled when a member fails or the wait is interrupted.
    roster
        Where this crew is listed while it works.
    upward
        Told each failure at once: for a section inside a task, the group that the task belongs to.
    prepare
        Called first, in the calling thread. It reports failures with `note`; when the token is cancelled after it, no
        member begins.
    conclude
        Called once when no member runs any more, and none will: in the thread that ended last, before `run` returns.
        After `prepare` it is called in any case, also when nobody waits any longer.

    Notes
    -----
    `fail` and `cancel` may be called from any thread, `run` once.
    """

    __slots__ = (
        "__weakref__", "_blame", "_conclude", "_concluding", "_done", "_left", "_lock", "_names", "_over", "_prepare",
        "_preparing", "_roster", "_state", "_stray", "_upward", "_work", "abandoned", "token",
    )  # fmt: skip

    def __init__(
        self,
        names: Sequence[str],
        work: Member,
        blame: Blame,
        token: CancelToken,
        roster: Roster,
        upward: Callable[[TaskFailure], None] | None = None,
        prepare: Callable[[], None] | None = None,
        conclude: Callable[[], None] | None = None,
    ) -> None:
        self._names = names
        self._work = work
        self._blame = blame
        self._upward = upward
        self._prepare = prepare
        self._conclude = conclude
        # From the start: a session that is closed just now must not end the crew under what is being prepared.
        self._preparing = prepare is not None
        self._concluding = False
        self._over = False
        self._roster = roster
        self.token = token
        # Guards _state, _stray and the flags. Re-entrant: a signal handler of the main thread may cancel what it is
        # just reporting to.
        self._lock = threading.RLock()
        self._state = GroupState(len(names))
        # Each with the number of failures that the state had before it.
        self._stray: list[tuple[int, TaskFailure]] = []
        # Held until the last member has ended. A bare lock, and no Event: an interruption inside the Python code of an
        # Event leaves its condition unlocked, and comes out as an error about that.
        self._done = threading.Lock()
        self.abandoned = False
        self._left = False

    def run(self) -> Outcome:
        """Run all members and wait for the last one.

        Raises
        ------
        BaseException
            What was raised into the waiting thread, a `KeyboardInterrupt` say: the members have been cancelled and
            have ended. Raised a second time, it comes out at once: the crew stays on the roster as `abandoned`
            until its members have ended.
        """
        threads: list[threading.Thread] = []
        inline = len(self._names) < 2
        self._done.acquire()
        try:
            # A section inside a task belongs to a run that is listed already; closing stops it by its token.
            self._roster.add(self, inside=self._upward is not None)
            if self._prepare is not None:
                self._run_prepare(self._prepare)
            if inline:
                if self._tell(0, self._state.begin):
                    # A context of its own, as a thread would have: what a step sets does not outlive it.
                    copy_context().run(self._member, 0, True)
                # Whoever cancelled before the member began is the one that concludes.
                self._wait()
            else:
                self._run_threads(threads)
        finally:
            self._leave()
        # No local name for the outcome: this frame is part of the traceback of the failures in it.
        return self._settled()

    def _run_prepare(self, prepare: Callable[[], None]) -> None:
        try:
            copy_context().run(prepare)
        finally:
            with self._lock:
                self._preparing = False
            if self.token.cancelled:
                self._tell(0, self._state.cancel_requested, self.token.reason or "")

    def note(self, failure: TaskFailure) -> None:
        """Keep a failure outside the members, before they begin, beside them or after them, and stop everybody."""
        if self._over:
            _log_late(failure)
        else:
            self._keep(failure)
            self._cancel_token(0, because(failure))

    def _keep(self, failure: TaskFailure) -> None:
        with self._lock:
            self._stray.append((len(self._state.failures), failure))

    def _settled(self) -> Outcome:
        outcome = self._state.outcome
        assert outcome is not None
        if not self._stray:
            return outcome
        return Outcome(Status.FAILED, self.failures(), outcome.reason)

    def fail(self, member: int, failure: TaskFailure) -> None:
        """Report a failure inside a member that has not ended yet: everybody is told to stop."""
        with self._lock:
            late = self._state.outcome is not None
        if late:
            # A part of it outlived its member, which its caller left at a second interruption.
            self.note(failure)
        else:
            self._tell(member, self._state.failure_found, member, failure)

    def cancel(self, reason: str) -> None:
        """Tell everybody to stop. May be repeated: a call that was interrupted is taken up by the next."""
        with self._lock:
            # What is being prepared sees the token; with no member yet, the end must not overtake it.
            preparing = self._preparing
        if not preparing:
            self._tell(0, self._state.cancel_requested, reason)
        self._cancel_token(0, reason)
        if self._state.outcome is not None:
            # An interruption may have come between the decision that all have ended and the deed.
            self._finish()

    def failures(self) -> tuple[TaskFailure, ...]:
        """Return what has been reported so far."""
        with self._lock:
            merged = list(self._state.failures)
            for place, failure in reversed(self._stray):
                merged.insert(place, failure)
            return tuple(merged)

    def release(self) -> None:
        """Drop what a run has gathered.

        Tracebacks of its failures refer to frames that refer to this crew: kept, they would form a circle, and
        the workspaces in those frames would stay until the next full garbage collection.
        """
        if self.working:
            # Abandoned: members still report here.
            return
        self._stray = []
        self._state = _OVER
        self._work, self._blame, self._upward = _no_work, _no_blame, None
        self._prepare = self._conclude = None

    @property
    def over(self) -> bool:
        """Whether all members have ended, and what follows them has."""
        return self._over

    @property
    def working(self) -> bool:
        """Whether members run, or may still begin, in threads of their own."""
        return not self._over and len(self._names) > 1

    def unfinished(self) -> list[str]:
        """Return the names of the members that still run."""
        with self._lock:
            return [self._names[member] for member in sorted(self._state.running)]

    # -- the calling thread

    def _run_threads(self, threads: list[threading.Thread]) -> None:
        try:
            self._start(threads)
            self._wait()
        except BaseException:
            # Not from a member: those never raise. Somebody wants this thread back. First of all the mark: from here on
            # the next interruption may come at any moment.
            self.abandoned = True
            self.cancel(INTERRUPTED)
            self._wait()
            raise
        finally:
            if self.over:
                # Nothing left to do in them: this waits until the system has let go of them.
                for thread in threads:
                    thread.join()

    def _wait(self) -> None:
        # The state decides, and the lock only wakes us: a wait that was interrupted after it got the lock can be
        # repeated.
        while not self._over:
            wait_for(self._done)

    def _leave(self) -> None:
        """Strike the crew off the roster, unless the wait was interrupted twice and members still run."""
        if not self._over:
            # However early or late the interruption came, no member begins from here on.
            self._preparing = False
            self.cancel(INTERRUPTED)
            if len(self._names) == 1 and 0 in self._state.running:
                # It ran in this thread, which has left it: the interruption came just before its work, or just after.
                self._tell(0, self._state.task_cancelled, 0, INTERRUPTED)
            if self.working:
                self._left = True
                return
        self._roster.discard(self)

    def _start(self, threads: list[threading.Thread]) -> None:
        self._tell(0, self._state.begin)
        for member, name in enumerate(self._names):
            if self.token.cancelled:
                break
            thread = WorkThread(
                target=copy_context().run, args=(self._member, member, False), name=f"jobcore {name}"
            )
            try:
                thread.start()
            except RuntimeError as error:
                # The system refuses more threads, or the interpreter is going down.
                self._unstartable(member, error)
            else:
                threads.append(thread)
        if self.token.cancelled:
            # The members that have no thread yet will not get one; the count must not wait for them.
            self._tell(0, self._state.cancel_requested, self.token.reason or "")

    def _unstartable(self, member: int, error: BaseException) -> None:
        self._tell(member, self._state.start_failed, member, self._blamed(member, error))

    # -- a member

    def _member(self, member: int, inline: bool) -> None:
        """Run one member and tell how it ended; in a thread of its own nothing is ever raised."""
        if not self._tell(member, self._state.task_started, member):
            return
        # No local names for the state or a failure in this frame: it is part of the error's traceback.
        try:
            self._work(member, inline)
        except BaseException as error:
            self._ended_by(member, error, inline)
            if inline and isinstance(error, BARE):
                raise
        else:
            self._tell(member, self._state.task_finished, member)

    def _ended_by(self, member: int, error: BaseException, inline: bool) -> None:
        state = self._state
        if isinstance(error, Unwind) or (isinstance(error, Cancelled) and self.token.cancelled):
            self._tell(member, state.task_cancelled, member, self.token.reason or str(error))
        elif inline and isinstance(error, BARE):
            self._tell(member, state.task_cancelled, member, f"{type(error).__name__} in the calling thread")
        else:
            self._tell(member, state.task_failed, member, self._blamed(member, error))

    def _blamed(self, member: int, error: BaseException) -> TaskFailure:
        failure = self._blame(member, error)
        if self._upward is not None:
            self._upward(failure)
        return failure

    # -- decisions and deeds

    def _tell(self, member: int, event: Callable[..., Instructions], *of: Any) -> bool:
        """Report an event and do what is decided; return whether a member is to be started or run now."""
        with self._lock:
            instructions = event(*of)
        go = False
        for instruction in instructions:
            if isinstance(instruction, Cancel):
                self._cancel_token(member, instruction.reason)
            elif isinstance(instruction, Finish):
                self._finish()
            else:
                go = True
        return go

    def _finish(self) -> None:
        """Run what follows the members, and let the waiting thread go; the second call does nothing."""
        with self._lock:
            if self._concluding:
                return
            self._concluding = True
        try:
            if self._conclude is not None:
                copy_context().run(self._conclude)
        finally:
            self._over = True
            self._roster.discard(self)
            if self._done.locked():
                self._done.release()
        if self._left:
            for failure in self.failures():
                _log_late(failure)

    def _cancel_token(self, member: int, reason: str) -> None:
        try:
            self.token.cancel(reason)
        except BaseExceptionGroup as error:
            # Callbacks of the token; in a member nobody else would hear of them.
            self._keep(self._blamed(member, error))


# A run that is over: it no longer changes, so all crews that have ended can have the same one.
_OVER = GroupState(0)
_OVER.begin()


def _log_late(failure: TaskFailure) -> None:
    _log.warning("after its run was interrupted: %s", failure.describe(), exc_info=failure.error)


def _no_work(member: int, inline: bool) -> None:
    raise RuntimeError(f"member {member} works for a crew that has ended (inline: {inline})")


def _no_blame(member: int, error: BaseException) -> TaskFailure:
    raise RuntimeError(f"member {member} reports to a crew that has ended") from error
