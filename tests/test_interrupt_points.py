"""An interruption at the entry of each function of the run time, where signals are handled: what began is ended."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

import jobcore.runtime
from jobcore import LocalSession, Task, TaskGroup, ops

pytestmark = pytest.mark.usefixtures("quiet_threads")

PLACE = jobcore.runtime.__path__[0]


def framed(log: list[str], tasks: int) -> TaskGroup:
    def note(name: str) -> None:
        ops.net(lambda ws: log.append(name))

    with TaskGroup() as group:
        with Task():
            for before, after in (
                ("local_init", "local_exit"),
                ("task_init", "task_exit"),
                ("task_instance_init", "task_instance_exit"),
            ):
                with getattr(ops, before)():
                    note(before)
                with getattr(ops, after)():
                    note(after)
            with ops.task_reporter(3_600_000):
                note("report")
            note("body")
        for _ in range(tasks - 1):
            Task(step=lambda ws: None)
    return group


def interrupted_at(entry: int, run: Callable[[], object]) -> tuple[bool, bool, BaseException | None]:
    """Interrupt this thread at the entry of its so-manieth function.

    Return whether that came, whether it hit an exit block or last report, and what came out.
    """
    count, hit = 0, False

    def tracer(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count, hit
        if frame.f_code.co_filename.startswith(PLACE):
            count += 1
            if count == entry:
                around: FrameType | None = frame
                while around is not None:
                    hit = hit or around.f_code.co_name == "drain"
                    around = around.f_back
                raise KeyboardInterrupt

    error: BaseException | None = None
    before = sys.gettrace()
    try:
        sys.settrace(tracer)
        run()
    except KeyboardInterrupt as caught:
        error = caught
    finally:
        sys.settrace(before)
    return count >= entry, hit, error


@pytest.mark.parametrize("tasks", [1, 2])
def test_what_has_begun_is_ended_wherever_the_interruption_comes(tasks: int) -> None:
    log: list[str] = []
    group = framed(log, tasks)
    LocalSession().run(group)
    complete = list(log)
    assert len(complete) == 8
    entry, came = 0, True
    while came:
        entry += 1
        log.clear()
        session = LocalSession()
        came, hit, error = interrupted_at(entry, lambda s=session: s.run(group))  # type: ignore[misc]
        assert (error is None) != came
        begun = {name.removesuffix("_init") for name in log if name.endswith("_init")}
        ended = {name.removesuffix("_exit") for name in log if name.endswith("_exit")}
        # It ends the block that it hits, and no other one.
        assert len(begun - ended) <= hit, (entry, log)
        session.run(group)
        session.close()
    assert entry > 50
