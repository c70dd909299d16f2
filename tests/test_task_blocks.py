"""Tasks as blocks and as decorators."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from jobcore.errors import BuildError, ContextError
from jobcore.graph import BlobReference, Net, NetBuilder, ops
from jobcore.tasks import Node, Task, TaskGroup, WorkspaceType

PRIVATE, GLOBAL = WorkspaceType.PRIVATE, WorkspaceType.GLOBAL


def work(ws: Any) -> None:
    """Do nothing."""


def names(group: TaskGroup) -> list[str]:
    return [task.name for task in group.tasks()]


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
