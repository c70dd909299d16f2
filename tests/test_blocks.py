"""Blocks at build time: what they become, what is refused, and that a block which raises leaves nothing behind."""

from __future__ import annotations

import pytest

from jobcore import NameScope, Net, NetBuilder, Task, TaskGroup, ops
from jobcore.errors import BuildError, ContextError
from jobcore.graph import (
    Block,
    ExecutionStep,
    Guard,
    Loop,
    NameRoot,
    Plan,
    When,
    While,
    execution_step,
    to_execution_step,
)
from jobcore.graph.context import _stacks


def work(ws):
    pass


def built(write, name="b"):
    with NetBuilder(name) as builder:
        write()
    return to_execution_step(builder)


def controls(step):
    """All controls of a tree, in order."""
    found = [step.control] if step.control is not None else []
    return found + [control for substep in step.substeps for control in controls(substep)]


# -- what blocks become


def test_blocks_become_steps_with_controls_and_full_names():
    def write():
        with NameScope("scope"):
            flag = ops.Const(True, "flag")
            with ops.loop(3) as loop:
                loop.iter()
            with ops.loop("n"):
                pass
            with ops.stop_guard():
                pass
            with ops.stop_guard("mine"):
                pass
            with ops.If(flag) as branch:
                pass
            with branch.Elif("flag"):
                pass
            with branch.Else():
                pass
            with ops.IfNet(flag):
                pass
            with ops.WhileNet(), ops.Condition():
                ops.Copy(flag, "again")

    step = built(write)
    assert controls(step) == [
        Loop(3, None, "scope/b/loop/iter"),
        Loop(None, "scope/n"),
        Guard("scope/b/stop_guard/has_stopped"),
        Guard("scope/mine"),
        When("scope/flag", "scope/b/If/taken"),
        When("scope/flag", "scope/b/If/taken", first=False),
        When(None, "scope/b/If/taken", first=False),
        When("scope/flag"),
        While("scope/again"),
    ]
    assert [s.own_workspace for s in step.substeps if isinstance(s.control, (When, While))] == [
        False, False, False, True, True,
    ]  # fmt: skip


def test_an_if_alone_needs_no_blob_of_its_own():
    def write():
        with ops.If("flag"):
            pass

    assert controls(built(write)) == [When("flag")]


def test_blocks_run_where_they_were_written_and_ops_after_them_go_to_a_new_net():
    def write():
        ops.Const(1, "a")
        with ops.loop(2):
            ops.Const(2, "b")
        ops.Const(3, "c")
        ops.net(work)
        with ops.If("flag"):
            ops.net(work)

    assert [s.name for s in built(write).substeps] == ["b", "b/loop", "b_1", "work", "b/If"]


def program():
    with TaskGroup() as group, Task(name="t") as task:
        for _ in range(2):
            with ops.loop(2) as loop:
                ops.Const(1)
                loop.iter()
        with ops.loop(2, name="mine"), ops.stop_guard() as guard:
            ops.Const(2)
        with ops.task_init():
            ops.Const(3)
        guard.has_stopped()
    names = [str(blob) for net in task.get_step().all_nets() for blob in net.used_blob_names()]
    blobs = [str(value) for control in controls(task.get_step()) for value in _blobs(control)]
    return group, names, blobs


def _blobs(control):
    return [getattr(control, name) for name in ("index_blob", "stopped") if getattr(control, name, None)]


def test_names_depend_on_the_program_alone():
    first = program()
    built(lambda: ops.loop(3).__enter__().__exit__(None, None, None))
    second = program()
    assert first[1:] == second[1:]
    assert first[2] == [
        "local/t/loop/iter",
        "local/t/loop_1/iter",
        "local/t/mine/stop_guard/has_stopped",
    ]
    assert len(set(first[1])) == len(first[1])


def test_the_same_loop_may_be_added_to_a_plan_and_frozen_blocks_cannot_change():
    with NetBuilder() as builder:
        with ops.loop(2) as loop:
            net = ops.net()
        with ops.If("flag") as branch:
            inside = ops.net()
    Plan(to_execution_step(builder))
    for change in (lambda: net.Const(1), lambda: inside.Const(1), loop.iter):
        with pytest.raises(BuildError, match=r"frozen|came too late"):
            change()
    with pytest.raises(ContextError):
        branch.Else()


# -- what is refused


def refused(match, write, error=BuildError):
    with pytest.raises(error, match=match), NetBuilder("b") as builder:
        write()
    assert not any(_stacks().values())
    assert NetBuilder.current(required=False) is None
    assert NameRoot.deciding() is None
    with pytest.raises(BuildError):
        to_execution_step(builder)


def empty_loop():
    with ops.loop():
        ops.Const(1)


def inner_stop():
    with ops.loop():
        with ops.loop(3):
            ops.stop()
        with ops.stop_guard():
            ops.stop()
        ops.net(execution_step("s", [stopper()], concurrent_substeps=True))
        ops.net(execution_step("t", [stopper()], num_iter=2))


def stopper():
    net = Net("stopper")
    net.Stop([], [])
    return net


def elif_inside():
    with ops.If("flag") as branch, branch.Elif("other"):
        pass


def elif_elsewhere():
    with ops.If("flag") as branch:
        pass
    with ops.loop(2), branch.Elif("other"):
        pass


def else_after_else():
    with ops.If("flag") as branch:
        pass
    with branch.Else() as last:
        pass
    with last.Elif("other"):
        pass


def elif_after_else_of_the_chain():
    with ops.If("flag") as branch:
        pass
    with branch.Else():
        pass
    with branch.Elif("other"):
        pass


def else_too_late():
    with ops.IfNet("flag"):
        pass
    ops.Const(1)
    with ops.Else():
        pass


def no_condition():
    with ops.WhileNet():
        ops.Const(1)


def second_condition():
    with ops.WhileNet():
        for _ in range(2):
            with ops.Condition():
                ops.Const(True)


def late_condition():
    with ops.WhileNet():
        ops.Const(1)
        with ops.Condition():
            ops.Const(True)


def empty_condition():
    with ops.WhileNet(), ops.Condition():
        pass


def condition_of_a_callable():
    with ops.WhileNet(), ops.Condition():
        ops.Const(True)
        ops.net(work)


def condition_without_output():
    with ops.WhileNet(), ops.Condition():
        ops.LogInfo("no")


def has_stopped_inside():
    with ops.stop_guard() as guard:
        guard.has_stopped()


def iter_after():
    with ops.loop(3) as loop:
        pass
    loop.iter()


def opened_twice():
    with ops.loop(3) as loop:
        pass
    with loop:
        pass


def opened_elsewhere():
    loop = ops.loop(3)
    with ops.stop_guard(), loop:
        pass


@pytest.mark.parametrize(
    ("write", "match"),
    [
        (empty_loop, r"loop 'b/loop' built at .*test_blocks.py:\d+ has no count, and nothing in it can stop it"),
        (inner_stop, "nothing in it can stop it"),
        (lambda: ops.loop(1.5), "the count of a loop to be an integer, found 1.5"),
        (lambda: ops.loop(True), "the count of a loop to be an integer, found True"),
        (lambda: ops.If(True), "expected a blob as the condition of If, found bool"),
        (lambda: ops.stop_if(True), "expected a blob name"),
        (lambda: ops.loop(3, name=""), "a non-empty string as loop name"),
        (elif_inside, "has not ended well; Elif belongs after its block"),
        (elif_elsewhere, "Elif of .* is opened in another builder"),
        (else_after_else, "after the Else"),
        (elif_after_else_of_the_chain, "after the Else"),
        (else_too_late, "expected ops.Else directly after"),
        (lambda: ops.Else(), "expected ops.Else directly after"),
        (no_condition, "has no condition"),
        (second_condition, "has a condition already"),
        (late_condition, "comes after the body"),
        (lambda: ops.Condition(), "not directly in a WhileNet"),
        (empty_condition, "an op with one output"),
        (condition_of_a_callable, "an op with one output"),
        (condition_without_output, "an op with one output"),
        (has_stopped_inside, "has not ended"),
        (iter_after, "came too late"),
        (opened_twice, "frozen by the end of its block"),
        (opened_elsewhere, "is opened in another one"),
        (lambda: ops.task_reporter(0), "interval_ms of task_reporter to be a number above 0, found 0"),
        (lambda: ops.local_reporter(float("nan")), "to be a number above 0"),
    ],
)  # fmt: skip
def test_wrong_blocks_are_refused_and_leave_nothing_open(write, match):
    refused(match, write)


@pytest.mark.parametrize(
    "block", ["loop", "stop_guard", "If", "IfNet", "WhileNet", "Condition", "task_init", "LogInfo"]
)
def test_blocks_need_an_open_builder(block):
    arguments = {"If": ["flag"], "IfNet": ["flag"]}.get(block, [])
    with pytest.raises(ContextError, match="no NetBuilder is active"):
        getattr(ops, block)(*arguments)


# -- blocks that raise


def raises():
    ops.Const(2, "inside")
    raise ZeroDivisionError


MAKERS = {
    "loop": lambda: ops.loop(3),
    "endless": lambda: ops.loop(),
    "stop_guard": lambda: ops.stop_guard(),
    "If": lambda: ops.If("flag"),
    "IfNet": lambda: ops.IfNet("flag"),
    "WhileNet": lambda: ops.WhileNet(),
    "task_init": lambda: ops.task_init(),
    "task_instance_exit": lambda: ops.task_instance_exit(),
    "local_exit": lambda: ops.local_exit(),
    "task_reporter": lambda: ops.task_reporter(),
    "local_reporter": lambda: ops.local_reporter(),
}


@pytest.mark.parametrize("make", MAKERS.values(), ids=MAKERS)
def test_a_block_that_raises_adds_nothing_and_the_builder_goes_on(make):
    with NetBuilder("b") as builder:
        ops.Const(1, "before")
        with pytest.raises(ZeroDivisionError), make(), ops.stop_guard():
            raises()
        assert NetBuilder.current() is builder
        assert not isinstance(NetBuilder.current(), Block)
        ops.Const(3, "after")
    (net,) = to_execution_step(builder).nets
    assert net.used_blob_names() == ["before", "after"]
    assert not net._attributes


def test_an_else_that_raises_may_be_written_again():
    def write():
        with ops.If("flag") as branch:
            pass
        with pytest.raises(KeyError), branch.Else():
            raise KeyError
        with branch.Else():
            pass

    assert len(controls(built(write))) == 2


def test_an_error_at_the_end_of_a_block_keeps_its_message_when_more_blocks_are_open():
    group = TaskGroup()
    with (
        pytest.raises(BuildError, match="has no count") as caught,
        group,
        Task(),
        ops.task_init(),
        ops.loop(),
    ):
        pass
    assert group.tasks() == []
    assert not getattr(caught.value, "__notes__", [])
    assert Task.current(required=False) is None


# -- flags of steps


@pytest.mark.parametrize(
    ("flags", "match"),
    [
        ({"num_iter": 2, "only_once": True}, "num_iter or only_once, found both"),
        ({"num_concurrent_instances": 0}, "an integer of at least 1, found 0"),
        ({"num_concurrent_instances": True}, "an integer of at least 1, found True"),
        ({"run_every_ms": -1}, "a number above 0, found -1"),
        ({"run_every_ms": "1"}, "a number above 0"),
        ({"control": "loop"}, "expected Loop, When, Guard or While as control"),
        ({"control": Loop(3), "num_iter": 3}, "alone, found num_iter or should_stop_blob too"),
        ({"control": Guard("s"), "should_stop_blob": "s"}, "alone, found num_iter or should_stop_blob too"),
        ({"control": Loop(3), "concurrent_substeps": True, "run_every_ms": 5}, "concurrent_substeps, run_every_ms"),
        ({"control": When("c"), "num_concurrent_instances": 2}, "num_concurrent_instances too"),
    ],
)  # fmt: skip
def test_flags_that_do_not_go_together_are_refused(flags, match):
    with pytest.raises(BuildError, match=match):
        ExecutionStep("s", **flags)


@pytest.mark.parametrize(
    ("make", "match"),
    [
        (lambda: Loop(3, "n"), "found both"),
        (lambda: Loop("3"), "to be an integer"),
        (lambda: Guard(""), "a non-empty string as blob name"),
        (lambda: When(first=False), "expected the blob `taken`"),
    ],
)
def test_wrong_controls_are_refused(make, match):
    with pytest.raises(BuildError, match=match):
        make()


@pytest.mark.parametrize(
    ("step", "match"),
    [
        (lambda: ExecutionStep("w", substeps=[ExecutionStep("a")], control=While("c")), "two substeps"),
        (lambda: ExecutionStep("w", nets=[Net("n")], control=While("c")), "0 substeps and 1 nets"),
        (lambda: ExecutionStep("l", function=work, control=Loop()), "has no count"),
    ],
)
def test_a_step_whose_content_does_not_fit_its_control_cannot_be_used(step, match):
    with pytest.raises(BuildError, match=match):
        Plan(step())
