"""A stand-in for a terminal stream while a live display holds the last lines of the screen."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from typing import Any, TextIO

__all__ = ["Above"]


class Above:
    """Takes what is written to a stream, and hands whole lines to a live display, which prints them above itself.

    Parameters
    ----------
    stream
        The real stream. It takes everything as it is when `emit` is None.

    Attributes
    ----------
    emit : callable or None
        Takes one line without its end; None while there is no live display.
    partial : str
        The line that has no end yet; after a carriage return, what came last: a progress bar of the user's own is one
        line that is redrawn.

    Notes
    -----
    It stays in place of ``sys.stdout`` or ``sys.stderr`` after the display has gone, for whoever has kept it, such as a
    logging handler. Any thread may write.
    """

    def __init__(self, stream: TextIO) -> None:
        self.stream = stream
        self.emit: Callable[[str], None] | None = None
        self.partial = ""
        self._pid = os.getpid()
        # Guards partial: two threads that print must not mix their lines. Re-entrant, for a signal handler may print.
        self._lock = threading.RLock()

    def write(self, text: str) -> int:
        """Write `text`; a line is shown when it is complete."""
        # A forked child has no display, and may have inherited a lock that nobody will ever release.
        if self.emit is None or os.getpid() != self._pid:
            return self.stream.write(text)
        if not isinstance(text, str):
            raise TypeError(f"write() argument must be str, not {type(text).__name__}")
        with self._lock:
            *lines, rest = (self.partial + text).split("\n")
            # Of what a carriage return wiped out nothing is kept; one at the very end has wiped out nothing yet.
            kept = rest.removesuffix("\r").rpartition("\r")[2]
            self.partial = kept + "\r" if rest.endswith("\r") else kept
        for line in lines:
            self.emit(line.rstrip("\r").rpartition("\r")[2])
        return len(text)

    def writelines(self, lines: Any) -> None:
        """Write each of `lines`."""
        for line in lines:
            self.write(line)

    def flush(self) -> None:
        """Flush the real stream; an unfinished line stays where it is."""
        if self.emit is None or os.getpid() != self._pid:
            self.stream.flush()

    def release(self) -> None:
        """Let go of the display: print the unfinished line, and pass everything through from now on."""
        with self._lock:
            rest, self.partial, self.emit = self.partial, "", None
        if rest:
            self.stream.write(rest)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)
