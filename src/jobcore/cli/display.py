"""Shows a run: a live display on a terminal, plain lines elsewhere. Neither ever ends the run."""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import warnings
from abc import ABC, abstractmethod
from collections.abc import Iterator
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TextIO, cast

from jobcore.cli.above import Above
from jobcore.cli.story import Snapshot, Story
from jobcore.cli.text import clean
from jobcore.events import RunEvent

if TYPE_CHECKING:
    from rich.console import RenderableType

__all__ = ["Display", "LiveDisplay", "PlainDisplay", "is_live_terminal", "open_display", "warnings_as_lines"]

_REFRESH_PER_S = 8
_BAR_WIDTH = 30


def is_live_terminal(stream: TextIO) -> bool:
    """Tell whether `stream` is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def open_display(story: Story, *, plain: bool = False) -> Display:
    """Return the display that fits standard output, to be entered before the run and left after it."""
    if plain or not is_live_terminal(sys.stdout):
        return PlainDisplay(story, sys.stdout)
    return LiveDisplay(story, sys.stdout)


@contextlib.contextmanager
def warnings_as_lines(display: Display) -> Iterator[None]:
    """Show each warning of the library once, as a line of the display; those of others stay what they are."""
    from jobcore.runner import CheckpointWarning

    told: set[str] = set()
    with warnings.catch_warnings():
        others = warnings.showwarning

        def show(message: Any, category: type[Warning], filename: str, lineno: int, *rest: Any) -> None:
            if not category.__module__.startswith("jobcore."):
                others(message, category, filename, lineno, *rest)
            elif str(message) not in told:
                told.add(str(message))
                display.warn(str(message))

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

    def warn(self, text: str, *, word: str = "warning") -> None:
        """Show a warning, on standard error."""
        self._guarded(f"{word}: {' '.join(clean(part) for part in text.splitlines())}", sys.stderr)

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
                os.write(sys.stderr.fileno(), b"interrupted: stopping the running tasks\n")

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


class LiveDisplay(Display):
    """Lines that stay, and below them a few that are redrawn: what is done now, how far, how fast.

    Whatever the job prints appears above the redrawn lines. ``sys.stdout`` and ``sys.stderr`` are replaced from enter to
    exit; the stand-ins pass everything on after that.
    """

    def __init__(self, story: Story, stream: TextIO) -> None:
        from rich.console import Console
        from rich.live import Live

        super().__init__(story, stream)
        self._out = Above(stream)
        self._streams = {"stdout": self._out}
        if sys.stderr.isatty():
            # One that is sent to a file stays out of it: its lines belong there and not on the screen.
            self._streams["stderr"] = Above(sys.stderr)
        self._before: dict[str, TextIO] = {}
        self._console = Console(
            file=stream,
            force_terminal=True,
            force_interactive=True,
            markup=False,
            emoji=False,
            highlight=False,
        )

        class GuardedLive(Live):
            """A display whose thread does not end in a traceback when the terminal goes away."""

            def refresh(live) -> None:  # noqa: N805 - self is the outer object
                with contextlib.suppress(OSError, ValueError):
                    super(GuardedLive, live).refresh()

        self._live = GuardedLive(
            console=self._console,
            get_renderable=self._draw,
            refresh_per_second=_REFRESH_PER_S,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )

    def interrupt(self) -> None:
        """Show it in the next frame."""
        self.story.stopping = True

    def __enter__(self) -> Self:
        for name, above in self._streams.items():
            self._before[name] = getattr(sys, name)
            above.emit = self._print
            setattr(sys, name, cast("TextIO", above))
        self._live.start(refresh=True)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            with contextlib.suppress(OSError, ValueError):
                self._live.stop()
        finally:
            for name, above in self._streams.items():
                with contextlib.suppress(OSError, ValueError):
                    above.release()
                setattr(sys, name, self._before[name])

    def _write(self, text: str, stream: TextIO) -> None:
        if stream is self._stream:
            self._print(text)
        else:
            super()._write(text, stream)

    def _print(self, line: str) -> None:
        from rich.text import Text

        # A user's own colours are kept; square brackets are text and never markup.
        self._console.print(Text.from_ansi(line), soft_wrap=True)

    def _draw(self) -> RenderableType:
        with self._lock:
            now = self.story.snapshot()
        partial = [above.partial.rstrip("\r").rpartition("\r")[2] for above in self._streams.values()]
        return _panel(now, [text for text in partial if text], self._console)


def _panel(now: Snapshot, partial: list[str], console: Any) -> RenderableType:
    from rich.console import Group
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    head = Table.grid(padding=(0, 1))
    spinner = Spinner("line" if console.options.ascii_only else "dots")
    cells: list[RenderableType] = [spinner, Text(now.stage, style="bold", no_wrap=True)]
    if now.stage_s >= 1:
        cells.append(Text(f"{now.stage_s:.0f} s", no_wrap=True))
    if now.total:
        cells.append(ProgressBar(total=now.total, completed=min(now.done, now.total), width=_BAR_WIDTH))
        cells.append(Text(f"{now.done}/{now.total}", no_wrap=True))
    cells.append(Text(f"{_clock(now.elapsed_s)} elapsed", style="dim", no_wrap=True))
    if now.left_s is not None:
        cells.append(Text(f"{_clock(now.left_s)} left", style="dim", no_wrap=True))
    head.add_row(*cells)
    lines = [f"  last epoch: {now.last}"] if now.last else []
    lines += [f"  saved: {now.saved}"] if now.saved else []
    return Group(
        *(Text.from_ansi(text, no_wrap=True, overflow="ellipsis") for text in partial),
        head,
        *(Text(text, style="dim", no_wrap=True, overflow="ellipsis") for text in lines),
    )


def _clock(duration_s: float) -> str:
    return str(timedelta(seconds=round(duration_s)))
