"""SIGTERM and SIGHUP as interruptions: what runs ends in order, and not in the middle."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

__all__ = ["Terminated", "terminable"]

_SIGNALS = tuple(getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name))


class Terminated(SystemExit):
    """A signal has ended the run; the exit status is the usual one, 128 and the signal's number.

    Attributes
    ----------
    signal
        Its name, such as ``SIGTERM``.
    """

    def __init__(self, number: int) -> None:
        super().__init__(128 + number)
        self.signal = signal.Signals(number).name


@contextmanager
def terminable() -> Iterator[None]:
    """Let SIGTERM and SIGHUP interrupt the main thread in this block, as Ctrl-C does.

    By default they end the process where it stands, with no exit block run. Inside the block they raise `Terminated`,
    a ``SystemExit``: tasks are told to stop, exit blocks and last reports run,
    and the exception comes out of the session. A signal that has a handler already, or is ignored, is left alone, and
    so is everything in other threads than the main one.
    """
    ours = []
    if threading.current_thread() is threading.main_thread():
        ours = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    try:
        for number in ours:
            signal.signal(number, _leave)
        yield
    finally:
        for number in ours:
            if signal.getsignal(number) is _leave:
                signal.signal(number, signal.SIG_DFL)


def _leave(number: int, frame: FrameType | None) -> None:  # noqa: ARG001 - the signature of a handler
    raise Terminated(number)
