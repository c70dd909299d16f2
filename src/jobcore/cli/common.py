"""What several commands share: their path argument, their errors, and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import IO, Any, TypeVar

import click

from jobcore.cli.failure import explain
from jobcore.cli.target import DatabaseFile, Run, WrongPathError, find
from jobcore.cli.terminal import styled
from jobcore.cli.text import clean
from jobcore.errors import JobcoreError

__all__ = ["CommandError", "expect_run", "find_target", "print_json", "target_argument"]

_F = TypeVar("_F", bound=Callable[..., object])


class CommandError(click.ClickException):
    """Ends a command with lines on standard error, and a status.

    Parameters
    ----------
    lines
        What is told; words such as ``error:`` at their beginning are highlighted on a terminal.
    status
        The exit status.
    """

    def __init__(self, lines: Sequence[str], status: int = 1) -> None:
        super().__init__("\n".join(lines))
        self.exit_code = status

    def show(self, file: IO[Any] | None = None) -> None:
        """Print the lines."""
        stream = file or sys.stderr
        for line in self.message.split("\n"):
            word, colon, rest = line.partition(": ")
            if colon and word in ("error", "hint"):
                line = styled(f"{word}:", "red" if word == "error" else "yellow", stream) + " " + rest
            print(line, file=stream)


def target_argument(metavar: str) -> Callable[[_F], _F]:
    """Return the decorator of the argument ``target``: the path of a checkpoint, a run, or an epoch of one."""
    return click.argument("target", metavar=metavar, type=click.Path())


def find_target(text: str) -> DatabaseFile | Run:
    """Return what `text` leads to, or end the command with status 2."""
    try:
        return find(text)
    except WrongPathError as error:
        raise CommandError([f"error: {error}"], 2) from None
    except JobcoreError as error:
        raise CommandError(explain(error), 2) from None


def expect_run(text: str) -> Run:
    """Return the run directory that `text` leads to, or end the command with status 2."""
    target = find_target(text)
    if isinstance(target, DatabaseFile):
        path = clean(text)
        raise CommandError(
            [f"error: expected a run directory, found the file {path}", f"hint: jobcore show {path}"], 2
        )
    if target.epoch is not None:
        path = clean(text)
        raise CommandError(
            [f"error: expected a run directory, found an epoch of one: {path}", f"hint: jobcore show {path}"], 2
        )
    return target


def print_json(document: object) -> None:
    """Print a document in ASCII, so that any terminal and any pipe takes it."""
    print(json.dumps(document, indent=2, allow_nan=False))
