"""Native programs against the executor in Python, which is their slow twin: the same blobs, counts and failures."""

from __future__ import annotations

from random import Random

import numpy as np
import pytest

from jobcore import LocalSession, Task, TaskGroup, Workspace, WorkspaceType, ops
from jobcore._fast.program import Program
from jobcore.graph import execution_step
from jobcore.runtime import lower
from program_cases import Maker, build, check, observe
from slow_program import in_python

pytestmark = pytest.mark.usefixtures("quiet_threads")


def both(program, monkeypatch):
    """What the program leaves behind, run natively and in Python."""
    native = observe(program, build(program))
    with in_python(monkeypatch):
        python = observe(program, build(program))
    return native, python


@pytest.mark.parametrize("failures", [0.0, 0.05])
def test_sequences_do_the_same(failures, monkeypatch):
    for seed in range(10_000, 10_060):
        native, python = both(
            Maker(Random(seed), failures=failures, concurrency=False).program(), monkeypatch
        )
        check(python, native)


def programs(step):
    """All native programs of a compiled step."""
    found = [step.native] if step.native is not None else []
    for part in (*step.parts, *step.init, *step.exit, *(reporter.step for reporter in step.reporters)):
        if hasattr(part, "native"):
            found += programs(part)
    return found


def test_every_sequence_is_native():
    with TaskGroup() as group:
        with Task(name="flow") as flow:
            with ops.task_init():
                ops.Const(1, "one")
            with ops.loop(3), ops.If(ops.Const(True)):
                ops.Const(2, "two")
        Task(name="call", step=lambda ws: None)
        with Task(name="many", num_instances=2):
            ops.Const(3, "three")
        inner = execution_step("s", [lambda ws: None, lambda ws: None])
        Task(name="beside", step=execution_step("at once", [inner, inner], concurrent_substeps=True))
    compiled = LocalSession.compile(group)
    counts = {task.name: len(programs(task.program)) for task in compiled.working}
    assert counts.pop("local/call") == 0
    assert all(count >= 1 for count in counts.values()), counts
    assert flow.name in counts


def test_a_loop_of_many_rounds_does_not_compile_again():
    with TaskGroup() as group, Task(name="t"):
        ops.CreateCounter([], "c")
        with ops.loop(100_000):
            ops.CountUp("c", "x")
        total = ops.RetrieveCount("c", "total")
        Task.current().add_output(total)
    with LocalSession(Workspace()) as session:
        first = session.compile(group)
        for _ in range(3):
            session.run(group)
            assert group.tasks()[0].outputs()[0].fetch() == 100_000
        assert session.compile(group) is first


def test_running_again_compiles_nothing(session, monkeypatch):
    made: list[object] = []

    def counted(*arguments):
        made.append(Program(*arguments))
        return made[-1]

    monkeypatch.setattr(lower, "Program", counted)
    with TaskGroup(WorkspaceType.GLOBAL) as group:
        with Task(name="flow"):
            with ops.task_init():
                ops.CreateCounter([], "c")
            with ops.task_exit():
                ops.RetrieveCount("c", "total")
            with ops.loop(3), ops.If(ops.Const(True)):
                ops.CountUp("c")
                ops.net(lambda ws: None)
        with Task(name="many", num_instances=2):
            ops.Const(3, "three")
    session.run(group)
    first = len(made)
    assert first >= 4
    for _ in range(5):
        session.run(group)
    session.run(session.compile(group))
    assert len(made) == first


def test_a_count_beyond_64_bits_goes_round_until_it_is_stopped():
    with TaskGroup() as group, Task(name="t"):
        ops.CreateCounter([], "c")
        ops.Const(np.uint64(2**64 - 1), "many")
        with ops.loop("many"):
            ops.CountUp("c", "x")
            ops.stop_if(ops.EQ(["x", ops.Const(10)]))
        Task.current().add_output("x")
    with LocalSession() as session:
        session.run(group)
    assert group.tasks()[0].outputs()[0].fetch() == 10
