"""The entry point of the ``jobcore`` command: exit statuses, and endings that need no traceback."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

__all__ = ["main"]

_INTERRUPTED = 130
_NEEDED = ("click", "rich")


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit status.

    Parameters
    ----------
    argv
        Arguments without the program's name; by default those of the process.

    Returns
    -------
    int
        0 done; 1 the run failed, or something is wrong with a checkpoint; 2 the command was used wrongly; 130
        interrupted.
    """
    missing = [name for name in _NEEDED if importlib.util.find_spec(name) is None]
    if missing:
        print(
            f"jobcore: the command line needs {' and '.join(missing)}, which this Python does not have\n"
            f'install it with: pip install "jobcore[cli]"',
            file=sys.stderr,
        )
        return 1
    with _usable_streams():
        try:
            status = _run(argv)
        except KeyboardInterrupt:
            return _INTERRUPTED
        try:
            sys.stdout.flush()
        except OSError:
            # The command itself is done: a run that was completed is so, whoever stopped listening.
            _drop_output()
        return status


@contextlib.contextmanager
def _usable_streams() -> Iterator[None]:
    """See to it that printing cannot fail for reasons that no command should have to think of."""
    with contextlib.ExitStack() as stack:
        for name in ("stdout", "stderr"):
            stream = getattr(sys, name)
            if stream is None:
                # Closed by the shell (2>&-): what would be printed there goes nowhere, and not to the other stream.
                setattr(sys, name, stack.enter_context(Path(os.devnull).open("w")))
                stack.callback(setattr, sys, name, None)
            elif hasattr(stream, "reconfigure"):
                # A blob name that the terminal's encoding lacks is shown escaped; it must not end the command.
                stream.reconfigure(errors="backslashreplace")
        yield


def _run(argv: Sequence[str] | None) -> int:
    import click

    from jobcore.cli.app import app

    try:
        status = app.main(
            args=None if argv is None else list(argv), prog_name="jobcore", standalone_mode=False
        )
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except click.ClickException as error:
        error.show()
        return error.exit_code
    except click.Abort:
        return _INTERRUPTED
    return status if isinstance(status, int) else 0


def _drop_output() -> None:
    # The interpreter flushes standard output once more at its end, and would complain about the pipe then.
    with contextlib.suppress(OSError, ValueError):
        null = os.open(os.devnull, os.O_WRONLY)
        os.dup2(null, sys.stdout.fileno())
        os.close(null)
