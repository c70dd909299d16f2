"""What several commands share: their path argument, their errors, and JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from typing import NoReturn, TypeVar

import click

from jobcore.cli.target import DatabaseFile, Run, WrongPathError, find
from jobcore.cli.terminal import styled
from jobcore.cli.text import clean
from jobcore.errors import JobcoreError

__all__ = ["end", "expect_run", "find_target", "print_json", "target_argument"]

_F = TypeVar("_F", bound=Callable[..., object])


def end(lines: Sequence[str], status: int = 1) -> NoReturn:
    """End the command with `lines` on standard error, and an exit status.

    Raises
    ------
    click.exceptions.Exit
        Always.
    """
    for line in lines:
        word, colon, rest = line.partition(": ")
        if colon and word == "error":
            line = f"{styled('error:', 'red', sys.stderr)} {rest}"
        elif colon and word == "hint":
            line = f"{styled('hint:', 'yellow', sys.stderr)} {rest}"
        print(line, file=sys.stderr)
    raise click.exceptions.Exit(status)


def target_argument(metavar: str) -> Callable[[_F], _F]:
    """Return the decorator of the argument ``target``: the path of a checkpoint, a run, or an epoch of one."""
    return click.argument("target", metavar=metavar, type=click.Path())


def find_target(text: str) -> DatabaseFile | Run:
    """Return what `text` leads to, or end the command with status 2."""
    try:
        return find(text)
    except WrongPathError as error:
        end([f"error: {error}"], 2)
    except JobcoreError as error:
        # Without its hint, which is about resuming.
        end([f"error: {clean(error.message)}"], 2)


def expect_run(text: str) -> Run:
    """Return the run directory that `text` leads to, or end the command with status 2."""
    target = find_target(text)
    if isinstance(target, DatabaseFile):
        path = clean(text)
        end([f"error: expected a run directory, found the file {path}", f"hint: jobcore show {path}"], 2)
    if target.epoch is not None:
        path = clean(text)
        end(
            [f"error: expected a run directory, found an epoch of one: {path}", f"hint: jobcore show {path}"],
            2,
        )
    return target


def print_json(document: object) -> None:
    """Print a document in ASCII, so that any terminal and any pipe takes it."""
    print(json.dumps(document, indent=2, allow_nan=False))
