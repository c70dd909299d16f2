"""`NetBuilder` and `ops`: statements become nets, in order, and nothing of a broken block is used."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from jobcore.errors import BuildError, ContextError
from jobcore.graph import (
    BlobReference,
    ExecutionStep,
    NameRoot,
    Net,
    NetBuilder,
    all_ops,
    execution_step,
    ops,
    schema,
    to_execution_step,
)
from jobcore.runtime import LocalSession
from jobcore.tasks import Task


def work(ws: Any) -> None:
    """Do nothing."""


def test_ops_go_into_one_net_in_order() -> None:
    with NetBuilder("b") as builder:
        x = ops.Const(5, "x")
        y = ops.Add([x, x])
        ops.Neg(y, y)
    step = to_execution_step(builder)
    (net,) = step.nets
    assert (step.name, net.name) == ("b", "b")
    assert [op.type for op in net.ops] == ["Const", "Add", "Neg"]
    assert x.net is net
    assert to_execution_step(builder) is step


def test_an_unnamed_builder_names_its_nets_net() -> None:
    with NetBuilder() as builder:
        assert ops.Const(1) == "net/Const"
        ops.net(name="more")
        assert ops.Const(1) == "more/Const"
    assert to_execution_step(builder).name == "net_builder"


def test_nets_steps_callables_and_builders_run_where_they_were_written() -> None:
    own = Net("own")
    own.Neg("x", "x")
    step = execution_step("step", work)
    with NetBuilder("b") as builder:
        ops.Const(1, "x")
        assert ops.net(own) is own
        ops.Neg("x", "x")
        assert ops.net(step) is step
        assert ops.net(work) is work
        with NetBuilder("inner") as inner:
            ops.Neg("x", "y")
        ops.net(inner)
        ops.net([own, work])
        ops.net(own)
    assert len(own.ops) == 1, "an op after ops.net(own) must not end up in the user's own net"
    result = to_execution_step(builder)
    assert [s.name for s in result.substeps] == [
        "b",
        "own",
        "b_1",
        "step",
        "work",
        "b/inner",
        "sequence",
        "own",
    ]
    assert result.substeps[1].nets == (own,) == result.substeps[7].nets
    assert result.substeps[3] is step
    assert result.substeps[4].function is work
    assert [net.name for net in result.all_nets()] == ["b", "own", "b_1", "b/inner"]


def test_the_current_net_can_be_asked_for_and_named() -> None:
    with NetBuilder("b") as builder:
        first = ops.net()
        assert ops.net() is first
        second = ops.net(name="second")
        ops.Const(1, "x")
        assert [op.outputs for op in second.ops] == [("x",)]
        with pytest.raises(BuildError, match="a net or a name, found both"):
            ops.net(Net("n"), name="x")
    assert [net.name for net in to_execution_step(builder).nets] == ["b", "b/second"]


def test_an_empty_builder_is_an_empty_step() -> None:
    with NetBuilder("b") as builder:
        pass
    step = to_execution_step(builder)
    assert step.empty
    assert step.name == "b"


def test_a_builder_can_be_filled_without_a_block() -> None:
    builder = NetBuilder("b")
    builder.add(Net("n"))
    builder.add(work)
    assert [child.name for child in builder.children] == ["n", "work"]
    assert len(to_execution_step(builder).substeps) == 2
    with pytest.raises(BuildError, match="frozen by its conversion to a step"):
        builder.add(work)


def test_a_closed_builder_is_frozen_at_every_depth() -> None:
    with NetBuilder("b") as builder:
        net = ops.net()
        ops.net(step := ExecutionStep("s"))
    for change in (lambda: builder.add(work), lambda: builder.current_net("x"), lambda: builder.__enter__()):
        with pytest.raises(BuildError, match="frozen by the end of its block"):
            change()
    to_execution_step(builder)
    with pytest.raises(BuildError, match="came too late"):
        net.Const(1)
    with pytest.raises(BuildError, match="came too late"):
        step.add_net(Net("n"))
    assert NetBuilder.current(required=False) is None


def test_an_open_builder_cannot_be_used() -> None:
    with NetBuilder("b") as builder:
        with pytest.raises(BuildError, match="still open"):
            to_execution_step(builder)
        with pytest.raises(BuildError, match="open already"):
            builder.__enter__()
        with pytest.raises(BuildError, match="part of itself"):
            builder.add(builder)
        assert NetBuilder.current() is builder


def test_a_builder_whose_block_raised_cannot_be_used() -> None:
    builder = NetBuilder("b")

    @builder
    def block() -> None:
        ops.Const(1)
        raise ZeroDivisionError("half way")

    with pytest.raises(ZeroDivisionError):
        block()
    with pytest.raises(BuildError, match="block ended with an exception: ZeroDivisionError"):
        to_execution_step(builder)
    assert NetBuilder.current(required=False) is None
    assert NameRoot.deciding() is None


def test_ops_need_an_open_builder() -> None:
    calls: list[Any] = [ops.Add, ops.net, functools.partial(ops.Const, 1), ops.Python(lambda i, o: None)]
    for call in calls:
        with pytest.raises(ContextError, match="no NetBuilder is active"):
            call([])


def test_unknown_ops_are_attribute_errors() -> None:
    for name, close in (("CountDwn", "CountDown"), ("countup", "CountUp"), ("Fill", "ConstantFill")):
        assert not hasattr(ops, name)
        with pytest.raises(AttributeError, match=f"did you mean .*{close}"):
            getattr(ops, name)
    with pytest.raises(AttributeError, match=r"'Zzzz'$"):
        _ = ops.Zzzz
    assert not hasattr(ops, "__wrapped__")


def test_ops_can_be_listed_and_explained() -> None:
    assert set(dir(ops)) > {*all_ops(), "net", "loop", "If", "task_init"}
    for name in all_ops():
        function = getattr(ops, name)
        assert function.__name__ == name
        assert function.__doc__
    assert ops.CountDown.__doc__ == schema("CountDown").doc


def test_ops_work_inside_a_task() -> None:
    with Task(name="t") as task:
        ref = ops.Const(1)
        ops.net(work)
    step = task.get_step()
    assert step is not None
    assert ref == "local/t/Const"
    assert [s.name for s in step.substeps] == ["local/t", "work"]


def test_a_net_that_is_added_twice_runs_twice() -> None:
    add = Net("add")
    add.Add(["total", "one"], "total")
    with Task() as task:
        ops.Const(0, "total")
        ops.Const(1, "one")
        ops.net(add)
        ops.net(add)
        task.add_output("total")
    with LocalSession() as session:
        session.run(task)
    assert task.outputs()[0].fetch() == 2


def test_a_python_op_keeps_its_function() -> None:
    def three(inputs: Any, outputs: Any, workspace: Any) -> None:
        """Do nothing."""

    with NetBuilder() as builder:
        assert ops.Python(three)(["a", "b"], ["c"], pass_workspace=True, name="p") == "c"
        assert isinstance(ops.Python(print)(), BlobReference)
        for function, options, message in (
            (three, {}, r"can be called with \(inputs, outputs\)"),
            (work, {"pass_workspace": True}, r"can be called with \(inputs, outputs, workspace\)"),
            ((three, 3, {}), {}, "nor is it .factory, args, kwargs."),
            ((three, (), {}, 0), {}, "nor is it .factory, args, kwargs."),
            (three, {"workspace": True}, "unexpected keyword argument|no argument 'workspace'"),
        ):
            with pytest.raises((BuildError, TypeError), match=message):
                ops.Python(function)([], [], **options)  # type: ignore[arg-type]  # wrong on purpose
    op = to_execution_step(builder).nets[0].ops[0]
    assert (op.args["function"], op.args["pass_workspace"], op.name) == (three, True, "p")


@pytest.mark.parametrize("name", [3, "\ud800"])
def test_a_builder_needs_text_as_its_name(name: Any) -> None:
    with pytest.raises(BuildError, match="builder name"):
        NetBuilder(name)
