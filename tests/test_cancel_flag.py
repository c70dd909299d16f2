from __future__ import annotations

import threading
from contextvars import copy_context
from typing import Any

import pytest

from jobcore import LocalSession
from jobcore._fast.cancel import CancelFlag, current_flag, enter_flag
from jobcore.errors import Cancelled, TaskGroupError
from jobcore.runtime import CancelToken, current_token
from session_tools import boom, group_of


def test_a_flag_goes_up_once_and_keeps_its_first_reason() -> None:
    flag = CancelFlag()
    flag.check()
    assert (flag.is_set(), flag.reason, repr(flag)) == (False, None, "<CancelFlag waiting>")
    flag.set("first")
    flag.set("second")
    assert (flag.is_set(), flag.reason, repr(flag)) == (True, "first", "<CancelFlag up: first>")
    with pytest.raises(Cancelled, match="first"):
        flag.check()


def test_a_token_puts_its_flag_and_those_of_its_children_up_before_it_calls_back() -> None:
    parent = CancelToken()
    child = CancelToken(parent)
    other = CancelToken()
    seen: list[Any] = []
    parent.on_cancel(lambda: seen.append((parent.flag.is_set(), child.flag.reason)))
    assert not child.flag.is_set()
    parent.cancel("stop")
    assert seen == [(True, "stop")]
    assert (parent.flag.reason, other.flag.is_set()) == ("stop", False)
    CancelToken().cancel()


def test_code_that_no_task_runs_has_no_flag() -> None:
    assert current_flag() is None

    def enter() -> CancelFlag | None:
        flag = CancelFlag()
        enter_flag(flag)
        assert current_flag() is flag
        enter_flag(None)
        return current_flag()

    assert copy_context().run(enter) is None


def test_a_step_finds_the_flag_of_its_group(session: LocalSession) -> None:
    begun, seen = threading.Event(), []

    def step(ws: object) -> None:
        flag = current_flag()
        assert flag is current_token().flag
        begun.set()
        current_token().wait()
        seen.append(flag is not None and flag.is_set())

    with pytest.raises(TaskGroupError):
        session.run(group_of(step, [lambda ws: begun.wait(60), boom]))
    assert seen == [True]
