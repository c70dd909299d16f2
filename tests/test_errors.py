"""Errors are copied and sent between processes whole: with class, text, hint, attributes and cause."""

from __future__ import annotations

import concurrent.futures
import copy
import errno
import inspect
import multiprocessing
import pickle
from collections.abc import Callable
from typing import Any

import pytest

import jobcore
from jobcore import errors
from jobcore.errors import (
    Cancelled,
    ChecksumError,
    FormatError,
    JobcoreError,
    ReadError,
    SaveError,
    TaskFailure,
    TaskGroupError,
)

PUBLIC = sorted(
    {
        found
        for module in (errors, jobcore)
        for found in vars(module).values()
        if inspect.isclass(found)
        and issubclass(found, BaseException)
        and found.__module__.startswith("jobcore")
    },
    key=lambda kind: kind.__name__,
)
WAYS: dict[str, Callable[[Any], Any]] = {
    "copied": copy.copy,
    "copied deeply": copy.deepcopy,
    **{
        f"sent by protocol {number}": lambda error, number=number: pickle.loads(pickle.dumps(error, number))
        for number in range(pickle.HIGHEST_PROTOCOL + 1)
    },
}
SYSTEM = ("errno", "strerror", "filename", "filename2")


def failures() -> list[TaskFailure]:
    stop = SystemExit(3)
    return [
        TaskFailure("a", "a/t", "step/op", "job.py:3", full(ChecksumError)),
        TaskFailure("b", "b/t", "step", None, stop),
        TaskFailure("b", "b/u", "step", None, ValueError("wrong", 3)),
    ]


def full(kind: type[Any]) -> Any:
    """Make an error with everything set that its class has, a note, and an attribute that somebody added."""
    if kind is TaskGroupError:
        error = TaskGroupError("three tasks failed", failures())
    elif issubclass(kind, FormatError):
        error = kind("damaged", path="/a/b", place="w/c.0", hint="copy it again")
    elif issubclass(kind, JobcoreError):
        error = kind("expected this, found that", hint="do so")
    else:
        error = kind("a message")
    if isinstance(error, OSError):
        error.errno, error.strerror = errno.ENOSPC, "No space left on device"
        error.filename, error.filename2 = "/a/b", "/a/c"
    error.add_note("while resuming")
    error.added = {"by": "a user"}
    return error


def same(one: Any, other: Any) -> bool:
    if isinstance(one, tuple):
        return isinstance(other, tuple) and len(one) == len(other) and all(map(same, one, other))
    if not isinstance(one, BaseException):
        return bool(one == other)
    if type(one) is not type(other) or str(one) != str(other) or repr(one) != repr(other):
        return False
    if any(getattr(one, name, None) != getattr(other, name, None) for name in SYSTEM):
        return False
    if not same(one.args, other.args):
        return False
    mine, others = dict(vars(one)), dict(vars(other))
    parts = [values.pop("failures", ()) for values in (mine, others)]
    return (
        mine == others
        and len(parts[0]) == len(parts[1])
        and all(
            (a.node, a.task, a.step, a.built_at) == (b.node, b.task, b.step, b.built_at)
            and same(a.error, b.error)
            for a, b in zip(*parts, strict=True)
        )
        and same(getattr(one, "exceptions", ()), getattr(other, "exceptions", ()))
    )


def test_all_of_them_are_here() -> None:
    assert {kind.__name__ for kind in PUBLIC} >= set(errors.__all__) - {"TaskFailure"}
    assert len(PUBLIC) > 20


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("kind", PUBLIC, ids=lambda kind: kind.__name__)
def test_every_error_survives_the_way(kind: type[BaseException], way: str) -> None:
    error = full(kind)
    found = WAYS[way](error)
    assert found is not error
    assert same(error, found)
    assert same(error, WAYS[way](found))


class Strange(SaveError):
    """One of a user's own, whose constructor takes other things."""

    def __init__(self, epoch: int, *, where: str) -> None:
        super().__init__(f"epoch {epoch} in {where}", hint="look there")
        self.epoch = epoch


@pytest.mark.parametrize("way", WAYS)
def test_a_class_derived_from_ours_needs_nothing_of_its_own(way: str) -> None:
    error = Strange(3, where="here")
    error.errno = errno.EIO
    found = WAYS[way](error)
    assert (type(found), str(found), found.epoch, found.errno) == (Strange, str(error), 3, errno.EIO)


@pytest.mark.parametrize("way", WAYS)
def test_the_cause_comes_along_where_it_is_pythons_or_ours(way: str) -> None:
    inner = FormatError("cannot be read", path="/a")
    inner.__cause__ = OSError(errno.EIO, "Input/output error", "/a")
    error = ReadError("now")
    error.__cause__ = inner
    found = WAYS[way](error)
    assert same(found.__cause__, inner)
    assert (found.__cause__.__cause__.errno, found.__cause__.__cause__.filename) == (errno.EIO, "/a")
    assert found.__suppress_context__


class Local(Exception):
    """An error of a user's that cannot be sent: its constructor wants more than its arguments."""

    def __init__(self, one: int, other: int) -> None:
        super().__init__(one)
        self.lock = (i for i in (one, other))


@pytest.mark.parametrize("way", WAYS)
def test_a_foreign_cause_keeps_no_error_from_its_way(way: str) -> None:
    for cause in (Local(1, 2), ExceptionGroup("some", [Local(1, 2)])):
        error = SaveError("failed")
        error.__cause__ = cause
        assert WAYS[way](error).__cause__ is None
    assert WAYS[way](SaveError("failed")).__suppress_context__ is False


def test_a_copied_group_is_still_a_group() -> None:
    group = full(TaskGroupError)
    assert copy.copy(group).failures == group.failures
    found = pickle.loads(pickle.dumps(group))
    assert [type(error) for error in found.exceptions] == [ChecksumError, RuntimeError, ValueError]
    assert isinstance(found.exceptions[1].__cause__, SystemExit)
    assert found.exceptions[1].__cause__ is found.failures[1].error
    kept, rest = found.split(FormatError)
    assert (len(kept.failures), len(rest.failures)) == (1, 2)
    assert kept.failures[0].describe() == group.failures[0].describe()


def raised_elsewhere(kind: str) -> None:
    raise full(getattr(errors, kind))


@pytest.mark.parametrize("kind", ["TaskGroupError", "ReadError", "FormatError"])
def test_an_error_of_another_process_comes_out_here(kind: str) -> None:
    context = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(1, context) as pool:
        error = pool.submit(raised_elsewhere, kind).exception()
    assert isinstance(error, getattr(errors, kind))
    assert str(error) == str(full(getattr(errors, kind)))


def test_the_order_to_stop_survives_too() -> None:
    assert pickle.loads(pickle.dumps(Cancelled("why"))).args == ("why",)
