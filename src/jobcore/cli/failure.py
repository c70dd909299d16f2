"""How a failed run is told: what failed and the user's own lines of the traceback, without the library's."""

from __future__ import annotations

import os
import sysconfig
import traceback
from collections.abc import Iterator
from pathlib import Path

import jobcore.errors
from jobcore.cli.text import clean
from jobcore.errors import JobcoreError, TaskGroupError

__all__ = ["FULL_TRACEBACK_HINT", "explain", "in_options"]

FULL_TRACEBACK_HINT = "the full traceback: the same command with --traceback"
_LIBRARY = f"{Path(jobcore.errors.__file__).parent}{os.sep}"
_STANDARD = f"{sysconfig.get_path('stdlib')}{os.sep}"
_WORDS = {
    'resume_from_epoch="latest"': "--resume latest",
    "resume_from_epoch=None": "--resume none",
    "resume_from_epoch the": "--resume the",
}


def explain(error: BaseException, *, full: bool = False) -> list[str]:
    """Return the lines that tell of an error.

    Parameters
    ----------
    error
        What ended the run.
    full
        Give the whole traceback instead, the library's own frames included.
    """
    if full:
        return _lines(traceback.TracebackException.from_exception(error))
    if isinstance(error, TaskGroupError):
        return list(_group(error))
    if isinstance(error, JobcoreError):
        return list(_known(error))
    trimmed = _trimmed(error)
    told = [f"error: {line}" if n == 0 else line for n, line in enumerate(_named(error))]
    return [*told, *(_lines(trimmed) if _has_user_frames(trimmed) else [])]


def _group(error: TaskGroupError) -> Iterator[str]:
    for failure in error.failures:
        first, *rest = failure.describe().splitlines() or [""]
        yield f"error: {in_options(clean(first))}"
        yield from rest
        trimmed = _trimmed(failure.error)
        if _has_user_frames(trimmed):
            yield from (f"  {line}" for line in _lines(trimmed))
    yield from getattr(error, "__notes__", ())


def _known(error: JobcoreError) -> Iterator[str]:
    """Tell of an error of the library: its text is made for people, and its place in the library says nothing more."""
    first, *rest = (error.message or type(error).__name__).splitlines()
    yield f"error: {in_options(clean(first))}"
    yield from rest
    if error.hint:
        yield f"hint: {in_options(error.hint)}"
    yield from getattr(error, "__notes__", ())
    trimmed = _trimmed(error)
    if _has_user_frames(trimmed):
        yield from _lines(trimmed)


def _named(error: BaseException) -> list[str]:
    text = str(error)
    return f"{type(error).__name__}{': ' if text else ''}{text}".splitlines()


def in_options(text: str) -> str:
    """Write arguments of the Python interface, as they stand in errors and warnings, as options of the command."""
    for argument, option in _WORDS.items():
        text = text.replace(argument, option)
    return text


def _trimmed(error: BaseException) -> traceback.TracebackException:
    told = traceback.TracebackException.from_exception(error)
    _trim(told, set())
    return told


def _trim(told: traceback.TracebackException, seen: set[int]) -> None:
    """Take the library's and the import machinery's frames out of a traceback, of its causes, and of its parts."""
    if id(told) in seen:
        return
    seen.add(id(told))
    told.stack[:] = [frame for frame in told.stack if not _internal(frame.filename)]
    for other in (told.__cause__, told.__context__, *(told.exceptions or ())):
        if other is not None:
            _trim(other, seen)


def _internal(filename: str) -> bool:
    return filename.startswith((_LIBRARY, "<frozen importlib"))


def _has_user_frames(told: traceback.TracebackException) -> bool:
    """Tell whether a trimmed traceback shows code of the user's, and not just where the standard library gave up."""
    # A SyntaxError has no frame in the file that it is about: its own fields are the place.
    if hasattr(told, "text") or any(not _standard(frame.filename) for frame in told.stack):
        return True
    others = (told.__cause__, *(told.exceptions or ()))
    return any(_has_user_frames(other) for other in others if other is not None)


def _standard(filename: str) -> bool:
    return filename.startswith(_STANDARD) and "site-packages" not in filename


def _lines(told: traceback.TracebackException) -> list[str]:
    return "".join(told.format()).rstrip("\n").split("\n")
