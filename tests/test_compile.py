"""What a session compiles: once, frozen, and kept with the object that it was made of."""

from __future__ import annotations

import copy
import gc
import weakref

import pytest

from jobcore import LocalSession, Node, TaskGroup
from jobcore.errors import BuildError
from jobcore.graph import Net, Plan, execution_step
from jobcore.runtime import CompiledGroup
from session_tools import RUNNABLES, add, constant

pytestmark = pytest.mark.usefixtures("quiet_threads")


# -- compiling


def test_compiling_can_be_done_by_the_class_and_by_a_session(session):
    group = TaskGroup()
    group.task(add("x"))
    compiled = LocalSession.compile(group)
    assert isinstance(compiled, CompiledGroup)
    assert session.compile(group) is compiled
    assert session.compile(compiled) is compiled
    assert compiled.used_nodes() == ["local"]
    assert [task.name for task in compiled.tasks] == ["local/step"]
    assert compiled.tasks_by_node() == {"local": [compiled.tasks[0]]}
    assert "local/step" in repr(compiled)


def test_each_class_of_sessions_compiles_for_itself():
    class Other(LocalSession):
        pass

    group = TaskGroup()
    group.task(add("x"))
    assert Other.compile(group) is not LocalSession.compile(group)


@pytest.mark.parametrize("name", ["net", "builder", "step", "plan of two", "task"])
def test_what_was_compiled_is_kept_with_the_object_and_goes_with_it(name):
    made = RUNNABLES[name]()
    compiled = LocalSession.compile(made)
    assert LocalSession.compile(made) is compiled
    gone = weakref.ref(compiled)
    del made, compiled
    gc.collect()
    assert gone() is None


def test_a_group_that_its_own_steps_refer_to_can_go_while_the_session_lives(session):
    group = TaskGroup()
    group.task(lambda ws, group=group: group)
    session.run(group)
    gone = weakref.ref(group)
    del group
    gc.collect()
    assert gone() is None


def test_compiling_freezes(session):
    group, net = TaskGroup(), Net("n")
    group.task(add("x"))
    steps = Plan(execution_step("s", add("x")))
    for runnable in (group, net, steps):
        session.compile(runnable)
    with pytest.raises(BuildError, match="frozen"):
        group.task(add("y"))
    with pytest.raises(BuildError, match="frozen"):
        net.Const(1)
    with pytest.raises(BuildError, match="frozen"):
        steps.add_step(add("y"))


def test_a_copy_is_compiled_anew(session):
    step = execution_step("s", add("x"))
    compiled = session.compile(step)
    for double in (copy.copy(step), copy.deepcopy(step)):
        double.name = "renamed"
        assert session.compile(double) is not compiled
        assert session.compile(double).tasks[0].name == "local/renamed"
    assert session.compile(step) is compiled


def test_a_step_runs_on_the_node_that_is_current_at_that_time(session):
    step = execution_step("s", add("x"))
    session.run(step)
    with Node("far"):
        session.run(step)
        session.run(step)
    assert [int(session.workspace(node).fetch("x")) for node in ("local", "far")] == [1, 2]


def test_running_registers_nothing_in_the_group_that_is_being_built(session):
    with TaskGroup() as group:
        for make in (add, lambda name: constant("n", 1, name), lambda name: [add(name)]):
            session.run(make("x"))
    assert group.num_registered_tasks() == 0


def test_two_nets_of_one_name_are_refused(session):
    with pytest.raises(BuildError, match="two different nets named 'n'"):
        session.run([constant("n", 1, "x"), constant("n", 2, "y"), add("x")])
