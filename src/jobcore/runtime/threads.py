"""Threads whose start can be interrupted."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable

__all__ = ["WorkThread"]


class _Begun(threading.Event):
    """The event by which a thread says that it is there, safe against interruptions of the wait.

    Inside the Python code of `Event.wait` an interruption can leave the event's lock held. The new thread would then
    hang in its first line for ever, and the process with it when it ends.
    """

    def __init__(self) -> None:
        super().__init__()
        self._gate = threading.Lock()
        self._gate.acquire()

    def set(self) -> None:
        super().set()
        self._gate.release()

    def wait(self, timeout: float | None = None) -> bool:
        while not self.is_set():
            self._gate.acquire(timeout=-1 if timeout is None else timeout)
        return True


class WorkThread(threading.Thread):
    """A thread whose start can be interrupted."""

    def __init__(self, target: Callable[..., object], args: tuple[object, ...], name: str) -> None:
        super().__init__(target=target, args=args, name=name)
        # What start() waits for. Should a later Python call it otherwise, only this safeguard is lost.
        self._started = _Begun()

    def start(self) -> None:
        """Start it.

        Raises
        ------
        RuntimeError
            The system gives no more threads, or the interpreter is being shut down.
        """
        if sys.is_finalizing():
            # It would never get to its first line, and this call would wait for that.
            raise RuntimeError("can't start a thread while the interpreter is shut down")
        super().start()
