"""What a run is when there is much of everything, or when the interpreter goes down under it."""

from __future__ import annotations

import subprocess
import sys
from contextlib import ExitStack
from typing import Any

import numpy as np
import pytest

from jobcore import LocalSession, NetBuilder, StatRegistry, Task, TaskGroup, Trace, ops, sleep, span
from jobcore.data import pipe, python_sink, reader_from
from jobcore.errors import BlobValueError, BuildError, TaskGroupError
from jobcore.graph import ExecutionStep, Net, execution_step
from jobcore.graph.step import MAX_DEPTH
from jobcore.runtime import CancelToken, current_token

pytestmark = pytest.mark.usefixtures("quiet_threads")


def nested(block: Any, depth: int) -> NetBuilder:
    with NetBuilder() as builder:
        ops.Const(0, "n")
        with ExitStack() as stack:
            for _ in range(depth):
                stack.enter_context(block())
            ops.Add(["n", ops.Const(1)], "n")
    return builder


BLOCKS = {
    "loop": lambda: ops.loop(1),
    "If": lambda: ops.If(ops.Const(True)),
    "IfNet": lambda: ops.IfNet(ops.Const(True)),
    "stop_guard": ops.stop_guard,
}


@pytest.mark.parametrize("kind", BLOCKS)
def test_blocks_may_be_deep(session: LocalSession, kind: str) -> None:
    # Each is a step, and some put one more around their content.
    builder = nested(BLOCKS[kind], MAX_DEPTH // 2 - 5)
    session.run(builder)
    assert session.workspace().fetch("n") == 1


@pytest.mark.parametrize("kind", BLOCKS)
@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 1000])
def test_blocks_that_are_too_deep_are_an_error_where_they_are_built(kind: str, depth: int) -> None:
    with pytest.raises(
        BuildError, match=f"at most {MAX_DEPTH} steps and blocks inside each other, found one more"
    ):
        nested(BLOCKS[kind], depth)


@pytest.mark.parametrize("flags", [{}, {"own_workspace": True}, {"num_concurrent_instances": 2}], ids=str)
def test_steps_of_every_kind_run_at_the_deepest(session: LocalSession, flags: dict[str, Any]) -> None:
    net = Net("leaf")
    net.Const(1, "x")
    step = ExecutionStep("leaf", net)
    for number in range(MAX_DEPTH - 1):
        # With many instances at each level there would be more threads than anybody has.
        step = ExecutionStep(
            "around", substeps=step, **(flags if number < 3 or "own_workspace" in flags else {})
        )
    session.run(step)
    with pytest.raises(BuildError, match="inside each other"):
        ExecutionStep("around", substeps=step)


def test_concurrent_steps_run_at_the_deepest(session: LocalSession) -> None:
    ran: list[int] = []
    step = execution_step("leaf", lambda ws: ran.append(1))
    # The callable of the leaf is a step in it.
    for _ in range(MAX_DEPTH - 2):
        step = execution_step(
            "around", [step, execution_step("e", lambda ws: None)], concurrent_substeps=True
        )
    session.run(step)
    assert ran == [1]


def test_many_ops_tasks_and_instances(session: LocalSession) -> None:
    with NetBuilder() as long:
        one = ops.Const(1)
        ops.Const(0, "sum")
        for _ in range(10_000):
            ops.Add(["sum", one], "sum")
    session.run(long)
    assert session.workspace().fetch("sum") == 10_000

    net = Net("count")
    net.CountUp("counter")
    with TaskGroup("global") as wide:
        for number in range(300):
            Task(step=net, name=f"t{number}")
    with TaskGroup("global") as many, Task(num_instances=300):
        ops.CountUp("counter")
    start = Net("start")
    start.CreateCounter([], "counter")
    session.run(start)
    session.run(wide)
    session.run(many)
    assert session.workspace().fetch("counter").retrieve() == 600


def test_a_group_is_compiled_once_for_many_threads(together: Any) -> None:
    for _ in range(10):
        calls: list[int] = []

        class Counted:
            """Counts how often it is set up."""

            def setup(self, net: Net, calls: list[int] = calls) -> None:
                calls.append(1)
                net.Const(1, "made")

        net = Net("n")
        net.add_attribute(Task.TASK_SETUP, Counted())
        rows: list[list[int]] = []
        with TaskGroup() as group:
            queue = pipe(reader_from([np.array([n]) for n in range(3)]), capacity=1)
            pipe(queue, processor=python_sink(lambda x, rows=rows: rows.append(x.tolist())))
            Task(step=net)

        def run(number: int, group: TaskGroup = group) -> None:
            with LocalSession() as session:
                session.run(group)

        assert together(4, run) == [None] * 4
        assert len(calls) == 1
        assert sorted(rows) == sorted([[n] for n in range(3)] * 4)


SHUTDOWN = """
import os, sys, jobcore
with jobcore.TaskGroup() as group:
    jobcore.Task(step=lambda ws: print("never"))
    jobcore.Task(step=lambda ws: print("never"))
session = jobcore.LocalSession()
session.compile(group)

class Late:
    def __del__(self, session=session, group=group, write=os.write):
        try:
            session.run(group)
        except BaseException as error:
            write(1, f"{type(error).__name__}: {error}".encode())

# One of the last things to go, when no thread can be started any more.
sys.modules["late"] = Late()
"""


def test_a_run_while_the_interpreter_goes_down_fails_and_does_not_hang() -> None:
    done = subprocess.run([sys.executable, "-c", SHUTDOWN], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert "TaskGroupError" in done.stdout, done.stdout + done.stderr
    assert "thread" in done.stdout
    assert "never" not in done.stdout


def test_a_trace_that_cannot_be_written_hides_no_error(tmp_path: Any) -> None:
    missing = tmp_path / "missing" / "trace.json"
    with pytest.raises(FileNotFoundError), Trace(missing):
        pass
    with pytest.raises(KeyboardInterrupt) as found, Trace(missing):
        raise KeyboardInterrupt
    assert "its trace could not be written" in found.value.__notes__[0]
    with pytest.raises(TaskGroupError), LocalSession() as session, Trace(missing):
        session.run(lambda ws: 1 // 0)


class Wordless(Exception):
    """Has no text."""

    def __str__(self) -> str:
        raise RuntimeError("no text")


def test_a_span_hides_no_error(session: LocalSession) -> None:
    def step(ws: Any) -> None:
        with span("mine"):
            raise Wordless

    with pytest.raises(TaskGroupError) as found, Trace() as trace:
        session.run(step)
    assert type(found.value.failures[0].error) is Wordless
    assert trace.spans()[0].args["error"] == "Wordless: (its text cannot be made: RuntimeError)"


class Odd(BaseException):
    """No Exception."""


def spoil() -> None:
    """Leave callbacks that raise with the token of the run."""

    def odd() -> None:
        raise Odd("from a callback")

    current_token().on_cancel(lambda: 1 // 0)
    current_token().on_cancel(odd)


def leaves(error: BaseException) -> set[str]:
    if not isinstance(error, BaseExceptionGroup):
        return {type(error).__name__}
    return {name for inner in error.exceptions for name in leaves(inner)}


def beside_an_exit_block() -> TaskGroup:
    def report(ws: Any) -> None:
        raise ValueError("report")

    with TaskGroup() as group, Task():
        with ops.task_exit():
            ops.net(lambda ws: spoil())
            reporter = execution_step("r", [report], run_every_ms=1)
            ops.net(execution_step("both", [reporter, execution_step("w", lambda ws: sleep(3600))]))
        ops.Const(1)
    return group


def in_instances() -> TaskGroup:
    def work(ws: Any) -> None:
        spoil()
        raise ValueError("work")

    with TaskGroup() as group:
        with Task(num_instances=3):
            ops.net(work)
        Task(step=lambda ws: (spoil(), sleep(3600)))
    return group


@pytest.mark.parametrize("make", [beside_an_exit_block, in_instances])
def test_callbacks_that_raise_keep_nobody_waiting(session: LocalSession, make: Any) -> None:
    with pytest.raises(TaskGroupError) as found:
        session.run(make())
    assert {"ValueError", "ZeroDivisionError", "Odd"} <= leaves(
        BaseExceptionGroup("all", [failure.error for failure in found.value.failures])
    )


def test_callbacks_of_a_token_are_all_called() -> None:
    token, called = CancelToken(), []

    def odd() -> None:
        raise Odd

    token.on_cancel(odd)
    token.on_cancel(lambda: called.append(1))
    with pytest.raises(BaseExceptionGroup) as found:
        token.cancel("all")
    assert called == [1]
    assert leaves(found.value) == {"Odd"}


def test_an_interruption_in_a_callback_takes_the_errors_along() -> None:
    token, called = CancelToken(), []

    def interrupt() -> None:
        raise KeyboardInterrupt

    token.on_cancel(lambda: 1 // 0)
    token.on_cancel(interrupt)
    token.on_cancel(lambda: called.append(1))
    with pytest.raises(KeyboardInterrupt) as found:
        token.cancel()
    assert found.value.__cause__ is not None
    assert leaves(found.value.__cause__) == {"ZeroDivisionError"}
    assert not token.cancel()
    assert called == [1]


def test_a_sleep_wants_a_number() -> None:
    with pytest.raises(TypeError, match="expected a number of seconds, found str: 'x'"):
        sleep("x")  # type: ignore[arg-type]  # what is refused


def test_a_statistic_has_a_name_that_can_be_written() -> None:
    with pytest.raises(BlobValueError, match="is not valid Unicode text"):
        StatRegistry().add("\ud800")
