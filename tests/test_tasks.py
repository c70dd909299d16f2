"""Tasks and groups at build time: registration, names, workspace types."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from typing import Any

import pytest

from jobcore.errors import BuildError
from jobcore.graph import ExecutionStep, Net, ops, to_execution_step
from jobcore.tasks import Cluster, Node, Task, TaskGroup, TaskOutput, TaskOutputList, WorkspaceType

PRIVATE, GLOBAL = WorkspaceType.PRIVATE, WorkspaceType.GLOBAL


def work(ws: Any) -> None:
    """Do nothing."""


def names(group: TaskGroup) -> list[str]:
    return [task.name for task in group.tasks()]


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (Cluster, "Cluster(nodes=[], node_kwargs={})"),
        (Node, "Node(name='local', kwargs={})"),
        (TaskGroup, "TaskGroup(tasks=[], workspace_type=None)"),
        (lambda: TaskOutput([]), "TaskOutput(names=[], values=None)"),
        (TaskOutputList, "TaskOutputList(outputs=[])"),
        (Task, "Task(name=local/task, node=local, outputs=[])"),
        (lambda: TaskGroup("global"), "TaskGroup(tasks=[], workspace_type=global)"),
    ],
)
def test_empty_things_show_what_they_are(make: Callable[[], object], text: str) -> None:
    assert repr(make()) == text


def test_showing_a_group_does_not_use_it_up() -> None:
    with TaskGroup() as group:
        Task(name="a")
        assert "local/a" in repr(group)
        assert group.tasks()
        assert group.used_nodes() == ["local"]
        Task(name="b")
    assert names(group) == ["local/a", "local/b"]
    assert group.num_registered_tasks() == 2
    assert not group.frozen


def test_tasks_keep_the_order_in_which_they_were_made() -> None:
    with TaskGroup() as group, Task(name="block"):
        ops.Const(1)
        Task(name="inside")
    Task(name="later", group=group)
    assert names(group) == ["local/block", "local/inside", "local/later"]


def test_names_come_from_the_step_and_are_made_unique() -> None:
    net = Net("my_net")
    with TaskGroup() as group:
        Task()
        Task(step=work)
        Task(step=net, name="mine")
        Task(step=[net])
        Task(name="task")
        Task(name="task:1")
        Task(name="task")
    assert names(group) == [
        "local/task",
        "local/work",
        "local/mine",
        "local/my_net",
        "local/task:1",
        "local/task:1:1",
        "local/task:2",
    ]


def test_a_task_can_be_in_no_group_and_join_one_later() -> None:
    task = Task(name="t")
    group = TaskGroup()
    assert task.group is None
    assert group.add(task) is task
    assert group.add(task) is task
    assert (names(group), task.group) == (["local/t"], group)
    other = TaskGroup()
    with pytest.raises(BuildError, match=r"'local/t' built at .*test_tasks.*belongs to another"):
        other.add(task)
    with pytest.raises(BuildError, match="expected a Task, found function"):
        group.add(work)  # type: ignore[arg-type]  # wrong on purpose
    assert other.tasks() == []


def test_a_task_made_for_a_group_ignores_the_active_one() -> None:
    with TaskGroup() as active:
        other = TaskGroup()
        Task(group=other)
    assert (len(active.tasks()), len(other.tasks())) == (0, 1)
    with pytest.raises(TypeError, match="expected a TaskGroup"):
        Task(group=3)  # type: ignore[arg-type]  # wrong on purpose


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"step": 3}, "found int: 3"),
        ({"step": lambda: None}, "can be called with"),
        ({"name": ""}, "task name"),
        ({"outputs": 3}, "expected outputs as blob names"),
        ({"outputs": [3]}, "found int: 3"),
        ({"workspace_type": "shared"}, "expected 'private' or 'global' as workspace type, found 'shared'"),
        ({"num_instances": 0}, "at least 1, found 0"),
        ({"num_instances": 1.5}, "at least 1, found 1.5"),
        ({"num_instances": True}, "found True"),
        ({"node": ""}, "node name"),
        ({"step": [Net("n"), Net("n")]}, "two different nets named 'n'"),
    ],
)
def test_a_task_that_cannot_be_made_is_in_no_group(arguments: Any, message: str) -> None:
    with TaskGroup() as group:
        with pytest.raises(BuildError, match=message):
            Task(**arguments)
        assert group.tasks() == []


def test_a_group_takes_no_task_once_it_was_compiled() -> None:
    group, free = TaskGroup(), Task(name="free")
    Task(name="t", group=group)
    group.freeze()
    group.freeze()
    for add in (lambda: Task(group=group), lambda: group.add(free), lambda: group.task(work)):
        with pytest.raises(BuildError, match=r"frozen by being compiled.*before the group is first compiled"):
            add()
    with pytest.raises(BuildError, match="frozen"), group, Task():
        pytest.fail("the block must not run")
    assert names(group) == ["local/t"]
    assert free.group is None
    assert group.frozen


def test_freezing_reaches_everything() -> None:
    net = Net("n")
    with TaskGroup() as group:
        given = Task(step=net, outputs="x")
        with Task() as block:
            ops.Const(1)
    group.freeze()
    for task in (given, block):
        assert task.frozen
        for change in (
            lambda t=task: t.add_output("y"),
            lambda t=task: t.set_step(work),
            lambda t=task: t.__enter__(),
        ):
            with pytest.raises(BuildError, match="frozen by being compiled"):
                change()
    assert net.frozen
    assert [output.names for output in given.outputs()] == [("x",)]


def test_an_open_task_cannot_be_compiled() -> None:
    with TaskGroup() as group, Task(name="open"):
        with pytest.raises(BuildError, match=r"'local/open' built at .*is still open"):
            group.freeze()
        assert not group.frozen
    group.freeze()


def test_nets_of_one_name_in_one_group_are_refused() -> None:
    group = TaskGroup()
    Task(step=Net("n"), group=group)
    Task(step=Net("n"), group=group, name="other")
    with pytest.raises(BuildError, match="task group has two different nets named 'n'"):
        group.freeze()
    assert not group.frozen
    net = Net("m")
    shared = TaskGroup()
    Task(step=net, group=shared)
    Task(step=[net, net], group=shared)
    shared.freeze()


@pytest.mark.parametrize(
    ("group_type", "task_types", "expected"),
    [
        (None, [None], PRIVATE),
        (None, [None, None], PRIVATE),
        (None, [None, GLOBAL], GLOBAL),
        (None, ["global", None], GLOBAL),
        (GLOBAL, [None, "global"], GLOBAL),
        ("private", [None], PRIVATE),
    ],
)
def test_all_tasks_of_a_group_have_one_type(
    group_type: Any, task_types: list[Any], expected: WorkspaceType
) -> None:
    with TaskGroup(group_type) as group:
        for task_type in task_types:
            Task(workspace_type=task_type)
    assert {task.workspace_type() for task in group.tasks()} == {expected}


def test_the_type_of_a_group_is_open_until_somebody_names_one() -> None:
    group = TaskGroup()
    Task(group=group)
    assert group.workspace_type() is None
    Task(group=group, workspace_type=GLOBAL)
    assert group.workspace_type() is GLOBAL
    assert Task().workspace_type() is None


def test_types_that_clash_are_refused() -> None:
    group = TaskGroup(GLOBAL)
    with pytest.raises(BuildError, match="expected workspace type global, that of its group, found private"):
        Task(group=group, workspace_type=PRIVATE)
    other = TaskGroup()
    Task(group=other, workspace_type=PRIVATE)
    with pytest.raises(BuildError, match="expected workspace type private"):
        Task(group=other, workspace_type=GLOBAL)
    assert (len(group.tasks()), len(other.tasks())) == (0, 1)
    with pytest.raises(BuildError, match="as workspace type, found 'both'"):
        TaskGroup("both")


def test_one_task_can_be_wrapped_to_run_alone() -> None:
    free = Task(name="free")
    group = TaskGroup.of(free)
    assert (group.tasks(), free.workspace_type()) == ([free], GLOBAL)
    assert TaskGroup.of(free) is group
    with TaskGroup(PRIVATE) as pair:
        first, second = Task(name="first"), Task(name="second")
    alone = TaskGroup.of(first)
    assert (alone.tasks(), alone.workspace_type(), first.group) == ([first], PRIVATE, pair)
    assert pair.tasks() == [first, second]
    assert TaskGroup.of(Task(), "private").workspace_type() is PRIVATE
    with pytest.raises(BuildError, match="expected workspace type global, found private"):
        TaskGroup.of(first, GLOBAL)


def test_instances() -> None:
    assert [Task(num_instances=n).num_instances for n in (None, 1, 4)] == [1, 1, 4]


def test_a_step_can_be_shared_by_tasks() -> None:
    step = to_execution_step(work)
    assert Task(step=step).get_step() is Task(step=step).get_step() is step
    assert isinstance(step, ExecutionStep)


def test_a_group_and_its_tasks_are_freed() -> None:
    with TaskGroup() as group, Task() as task:
        ops.Const(1)
    group.freeze()
    gone = [weakref.ref(group), weakref.ref(task), weakref.ref(task.get_step())]
    del group, task
    gc.collect()
    assert [ref() for ref in gone] == [None] * 3
