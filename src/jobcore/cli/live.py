"""The live display of a run; the only module that imports rich."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable
from datetime import timedelta
from types import TracebackType
from typing import Self, TextIO, cast

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.spinner import Spinner
from rich.table import Table
from rich.text import Text

from jobcore.cli.above import Above
from jobcore.cli.display import Display
from jobcore.cli.story import Snapshot, Story

__all__ = ["LiveDisplay"]

_REFRESH_PER_S = 8
_BAR_WIDTH = 30


class _GuardedLive(Live):
    """A display whose thread does not end in a traceback when the terminal goes away."""

    def refresh(self) -> None:
        with contextlib.suppress(OSError, ValueError):
            super().refresh()


class _Drawn:
    """Draws anew whenever it is shown, so that a line never stands above the state before it."""

    def __init__(self, draw: Callable[[], RenderableType]) -> None:
        self._draw = draw

    def __rich__(self) -> RenderableType:
        return self._draw()


class LiveDisplay(Display):
    """Lines that stay, and below them a few that are redrawn: what is done now, how far, how fast.

    Whatever the job prints appears above the redrawn lines. ``sys.stdout`` and ``sys.stderr`` are replaced from
    enter to exit; the stand-ins pass everything on after that.

    Parameters
    ----------
    story, stream
        See `Display`; the stream is a terminal.
    """

    def __init__(self, story: Story, stream: TextIO) -> None:
        super().__init__(story, stream)
        self._streams = {"stdout": Above(stream)}
        if sys.stderr.isatty():
            # One that is sent to a file stays as it is: its lines belong there and not on the screen.
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
        self._spinner = Spinner("line" if self._console.options.ascii_only else "dots")
        self._live = _GuardedLive(
            _Drawn(self._draw),
            console=self._console,
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
            above.emit = self.line
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
            # A user's own colours are kept; square brackets are text and never markup.
            self._console.print(Text.from_ansi(text), soft_wrap=True)
        else:
            super()._write(text, stream)

    def _draw(self) -> RenderableType:
        with self._lock:
            now = self.story.snapshot()
        partial = [above.partial.removesuffix("\r") for above in self._streams.values()]
        return panel(now, [text for text in partial if text], self._spinner)


def panel(now: Snapshot, partial: list[str], spinner: Spinner) -> RenderableType:
    """Return the redrawn lines: unfinished lines of the job's own, the stage with its bar, and the last epoch."""
    head = Table.grid(padding=(0, 1))
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
