"""A bar over bytes for long verifications, drawn on a terminal."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import Self

from rich.console import Console
from rich.progress import BarColumn, DownloadColumn, Progress, SpinnerColumn, TextColumn, TimeRemainingColumn
from rich.text import Text

from jobcore.cli.terminal import is_live_terminal

__all__ = ["ByteProgress"]


class ByteProgress:
    """A bar, and lines above it.

    Parameters
    ----------
    total_bytes
        When the bar is full.
    quiet
        Print no lines.
    """

    def __init__(self, total_bytes: int, *, quiet: bool) -> None:
        self._quiet = quiet
        # On one terminal a bar on standard error and lines on standard output would overwrite each other.
        self._shared = is_live_terminal(sys.stdout) and not quiet
        stream = sys.stdout if self._shared else sys.stderr
        self._console = Console(file=stream, force_terminal=True, markup=False, emoji=False, highlight=False)
        spinner = "line" if self._console.options.ascii_only else "dots"
        self._progress = Progress(
            SpinnerColumn(spinner),
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            DownloadColumn(),
            TimeRemainingColumn(),
            console=self._console,
            transient=True,
            redirect_stdout=False,
            redirect_stderr=False,
        )
        self._task = self._progress.add_task("", total=total_bytes)

    def say(self, line: str) -> None:
        """Print a line on standard output."""
        if self._quiet:
            return
        if self._shared:
            self._console.print(Text.from_ansi(line), soft_wrap=True)
        else:
            print(line, flush=True)

    def advance(self, label: str, done_bytes: int) -> None:
        """Name what is being read, and move on by what has been."""
        self._progress.update(self._task, description=label, advance=done_bytes)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()
