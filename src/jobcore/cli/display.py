"""Shows a run: a live display on a terminal, plain lines elsewhere. Neither ever ends the run."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self, TextIO

import jobcore.errors
from jobcore.cli.failure import in_options
from jobcore.cli.story import Story
from jobcore.cli.terminal import is_live_terminal, styled
from jobcore.cli.text import clean
from jobcore.events import RunEvent

__all__ = ["Display", "PlainDisplay", "open_display", "warnings_as_lines"]

_LIBRARY = f"{Path(jobcore.errors.__file__).parent}{os.sep}"


def open_display(story: Story, *, plain: bool = False) -> Display:
    """Return the display that fits standard output, to be entered before the run and left after it."""
    if plain or not is_live_terminal(sys.stdout):
        return PlainDisplay(story, sys.stdout)
    # Only here: rich takes longer to import than most commands take to run.
    from jobcore.cli.live import LiveDisplay

    return LiveDisplay(story, sys.stdout)


@contextlib.contextmanager
def warnings_as_lines(display: Display) -> Iterator[None]:
    """Show each warning of the library once, as a line of the display; those of others stay what they are."""
    from jobcore.epoch_saver import CheckpointWarning

    told: set[str] = set()
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(
            message: Warning | str,
            category: type[Warning],
            filename: str,
            lineno: int,
            file: TextIO | None = None,
            line: str | None = None,
        ) -> None:
            if not (category.__module__.startswith("jobcore.") or filename.startswith(_LIBRARY)):
                others(message, category, filename, lineno, file, line)
            elif str(message) not in told:
                told.add(str(message))
                display.warn(in_options(str(message)))

        warnings.simplefilter("always", CheckpointWarning)
        warnings.showwarning = show
        yield


class Display(ABC):
    """An observer of a run, to be used in a ``with`` block.

    Parameters
    ----------
    story
        Turns events into lines.
    stream
        Where they go.

    Notes
    -----
    A stream that cannot be written any more (a closed pipe, a terminal that is gone, a full disk) silences the
    display; the training goes on.
    """

    def __init__(self, story: Story, stream: TextIO) -> None:
        self.story = story
        self._stream = stream
        self._lost = False
        # Guards story: events come from the thread that runs the job, signs of life and frames from another one.
        self._lock = threading.Lock()

    def __call__(self, event: RunEvent) -> None:
        """Take an event of the run."""
        with self._lock:
            lines = self.story.tell(event)
        for line in lines:
            self.line(line)

    def line(self, text: str) -> None:
        """Show a line of the run."""
        self._guarded(text, self._stream)

    def warn(self, text: str) -> None:
        """Show a warning, on standard error."""
        one_line = " ".join(clean(part) for part in text.splitlines())
        self._guarded(f"{styled('warning:', 'yellow', sys.stderr)} {one_line}", sys.stderr)

    @abstractmethod
    def interrupt(self) -> None:
        """Show that the run is being stopped; called by a signal handler, so it takes no lock."""

    @abstractmethod
    def __enter__(self) -> Self: ...

    @abstractmethod
    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...

    def _guarded(self, text: str, stream: TextIO) -> None:
        if self._lost and stream is self._stream:
            return
        try:
            self._write(text, stream)
        except (OSError, ValueError):
            self._lost = self._lost or stream is self._stream

    def _write(self, text: str, stream: TextIO) -> None:
        # One write for line and end: threads that print meanwhile cannot come between them.
        stream.write(f"{text}\n")
        stream.flush()


class PlainDisplay(Display):
    """One line per event, and a sign of life when nothing has happened for long.

    Parameters
    ----------
    story, stream
        See `Display`.
    tick_s
        Seconds between looks at the clock.
    """

    def __init__(self, story: Story, stream: TextIO, *, tick_s: float = 1.0) -> None:
        super().__init__(story, stream)
        self._tick_s = tick_s
        self._done = threading.Event()
        self._thread = threading.Thread(target=self._watch, name="jobcore-display", daemon=True)

    def interrupt(self) -> None:
        """Say so past all buffers: the handler may have come in the middle of a write to one of them."""
        if not self.story.stopping:
            self.story.stopping = True
            with contextlib.suppress(OSError, ValueError):
                os.write(
                    sys.stderr.fileno(),
                    b"interrupted: stopping the running tasks; once more does not wait for them\n",
                )

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._done.wait(self._tick_s):
            with self._lock:
                line = self.story.sign_of_life()
            if line is not None:
                self.line(line)
