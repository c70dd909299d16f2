"""Cancellation: one token per group run, seen by every thread that works for it.

An order to stop is cooperative. The executor looks at the token between ops, nets, steps and iterations; a
callable that works or waits for long looks at it itself, with `check_cancelled`, `sleep` or
``current_token().wait(...)``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextvars import ContextVar

from jobcore._fast.cancel import CancelFlag, enter_flag
from jobcore.errors import Cancelled, ContextError
from jobcore.runtime.waiting import wait_for

__all__ = ["CancelToken", "check_cancelled", "current_token", "sleep"]


class CancelToken:
    """A flag that goes up once, with a reason, and wakes whoever waits for it.

    Parameters
    ----------
    parent
        A token whose order counts for this one too; never the other way round. The parent keeps this token
        alive until `detach`.

    Attributes
    ----------
    flag
        Up from the order on, before any callback runs: for native code, which looks at it without the GIL.

    Notes
    -----
    All methods may be called from any thread, from signal handlers and from callbacks.
    """

    __slots__ = ("__weakref__", "_callbacks", "_detach", "_lock", "_reason", "flag", "parent")

    def __init__(self, parent: CancelToken | None = None) -> None:
        # Re-entrant: a signal handler that cancels may run while the main thread is inside the lock.
        self._lock = threading.RLock()
        self._reason: str | None = None
        self._callbacks: dict[object, Callable[[], object]] = {}
        self._detach: Callable[[], None] | None = None
        self.flag = CancelFlag()
        self.parent = parent
        if parent is not None and parent is not _OUTSIDE:
            self._detach = parent.on_cancel(lambda: self.cancel(parent.reason or ""))

    def cancel(self, reason: str = "") -> bool:
        """Give the order to stop, and call the callbacks in the order in which they were added.

        Parameters
        ----------
        reason
            Part of the text of every `Cancelled` that follows.

        Returns
        -------
        bool
            True when this call gave the order; False when it had been given before: its reason stays.

        Raises
        ------
        ExceptionGroup
            Callbacks raised (a ``BaseExceptionGroup`` when one raised no ``Exception``); all the others were called
            nevertheless.
        KeyboardInterrupt, SystemExit
            Raised into the main thread meanwhile. The next call goes on where this one was.
        """
        with self._lock:
            first = self._reason is None
            if first:
                self._reason = reason
            # Again when it was given before: that call may have been interrupted here.
            self.flag.set(self._reason or "")
        # One by one, outside the lock: a callback may use this token, and a call that was interrupted here is
        # taken up by the next one, so that nobody is left waiting.
        errors: list[BaseException] = []
        while True:
            with self._lock:
                if not self._callbacks:
                    break
                callback = self._callbacks.pop(next(iter(self._callbacks)))
            try:
                callback()
            except BaseException as error:
                if _interrupts(error):
                    raise error from (_failed(errors) if errors else error.__cause__)
                errors.append(error)
        if errors:
            raise _failed(errors)
        return first

    @property
    def cancelled(self) -> bool:
        """Whether the order has been given."""
        return self._reason is not None

    @property
    def reason(self) -> str | None:
        """The reason of the order, or None when there is none yet."""
        return self._reason

    def check(self) -> None:
        """Raise when the order has been given.

        Raises
        ------
        Cancelled
            The text is the reason.
        """
        if self._reason is not None:
            raise Cancelled(self._reason)

    def wait(self, timeout: float | None = None) -> bool:
        """Wait for the order; signals of the main thread are handled meanwhile.

        Parameters
        ----------
        timeout
            Seconds to wait at most, or None for no limit.

        Returns
        -------
        bool
            Whether the order has been given.

        Raises
        ------
        ValueError
            `timeout` is not a number.
        """
        if timeout is not None and timeout != timeout:
            raise ValueError("expected a timeout in seconds, found NaN")
        if self._reason is not None:
            return True
        waiter = threading.Lock()
        waiter.acquire()
        forget = self.on_cancel(waiter.release)
        try:
            wait_for(waiter, timeout)
        finally:
            forget()
        return self._reason is not None

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        """Have `callback` called when the order is given; at once when it has been given already.

        Parameters
        ----------
        callback
            Called in the thread that cancels. It must not block and should not raise.

        Returns
        -------
        callable
            Takes the callback back; may be called more than once.
        """
        key = object()
        with self._lock:
            waiting = self._reason is None
            if waiting:
                self._callbacks[key] = callback
        if not waiting:
            callback()

        def forget() -> None:
            with self._lock:
                self._callbacks.pop(key, None)

        return forget

    def detach(self) -> None:
        """Leave the parent: its order no longer counts, and it no longer keeps this token alive."""
        if self._detach is not None:
            self._detach()
            self._detach = None

    def is_within(self, token: CancelToken) -> bool:
        """Tell whether `token` is this one or one that it descends from."""
        own: CancelToken | None = self
        while own is not None:
            if own is token:
                return True
            own = own.parent
        return False

    def __repr__(self) -> str:
        state = "waiting" if self._reason is None else f"cancelled: {self._reason}"
        return f"<CancelToken {state}>"


class _OutsideToken(CancelToken):
    """The token of code that no task runs: nobody can cancel it."""

    __slots__ = ()

    def cancel(self, reason: str = "") -> bool:
        raise ContextError(
            f"expected a running task to cancel, found none (reason given: {reason!r})",
            hint="call current_token() inside a step, or cancel the token that you made",
        )

    def on_cancel(self, callback: Callable[[], object]) -> Callable[[], None]:
        # Nothing to keep: a long-lived process would otherwise collect the callbacks of all its waits.
        del callback
        return _nothing


def _failed(errors: list[BaseException]) -> BaseExceptionGroup:
    return BaseExceptionGroup("callbacks of a cancelled token failed", errors)


def _interrupts(error: BaseException) -> bool:
    """Tell whether an exception may be that of a signal: in the main thread alone, it is no failure of a callback."""
    return (
        isinstance(error, (KeyboardInterrupt, SystemExit))
        and threading.get_ident() == threading.main_thread().ident
    )


def _nothing() -> None:
    return None


_OUTSIDE = _OutsideToken()
_current: ContextVar[CancelToken] = ContextVar("jobcore_cancel_token", default=_OUTSIDE)


def current_token() -> CancelToken:
    """Return the token of the group run that the calling code works for.

    Outside any task it is a token that is never cancelled. It is a context variable: asyncio tasks and
    ``contextvars.copy_context().run`` inherit it, a thread that a step starts by hand does not.
    """
    return _current.get()


def enter_token(token: CancelToken) -> None:
    """Make `token` the current one of the calling context; the executor calls it in a context of its own."""
    _current.set(token)
    enter_flag(None if token is _OUTSIDE else token.flag)


def check_cancelled() -> None:
    """Raise when the group that the calling step belongs to is being cancelled.

    Call it now and then in a step that works for long; it costs less than a microsecond.

    Raises
    ------
    Cancelled
        A sibling failed, the caller was interrupted, or the session is being closed. Let it pass.
    """
    _current.get().check()


def sleep(seconds: float) -> None:
    """Sleep, but not longer than the group runs: ``time.sleep`` with an ear for cancellation.

    Parameters
    ----------
    seconds
        At least 0.

    Raises
    ------
    Cancelled
        The group is being cancelled, or was before the call.
    ValueError, TypeError
        `seconds` is negative or not a number.
    """
    try:
        enough = seconds >= 0
    except TypeError:
        raise TypeError(
            f"expected a number of seconds, found {type(seconds).__name__}: {seconds!r}"
        ) from None
    if not enough:
        raise ValueError(f"expected seconds of at least 0, found {seconds!r}")
    token = _current.get()
    token.wait(seconds)
    token.check()
