"""What the path that a user gave leads to: a checkpoint database, or a run directory and maybe an epoch in it."""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import stat
from dataclasses import dataclass
from pathlib import Path

from jobcore.checkpoint import CommitLog, EpochRecord, History, RunDirectory
from jobcore.checkpoint.paths import parse_claim, parse_database, parse_record
from jobcore.cli.text import clean, count
from jobcore.store.dirformat import is_database

__all__ = ["DatabaseFile", "Run", "WrongPathError", "find"]

_EXPECTED = "expected a run directory or a checkpoint database (*.zarr.zip, *.zarr)"
_AT_EPOCH = re.compile(r"(?P<run>.+)@(?P<epoch>\d+|latest)", re.DOTALL)
_LISTED = 5
_KINDS = (
    (stat.S_ISFIFO, "a pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


class WrongPathError(ValueError):
    """The path leads to nothing that the command knows; the message says what was found."""


@dataclass(frozen=True, slots=True)
class DatabaseFile:
    """A file or directory, to be taken for a checkpoint database."""

    path: Path


@dataclass(frozen=True, slots=True)
class Run:
    """A run directory as it is at one moment, and the epoch that was asked for, if any.

    Attributes
    ----------
    shown
        The path of the directory as the user wrote it.
    history
        What it holds.
    unrecorded
        Names of databases that belong to no record: left over from interrupted saves, or being written just now.
    epoch
        The record of the epoch that the path names (``RUN@EPOCH``), or None.
    """

    shown: str
    history: History
    unrecorded: tuple[str, ...]
    epoch: EpochRecord | None = None

    def file(self, name: str) -> str:
        """Return the path of a file of the run, below the directory as the user wrote it."""
        return os.path.join(self.shown, name)  # noqa: PTH118 - Path would drop what the user wrote


def find(text: str) -> DatabaseFile | Run:
    """Return what a path leads to.

    Parameters
    ----------
    text
        A database, a run directory, or ``RUN@EPOCH`` with a number or ``latest``.

    Raises
    ------
    WrongPathError
        Neither is there.
    CheckpointNotFoundError
        The run has no such epoch.
    """
    path = Path(os.path.expanduser(text))  # noqa: PTH111 - Path refuses the home of a user that is not there
    match = _AT_EPOCH.fullmatch(text)
    if match is not None and not os.path.exists(path):  # noqa: PTH110 - Path raises for what may not be looked at
        return _at(match["run"], match["epoch"])
    try:
        mode = path.stat().st_mode
    except OSError as error:
        raise WrongPathError(_nothing_at(path, text, error)) from None
    if stat.S_ISDIR(mode) and not is_database(str(path)):
        return _run(path, text)
    for is_kind, kind in _KINDS:
        # Opening a pipe to look into it would wait for ever.
        if is_kind(mode):
            raise WrongPathError(f"{_EXPECTED}, found {kind}: {clean(text)}")
    return DatabaseFile(path)


def _at(text: str, wanted: str) -> Run:
    run = find(text)
    if isinstance(run, DatabaseFile):
        what = "a database" if run.path.is_dir() else "a file"
        raise WrongPathError(f"expected a run directory before '@{wanted}', found {what}: {clean(text)}")
    newest = run.history.latest()
    epoch = newest.epoch if wanted == "latest" and newest is not None else wanted
    if epoch == "latest":
        raise WrongPathError(f"expected a complete epoch in {clean(text)}, found none")
    return Run(run.shown, run.history, run.unrecorded, run.history.get(int(epoch)))


def _run(path: Path, text: str) -> Run:
    try:
        names = sorted(entry.name for entry in path.iterdir())
    except OSError as error:
        raise WrongPathError(
            f"{_EXPECTED}, found a directory that cannot be read: {clean(text)}: {error.strerror}"
        ) from None
    if not any(map(_is_ours, names)):
        raise WrongPathError(
            f"{_EXPECTED}, found {_directory(names)}: {clean(text)}{_runs_inside(path, text, names)}"
        )
    history = CommitLog(RunDirectory.at(path, "zarr.zip")).read(tolerant=True)
    # By its name too: the database of a record that cannot be read is no left-over.
    recorded = {found for name in names if (found := parse_record(name)) is not None}
    databases = ((name, parse_database(name)) for name in names)
    unrecorded = tuple(name for name, found in databases if found is not None and found[1:] not in recorded)
    return Run(text, history, unrecorded)


def _is_ours(name: str) -> bool:
    return any(parse(name) is not None for parse in (parse_claim, parse_record, parse_database))


def _nothing_at(path: Path, text: str, error: OSError) -> str:
    if not isinstance(error, (FileNotFoundError, NotADirectoryError)):
        return f"{_EXPECTED}, found a path that cannot be read: {clean(text)}: {error.strerror}"
    close: list[str] = []
    with contextlib.suppress(OSError):
        close = difflib.get_close_matches(path.name, sorted(entry.name for entry in path.parent.iterdir()), 1)
    meant = f"; did you mean {clean(str(path.with_name(close[0])))}?" if close else ""
    return f"{_EXPECTED}, found nothing at {clean(text)}{meant}"


def _directory(names: list[str]) -> str:
    if not names:
        return "an empty directory"
    if "zarr.json" in names or ".zgroup" in names or ".zarray" in names:
        return "a Zarr directory"
    listed = ", ".join(clean(name) for name in names[:_LISTED])
    more = ", ..." if len(names) > _LISTED else ""
    return f"a directory of {count(len(names), 'other entry', 'other entries')} ({listed}{more})"


def _runs_inside(path: Path, text: str, names: list[str]) -> str:
    inside = [name for name in names if _holds_run(path / name)]
    if not inside:
        return ""
    listed = ", ".join(clean(os.path.join(text, name)) for name in inside[:_LISTED])  # noqa: PTH118 - as the user wrote it
    more = ", ..." if len(inside) > _LISTED else ""
    return f"\nrun directories in it: {listed}{more}"


def _holds_run(path: Path) -> bool:
    try:
        return path.is_dir() and any(_is_ours(entry.name) for entry in path.iterdir())
    except OSError:
        return False
