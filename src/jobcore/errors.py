"""Exceptions of the whole library.

Every error says what was expected, what was found and where; what to do about it is in ``hint``, which
is part of the text. Each class also derives from the builtin that fits, so ``except KeyError`` and the
like keep working.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from jobcore._telling import told

__all__ = [
    "BlobKindError",
    "BlobNotFoundError",
    "BlobValueError",
    "BuildError",
    "Cancelled",
    "CheckpointNotFoundError",
    "ChecksumError",
    "ClosedError",
    "ContextError",
    "FormatError",
    "JobcoreError",
    "MismatchError",
    "NotRunError",
    "ReadError",
    "SaveError",
    "SaveTimeoutError",
    "SessionBusyError",
    "SupersededError",
    "TaskFailure",
    "TaskGroupError",
    "TimerStateError",
    "UnsupportedBlobError",
    "VersionError",
    "WaitTimeoutError",
]


class JobcoreError(Exception):
    """Base of all errors of this library.

    Parameters
    ----------
    message
        What was expected, what was found, and where.
    hint
        What to do about it.
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return self.message if self.hint is None else f"{self.message} ({self.hint})"

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how a copy is made, in this process or another: with all attributes, whatever `__init__` takes."""
        fields = dict(vars(self))
        if isinstance(self, OSError):
            fields |= {name: value for name in _OS_FIELDS if (value := getattr(self, name)) is not None}
        return _rebuilt, (type(self), self.args, fields, _portable(self.__cause__))


class BlobNotFoundError(JobcoreError, KeyError):
    """No blob of that name is visible from the workspace."""


class BlobKindError(JobcoreError, TypeError):
    """A blob is of another kind than the operation needs, or a value cannot be a blob."""


class BlobValueError(JobcoreError, ValueError):
    """A value does not fit: wrong shape or dtype for a bound array, a counter below zero, and so on."""


class BuildError(JobcoreError, ValueError):
    """A job, task or net is described wrongly, or changed after it was frozen."""


class ContextError(JobcoreError, RuntimeError):
    """A build-time context is missing, or was left in the wrong order."""


class ClosedError(JobcoreError, RuntimeError):
    """A closed handle was used."""


class NotRunError(JobcoreError, RuntimeError):
    """An output was asked for before its task ran."""


class TimerStateError(JobcoreError, RuntimeError):
    """A timer was begun while it ran, or read or ended while it stood."""


class FormatError(JobcoreError, ValueError):
    """A file is not a checkpoint database, or does not follow the format.

    Attributes
    ----------
    path
        The file.
    place
        The entry, blob or byte range at fault, or ``None`` when it is the file as a whole.
    """

    def __init__(
        self, message: str, *, path: str = "", place: str | None = None, hint: str | None = None
    ) -> None:
        super().__init__(message, hint=hint)
        self.path = path
        self.place = place


class ChecksumError(FormatError):
    """Stored bytes are not the bytes that were written."""


class VersionError(FormatError):
    """The database follows a format version that this library does not know."""


class CheckpointNotFoundError(JobcoreError, FileNotFoundError):
    """No such checkpoint, or no complete epoch."""


class MismatchError(JobcoreError, ValueError):
    """What is stored and what was asked for differ: missing names, other shapes or dtypes, all listed."""


class SessionBusyError(JobcoreError, RuntimeError):
    """A session cannot do that while tasks of its own are at work."""


class ReadError(JobcoreError, OSError):
    """A file of a checkpoint cannot be read now, which says nothing about what it holds; `errno` says why."""


class SaveError(JobcoreError, OSError):
    """A checkpoint could not be written; earlier ones are untouched."""


class SaveTimeoutError(JobcoreError, TimeoutError):
    """A save in the background is not as far as it was waited for; it goes on."""


class WaitTimeoutError(JobcoreError, TimeoutError):
    """What was waited for did not come in the time allowed; nothing was changed."""


class SupersededError(JobcoreError, RuntimeError):
    """Another run has taken over this checkpoint directory; this one may no longer commit."""


class UnsupportedBlobError(JobcoreError, TypeError):
    """Blobs cannot be stored; every one of them is named, and nothing was written."""


class Cancelled(BaseException):
    """Raised at a cancellation point inside a task whose group is being cancelled.

    It derives from ``BaseException`` so that ``except Exception`` in a step does not swallow the order.
    """


@dataclass(frozen=True, slots=True)
class TaskFailure:
    """One failed task of a group run.

    Attributes
    ----------
    node, task, step
        Where it happened; ``step`` is the path of step and op names inside the task.
    built_at
        ``file:line`` of the statement that built the step or op, or ``None`` when unknown.
    error
        The exception itself, with its traceback.
    """

    node: str
    task: str
    step: str
    built_at: str | None
    error: BaseException

    def describe(self) -> str:
        """Return one line that says where and what."""
        where = f" built at {self.built_at}" if self.built_at else ""
        return f"task {self.task!r} on node {self.node!r}, step {self.step!r}{where}: {told(self.error)}"


# The message of an ExceptionGroup is a property of its own.
class TaskGroupError(ExceptionGroup[Exception], JobcoreError, RuntimeError):  # type: ignore[override]
    """One or more tasks of a group failed; the others were cancelled.

    It is an ``ExceptionGroup``: ``except*`` works, and a printed traceback shows every failure.

    Attributes
    ----------
    failures
        Every failure in the order in which they happened; the first one is the cause.
    """

    failures: tuple[TaskFailure, ...]

    def __new__(cls, message: str, failures: Sequence[TaskFailure]) -> TaskGroupError:
        """Build the group from the failures' own exceptions."""
        errors = [_as_exception(failure.error) for failure in failures]
        group = super().__new__(cls, message, errors)
        group.failures = tuple(failures)
        return group

    def __init__(self, message: str, failures: Sequence[TaskFailure]) -> None:  # noqa: ARG002 - taken by __new__
        super().__init__(message, self.exceptions)
        self.hint = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Say how a copy is made: from the failures, which hold the exceptions."""
        state = {name: value for name, value in vars(self).items() if name != "failures"}
        return type(self), (self.message, self.failures), state

    def __str__(self) -> str:
        # Without the count that an ExceptionGroup adds: the message names the failures itself.
        return self.message

    def derive(self, excs: Sequence[Exception], /) -> TaskGroupError:  # type: ignore[override]
        """Return a group of the failures whose exceptions are in `excs`; needed by ``except*``."""
        kept = []
        for error in excs:
            failure = next(f for f in self.failures if _stands_for(error, f.error))
            kept.append(failure if failure.error is error else replace(failure, error=error))
        return TaskGroupError(self.message, kept)


# What an OSError keeps outside of its dictionary.
_OS_FIELDS = ("errno", "strerror", "filename", "filename2")


def _rebuilt(
    kind: type[JobcoreError], args: tuple[Any, ...], fields: dict[str, Any], cause: BaseException | None
) -> JobcoreError:
    error = kind.__new__(kind, *args)
    error.args = args
    for name, value in fields.items():
        setattr(error, name, value)
    if cause is not None:
        error.__cause__ = cause
    return error


def _portable(cause: BaseException | None) -> BaseException | None:
    """Return the cause of an error if it can be relied on to survive the way into another process."""
    own = isinstance(cause, JobcoreError) or type(cause).__module__ == "builtins"
    return cause if own and not isinstance(cause, BaseExceptionGroup) else None


def _stands_for(error: BaseException, original: BaseException) -> bool:
    """Tell whether `error` is `original`, the wrapper made of it, or what a split left of it."""
    if error is original or (not isinstance(original, Exception) and error.__cause__ is original):
        return True
    return (
        not _leaves(error).isdisjoint(_leaves(original)) if isinstance(error, BaseExceptionGroup) else False
    )


def _leaves(error: BaseException) -> set[int]:
    if isinstance(error, BaseExceptionGroup):
        return {leaf for part in error.exceptions for leaf in _leaves(part)}
    return {id(error)}


def _as_exception(error: BaseException) -> Exception:
    # SystemExit in a task thread must not vanish, and an ExceptionGroup holds only Exceptions.
    if isinstance(error, Exception):
        return error
    wrapper = RuntimeError(told(error))
    wrapper.__cause__ = error
    return wrapper
