"""What a group of tasks keeps: its tasks with their names, their workspace type, and whether they may change."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from jobcore.errors import BuildError
from jobcore.graph.names import NameAllocator, NameRoot
from jobcore.graph.net import Net
from jobcore.graph.plan import merge_nets
from jobcore.graph.setups import (
    NodeBlocks,
    TaskBlocks,
    collect_node_blocks,
    report_step,
)
from jobcore.graph.step import ExecutionStep, Steppable
from jobcore.graph.where import built_at
from jobcore.nodes import Node

if TYPE_CHECKING:
    from jobcore.tasks import Task

__all__ = ["GroupBlocks", "TaskGroupCore", "WorkspaceType", "as_workspace_type"]


class WorkspaceType(StrEnum):
    """Where the blobs that a task makes anew live."""

    PRIVATE = "private"
    """In a workspace of the task's own, which goes when the run ends."""
    GLOBAL = "global"
    """In the node's workspace, where they stay."""


@dataclass(frozen=True, slots=True)
class GroupBlocks:
    """What runs before, beside and after the tasks of a group: of each task, in order, and of each node."""

    tasks: tuple[TaskBlocks, ...]
    nodes: Mapping[str, NodeBlocks]


class TaskGroupCore(NameRoot, abstract=True):
    """A task group, but for making tasks; see `jobcore.TaskGroup`."""

    name_rank = 1

    def __init__(
        self, workspace_type: WorkspaceType | str | None = None, names: NameAllocator | None = None
    ) -> None:
        super().__init__(names)
        self.built_at = built_at()
        self._workspace_type = as_workspace_type(workspace_type)
        self._tasks: list[Task] = []
        self._names: set[str] = set()
        self._next_number: dict[str, int] = {}
        self._frozen_by: str | None = None
        self._report_steps: list[tuple[str, ExecutionStep]] = []
        self._report_nets: dict[str, tuple[Net, float]] = {}
        self._blocks: GroupBlocks | None = None

    def _register(self, task: Task) -> None:
        """Take a task in, under a name of its own; where that is refused, nothing is changed."""
        if self._frozen_by is not None:
            raise BuildError(
                f"{task._shown()} is added to a task group that was frozen by {self._frozen_by}",
                hint="add all tasks before the group is first compiled or run; make a new group for more",
            )
        if task.group is self:
            return
        if task.group is not None:
            raise BuildError(f"{task._shown()} belongs to another task group already")
        task._assert_open("its group")
        wanted = task._workspace_type
        if wanted is not None and self._workspace_type is not None and wanted is not self._workspace_type:
            raise BuildError(
                f"{task._shown()}: expected workspace type {self._workspace_type}, that of its group, "
                f"found {wanted}"
            )
        self._workspace_type = self._workspace_type or wanted
        task.name = self._unique(task.name)
        self._tasks.append(task)

    def _unique(self, base: str) -> str:
        number = self._next_number.get(base, 0)
        name = f"{base}:{number}" if number else base
        while name in self._names:
            number += 1
            name = f"{base}:{number}"
        # The next search starts here: a group of 10,000 tasks of one name stays linear.
        self._next_number[base] = number
        self._names.add(name)
        return name

    def _remove(self, task: Task) -> None:
        self._tasks = [other for other in self._tasks if other is not task]
        self._names.discard(task.name)
        self._next_number.clear()

    def tasks(self) -> list[Task]:
        """Return the tasks in the order in which they were made."""
        return list(self._tasks)

    def num_registered_tasks(self) -> int:
        """Return how many tasks there are."""
        return len(self._tasks)

    def used_nodes(self) -> list[str]:
        """Return the names of the nodes that tasks belong to, each once, in order of first use."""
        return list(dict.fromkeys(task.node for task in self._tasks))

    def workspace_type(self) -> WorkspaceType | None:
        """Return the type of the group's tasks, ``None`` as long as nobody named one."""
        return self._workspace_type

    @property
    def frozen(self) -> bool:
        """Whether the group was compiled, and so can no longer change."""
        return self._frozen_by is not None

    def report_step(
        self, step: Steppable, node: Node | str | None = None, interval_ms: float = 1000
    ) -> ExecutionStep:
        """Run a step again and again on a node while the group runs, and exactly once more when its tasks have ended.

        Parameters
        ----------
        step
            A step, a net, a net builder, a callable taking the workspace, or a list of those. It works on the node's
            workspace, with what the group's local_init blocks made.
        node
            One that tasks of the group run on; by default the current one.
        interval_ms
            Milliseconds from the end of one report to the next one.

        Returns
        -------
        ExecutionStep
            The step.

        Raises
        ------
        BuildError
            The group is frozen, it is no step, or the interval is not above 0. When the group is compiled: none of its
            tasks runs on the node.
        """
        self._assert_open("a report step")
        reporter = report_step(step, interval_ms)
        self._report_steps.append((Node.current().name if node is None else str(node), reporter))
        return reporter

    def report_net(
        self, net: Net | None = None, node: Node | str | None = None, report_interval: float = 5
    ) -> Net:
        """Return the net that is run every `report_interval` seconds on a node; `report_step` can do more.

        Parameters
        ----------
        net
            The net for this node; a new one by default. The second call gives the same one.
        node
            As for `report_step`.
        report_interval
            Seconds; that of the first call counts.

        Raises
        ------
        BuildError
            As `report_step`, and for a second net for one node.
        """
        self._assert_open("a report net")
        where = Node.current().name if node is None else str(node)
        known = self._report_nets.get(where)
        if known is not None:
            if net is not None and net is not known[0]:
                raise BuildError(
                    f"node {where!r} has the report net {known[0].name!r} already, found a second one: {net.name!r}",
                    hint="add to the first one, or use report_step",
                )
            return known[0]
        if net is None:
            with NameRoot(self.names):
                net = Net.named(f"{where}/reporter")
        self._report_nets[where] = (net, report_interval)
        return net

    def _assert_open(self, what: str) -> None:
        if self._frozen_by is not None:
            raise BuildError(f"the task group was frozen by {self._frozen_by}; {what} came too late")

    def freeze(self, by: str = "being compiled") -> None:
        """Refuse every later change of the group, its tasks, their steps and nets; can be repeated.

        Raises
        ------
        BuildError
            A task's block is still open, two different nets of the group have one name, a set-up object gives no
            steps, or a report step is for a node without tasks. The group is not frozen then.
        """
        if self._frozen_by is not None:
            return
        nets: dict[str, Net] = {}
        for task in self._tasks:
            step = task.get_step()
            if step is not None:
                nets = merge_nets(nets, step, "a task group")
        blocks = self._collect_blocks()
        found = [step for task in blocks.tasks for step in task.steps()]
        found += [step for node in blocks.nodes.values() for step in node.steps()]
        for step in found:
            nets = merge_nets(nets, step, "a task group")
        for task in self._tasks:
            task.freeze(by)
        self._blocks = blocks
        self._frozen_by = by

    def blocks(self) -> GroupBlocks:
        """Return what runs before, beside and after the tasks; the group must be frozen."""
        assert self._blocks is not None
        return self._blocks

    def _collect_blocks(self) -> GroupBlocks:
        reporters = [
            *self._report_steps,
            *((node, report_step(net, 1000 * s)) for node, (net, s) in self._report_nets.items()),
        ]
        nodes = self.used_nodes()
        for node, step in reporters:
            if node not in nodes:
                raise BuildError(
                    f"expected tasks on node {node!r}, for which there is the report step {step.name!r} built at "
                    f"{step.built_at or '?'}, found none",
                    hint=f"the tasks of the group run on {', '.join(map(repr, nodes)) or 'no node'}",
                )
        tasks = tuple(task._collect_blocks(self.names) for task in self._tasks)
        return GroupBlocks(
            tasks,
            {
                node: collect_node_blocks(
                    node,
                    [found for task, found in zip(self._tasks, tasks, strict=True) if task.node == node],
                    [step for where, step in reporters if where == node],
                    self.names,
                )
                for node in nodes
            },
        )

    def __repr__(self) -> str:
        kind = None if self._workspace_type is None else str(self._workspace_type)
        return f"TaskGroup(tasks={self._tasks}, workspace_type={kind})"


def as_workspace_type(value: WorkspaceType | str | None) -> WorkspaceType | None:
    """Return `value` as a workspace type.

    Raises
    ------
    BuildError
        It is no type's name.
    """
    if value is None:
        return None
    try:
        return WorkspaceType(value)
    except ValueError as error:
        known = " or ".join(repr(str(kind)) for kind in WorkspaceType)
        raise BuildError(f"expected {known} as workspace type, found {value!r}") from error
