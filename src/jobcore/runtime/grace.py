"""How long an exit block, or a last report, may go on when the run has been told to stop."""

from __future__ import annotations

import _thread
import logging
import threading
from collections.abc import Callable
from numbers import Real

from jobcore.errors import WaitTimeoutError
from jobcore.runtime.cancel import CancelToken
from jobcore.runtime.context import StepContext
from jobcore.runtime.program import Place
from jobcore.runtime.waiting import wait_for

__all__ = ["Grace", "check_grace"]

_log = logging.getLogger("jobcore.runtime")

# Until a block that has been told to stop is spoken of in the log: one with cancellation points has ended by then.
_PATIENCE_S = 1.0


def check_grace(seconds: object, name: str) -> float:
    """Return a time limit that a user has set, as a float.

    Raises
    ------
    TypeError, ValueError
        It is not a number; it is negative or NaN.
    """
    if isinstance(seconds, bool) or not isinstance(seconds, Real):
        raise TypeError(f"{name}: expected a number of seconds, found {type(seconds).__name__}: {seconds!r}")
    number = float(seconds)
    if not number >= 0:
        raise ValueError(f"{name}: expected seconds of at least 0, found {seconds!r}")
    return number


class Grace:
    """The time limit of one shielded block; it counts from the order to stop, or from a later start of the block.

    Without it a block that waits for what a stopped sibling will never do, such as an item in a queue, would hold up
    the run for ever. When the time is up, the block's own token is cancelled: waits and native loops end at once, steps
    at their next cancellation point.

    Parameters
    ----------
    shield
        The context that the block runs in.
    place
        Of the block, for messages.

    Attributes
    ----------
    expired
        Whether the time was up before the block had ended.

    Notes
    -----
    `begin` and `end` belong to the thread that runs the block; the order may come in any.
    """

    __slots__ = ("_ended", "_forget", "_gate", "_over", "_place", "_seconds", "_shield", "expired")

    def __init__(self, shield: StepContext, place: Place) -> None:
        self._shield = shield
        self._place = place
        self._seconds = shield.roster.exit_grace_s
        # Held until the block has ended: what the watching thread waits for. From the start, so that a thread which
        # begins just then finds it free.
        self._gate = threading.Lock()
        self._gate.acquire()
        # Held while that thread runs.
        self._ended: threading.Lock | None = None
        self._forget: Callable[[], None] = _nothing
        self._over = False
        self.expired = False

    def begin(self, order: CancelToken) -> None:
        """Watch `order`, which the block is shielded from: whether it comes, or has come."""
        if self._seconds is not None:
            self._forget = order.on_cancel(self._ordered)

    def end(self) -> None:
        """Say that the block has ended, and wait until nobody watches it any more; may be repeated.

        Raises
        ------
        KeyboardInterrupt, SystemExit
            Raised into the calling thread meanwhile.
        """
        self._over = True
        self._forget()
        if self._gate.locked():
            self._gate.release()
        if self._ended is not None:
            wait_for(self._ended)
            self._ended = None

    def error(self) -> WaitTimeoutError:
        """Return the failure of a block that was stopped."""
        return WaitTimeoutError(
            f"expected it to end within {self._seconds:g} s after the run was told to stop, found it still at work",
            hint="wait in it for nothing that a stopped task would have to do, or raise the session's exit_grace_s",
        )

    def _ordered(self) -> None:
        if self._over:
            return
        ended = threading.Lock()
        ended.acquire()
        try:
            # No threading.Thread: this may be the handler of a signal that came while the main thread was inside the
            # lock which that takes to start.
            _thread.start_new_thread(self._watch, (ended,))
        except RuntimeError as error:
            _log.warning("%s: no time limit, since no thread can be started: %s", self._place.path, error)
        else:
            self._ended = ended

    def _watch(self, ended: threading.Lock) -> None:
        assert self._seconds is not None
        try:
            if self._gate.acquire(timeout=min(self._seconds, threading.TIMEOUT_MAX)) or self._over:
                return
            if self._shield.token.cancelled:
                # By a failure in it: that is its error then.
                return
            self.expired = True
            self._shield.stop(self._place, "the time of an exit block or last report was up")
            if not self._gate.acquire(timeout=_PATIENCE_S):
                # Nobody hears of its failure before it ends, and that may take for ever.
                _log.warning(
                    "%s was told to stop, %g s after the run was, and goes on; it should call check_cancelled now and "
                    "then",
                    self._place.path,
                    self._seconds,
                )
        finally:
            ended.release()


def _nothing() -> None:
    return None
