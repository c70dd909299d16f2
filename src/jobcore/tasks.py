"""Tasks and task groups: pieces of work that start together, on one node or on many."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from typing import overload

from jobcore.errors import BuildError
from jobcore.graph.builder import NetBuilder
from jobcore.graph.context import Managed
from jobcore.graph.control import LOCAL_SETUP, REPORT_STEP, TASK_INSTANCE_SETUP, TASK_SETUP, positive_count
from jobcore.graph.names import NameAllocator, check_name
from jobcore.graph.plan import merge_nets
from jobcore.graph.setups import TaskBlocks, collect_task_blocks
from jobcore.graph.step import ExecutionStep, StepFunction, Steppable, to_execution_step
from jobcore.graph.where import built_at
from jobcore.groups import TaskGroupCore, WorkspaceType, as_workspace_type
from jobcore.nodes import Cluster, Node, register
from jobcore.outputs import TaskOutput, TaskOutputList

__all__ = [
    "Cluster",
    "Node",
    "Task",
    "TaskGroup",
    "TaskOutput",
    "TaskOutputList",
    "WorkspaceType",
    "as_workspace_type",
    "final_output",
]


class Task(Managed):
    """One step of work on one node, with outputs.

    A task is given its step, or is a block: ops written inside ``with Task() as task:`` become the step.
    It joins `group`, or the active task group, where it is made; a block that raises takes it out again.

    Parameters
    ----------
    step
        A step, a net, a net builder, a callable taking the workspace, or a list of those.
    outputs
        One output or several: blob names, references, or `TaskOutput` objects.
    workspace_type
        By default the group's type, and PRIVATE where it has none.
    group
        The group to join; by default the active one, if any.
    node
        Where it runs: a `Node` or a name; by default the current node, ``local`` outside any.
    name
        By default the step's name, or ``task``. The node and a ``/`` go in front; if the group has a task
        of that name, ``:1``, ``:2`` and so on are added.
    num_instances
        How many copies run at once, each with a workspace of its own.

    Attributes
    ----------
    name
        The complete name.
    node
        The node's name.
    num_instances
        As given, at least 1.
    built_at
        ``file:line`` of the statement that made it.
    TASK_SETUP, TASK_INSTANCE_SETUP, REPORT_STEP
        Keys for ``net.add_attribute(key, object)``. Objects under the first two have a method ``setup(net)``,
        ``exit(net)`` or both, see `SetupNets`; under the third stand steps and nets.

    Raises
    ------
    BuildError
        A wrong argument, a workspace type that clashes with the group's, a group that was compiled
        already; the group is as before then.

    Notes
    -----
    Thread safety: none; a group is built by one thread.
    """

    TASK_SETUP = TASK_SETUP
    TASK_INSTANCE_SETUP = TASK_INSTANCE_SETUP
    REPORT_STEP = REPORT_STEP

    def __init__(
        self,
        step: Steppable | None = None,
        outputs: str | TaskOutput | Iterable[str | TaskOutput] | None = None,
        workspace_type: WorkspaceType | str | None = None,
        group: TaskGroup | None = None,
        node: Node | str | None = None,
        name: str | None = None,
        num_instances: int | None = 1,
    ) -> None:
        self.built_at = built_at()
        self._frozen_by: str | None = None
        self._builder: NetBuilder | None = None
        self._group: TaskGroup | None = None
        self._outputs: list[TaskOutput] = []
        self._step: ExecutionStep | None = None
        self._blocks: TaskBlocks | None = None
        self._workspace_type = as_workspace_type(workspace_type)
        where = node if isinstance(node, Node) else Node.current() if node is None else Node(node)
        self.node = where.name
        self.num_instances = 1 if num_instances is None else positive_count(num_instances, "num_instances")
        converted = None if step is None else to_execution_step(step, built_at=self.built_at)
        base = check_name(name, "task name") if name is not None else converted.name if converted else "task"
        self.name = f"{self.node}/{base}"
        if converted is not None:
            self._keep(converted)
        if outputs is not None:
            self.add_outputs(outputs)
        # Last, so that a task that cannot be made is in no group.
        group = TaskGroup.current(group, required=False)
        if group is not None:
            group.add(self)
        register(where)

    @property
    def group(self) -> TaskGroup | None:
        """The group that the task is registered with."""
        return self._group

    @property
    def frozen(self) -> bool:
        """Whether the task can no longer change."""
        return self._frozen_by is not None

    def get_step(self) -> ExecutionStep | None:
        """Return the step, or ``None`` for a task without one, which only has outputs.

        Raises
        ------
        BuildError
            The task's block is still open.
        """
        if self._builder is not None and not self._builder.frozen:
            raise BuildError(f"{self._shown()} is still open", hint="use it after the end of its with block")
        return self._step

    def set_step(self, step: Steppable) -> None:
        """Give the task its step, in place of the one it has.

        Raises
        ------
        BuildError
            The task is frozen, its block is open, or `step` is no step.
        """
        self._assert_open("a step")
        if self._builder is not None and not self._builder.frozen:
            raise BuildError(f"{self._shown()} is open: the content of its block becomes its step")
        self._keep(to_execution_step(step, built_at=built_at()))

    def _keep(self, step: ExecutionStep) -> None:
        merge_nets({}, step, f"task {self.name!r}")
        step.freeze(f"task {self.name!r}")
        self._step, self._blocks = step, None

    def add_output(self, output: str | Iterable[str] | TaskOutput) -> TaskOutput:
        """Add an output: one blob, a list of blobs that are fetched together, or a `TaskOutput`.

        Raises
        ------
        BuildError
            The task is frozen, or it is none of those.
        """
        self._assert_open("an output")
        if not isinstance(output, TaskOutput):
            output = TaskOutput(output)
        if not any(other is output for other in self._outputs):
            self._outputs.append(output)
        return output

    def add_outputs(
        self, outputs: str | TaskOutput | Iterable[str | TaskOutput]
    ) -> TaskOutput | list[TaskOutput]:
        """Add one output, or each of several; returns one or a list, like the argument.

        Raises
        ------
        BuildError
            As `add_output`.
        """
        if isinstance(outputs, (str, TaskOutput)):
            return self.add_output(outputs)
        if not isinstance(outputs, Iterable):
            raise BuildError(
                f"{self._shown()}: expected outputs as blob names, BlobReferences or TaskOutputs, found "
                f"{type(outputs).__name__}: {outputs!r}"
            )
        return [self.add_output(output) for output in outputs]

    def outputs(self) -> list[TaskOutput]:
        """Return the outputs in the order in which they were added."""
        return list(self._outputs)

    def output_list(self) -> TaskOutputList:
        """Return the outputs as one flat list of names."""
        return TaskOutputList(self._outputs)

    def workspace_type(self) -> WorkspaceType | None:
        """Return the task's own type, else its group's, else PRIVATE; ``None`` without type and group."""
        if self._workspace_type is not None or self._group is None:
            return self._workspace_type
        return self._group.workspace_type() or WorkspaceType.PRIVATE

    def _collect_blocks(self, names: NameAllocator) -> TaskBlocks:
        """Return what runs before, beside and after the step; its set-up objects are called once."""
        if self._blocks is None:
            step = self.get_step()
            self._blocks = TaskBlocks() if step is None else collect_task_blocks(step, self.name, names)
        return self._blocks

    def freeze(self, by: str = "freeze()") -> None:
        """Refuse every later change.

        Raises
        ------
        BuildError
            The task's block is still open.
        """
        self.get_step()
        self._frozen_by = self._frozen_by or by

    def _enter_context(self, inner: ExitStack) -> None:
        self._assert_open("its block")
        if self._builder is not None:
            raise BuildError(f"{self._shown()} was used as a block already")
        if self._step is not None:
            raise BuildError(
                f"{self._shown()} has a step already and cannot be a block too",
                hint="leave out step=, or write `with Task(...)` without it",
            )
        self._builder = NetBuilder(self.name, absolute=True)
        inner.enter_context(self._builder)

    def _leave_context(self, error: BaseException | None) -> None:
        assert self._builder is not None
        if error is None:
            try:
                self._keep(to_execution_step(self._builder))
                return
            except BuildError as failure:
                self._discard(failure)
                raise
        self._discard(error)

    def _discard(self, error: BaseException) -> None:
        # A task whose block raised must not run half of what it was meant to do.
        if self._group is not None:
            self._group._remove(self)
            self._group = None
        self._frozen_by = f"an exception in its block ({type(error).__name__}: {error})"

    def _assert_open(self, what: str) -> None:
        if self._frozen_by is not None:
            raise BuildError(f"{self._shown()} was frozen by {self._frozen_by}; {what} came too late")

    def _shown(self) -> str:
        return f"task {self.name!r} built at {self.built_at or '?'}"

    def __repr__(self) -> str:
        return f"Task(name={self.name}, node={self.node}, outputs={self._outputs})"


class TaskGroup(TaskGroupCore):
    """Tasks that start together; the group is done when the last of them is.

    Parameters
    ----------
    workspace_type
        Type of all its tasks. Without one, the first task that names a type decides for the whole group,
        and when none does they are PRIVATE.
    names
        The allocator to share with others; a new one by default.

    Notes
    -----
    A group can be compiled any number of times. The first time freezes it: tasks can no longer be added.
    Thread safety: none while it is built; a frozen group may be read by many threads.
    """

    LOCAL_SETUP = LOCAL_SETUP

    @classmethod
    def of(cls, task: Task, workspace_type: WorkspaceType | str | None = None) -> TaskGroup:
        """Return a group for running one task alone.

        Parameters
        ----------
        task
            One without a group joins the new one. One with a group stays there, with the type it has there.
        workspace_type
            For a task without a type; GLOBAL by default.

        Raises
        ------
        BuildError
            The task has another type, or cannot be run because its block raised.
        """
        wanted = as_workspace_type(workspace_type)
        found = task.workspace_type()
        if wanted is not None and found is not None and wanted is not found:
            raise BuildError(f"{task._shown()}: expected workspace type {wanted}, found {found}")
        if task.group is not None and task.group.tasks() == [task]:
            return task.group
        group = cls(found or wanted or WorkspaceType.GLOBAL)
        if task.group is None:
            group.add(task)
        else:
            group._tasks.append(task)
        return group

    def add(self, task: Task) -> Task:
        """Add a task and return it.

        Raises
        ------
        BuildError
            The group was compiled already, the task belongs to another group, its block raised, or its
            workspace type is not the group's. Nothing is changed then.
        """
        if not isinstance(task, Task):
            raise BuildError(f"expected a Task, found {type(task).__name__}: {task!r}")
        self._register(task)
        task._group = self
        return task

    @overload
    def task(self, step: StepFunction, /) -> Task: ...
    @overload
    def task(
        self,
        step: None = None,
        /,
        *,
        node: Node | str | None = None,
        name: str | None = None,
        outputs: str | TaskOutput | Iterable[str | TaskOutput] | None = None,
        workspace_type: WorkspaceType | str | None = None,
        num_instances: int | None = 1,
    ) -> Callable[[StepFunction], Task]: ...
    def task(
        self,
        step: StepFunction | None = None,
        /,
        *,
        node: Node | str | None = None,
        name: str | None = None,
        outputs: str | TaskOutput | Iterable[str | TaskOutput] | None = None,
        workspace_type: WorkspaceType | str | None = None,
        num_instances: int | None = 1,
    ) -> Task | Callable[[StepFunction], Task]:
        """Make the decorated function a task of this group: ``@group.task`` or ``@group.task(name=...)``.

        Parameters
        ----------
        step
            The function; it is called with the workspace.
        node, name, outputs, workspace_type, num_instances
            As for `Task`; the name is the function's by default.

        Returns
        -------
        Task
            In place of the function.

        Raises
        ------
        BuildError
            As for `Task`, and for something that is not a callable taking the workspace.
        """

        def register_task(function: StepFunction) -> Task:
            return Task(
                step=to_execution_step(function, built_at=built_at()),
                outputs=outputs,
                workspace_type=workspace_type,
                group=self,
                node=node,
                name=name,
                num_instances=num_instances,
            )

        return register_task if step is None else register_task(step)


def final_output(blob: str | Iterable[str] | TaskOutput) -> TaskOutput:
    """Make `blob` an output of the active task; outside any, of a new task without a step.

    Parameters
    ----------
    blob
        One blob, or a list of blobs that are fetched together.

    Returns
    -------
    TaskOutput
        Holds the values once a session has run the task.
    """
    task = Task.current(required=False)
    if task is None:
        output = blob if isinstance(blob, TaskOutput) else TaskOutput(blob)
        Task(outputs=output)
        return output
    return task.add_output(blob)
