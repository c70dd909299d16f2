"""Names: scopes, and names that depend on the program being built and on nothing else."""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcore.errors import BuildError
from jobcore.graph import (
    BlobReference,
    NameAllocator,
    NameRoot,
    NameScope,
    Net,
    NetBuilder,
    current_scope,
    ops,
    scoped,
)
from jobcore.tasks import Node, Task, TaskGroup


def test_scopes_nest_reset_and_end() -> None:
    assert scoped("x") == "x"
    with NameScope("a"):
        with NameScope("b"):
            assert scoped("x") == "a/b/x"
            with NameScope("c", reset=True):
                assert scoped("x") == "c/x"
                with NameScope("", reset=True):
                    assert scoped("x") == "x"
            assert current_scope() == "a/b/"
        with NameScope("d/"), NameScope(""):
            assert scoped("x") == "a/d/x"
    assert current_scope() == ""


def test_scopes_end_after_exceptions() -> None:
    scope = NameScope("a")
    for _ in range(2):
        with pytest.raises(ZeroDivisionError), scope, NameScope("b", reset=True):
            raise ZeroDivisionError
        assert current_scope() == ""


def test_scopes_belong_to_one_thread() -> None:
    found: list[str] = []
    with NameScope("a"):
        thread = threading.Thread(target=lambda: found.append(scoped("x")))
        thread.start()
        thread.join()
    assert found == ["x"]


def test_a_scope_that_a_generator_holds_reaches_into_no_program_and_ends_with_it() -> None:
    def holds() -> Iterator[str]:
        with NameScope("held"):
            yield scoped("x")

    def program() -> list[str]:
        with TaskGroup(), Task(name="t"):
            return [str(ops.Const(1, "x")), str(ops.Const(1))]

    alone = program()
    for end in ("run out", "closed", "forgotten", "thrown into"):
        generator = holds()
        assert next(generator) == "held/x"
        # It is open in this thread as any other block would be; what begins a program begins without it.
        assert program() == alone
        with NameScope("own", reset=True):
            assert scoped("x") == "own/x"
        if end == "run out":
            assert next(generator, None) is None
        elif end == "closed":
            generator.close()
        elif end == "thrown into":
            with pytest.raises(ZeroDivisionError):
                generator.throw(ZeroDivisionError())
        del generator
        gc.collect()
        assert current_scope() == ""


def test_programs_built_in_many_threads_at_once_have_the_names_of_one_built_alone(together) -> None:
    def program(number: int) -> list[str]:
        found = []
        with NameScope(f"around {number}"), TaskGroup(), Task(name="t"):
            for _ in range(20):
                try:
                    with NameScope("inner"), ops.loop(2):
                        found.append(str(ops.Const(1)))
                        if len(found) % 3 == 0:
                            raise ZeroDivisionError
                except ZeroDivisionError:
                    pass
            found.append(str(ops.Const(1)))
        return [*found, current_scope()]

    alone = program(0)
    assert alone[-1] == ""
    assert together(8, program) == [alone] * 8


@pytest.mark.parametrize("prefix", [None, 3, "\ud800"])
def test_a_scope_needs_text(prefix: Any) -> None:
    with pytest.raises(BuildError, match="name scope"):
        NameScope(prefix)


def test_strings_are_scoped_and_references_never() -> None:
    net = Net("n")
    with NameScope("s"):
        made = net.Copy("x", "y")
        net.Copy(made, BlobReference("z"))
        automatic = net.Copy(made)
    assert [(op.inputs, op.outputs) for op in net.ops] == [
        (("s/x",), ("s/y",)),
        (("s/y",), ("z",)),
        (("s/y",), ("s/n/Copy",)),
    ]
    assert automatic == "s/n/Copy"


def test_thirty_six_automatic_names_are_distinct() -> None:
    names = []
    with NetBuilder("b"):
        for net in (ops.net(name="n"), ops.net(name="n")):
            for scope in ("", "s", "s/t"):
                with NameScope(scope):
                    names += [net.Const(0), net.Const(1), *net.Python(lambda i, o: None)((), 2)]
                    names += [net.next_blob("Const"), net.next_blob("Const", output_id=1)]
    assert len(names) == 36
    assert len(set(names)) == 36


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from(["x", "x_1", "x_2", "x_1_1"]))))
def test_an_allocator_never_repeats_itself_and_always_decides_alike(wanted: list[tuple[str, str]]) -> None:
    first, second = NameAllocator(), NameAllocator()
    names = [(kind, first.unique(name, kind=kind)) for kind, name in wanted]
    assert len(set(names)) == len(names)
    assert names == [(kind, second.unique(name, kind=kind)) for kind, name in wanted]
    for (kind, name), asked in zip(names, wanted, strict=True):
        assert kind == asked[0]
        assert name == asked[1] or name.startswith(f"{asked[1]}_")
    taken: set[tuple[str, str]] = set()
    for (kind, name), asked in zip(names, wanted, strict=True):
        assert name == asked[1] or asked in taken, "a free name was not given as it was wanted"
        taken.add((kind, name))


def test_a_net_outside_any_root_has_exactly_its_name() -> None:
    assert [Net("n").name, Net("n").name] == ["n", "n"]


def test_nets_in_a_root_are_numbered_behind_their_builder() -> None:
    with TaskGroup():
        assert [Net("n").name, Net("n").name] == ["n", "n_1"]
        with NetBuilder("b") as builder:
            assert [Net("n").name, Net("n").name, builder.current_net().name] == ["b/n", "b/n_1", "b"]
            with NetBuilder("c") as inner:
                assert inner.name == "b/c"
                assert Net("n").name == "b/c/n"


def build() -> list[str]:
    """Build a program with many generated names, and return them all."""
    names: list[str] = []
    with TaskGroup() as group:
        for _ in range(2):
            with Task(node="m") as task:
                a = ops.Const(1)
                b = ops.Add([a, a])
                with NameScope("s"):
                    names += [a, b, ops.Add([a, "x"], 1), ops.Const(2.0, "mine")]
                with NetBuilder("inner") as inner:
                    names.append(ops.Neg(a))
                ops.net(inner)
            names.append(task.name)
        with Task(name="named"):
            names.append(ops.CreateCounter())
        names.append(Net("free").name)
    for task in group.tasks():
        step = task.get_step()
        assert step is not None
        names += [net.name for net in step.all_nets()]
    return [str(name) for name in names]


def test_names_are_those_that_are_documented() -> None:
    names = build()
    assert names[:6] == [
        "m/task/Const",
        "m/task/Add",
        "s/m/task/Add:0",
        "s/mine",
        "m/task/inner/Neg",
        "m/task",
    ]
    assert names[6:12] == [
        "m/task:1/Const",
        "m/task:1/Add",
        "s/m/task:1/Add:0",
        "s/mine",
        "m/task:1/inner/Neg",
        "m/task:1",
    ]
    assert names[12:14] == ["local/named/CreateCounter", "free"]


def _elsewhere(make: Callable[[], list[str]]) -> list[str]:
    found: list[str] = []
    thread = threading.Thread(target=lambda: found.extend(make()))
    thread.start()
    thread.join()
    return found


def _after_others(make: Callable[[], list[str]]) -> list[str]:
    Net("free")
    with NetBuilder("inner"), Task(node="m"):
        ops.Const(1)
    with TaskGroup(), Task(node="m"):
        ops.Const(1)
    return make()


def _in_scope(make: Callable[[], list[str]]) -> list[str]:
    with NameScope("outside"):
        return make()


def _in_builder(make: Callable[[], list[str]]) -> list[str]:
    with NetBuilder("outside"):
        return make()


def _in_group(make: Callable[[], list[str]]) -> list[str]:
    with TaskGroup(), Task():
        ops.Const(1)
        return make()


def _after_a_failure(make: Callable[[], list[str]]) -> list[str]:
    with pytest.raises(ZeroDivisionError), NameScope("x"), TaskGroup(), Task(node="m"):
        raise ZeroDivisionError
    return make()


@pytest.mark.parametrize(
    "where", [_elsewhere, _after_others, _in_scope, _in_builder, _in_group, _after_a_failure]
)
def test_one_program_text_gives_the_same_names_wherever_it_runs(where: Callable[..., list[str]]) -> None:
    assert where(build) == build()


def test_a_job_decides_over_the_groups_inside_it() -> None:
    # A job is a NameRoot of its own; its groups share the allocator, so their blobs never meet by accident.
    names = NameAllocator()
    groups = [TaskGroup(names=names), TaskGroup(names=names)]
    made = []
    with NameRoot(names):
        for group in groups:
            with group, Task() as task:
                made.append(str(ops.Const(0)))
            assert task.name == "local/task"
    with groups[0], Task(name="task"):
        made.append(str(ops.Const(0)))
    with NameScope("not me"), NameRoot(names), TaskGroup(), Task():
        made.append(str(ops.Const(0)))
    with NameRoot(names), NameScope("me"), TaskGroup(), Task(name="other"):
        made.append(str(ops.Const(0)))
    assert made == [
        "local/task/Const",
        "local/task_1/Const",
        "local/task:1/Const",
        "local/task_2/Const",
        "me/local/other/Const",
    ]


def test_a_scope_goes_on_into_a_builder_that_stands_alone() -> None:
    with NameScope("s"), NetBuilder("b"):
        assert ops.Const(1) == "s/b/Const"
        assert ops.Const(1, "x") == "s/x"


def test_a_reference_is_its_name() -> None:
    net = Net("n")
    ref = BlobReference("x", net)
    assert ref == "x"
    assert {"x": 1}[ref] == 1
    assert {ref: 1}["x"] == 1
    assert hash(ref) == hash("x")
    assert type(str(ref)) is str
    assert repr(ref) == "BlobReference('x')"
    longer, prefixed = ref + "_grad", "pre/" + ref
    assert (longer, prefixed) == ("x_grad", "pre/x")
    assert isinstance(longer, BlobReference)
    assert isinstance(prefixed, BlobReference)
    assert longer.net is net
    assert prefixed.net is net


def test_an_op_called_on_a_reference_is_added_to_its_net() -> None:
    net = Net("n")
    x = net.Const(1, "x")
    y = x.Add("k", "y")
    assert y.Neg() == "n/Neg"
    assert [op.inputs for op in net.ops] == [(), ("x", "k"), ("y",)]
    with pytest.raises(AttributeError, match="no net"):
        _ = BlobReference("x").Add
    with pytest.raises(AttributeError, match="did you mean Add"):
        _ = x.Addd
    assert not hasattr(x, "_private")


@pytest.mark.parametrize("name", ["", "\udc80", 3, None])
def test_a_reference_needs_a_name(name: Any) -> None:
    with pytest.raises(BuildError, match="blob name"):
        BlobReference(name)


def test_nodes_and_scopes_do_not_mix() -> None:
    with TaskGroup(), Node("n"), NameScope("s"), Task() as task:
        pass
    assert task.name == "n/task"
