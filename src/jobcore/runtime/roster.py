"""Which crews are at work for a session: what closing it has to stop, and a run may have to wait for."""

from __future__ import annotations

import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING

from jobcore.errors import ClosedError
from jobcore.runtime.cancel import CancelToken
from jobcore.runtime.waiting import wait_for

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

    Attributes
    ----------
    exit_grace_s
        Seconds that an exit block or last report may go on after an order to stop; None for no limit.

    Notes
    -----
    All methods may be called from any thread.
    """

    def __init__(self, owner: str) -> None:
        self._owner = owner
        self.exit_grace_s: float | None = 60.0
        # Guards _crews, _closed and _gates. Re-entrant: a signal handler of the main thread may close the session that
        # it is just running something in.
        self._lock = threading.RLock()
        # Weak: a crew that an interruption kept from striking itself off goes with the last one who works for it.
        self._crews: dict[int, weakref.ref[Crew]] = {}
        # One held lock for each thread that waits for a crew to leave. Bare locks, and no Condition: an interruption
        # inside the Python code of a Condition comes out as an error about its lock.
        self._gates: list[threading.Lock] = []
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
        with self._lock:
            if self._closed and not inside:
                self.check_open("run")
            self._crews[id(crew)] = weakref.ref(crew, partial(self._strike, id(crew)))

    def discard(self, crew: Crew) -> None:
        """Strike off a crew whose members have all ended; may be repeated."""
        if id(crew) in self._crews:
            self._strike(id(crew))

    def _strike(self, key: int, _: object = None) -> None:
        with self._lock:
            self._crews.pop(key, None)
            if not self._gates:
                return
            gates, self._gates = self._gates, []
        for gate in gates:
            gate.release()

    def _present(self) -> list[Crew]:
        with self._lock:
            return [crew for reference in list(self._crews.values()) if (crew := reference()) is not None]

    @property
    def has_abandoned(self) -> bool:
        """Whether a crew was left by its waiting thread; cheap where no crew is at work."""
        return bool(self._crews) and bool(self.abandoned())

    def abandoned(self) -> list[Crew]:
        """Return the crews that were left by their waiting thread and still have members at work."""
        return [crew for crew in self._present() if crew.abandoned and crew.working]

    def wait_for_abandoned(self, seconds: float) -> list[Crew]:
        """Tell the abandoned crews once more to stop, and wait; return those that did not."""
        left = self.abandoned()
        if not left:
            return left
        for crew in left:
            crew.cancel(INTERRUPTED)
        deadline = time.monotonic() + seconds
        while True:
            gate = self._gate()
            left = self.abandoned()
            remaining = deadline - time.monotonic()
            if not left or remaining <= 0:
                return left
            wait_for(gate, remaining)

    def close(self) -> None:
        """Let no crew begin any more, stop those at work, and wait for them, except for abandoned ones."""
        with self._lock:
            self._closed = True
        for crew in self._present():
            crew.cancel("the session is being closed")
        while True:
            gate = self._gate()
            if all(crew.abandoned or crew.over for crew in self._present()):
                return
            wait_for(gate)

    def holds(self, token: CancelToken) -> bool:
        """Tell whether code with this token works for one of the crews."""
        return any(token.is_within(crew.token) for crew in self._present())

    def _gate(self) -> threading.Lock:
        """Return a held lock that is released when the next crew leaves."""
        gate = threading.Lock()
        gate.acquire()
        with self._lock:
            self._gates.append(gate)
        return gate
