"""Nets, steps and plans: what is built is checked where it is built, and frozen once it is used."""

from __future__ import annotations

import functools
import gc
import weakref
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore.errors import BuildError
from jobcore.graph import (
    ArgSpec,
    BlobReference,
    ExecutionStep,
    Net,
    NetBuilder,
    OpContext,
    Plan,
    all_ops,
    execution_step,
    ops,
    register_op,
    registry,
    schema,
    to_execution_step,
)
from jobcore.tasks import Task, TaskGroup

HERE = Path(__file__).name


def place_of(built_at: str) -> tuple[str, str]:
    """Return the file's name and the source line that `built_at` points to."""
    file, _, line = built_at.rpartition(":")
    return Path(file).name, Path(file).read_text().splitlines()[int(line) - 1].strip()


@pytest.fixture
def own_ops() -> Iterator[None]:
    before = dict(registry._schemas)
    yield
    registry._schemas.clear()
    registry._schemas.update(before)


# ---------------------------------------------------------------------------------------------------------- ops


def test_ops_are_kept_in_order_with_everything_known_about_them() -> None:
    net = Net("n")
    counter = net.CreateCounter([], "c", init_count=np.int32(3))
    done = net.CountDown(counter, name="tick")
    assert net.TimerEnd(net.TimerBegin([], "t")) is None
    assert isinstance(done, BlobReference)
    assert done.net is net
    first, second = net.ops[:2]
    assert (first.type, first.inputs, first.outputs, dict(first.args)) == (
        "CreateCounter",
        (),
        ("c",),
        {"init_count": 3},
    )
    assert (second.name, second.outputs) == ("tick", ("n/CountDown",))
    assert all(type(name) is str for op in net.ops for name in op.inputs + op.outputs)
    assert second.call() == "op CountDown 'tick' (c) -> (n/CountDown)"


def test_an_op_cannot_be_changed() -> None:
    op = Net("n")
    op.Const(np.arange(3))
    (const,) = op.ops
    with pytest.raises(AttributeError):
        const.type = "Copy"  # type: ignore[misc]  # that it fails is the point
    with pytest.raises(TypeError):
        const.args["value"] = 1  # type: ignore[index]  # as above
    with pytest.raises(ValueError, match="read-only"):
        const.args["value"][0] = 1


def test_a_constant_is_copied_when_it_is_built() -> None:
    array = np.arange(3)
    net = Net("n")
    net.Const(array)
    array[:] = 9
    assert net.ops[0].args["value"].tolist() == [0, 1, 2]


def test_built_at_is_the_statement_of_the_user() -> None:
    net = Net("n")
    net.Add(["a", "b"])  # the statement of the op
    with NetBuilder("b") as builder:
        ops.Neg("a")  # the statement in the builder
    step = to_execution_step(lambda ws: None)  # the statement of the step
    assert place_of(net.built_at) == (HERE, 'net = Net("n")')
    assert place_of(net.ops[0].built_at) == (HERE, 'net.Add(["a", "b"])  # the statement of the op')
    (inner,) = to_execution_step(builder).nets
    assert place_of(inner.ops[0].built_at)[1] == 'ops.Neg("a")  # the statement in the builder'
    assert (
        place_of(step.built_at)[1] == "step = to_execution_step(lambda ws: None)  # the statement of the step"
    )


@pytest.mark.parametrize(
    ("outputs", "names"),
    [
        (None, "n/Python"),
        (1, "n/Python:0"),
        (2, ("n/Python:0", "n/Python:1")),
        (0, None),
        ("x", "x"),
        (["x"], "x"),
        (("x", BlobReference("y")), ("x", "y")),
        ([], None),
    ],
)
def test_outputs_by_name_by_count_and_by_default(outputs: Any, names: Any) -> None:
    assert Net("n").Python(lambda i, o: None)((), outputs) == names


def test_automatic_names_are_numbered_together() -> None:
    net, nothing = Net("n"), lambda i, o: None
    net.Python(nothing)((), ["n/Python_2:1"])
    assert net.Python(nothing)((), 2) == ("n/Python:0", "n/Python:1")
    assert net.Python(nothing)((), 2) == ("n/Python_3:0", "n/Python_3:1"), "a name in use is passed over"
    assert net.Python(nothing)() == "n/Python"
    assert net.Python(nothing)() == "n/Python_2"


def test_reserved_names_are_not_given_again() -> None:
    net = Net("n")
    assert [net.next_blob("Neg"), net.next_blob("Neg"), net.Neg("x")] == ["n/Neg", "n/Neg_2", "n/Neg_3"]


WRONG_OPS = [
    (lambda n: n.add_op("Addd", ["a", "b"]), "no op type 'Addd'; did you mean Add"),
    (lambda n: n.add_op("countup", "c"), "did you mean CountUp"),
    (lambda n: n.Add(["a"]), r"op Add \(a\) -> \(n/Add\), built at .*expected 2 inputs, found 1"),
    (lambda n: n.Add(["a", "b", "c"]), "expected 2 inputs, found 3"),
    (lambda n: n.CreateCounter("x"), "expected no inputs, found 1"),
    (lambda n: n.Neg("a", ["b", "c"]), "expected 1 output, found 2"),
    (lambda n: n.ResetCounter("c", 3), "expected 0 to 1 outputs, found 3"),
    (lambda n: n.Save([], db="d"), "expected at least 1 input, found 0"),
    (lambda n: n.Neg("a", -1), "count of outputs of at least 0, found -1"),
    (lambda n: n.Neg("a", True), "names or a count as outputs, found True"),
    (lambda n: n.Python(lambda i, o: None)((), ["x", "x"]), "an output is named twice"),
    (lambda n: n.CountUp("c", "c"), "'c' is input and output"),
    (lambda n: n.Neg(3), "expected a blob name, a BlobReference or a list of them, found int: 3"),
    (lambda n: n.Add(["a", 3]), "expected a blob name or a BlobReference, found int: 3"),
    (lambda n: n.Neg(""), "non-empty string as blob name"),
    (lambda n: n.Neg("\ud800"), "not valid Unicode"),
    (lambda n: n.CreateCounter(init=3), "no argument 'init'; it takes init_count"),
    (lambda n: n.Neg("a", scale=3), "no argument 'scale'; it takes no arguments"),
    (
        lambda n: n.CreateCounter(init_count=-1),
        "'init_count': expected an integer of at least 0, found int -1",
    ),
    (lambda n: n.CreateCounter(init_count=2**63), "does not fit 64 bits"),
    (lambda n: n.CreateCounter(init_count=1.5), "found float 1.5"),
    (lambda n: n.CreateCounter(init_count=True), "a boolean is no number"),
    (lambda n: n.DBExists(), "argument 'db_name' is missing; expected a path"),
    (lambda n: n.GetAllBlobNames(include_shared="no"), "neither True nor False"),
]


@pytest.mark.parametrize(("build", "message"), WRONG_OPS)
def test_a_wrong_op_fails_where_it_is_built_and_adds_nothing(build: Any, message: str) -> None:
    net = Net("n")
    with pytest.raises(BuildError, match=message):
        build(net)
    assert net.ops == ()
    assert net.used_blob_names() == []
    assert net.external_inputs == ()
    assert net.Neg("a") == "n/Neg", "the failed op took a name"


def test_unknown_attributes_are_no_ops() -> None:
    net = Net("n")
    assert not hasattr(net, "Addd")
    with pytest.raises(AttributeError, match=r"no attribute 'CountUpp'.*did you mean CountUp"):
        _ = net.CountUpp
    assert {"CountUp", "add_op", "Const"} <= set(dir(net))
    assert net.Add.__name__ == "Add"
    assert "element by element" in net.Add.__doc__


def test_every_op_type_is_documented() -> None:
    for name in all_ops():
        entry = schema(name)
        assert entry.type == name
        assert entry.doc.splitlines()[0].endswith("."), name
        assert "utput" in entry.doc or name == "Python", name
        assert all(spec.doc and spec.expected for spec in entry.args.values()) or name == "Const", name


def test_own_op_types_can_be_registered(own_ops: None) -> None:
    @register_op(
        "Scale", num_inputs=1, num_outputs=1, args={"by": ArgSpec(float, "a number", 2.0)}, inplace=True
    )
    def scale(ctx: OpContext) -> None:
        """Multiply by a number."""

    net = Net("n")
    net.Scale("x", "x", by=3)
    net.Scale("x")
    assert [op.args["by"] for op in net.ops] == [3.0, 2.0]
    assert schema("Scale").kernel is scale
    with pytest.raises(BuildError, match="argument 'by': expected a number, found str 'much'"):
        net.Scale("x", by="much")


@pytest.mark.parametrize(
    ("type_", "args", "doc", "message"),
    [
        ("Add", {}, "Again.", "registered already"),
        ("not one", {}, "Doc.", "expected an identifier"),
        ("_Hidden", {}, "Doc.", "expected an identifier"),
        ("Silent", {}, None, "no docstring"),
        ("Named", {"name": ArgSpec(str, "a string")}, "Doc.", "cannot have arguments named name"),
    ],
)
def test_a_wrong_registration_is_refused(
    own_ops: None, type_: str, args: Any, doc: Any, message: str
) -> None:
    def kernel(ctx: OpContext) -> None:
        return None

    kernel.__doc__ = doc
    known = all_ops()
    with pytest.raises(BuildError, match=message):
        register_op(type_, num_inputs=0, num_outputs=0, args=args)(kernel)
    assert all_ops() == known


# --------------------------------------------------------------------------------------------------------- nets


def test_blobs_from_outside_are_known() -> None:
    net = Net("n")
    a, b = net.add_external_input("a", "b")
    c = net.Add([a, "c"], "d")
    assert net.external_inputs == ("a", "b", "c")
    assert net.used_blob_names() == ["a", "b", "c", "d"]
    assert [net.blob_is_defined(x) for x in ("a", "b", "c", "d", "e")] == [True, True, True, True, False]
    net.add_external_output(c, "b")
    net.add_external_output("d")
    assert net.external_outputs == ("d", "b")
    assert b.net is net


@pytest.mark.parametrize(
    ("act", "message"),
    [
        (lambda n: n.add_external_input("a"), "'a' is defined already"),
        (lambda n: n.add_external_input("x", "x"), "'x' is defined already"),
        (lambda n: n.add_external_input(), "at least one"),
        (lambda n: n.add_external_output("x"), "'x' is not defined here"),
    ],
)
def test_wrong_declarations_change_nothing(act: Any, message: str) -> None:
    net = Net("n")
    net.add_external_input("a")
    with pytest.raises(BuildError, match=message):
        act(net)
    assert net.external_inputs == ("a",)
    assert net.external_outputs == ()


def test_attributes_are_kept_by_key_and_once() -> None:
    net, other = Net("n"), Net("m")
    first, second = [1], [1]
    for value in (first, second, first):
        net.add_attribute("setup", value)
    other.add_attribute("setup", first)
    found = net.get_attributes("setup")
    assert [id(value) for value in found] == [id(first), id(second)]
    assert net.get_attributes("other") == []
    step = execution_step("s", [execution_step("t", [net, other]), net])
    assert len(step.get_all_attributes("setup")) == 2


@pytest.mark.parametrize("name", ["", None, 3, "\ud800"])
def test_a_net_needs_a_name(name: Any) -> None:
    with pytest.raises(BuildError, match="net name"):
        Net(name)


# -------------------------------------------------------------------------------------------------------- steps


def work(ws: Any) -> None:
    """Do nothing."""


class Worker:
    def __call__(self, ws: Any, more: int = 0) -> None:
        """Do nothing."""

    def method(self, ws: Any) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("function", "name"),
    [
        (work, "work"),
        (lambda ws: None, "function"),
        (lambda *args: None, "function"),
        (functools.partial(lambda a, ws: None, 1), "partial"),
        (Worker(), "Worker"),
        (Worker().method, "method"),
        (print, "print"),
        (np.sin, "sin"),
    ],
)
def test_a_callable_is_a_step(function: Any, name: str) -> None:
    step = to_execution_step(function)
    assert (step.name, step.function, step.nets, step.substeps, step.num_iter) == (name, function, (), (), 1)
    assert not step.empty


async def coroutine(ws: Any) -> None:
    """Do nothing."""


def generator(ws: Any) -> Iterator[int]:
    yield 1


@pytest.mark.parametrize(
    ("function", "message"),
    [
        (lambda: None, r"can be called with \(workspace\).*function\(\)"),
        (lambda a, b: None, "missing a required argument"),
        (lambda *, ws: None, "too many positional|missing"),
        (Worker.method, "missing a required argument"),
        (coroutine, "coroutine function; calling it would not run it"),
        (generator, "generator function"),
        (3, "expected an ExecutionStep, a Net.*found int: 3"),
        ("step", "found str"),
        (None, "found NoneType"),
        ({}, "found dict"),
        (Task(name="t"), "found Task"),
        (TaskGroup(), "found TaskGroup"),
        ([work, 3], "found int: 3"),
    ],
)
def test_what_is_no_step_is_refused(function: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        to_execution_step(function)


def test_lists_become_nets_or_substeps() -> None:
    a, b = Net("a"), Net("b")
    nets = to_execution_step([a, b])
    assert (nets.nets, nets.substeps) == ((a, b), ())
    mixed = to_execution_step((a, work, [b], nets))
    assert [s.name for s in mixed.substeps] == ["a", "work", "b", "a"]
    assert mixed.substeps[3] is nets
    together = execution_step("s", [a, b], concurrent_substeps=True)
    assert [s.nets for s in together.substeps] == [(a,), (b,)]
    assert to_execution_step(nets) is nets


def test_empty_steps_are_kept() -> None:
    empty = ExecutionStep("nothing")
    assert empty.empty
    outer = execution_step("s", [empty, []])
    assert [s.name for s in outer.substeps] == ["nothing", "sequence"]
    assert not outer.empty
    plan = Plan("p")
    plan.add_step(ExecutionStep("also nothing"))
    assert [s.name for s in plan.steps] == ["also nothing"]


def test_iterations_or_a_stop_blob() -> None:
    assert ExecutionStep("s", num_iter=np.int64(3)).num_iter == 3
    assert ExecutionStep("s", num_iter=0).num_iter == 0
    stopped = execution_step("s", work, should_stop_blob=BlobReference("stop"))
    assert (stopped.num_iter, stopped.should_stop_blob) == (None, "stop")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"nets": [], "substeps": []}, "nets, substeps or a function, found nets and substeps"),
        ({"nets": Net("n"), "function": work}, "found nets and function"),
        ({"num_iter": 1, "should_stop_blob": "b"}, "found both"),
        ({"num_iter": 1.5}, "expected an integer as num_iter"),
        ({"num_iter": True}, "expected an integer as num_iter"),
        ({"nets": [work]}, "expected a Net, found function"),
        ({"substeps": [Net("n")]}, "expected an ExecutionStep, found Net"),
        ({"function": 3}, "expected a callable, found int"),
        ({"should_stop_blob": 3}, "expected a blob name"),
    ],
)
def test_a_wrong_step_is_refused(arguments: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        ExecutionStep("s", **arguments)


def test_a_step_holds_one_kind_of_content() -> None:
    nets, steps, call = (
        ExecutionStep("n", nets=Net("x")),
        ExecutionStep("s"),
        ExecutionStep("f", function=work),
    )
    steps.add_substep(ExecutionStep("inner"))
    for step, add in (
        (nets, lambda: nets.add_substep(ExecutionStep("e"))),
        (steps, lambda: steps.add_net(Net("y"))),
        (call, lambda: call.add_net(Net("y"))),
        (call, lambda: call.add_substep(ExecutionStep("e"))),
    ):
        with pytest.raises(BuildError, match="cannot take"):
            add()
        assert len(step.nets) + len(step.substeps) <= 1


def _freeze_by_step(step: ExecutionStep) -> None:
    ExecutionStep("outer").add_substep(step)


def _freeze_by_task(step: ExecutionStep) -> None:
    Task(step=step)


def _freeze_by_plan(step: ExecutionStep) -> None:
    Plan("p").add_step(step)


@pytest.mark.parametrize("freeze", [_freeze_by_step, _freeze_by_task, _freeze_by_plan])
def test_what_is_used_is_frozen_at_every_depth(freeze: Any) -> None:
    net = Net("n")
    inner = ExecutionStep("inner", nets=net)
    net.Neg("x")
    outer = ExecutionStep("middle", substeps=inner)
    freeze(outer)
    for change in (
        lambda: net.Neg("x"),
        lambda: net.next_blob("x"),
        lambda: net.add_external_input("y"),
        lambda: net.add_attribute("k", 1),
        lambda: inner.add_net(Net("m")),
        lambda: outer.add_substep(ExecutionStep("late")),
    ):
        with pytest.raises(BuildError, match=r"frozen by .* came too late"):
            change()
    assert (len(net.ops), net.frozen, outer.frozen) == (1, True, True)


def test_a_step_cannot_contain_itself() -> None:
    a, b = ExecutionStep("a"), ExecutionStep("b")
    with pytest.raises(BuildError, match="part of itself"):
        a.add_substep(a)
    b.add_substep(a)
    with pytest.raises(BuildError, match="frozen"):
        a.add_substep(b)


# -------------------------------------------------------------------------------------------------------- plans


def test_a_plan_knows_its_nets() -> None:
    a, b = Net("a"), Net("b")
    plan = Plan(execution_step("first", [a, b, a]))
    assert plan.name == "first"
    plan.add_step(work)
    plan.add_step(to_execution_step([b]))
    assert plan.nets == (a, b)
    assert [step.name for step in plan.steps] == ["first", "work", "b"]


def test_two_nets_of_one_name_do_not_fit_into_one_plan() -> None:
    plan = Plan(Net("n"))
    other = to_execution_step(Net("n"))
    with pytest.raises(BuildError, match=r"two different nets named 'n', built at .*test_net"):
        plan.add_step(other)
    assert len(plan.steps) == 1
    assert not other.frozen, "a refused step stays as it was"


def test_a_frozen_plan_takes_no_step() -> None:
    plan = Plan("p")
    plan.freeze("the test")
    with pytest.raises(BuildError, match="frozen by the test"):
        plan.add_step(work)


def test_nets_and_steps_are_freed() -> None:
    net = Net("n")
    net.Const(1).Neg()
    gone = [
        weakref.ref(net),
        weakref.ref(to_execution_step(net)),
        weakref.ref(net.ops[0]),
        weakref.ref(Plan(net)),
    ]
    del net
    gc.collect()
    assert [ref() for ref in gone] == [None] * 4


def test_representations_are_short() -> None:
    net = Net("n")
    net.Const(1)
    step = to_execution_step([net])
    assert repr(net) == "Net(name='n', ops=1)"
    assert repr(step) == "ExecutionStep(name='n', nets=['n'])"
    assert repr(Plan(step)) == "Plan(name='n', steps=['n'])"
    assert repr(to_execution_step(work)) == "ExecutionStep(name='work', function=work)"
    assert repr(execution_step("s", [work])) == "ExecutionStep(name='s', substeps=['work'])"
