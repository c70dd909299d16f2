"""What blocks do when they run: loops, stops, guards and branches, with the numbers that come out."""

from __future__ import annotations

import logging

import numpy as np
import pytest

from jobcore import LocalSession, NetBuilder, Task, TaskGroup, ops
from jobcore.errors import BlobKindError, BlobNotFoundError, BlobValueError, TaskGroupError
from jobcore.graph import ExecutionStep, Guard, Loop, Net, When, execution_step
from session_tools import add

pytestmark = pytest.mark.usefixtures("quiet_threads")


@pytest.fixture
def ws(session):
    return session.workspace()


def add_to(blob, amount):
    ops.Add([blob, ops.Const(amount)], blob)


def numbers(workspace, *names):
    return [int(workspace.fetch(name)) for name in names]


def running(session, write):
    """Run what `write` writes into a builder, on the node's workspace."""
    with NetBuilder("b") as builder:
        result = write()
    session.run(builder)
    return result


# -- loops


def test_an_endless_loop_ends_where_it_is_stopped(session, ws):
    with NetBuilder() as builder:
        ops.Const(5, "x")
        ops.Const(0, "y")
        with ops.loop():
            ops.stop_if(ops.EQ(["x", ops.Const(0)]))
            add_to("x", -1)
            add_to("y", 1)
    session.run(builder)
    session.run(builder)
    assert numbers(ws, "x", "y") == [0, 5]


@pytest.mark.parametrize("count", [-3, 0, 1, 4])
@pytest.mark.parametrize("kind", ["number", "blob", np.int32])
def test_a_loop_runs_as_often_as_its_number_or_blob_says(session, ws, count, kind):
    def write():
        ops.Const(0, "rounds")
        iters = count if kind == "number" else ops.Const(count, dtype=None if kind == "blob" else kind)
        with ops.loop(iters) as loop:
            add_to("rounds", 1)
            ops.Copy(loop.iter(), "last")
            if kind != "number":
                # The number was read when the loop began.
                ops.Const(100, iters)
        return loop

    loop = running(session, write)
    rounds = max(count, 0)
    assert numbers(ws, "rounds", loop.iter()) == [rounds, rounds]
    assert ws.fetch(loop.iter()).dtype == np.int64
    assert not rounds or numbers(ws, "last") == [rounds - 1]


def test_the_rest_of_a_stopped_round_is_not_run_and_the_index_says_how_many_rounds_were_whole(session, ws):
    def write():
        ops.Const(0, "before")
        ops.Const(0, "after")
        with ops.loop(10) as loop:
            add_to("before", 1)
            ops.stop_if(ops.GE([loop.iter(), ops.Const(3)]))
            add_to("after", 1)
            ops.net(add("callable"))
        return loop.iter()

    index = running(session, write)
    assert numbers(ws, "before", "after", "callable", index) == [4, 3, 3, 3]


def test_what_the_body_writes_into_the_index_does_not_change_the_loop(session, ws):
    def write():
        ops.Const(0, "sum")
        with ops.loop(4) as loop:
            ops.Add(["sum", loop.iter()], "sum")
            ops.Const(99, loop.iter())

    running(session, write)
    assert numbers(ws, "sum") == [6]


def test_nested_loops_and_branches():
    with TaskGroup() as group, Task() as task:
        names = ("total", "large", "small", "tiny")
        for name in names:
            ops.Const(0, name)
        with ops.loop(10) as outer, ops.loop(outer.iter()) as inner:
            value = ops.Add([ops.Mul([outer.iter(), ops.Const(10)]), inner.iter()])
            ops.Add(["total", value], "total")
            with ops.If(ops.GE([value, ops.Const(80)])) as branch:
                ops.Add(["large", value], "large")
            with branch.Elif(ops.GE([value, ops.Const(50)])) as branch:
                ops.Add(["small", value], "small")
            with branch.Else():
                ops.Add(["tiny", value], "tiny")
        task.add_outputs(names)
    with LocalSession() as session:
        session.run(group)
    assert [int(output.fetch()) for output in task.outputs()] == [2970, 1514, 1146, 310]


# -- stops


def test_stop_guards_tell_whether_they_were_stopped(session, ws):
    def write():
        ops.Const(0, "ran")
        with ops.stop_guard() as first:
            ops.stop_if(ops.LT([ops.Const(10), ops.Const(5)]))
            add_to("ran", 1)
        with ops.stop_guard() as second:
            ops.stop_if(ops.LT([ops.Const(3), ops.Const(5)]))
            add_to("ran", 10)
        with ops.stop_guard() as third:
            add_to("ran", 100)
        with ops.stop_guard(has_stopped_blob="empty_stopped") as fourth:
            pass
        add_to("ran", 1000)
        return [guard.has_stopped() for guard in (first, second, third, fourth)]

    blobs = running(session, write)
    assert [bool(ws.fetch(blob)) for blob in blobs] == [False, True, False, False]
    assert blobs[3] == "empty_stopped"
    assert numbers(ws, "ran") == [1101]


@pytest.mark.parametrize(("x", "y"), [(75, 2), (25, 3)])
def test_a_stop_in_a_branch_leaves_what_is_around_the_branch(session, ws, x, y):
    def write():
        ops.Const(1, "y")
        ops.Const(x, "x")
        with ops.stop_guard() as guard:
            with ops.If(ops.GT(["x", ops.Const(50)])):
                ops.Const(2, "y")
            with ops.If(ops.LT(["x", ops.Const(50)])):
                ops.Const(3, "y")
                ops.stop()
                ops.Const(4, "y")
            ops.Const(True, "reached")
        return guard.has_stopped()

    stopped = running(session, write)
    assert numbers(ws, "y") == [y]
    assert bool(ws.fetch(stopped)) == (x == 25) == (not ws.has_blob("reached"))


@pytest.mark.parametrize("branch", ["If", "Elif", "Else", "IfNet", "deep"])
def test_a_stop_passes_through_every_kind_of_branch_and_ends_the_loop(session, ws, branch):
    def write():
        yes, no = ops.Const(True), ops.Const(False)
        with ops.loop(5):
            add_to("rounds", 1)
            if branch == "deep":
                with ops.If(yes), ops.IfNet(yes), ops.If(yes):
                    ops.net(execution_step("plain", [stop_net()]))
            elif branch in ("If", "IfNet"):
                with getattr(ops, branch)(yes):
                    ops.stop()
            else:
                with ops.If(no) as first:
                    pass
                with first.Elif(yes) if branch == "Elif" else first.Else():
                    ops.stop()
            add_to("rounds", 100)

    ws.feed("rounds", 0)
    running(session, write)
    assert numbers(ws, "rounds") == [1]


def stop_net():
    net = Net("stopper")
    net.Stop([], [])
    net.Const(1, "never")
    return net


def test_a_stop_leaves_only_the_innermost_of_what_catches_it(session, ws):
    def write():
        ops.Const(0, "outer")
        with ops.loop(3):
            with ops.loop():
                ops.stop()
            with ops.stop_guard():
                ops.stop()
            with ops.WhileNet():
                with ops.Condition():
                    ops.Const(True)
                ops.stop()
            with ops.WhileNet(), ops.Condition():
                ops.stop()
                ops.Const(True)
            ops.net(execution_step("twice", [stop_net(), add("never")], num_iter=2))
            ops.net(execution_step("until", [stop_net(), add("never")], should_stop_blob="nothing"))
            ops.net(execution_step("at once", [stop_net(), add("beside")], concurrent_substeps=True))
            ops.net(execution_step("one at once", [stop_net()], concurrent_substeps=True))
            ops.net(execution_step("instances", [stop_net(), add("never")], num_concurrent_instances=2))
            add_to("outer", 1)

    running(session, write)
    assert numbers(ws, "outer", "beside") == [3, 3]
    assert not ws.has_blob("never")


def test_a_stop_at_the_top_of_a_task_ends_its_body_and_counts_as_success(session, ws):
    ws.feed("runs", 0)
    with TaskGroup("global") as group, Task():
        with ops.task_exit():
            ops.Const(True, "exited")
        add_to("runs", 1)
        ops.stop_if(ops.GE(["runs", ops.Const(1)]))
        add_to("runs", 100)
    session.run(group)
    assert numbers(ws, "runs") == [1]
    assert ws.fetch("exited")


def test_a_stop_between_steps_without_a_count_goes_on_outwards_also_in_plain_steps(session, ws):
    inner = execution_step("inner", [execution_step("innermost", [stop_net()]), add("never")])
    session.run([inner, add("never")])
    session.run(execution_step("once", [execution_step("kept", [stop_net()], num_iter=1), add("reached")]))
    assert ws.blob_names() == ["reached"]


# -- branches


@pytest.mark.parametrize("value", [1, 2, 3])
def test_at_most_one_branch_runs_and_changing_the_condition_in_it_does_not_matter(session, ws, value):
    def write():
        ops.Const(value, "v")
        ops.Const(0, "log")
        condition = ops.EQ(["v", ops.Const(1)])
        with ops.If(condition) as branch:
            add_to("log", 1)
            ops.Const(False, condition)
        add_to("log", 1000)
        with branch.Elif(ops.LE(["v", ops.Const(2)])) as branch:
            add_to("log", 10)
        with branch.Else():
            add_to("log", 100)

    running(session, write)
    assert numbers(ws, "log") == [1000 + {1: 1, 2: 10, 3: 100}[value]]


@pytest.mark.parametrize("condition", [True, False])
def test_if_net(session, ws, condition):
    def write():
        with ops.IfNet(ops.Const(condition)):
            ops.Const(1, "y")
            ops.Const(2, "local")
        with ops.Else():
            ops.Const(2, "y")

    ws.feed("y", 0)
    running(session, write)
    assert numbers(ws, "y") == [1 if condition else 2]
    assert not ws.has_blob("local")


def test_if_nets_nest_and_their_new_blobs_are_local(session, ws):
    def write():
        yes, no = ops.Const(True), ops.Const(False)
        for name, value in (("y0", 100), ("y1", 100), ("y2", 100)):
            ops.Const(value, name)
        with ops.IfNet(yes):
            ops.Const(900, "local")
            ops.Add(["y0", "local"], "y0")
            with ops.IfNet(no):
                pass
            with ops.Else():
                add_to("y1", 1)
                with ops.IfNet(yes):
                    add_to("y2", 8)
                with ops.Else():
                    ops.Const(0, "y2")
        with ops.Else():
            ops.Const(-1, "y0")

    running(session, write)
    assert numbers(ws, "y0", "y1", "y2") == [1000, 101, 108]
    assert not ws.has_blob("local")


def test_while_net(session, ws):
    def write():
        ops.Const(0, "x")
        ops.Const(0, "y")
        with ops.WhileNet():
            with ops.Condition():
                add_to("x", 1)
                ops.LT(["x", ops.Const(7)])
            ops.Add(["y", "x"], "y")
            ops.Const(1, "local")

    running(session, write)
    assert numbers(ws, "x", "y") == [7, 21]
    assert not ws.has_blob("local")


# -- the flags of steps


def test_only_once_leaves_a_round_early_and_begins_no_second_one(session, ws):
    for stop in (True, False):
        ws.feed("stop", stop)
        session.run(execution_step("once", [add("x"), add("y")], should_stop_blob="stop", only_once=True))
    assert numbers(ws, "x", "y") == [2, 1]


def test_a_step_may_have_a_workspace_of_its_own_for_all_its_rounds(session, ws):
    ws.feed("outer", 0)
    step = execution_step("own", [add("mine"), add("outer")], num_iter=3, own_workspace=True)
    values = []
    session.run(
        [
            step,
            execution_step(
                "look", [add("mine"), lambda w: values.append(w.fetch("mine"))], own_workspace=True
            ),
        ]
    )
    assert numbers(ws, "outer") == [3]
    assert values == [1]
    assert not ws.has_blob("mine")


@pytest.mark.parametrize("content", ["function", "nets", "substeps"])
def test_instances_of_a_step_each_run_its_whole_content(session, ws, content):
    counter = ws.counter("hits")
    net = Net("n")
    net.CountUp("hits", "before")
    steps = {
        "function": {"function": lambda w: counter.count_up()},
        "nets": {"nets": [net]},
        "substeps": {"substeps": [execution_step("s", net), execution_step("t", net)]},
    }[content]
    session.run(ExecutionStep("many", num_concurrent_instances=5, num_iter=3, **steps))
    assert counter.retrieve() == 15 * (2 if content == "substeps" else 1)


def test_a_guard_with_a_workspace_of_its_own_tells_outside(session, ws):
    session.run(ExecutionStep("g", nets=[stop_net()], own_workspace=True, control=Guard("was_stopped")))
    assert ws.fetch("was_stopped")


def test_control_can_be_written_without_blocks(session, ws):
    ws.feed("n", 3)
    ws.feed("no", False)
    session.run(
        [
            execution_step("loop", add("x"), control=Loop(count_blob="n", index_blob="i")),
            execution_step("if", add("y"), control=When("no", "taken")),
            execution_step("else", add("z"), control=When(taken="taken", first=False)),
        ]
    )
    assert numbers(ws, "x", "i", "z") == [3, 3, 1]
    assert not ws.has_blob("y")


# -- what control flow makes is no state


def test_blobs_of_control_flow_are_transient_unless_they_were_there(session, ws):
    ws.feed("given", False)

    def write():
        with ops.loop(1) as loop:
            loop.iter()
            ops.Const(1, "user")
        with ops.If(ops.Const(True, "yes")) as branch:
            pass
        with branch.Else():
            pass
        with ops.stop_guard() as guard:
            pass
        with ops.stop_guard("given"):
            pass
        return loop.iter(), guard.has_stopped()

    index, stopped = running(session, write)
    flags = {blob.name: blob.transient for blob in ws.local_blobs()}
    (taken,) = set(flags) - {"given", "yes", "user", index, stopped}
    assert flags == {"given": False, "yes": False, "user": False, index: True, stopped: True, taken: True}


# -- errors at run time


@pytest.mark.parametrize(
    ("value", "error", "found"),
    [
        (None, BlobNotFoundError, "'flag'"),
        ("empty", BlobValueError, "found an empty blob"),
        (1, BlobKindError, r"a tensor of dtype int64 and shape \(\)"),
        (np.zeros(2, bool), BlobKindError, r"a tensor of dtype bool and shape \(2,\)"),
    ],
)
@pytest.mark.parametrize("block", ["If", "IfNet", "stop_if", "Elif"])
def test_a_condition_that_is_no_boolean_fails_where_it_stands(session, ws, block, value, error, found):
    if isinstance(value, str):
        ws.create_blob("flag")
    elif value is not None:
        ws.feed("flag", value)

    def write():
        if block == "stop_if":
            ops.stop_if("flag")
        elif block == "Elif":
            with ops.If(ops.Const(False)) as branch:
                pass
            with branch.Elif("flag"):
                pass
        else:
            with getattr(ops, block)("flag"):
                pass

    with pytest.raises(TaskGroupError, match=found) as caught:
        running(session, write)
    (failure,) = caught.value.failures
    assert isinstance(failure.error, error)
    assert failure.step.startswith("b / b/" if block != "stop_if" else "b / StopIf")
    assert "test_block_runs.py" in failure.built_at


def test_a_loop_count_that_is_no_integer_fails(session):
    with pytest.raises(TaskGroupError, match=r"a single integer in the loop count .*float64"):
        running(session, lambda: ops.loop(ops.Const(1.5)).__enter__().__exit__(None, None, None))


def test_log_info_says_texts_and_values(session, caplog):
    def write():
        ops.LogInfo("begun", ops.Const(3, "x"), ops.Const("words", "text"))

    with caplog.at_level(logging.INFO, "jobcore.log"):
        running(session, write)
    assert [record.message for record in caplog.records] == ["begun", "x = 3", "text = words"]
