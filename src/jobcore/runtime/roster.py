"""Which crews are at work for a session: what closing it has to stop, and a run may have to wait for."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from jobcore.errors import ClosedError
from jobcore.runtime.cancel import CancelToken

if TYPE_CHECKING:
    from jobcore.runtime.crew import Crew

__all__ = ["INTERRUPTED", "Roster"]

INTERRUPTED = "the thread that waits for the tasks was interrupted"


class Roster:
    """The crews at work for one session.

    Parameters
    ----------
    owner
        Name of the session's class, for messages.

    Notes
    -----
    All methods may be called from any thread.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        # Guards _crews, _closed and _waiting, and is notified when a crew leaves. Re-entrant: a signal handler of the
        # main thread may close the session that it is just running something in.
        self._changed = threading.Condition(threading.RLock())
        self._crews: set[Crew] = set()
        self._waiting = 0
        self._closed = False

    @property
    def closed(self) -> bool:
        """Whether no crew may begin any more."""
        return self._closed

    def check_open(self, method: str) -> None:
        """Raise `ClosedError` naming `method` when the session is closed."""
        if self._closed:
            raise ClosedError(
                f"{self._owner}.{method}: expected an open session, found one that is closed",
                hint="make a new session, or move the call into its `with` block",
            )

    def add(self, crew: Crew, *, inside: bool = False) -> None:
        """List a crew that is about to begin; `inside`: as a part of a crew that is listed.

        Raises
        ------
        ClosedError
            The session is closed, and the crew is no part of one that still runs.
        """
        with self._changed:
            if not inside:
                self.check_open("run")
            self._crews.add(crew)

    def discard(self, crew: Crew) -> None:
        """Strike off a crew whose members have all ended; may be repeated."""
        if crew not in self._crews:
            return
        with self._changed:
            self._crews.discard(crew)
            if self._waiting:
                self._changed.notify_all()

    @property
    def has_abandoned(self) -> bool:
        """Whether a crew was left by its waiting thread; cheap where no crew is at work."""
        return bool(self._crews) and bool(self.abandoned())

    def abandoned(self) -> list[Crew]:
        """Return the crews that were left by their waiting thread and still have members at work."""
        with self._changed:
            return [crew for crew in self._crews if crew.abandoned]

    def wait_for_abandoned(self, seconds: float) -> list[Crew]:
        """Tell the abandoned crews once more to stop, and wait; return those that did not."""
        left = self.abandoned()
        if not left:
            return left
        for crew in left:
            crew.cancel(INTERRUPTED)
        deadline = time.monotonic() + seconds
        with self._changed:
            while left := self.abandoned():
                remaining = deadline - time.monotonic()
                if remaining <= 0:
                    break
                self._wait(remaining)
        return left

    def close(self) -> None:
        """Let no crew begin any more, stop those at work, and wait for them, except for abandoned ones."""
        with self._changed:
            self._closed = True
            crews = list(self._crews)
        for crew in crews:
            crew.cancel("the session is being closed")
        with self._changed:
            while any(not crew.abandoned for crew in self._crews):
                self._wait()

    def holds(self, token: CancelToken) -> bool:
        """Tell whether code with this token works for one of the crews."""
        with self._changed:
            return any(token.is_within(crew.token) for crew in self._crews)

    def _wait(self, seconds: float | None = None) -> None:
        self._waiting += 1
        try:
            self._changed.wait(seconds)
        finally:
            self._waiting -= 1
