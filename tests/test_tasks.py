"""Tasks, groups, nodes and outputs at build time."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from jobcore.errors import BlobValueError, BuildError, ContextError, NotRunError
from jobcore.graph import BlobReference, ExecutionStep, Net, NetBuilder, ops, to_execution_step
from jobcore.tasks import (
    Cluster,
    Node,
    Task,
    TaskGroup,
    TaskOutput,
    TaskOutputList,
    WorkspaceType,
    final_output,
)

PRIVATE, GLOBAL = WorkspaceType.PRIVATE, WorkspaceType.GLOBAL


def work(ws: Any) -> None:
    """Do nothing."""


def names(group: TaskGroup) -> list[str]:
    return [task.name for task in group.tasks()]


# ---------------------------------------------------------------------------------------------- representations


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


# --------------------------------------------------------------------------------------------- nodes and cluster


def test_nodes_register_with_the_active_cluster_where_they_are_made() -> None:
    Node("nowhere")
    with Cluster() as cluster:
        Node("b", gpus=1)
        Node("a")
        Node("b", gpus=8, rack="r")
        assert Node.current().name == "local"
        assert cluster.nodes() == ["b", "a"], "asking for the current node registers nothing"
        Task(name="t")
        Task(node="c")
    assert cluster.nodes() == ["b", "a", "local", "c"]
    assert cluster.node_kwargs() == {"b": {"gpus": 1, "rack": "r"}, "a": {}, "local": {}, "c": {}}
    cluster.add_node("d")
    assert (
        repr(cluster)
        == f"Cluster(nodes={['b', 'a', 'local', 'c', 'd']}, node_kwargs={cluster.node_kwargs()})"
    )


def test_the_default_node_and_cluster_are_not_left_active() -> None:
    assert Node.current() == Node("local")
    assert Node.current(required=False) is None
    assert Cluster.current() is not Cluster.current()
    assert Cluster.current(required=False) is None


def test_a_node_is_its_name() -> None:
    assert Node("a", x=1) == Node("a")
    assert len({Node("a"), Node("a"), Node("b")}) == 2
    assert Node("a") != "a"
    assert str(Node("a")) == "a"


def test_tasks_belong_to_the_current_node() -> None:
    with TaskGroup() as group:
        with Node("a"):
            Task()
            with Node("b"), Task():
                pass
            Task(node="c")
            Task(node=Node("a"))
        Task()
    assert names(group) == ["a/task", "b/task", "c/task", "a/task:1", "local/task"]
    assert group.used_nodes() == ["a", "b", "c", "local"]
    assert [task.node for task in group.tasks()] == ["a", "b", "c", "a", "local"]


@pytest.mark.parametrize("name", ["", 3, "\ud800"])
def test_a_node_needs_a_name(name: Any) -> None:
    with pytest.raises(BuildError, match="node name"):
        Node(name)


# -------------------------------------------------------------------------------------------------- registration


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


# ------------------------------------------------------------------------------------------------ workspace types


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


# ---------------------------------------------------------------------------------------------------- task blocks


def test_a_block_becomes_the_step() -> None:
    with Task(name="t") as task:
        assert Task.current() is task
        assert NetBuilder.current().name == "local/t"
        ops.Const(1)
        with pytest.raises(BuildError, match="still open"):
            task.get_step()
        with pytest.raises(BuildError, match="content of its block becomes its step"):
            task.set_step(work)
    step = task.get_step()
    assert step is not None
    assert (step.name, [net.name for net in step.nets]) == ("local/t", ["local/t"])
    assert step.frozen
    assert Task.current(required=False) is None
    assert NetBuilder.current(required=False) is None


def test_an_empty_block_is_an_empty_step_and_no_step_is_none() -> None:
    with Task() as block:
        pass
    step = block.get_step()
    assert step is not None
    assert step.empty
    assert Task().get_step() is None


def test_a_task_inside_another_task_stands_alone() -> None:
    with TaskGroup(), Task(name="outer"), Task(name="inner") as inner:
        assert ops.Const(1) == "local/inner/Const"
    assert inner.name == "local/inner"


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_a_block_that_raises_leaves_no_task(error: type[BaseException]) -> None:
    def block() -> None:
        ops.Const(1)
        raise error("half way")

    with TaskGroup() as group:
        Task(name="before")
        broken = Task(name="broken")
        with pytest.raises(error):
            broken(block)()
        with Task(name="broken") as again:
            ops.Const(1)
    assert group.tasks()[1:] == [again]
    assert again.name == "local/broken"
    assert broken.group is None
    for use in (lambda: group.add(broken), lambda: broken.set_step(work), lambda: TaskGroup.of(broken)):
        with pytest.raises(BuildError, match=r"exception in its block \(.*half way"):
            use()
    assert (Task.current(required=False), NetBuilder.current(required=False)) == (None, None)


def test_a_block_whose_content_is_wrong_leaves_no_task() -> None:
    nets = [Net("n"), Net("n")]
    with TaskGroup() as group:
        with pytest.raises(BuildError, match="two different nets named 'n'"), Task():
            ops.net(nets)
        assert group.tasks() == []


def test_contexts_left_in_the_wrong_order_leave_no_task() -> None:
    with TaskGroup() as group:
        task, inner = Task(), NetBuilder()
        task.__enter__()
        inner.__enter__()
        with pytest.raises(ContextError, match="left before what was entered inside it"):
            task.__exit__(None, None, None)
        inner.__exit__(None, None, None)
    assert group.tasks() == []


def test_a_task_is_a_block_once_and_only_without_a_step() -> None:
    with Task() as task:
        with pytest.raises(BuildError, match="used as a block already"):
            task.__enter__()
        assert Task.current() is task
    with pytest.raises(BuildError, match="used as a block already"):
        task.__enter__()
    with pytest.raises(BuildError, match="has a step already and cannot be a block too"):
        Task(step=work).__enter__()
    assert Task.current(required=False) is None


def test_a_step_can_be_set_and_replaced_until_it_is_compiled() -> None:
    task, net = Task(), Net("n")
    for source, function, nets in ((work, work, ()), (net, None, (net,))):
        task.set_step(source)
        step = task.get_step()
        assert step is not None
        assert (step.function, step.nets) == (function, nets)
    with pytest.raises(BuildError, match="found int"):
        task.set_step(3)  # type: ignore[arg-type]  # wrong on purpose
    assert task.get_step() is step


def test_a_task_says_where_it_was_built() -> None:
    task = Task(name="t", step=work)
    file, _, line = task.built_at.rpartition(":")
    assert Path(file).name == Path(__file__).name
    assert 'task = Task(name="t", step=work)' in Path(file).read_text().splitlines()[int(line) - 1]
    step = task.get_step()
    assert step is not None
    assert step.built_at == task.built_at


# ----------------------------------------------------------------------------------------------------- decorators


def test_functions_become_tasks() -> None:
    group, other = TaskGroup(GLOBAL), TaskGroup()

    @group.task
    def plain(ws: Any) -> None:
        """Do nothing."""

    @group.task()
    def called(ws: Any) -> None:
        """Do nothing."""

    @group.task(
        node="n", name="chosen", outputs=["a", BlobReference("b")], num_instances=3, workspace_type="global"
    )
    def named(ws: Any) -> None:
        """Do nothing."""

    with other, Node("m"):

        @group.task
        def elsewhere(ws: Any) -> None:
            """Do nothing."""

    lambdas = group.task(lambda ws: None)
    assert names(group) == ["local/plain", "local/called", "n/chosen", "m/elsewhere", "local/function"]
    assert group.tasks() == [plain, called, named, elsewhere, lambdas]
    assert other.tasks() == []
    assert [output.names for output in named.outputs()] == [("a",), ("b",)]
    assert named.num_instances == 3
    for task in group.tasks():
        step = task.get_step()
        assert step is not None
        assert callable(step.function)
        assert Path(task.built_at.rpartition(":")[0]).name == Path(__file__).name


def test_only_what_can_be_called_with_a_workspace_becomes_a_task() -> None:
    group = TaskGroup()
    for step in (lambda: None, 3, Task()):
        with pytest.raises(BuildError):
            group.task(step)  # type: ignore[call-overload]  # wrong on purpose
    assert group.tasks() == []


def test_a_task_can_decorate_the_function_that_builds_it() -> None:
    task = Task(name="t")

    @task
    def build() -> BlobReference:
        ref = ops.Const(1)
        assert isinstance(ref, BlobReference)
        return ref

    assert build() == "local/t/Const"
    assert task.get_step() is not None


# --------------------------------------------------------------------------------------------------------- outputs


@pytest.mark.parametrize(
    ("names_", "values", "fetched"),
    [
        ("a", [1], 1),
        (BlobReference("a"), [None], None),
        (["a"], [1], [1]),
        (["a", "b"], [1, 2], [1, 2]),
        ([], [], []),
    ],
)
def test_outputs_give_values_in_the_shape_of_their_names(
    names_: Any, values: list[Any], fetched: Any
) -> None:
    output = TaskOutput(names_)
    with pytest.raises(NotRunError, match="has no value"):
        output.fetch()
    output.set_values(values)
    assert output.fetch() == fetched
    with pytest.raises(BlobValueError, match=f"expected {len(values)} values, found {len(values) + 1}"):
        output.set_values([*values, 0])
    assert output.fetch() == fetched
    output.clear()
    with pytest.raises(NotRunError, match="run the task's group"):
        output.fetch()


def test_labels() -> None:
    assert TaskOutput("a").label == "a"
    assert TaskOutput(["a", "b"]).label is None
    assert TaskOutput("a", label="loss").label == "loss"
    assert TaskOutput("a", label="").label == ""


def test_output_lists_are_flat() -> None:
    outputs = [TaskOutput("a"), TaskOutput(["b", "c"]), TaskOutput([])]
    flat = TaskOutputList(outputs)
    assert flat.names() == ["a", "b", "c"]
    with pytest.raises(BlobValueError, match="expected 3 output values, found 2"):
        flat.set_values([1, 2])
    flat.set_values([1, 2, 3])
    assert [output.fetch() for output in outputs] == [1, [2, 3], []]
    assert "TaskOutput(names=['b', 'c'], values=[2, 3])" in repr(flat)


def test_outputs_are_added_in_order_and_once() -> None:
    task = Task(outputs="a")
    first = task.add_output(["b", "c"])
    one = task.add_outputs("d")
    several = task.add_outputs([first, "e", ("f", "g")])
    assert isinstance(one, TaskOutput)
    assert isinstance(several, list)
    assert several[0] is first
    assert task.output_list().names() == ["a", "b", "c", "d", "e", "f", "g"]
    assert len(task.outputs()) == 5


def test_final_output_goes_to_the_active_task_or_a_new_one() -> None:
    with TaskGroup() as group:
        with Task(name="t") as task:
            inside = final_output(ops.Const(1))
        outside = final_output(BlobReference("x"))
    assert task.outputs() == [inside]
    assert names(group) == ["local/t", "local/task"]
    made = group.tasks()[1]
    assert made.outputs() == [outside]
    assert made.get_step() is None
    own = TaskOutput(["a"])
    assert final_output(own) is own


@pytest.mark.parametrize("output", ["", 3, ["a", 3], "\ud800"])
def test_an_output_needs_names(output: Any) -> None:
    with pytest.raises(BuildError):
        TaskOutput(output)


# ------------------------------------------------------------------------------------------------------------ rest


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
