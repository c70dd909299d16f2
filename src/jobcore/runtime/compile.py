"""From what users describe to what a session runs: a `CompiledGroup`."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from typing import TypeAlias

from jobcore.errors import BuildError
from jobcore.graph import ExecutionStep, Net, NetBuilder, Plan, Steppable, to_execution_step
from jobcore.graph.names import NameAllocator, check_name
from jobcore.graph.plan import merge_nets
from jobcore.graph.setups import TaskBlocks, collect_node_blocks, collect_task_blocks
from jobcore.runtime.execute import run_step
from jobcore.runtime.lower import lower
from jobcore.runtime.program import NodeProgram, StepProgram, compile_node, compile_task
from jobcore.tasks import Node, Task, TaskGroup, TaskOutput, WorkspaceType, as_workspace_type

__all__ = ["CompiledGroup", "CompiledTask", "Runnable", "compile_cached", "compile_runnable"]


@dataclass(frozen=True, slots=True, eq=False)
class CompiledTask:
    """One task, ready to run.

    Attributes
    ----------
    name
        The task's complete name.
    node
        Name of the node that it runs on.
    workspace_type
        Where the blobs that it makes live.
    num_instances
        How many copies of its step run at once; the program says so itself.
    program
        Its step with its instances, and with what runs before, beside and after them; or None for a task that only
        has outputs.
    """

    name: str
    node: str
    workspace_type: WorkspaceType
    num_instances: int
    program: StepProgram | None
    _outputs: tuple[TaskOutput, ...]

    @property
    def has_outputs(self) -> bool:
        """Whether it has any outputs."""
        return bool(self._outputs)

    def outputs(self) -> list[TaskOutput]:
        """Return the outputs in the order in which they were added."""
        return list(self._outputs)


class CompiledGroup:
    """Tasks that start together, ready to run any number of times, in any session.

    Attributes
    ----------
    tasks
        All tasks, in the order in which they were made.
    working, waiting
        Those with a step, and those without one, which only have outputs.
    working_names
        Names of those with a step.
    outputs
        Each output with its task.
    node_names
        Names of the nodes that tasks run on, each once, in order of first use.
    nodes
        What runs before, beside and after the tasks of a node, for those nodes that have any.
    workspace_type
        That of all tasks; None where there are none.

    Notes
    -----
    It never changes, and refers to nothing of any session; all threads may use it.
    """

    __slots__ = (
        "__weakref__",
        "node_names",
        "nodes",
        "outputs",
        "tasks",
        "waiting",
        "working",
        "working_names",
        "workspace_type",
    )

    def __init__(self, tasks: Iterable[CompiledTask], nodes: Iterable[NodeProgram] = ()) -> None:
        self.tasks = tuple(tasks)
        self.nodes = tuple(nodes)
        self.workspace_type = self.tasks[0].workspace_type if self.tasks else None
        self.working = tuple(task for task in self.tasks if task.program is not None)
        self.waiting = tuple(task for task in self.tasks if task.program is None)
        self.outputs = tuple((task, output) for task in self.tasks for output in task.outputs())
        self.working_names = tuple(task.name for task in self.working)
        self.node_names = tuple(dict.fromkeys(task.node for task in self.tasks))
        for program in self._programs():
            lower(program, run_step)

    def _programs(self) -> Iterator[StepProgram]:
        for task in self.working:
            assert task.program is not None
            yield task.program
        for node in self.nodes:
            yield from node.init
            yield from node.exit
            yield from (reporter.step for reporter in node.reporters)

    def used_nodes(self) -> list[str]:
        """Return the names of the nodes that tasks run on, each once, in order of first use."""
        return list(self.node_names)

    def tasks_by_node(self) -> dict[str, list[CompiledTask]]:
        """Return the tasks of each node, nodes in order of first use."""
        return {node: [task for task in self.tasks if task.node == node] for node in self.node_names}

    def __repr__(self) -> str:
        return f"CompiledGroup(tasks={[task.name for task in self.tasks]})"


Runnable: TypeAlias = "TaskGroup | CompiledGroup | Task | Plan | Steppable"
"""What a session can run: a group, a task, a plan, a step, a net, a net builder, a callable, or a list of steps."""

_WANTED = (
    "a TaskGroup, a CompiledGroup, a Task, a Plan, an ExecutionStep, a Net, a NetBuilder, a callable taking the "
    "workspace, or a list of steps, nets and callables"
)


def compile_runnable(runnable: Runnable, workspace_type: WorkspaceType | str | None = None) -> CompiledGroup:
    """Compile and freeze a runnable.

    Parameters
    ----------
    runnable
        See `Runnable`. Whatever is no group is one task; without a node of its own it runs on the current one.
    workspace_type
        For a group that has no type; checked against one that has. GLOBAL by default for what is no group.

    Raises
    ------
    BuildError
        It is nothing that can be run, or described wrongly.
    """
    wanted = as_workspace_type(workspace_type)
    if isinstance(runnable, CompiledGroup):
        _check_type(runnable, wanted)
        return runnable
    if isinstance(runnable, TaskGroup):
        return _compile_group(runnable, wanted)
    if isinstance(runnable, Task):
        return _compile_group(TaskGroup.of(runnable, wanted), None)
    step = _as_step(runnable)
    merge_nets({}, step, f"step {step.name!r}")
    step.freeze("being compiled")
    node = Node.current().name
    kind = wanted or WorkspaceType.GLOBAL
    name, names = f"{node}/{step.name}", NameAllocator()
    blocks = collect_task_blocks(step, name, names)
    beside = collect_node_blocks(node, [blocks], [], names)
    return CompiledGroup(
        [CompiledTask(name, node, kind, 1, compile_task(step, blocks, 1), ())],
        [compile_node(node, beside)] if beside else (),
    )


def _compile_group(group: TaskGroup, wanted: WorkspaceType | None) -> CompiledGroup:
    found = group.workspace_type()
    if wanted is not None and found is not None and wanted is not found:
        raise BuildError(
            f"expected a task group of workspace type {wanted}, found {found}",
            hint="leave out workspace_type, or give the group none",
        )
    group.freeze("being compiled")
    kind = found or wanted or WorkspaceType.PRIVATE
    blocks = group.blocks()
    return CompiledGroup(
        [_compile_task(task, kind, found) for task, found in zip(group.tasks(), blocks.tasks, strict=True)],
        [compile_node(node, found) for node, found in blocks.nodes.items() if found],
    )


def _compile_task(task: Task, kind: WorkspaceType, blocks: TaskBlocks) -> CompiledTask:
    step = task.get_step()
    return CompiledTask(
        name=task.name,
        node=check_name(task.node, "node name"),
        workspace_type=kind,
        num_instances=task.num_instances,
        program=None if step is None else compile_task(step, blocks, task.num_instances),
        _outputs=tuple(task.outputs()),
    )


def _as_step(runnable: object) -> ExecutionStep:
    if isinstance(runnable, Plan):
        if not runnable.steps:
            raise BuildError(f"expected a plan with at least one step, found {runnable!r}")
        runnable.freeze("being compiled")
        if len(runnable.steps) == 1:
            return runnable.steps[0]
        return ExecutionStep(runnable.name, substeps=runnable.steps, built_at=runnable.built_at)
    if isinstance(runnable, (list, tuple)) and not runnable:
        raise BuildError(f"expected {_WANTED}; found an empty {type(runnable).__name__}")
    if isinstance(runnable, (ExecutionStep, Net, NetBuilder, list, tuple)) or (
        callable(runnable) and not isinstance(runnable, type) and not _is_job(runnable)
    ):
        return to_execution_step(runnable)
    raise BuildError(
        f"expected {_WANTED}; found {type(runnable).__name__}: {runnable!r}",
        hint="a job is run by JobRunner(job).train(session)" if _is_job(runnable) else None,
    )


def _is_job(runnable: object) -> bool:
    # Jobs live in a higher layer; contexts can be called, as decorators, so one would pass for a callable.
    return hasattr(runnable, "epoch_group")


def _check_type(group: CompiledGroup, wanted: WorkspaceType | None) -> None:
    found = {task.workspace_type for task in group.tasks}
    if wanted is not None and found - {wanted}:
        raise BuildError(
            f"expected a compiled group of workspace type {wanted}, found {', '.join(sorted(found))}",
            hint="give the type when the group is compiled",
        )


class _Compiled:
    """What was compiled of one object, kept on that object itself.

    A table in the session would have to refer to it: a step's closure often leads back to the group or job
    that it belongs to, and then neither would go before the session does. Like this the circle is the
    object's own affair, and ordinary garbage.
    """

    __slots__ = ("_owner", "found", "lock")

    def __init__(self, owner: object) -> None:
        self._owner = weakref.ref(owner)
        self.found: dict[Hashable, CompiledGroup] = {}
        # Set-up objects are called once: a second thread waits for what the first one makes.
        self.lock = threading.RLock()

    def belongs_to(self, owner: object) -> bool:
        """Tell whether this is `owner`'s own, and not that of an object which `owner` is a shallow copy of."""
        return self._owner() is owner

    def __reduce__(self) -> tuple[Callable[[], object], tuple[()]]:
        # Copies and pickles of the object are to be compiled anew.
        return _nothing, ()


def _nothing() -> None:
    return None


_ATTRIBUTE = "_jobcore_compiled"
# Guards the making of a `_Compiled`: two threads get the same.
_lock = threading.RLock()
_CACHED = (TaskGroup, Task, Plan, ExecutionStep, Net, NetBuilder)


def compile_cached(
    session_class: type, runnable: Runnable, workspace_type: WorkspaceType | str | None
) -> CompiledGroup:
    """Compile a runnable once for each class of sessions, workspace type and node.

    Groups, tasks, plans, steps, nets and builders remember it as long as they live; callables and lists are
    compiled each time, which costs a few microseconds.

    Raises
    ------
    BuildError
        As `compile_runnable`.
    """
    if type(runnable) is CompiledGroup and workspace_type is None:
        return runnable
    if not isinstance(runnable, _CACHED):
        return compile_runnable(runnable, workspace_type)
    attributes = vars(runnable)
    compiled = attributes.get(_ATTRIBUTE)
    if compiled is None or not compiled.belongs_to(runnable):
        with _lock:
            compiled = attributes.get(_ATTRIBUTE)
            if compiled is None or not compiled.belongs_to(runnable):
                compiled = attributes[_ATTRIBUTE] = _Compiled(runnable)
    node = None if isinstance(runnable, (TaskGroup, Task)) else Node.current().name
    key = (session_class, as_workspace_type(workspace_type), node)
    found: CompiledGroup | None = compiled.found.get(key)
    if found is None:
        with compiled.lock:
            found = compiled.found.get(key)
            if found is None:
                found = compiled.found[key] = compile_runnable(runnable, workspace_type)
    return found
