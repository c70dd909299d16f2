"""What runs before, beside and after a task, and the tasks of a node, collected from the nets of their steps.

Objects attached to a net under `TASK_SETUP`, `TASK_INSTANCE_SETUP` or `LOCAL_SETUP` have a method ``setup(net)``,
``exit(net)`` or both. Each is called once, with a net of the object's own that it may add ops to, and may return
more to run: a net, a step, a builder, a callable, a list of those, or None. Under `REPORT_STEP` and
`LOCAL_REPORT` stand steps and nets.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from jobcore.errors import BuildError
from jobcore.graph.control import (
    LOCAL_REPORT,
    LOCAL_SETUP,
    REPORT_STEP,
    TASK_INSTANCE_SETUP,
    TASK_SETUP,
    positive_interval,
)
from jobcore.graph.names import NameAllocator, NameRoot
from jobcore.graph.net import Net
from jobcore.graph.step import ExecutionStep, to_execution_step

__all__ = [
    "DEFAULT_REPORT_MS",
    "NodeBlocks",
    "SetupNets",
    "TaskBlocks",
    "collect_node_blocks",
    "collect_task_blocks",
    "report_step",
]

DEFAULT_REPORT_MS = 1000.0
"""Milliseconds between reports where nobody said."""


class SetupNets:
    """Nets to run before and after a task; attach it to a net with ``net.add_attribute(Task.TASK_SETUP, ...)``.

    Parameters
    ----------
    init_nets, exit_nets
        What to run before and after: nets, or whatever else becomes a step; None for nothing.
    """

    def __init__(
        self,
        init_nets: Iterable[object] | object | None = None,
        exit_nets: Iterable[object] | object | None = None,
    ) -> None:
        self.init_nets = _listed(init_nets)
        self.exit_nets = _listed(exit_nets)

    def setup(self, net: Net) -> list[object] | None:  # noqa: ARG002 - the protocol of set-up objects
        """Return what to run before."""
        return self.init_nets

    def exit(self, net: Net) -> list[object] | None:  # noqa: ARG002 - the protocol of set-up objects
        """Return what to run after."""
        return self.exit_nets

    def __repr__(self) -> str:
        return f"SetupNets(init_nets={self.init_nets}, exit_nets={self.exit_nets})"


@dataclass(slots=True)
class TaskBlocks:
    """What belongs to one task, in the order in which it runs.

    Attributes
    ----------
    init, exit
        Before and after all instances.
    instance_init, instance_exit
        In each instance.
    reporters
        Beside the body.
    local_setups
        Objects for the node, see `collect_node_blocks`.
    local_reporters
        Beside all tasks of the node.
    """

    init: list[ExecutionStep] = field(default_factory=list)
    exit: list[ExecutionStep] = field(default_factory=list)
    instance_init: list[ExecutionStep] = field(default_factory=list)
    instance_exit: list[ExecutionStep] = field(default_factory=list)
    reporters: list[ExecutionStep] = field(default_factory=list)
    local_setups: list[object] = field(default_factory=list)
    local_reporters: list[ExecutionStep] = field(default_factory=list)

    def steps(self) -> list[ExecutionStep]:
        """Return all steps but those of the node."""
        return [*self.init, *self.exit, *self.instance_init, *self.instance_exit, *self.reporters]


@dataclass(slots=True)
class NodeBlocks:
    """What runs before, beside and after all tasks of one node."""

    init: list[ExecutionStep] = field(default_factory=list)
    exit: list[ExecutionStep] = field(default_factory=list)
    reporters: list[ExecutionStep] = field(default_factory=list)

    def steps(self) -> list[ExecutionStep]:
        """Return all of them."""
        return [*self.init, *self.exit, *self.reporters]

    def __bool__(self) -> bool:
        return bool(self.init or self.exit or self.reporters)


def collect_task_blocks(step: ExecutionStep, name: str, names: NameAllocator) -> TaskBlocks:
    """Find what the nets of a task's step bring along, and call the set-up objects among it.

    Parameters
    ----------
    step
        The task's step, finished.
    name
        The task's, put before the names of the objects' nets.
    names
        Numbers the nets that the objects make.

    Returns
    -------
    TaskBlocks
        With every step frozen.

    Raises
    ------
    BuildError
        An attached object has neither `setup` nor `exit`, returns something else than steps, or is no step where one
        belongs.
    """
    blocks = TaskBlocks()
    seen: set[int] = set()
    todo = [step]
    while todo:
        part = todo.pop(0)
        for item in _new(part, TASK_INSTANCE_SETUP, seen):
            before, after = _call(item, name, names)
            blocks.instance_init += before
            blocks.instance_exit += after
            todo += [*before, *after]
        for item in _new(part, TASK_SETUP, seen):
            before, after = _call(item, name, names)
            blocks.init += before
            blocks.exit += after
            todo += [*before, *after]
        for item in _new(part, REPORT_STEP, seen):
            blocks.reporters.append(report_step(item))
            todo.append(blocks.reporters[-1])
        for item in _new(part, LOCAL_REPORT, seen):
            blocks.local_reporters.append(report_step(item))
            todo.append(blocks.local_reporters[-1])
        blocks.local_setups += _new(part, LOCAL_SETUP, seen)
    return blocks


def collect_node_blocks(
    node: str,
    tasks: Iterable[TaskBlocks],
    reporters: Iterable[ExecutionStep],
    names: NameAllocator,
) -> NodeBlocks:
    """Call the set-up objects of a node's tasks.

    Parameters
    ----------
    node
        Its name.
    tasks
        The blocks of its tasks.
    reporters
        Report steps of the group for this node.
    names
        Numbers the nets that the objects make.

    Raises
    ------
    BuildError
        As `collect_task_blocks`; or a block of the node brings along one for a task.
    """
    tasks = list(tasks)
    blocks = NodeBlocks(reporters=[*reporters, *(step for task in tasks for step in task.local_reporters)])
    seen: set[int] = set()
    todo = [item for task in tasks for item in task.local_setups]
    todo += [item for step in blocks.reporters for item in _new(step, LOCAL_SETUP, set())]
    while todo:
        item = todo.pop(0)
        if id(item) in seen:
            continue
        seen.add(id(item))
        before, after = _call(item, node, names)
        blocks.init += before
        blocks.exit += after
        todo += [more for step in (*before, *after) for more in _new(step, LOCAL_SETUP, set())]
    for step in blocks.steps():
        for key in (TASK_SETUP, TASK_INSTANCE_SETUP, REPORT_STEP):
            if step.get_all_attributes(key):
                raise BuildError(
                    f"step {step.name!r} built at {step.built_at or '?'} belongs to node {node!r}, and something in it "
                    f"is to run with a task ({key})",
                    hint="write that block in the task itself",
                )
    return blocks


def report_step(source: object, interval_ms: float | None = None) -> ExecutionStep:
    """Return a step or net as a frozen report step.

    Parameters
    ----------
    source
        A step, a net, or whatever else becomes a step.
    interval_ms
        Milliseconds between reports; by default the step's own period, else 1000.

    Raises
    ------
    BuildError
        It cannot become a step, or the period is no number above 0.
    """
    step = to_execution_step(source)  # type: ignore[arg-type]  # attributes are any object: it is checked there
    if interval_ms is None:
        interval_ms = step.run_every_ms or DEFAULT_REPORT_MS
    period = positive_interval(interval_ms, "interval_ms of a report step")
    if step.run_every_ms != period:
        step = ExecutionStep(step.name, substeps=[step], built_at=step.built_at, run_every_ms=period)
    step.freeze("being a report step")
    return step


def _new(step: ExecutionStep, key: str, seen: set[int]) -> list[object]:
    found = [item for item in step.get_all_attributes(key) if id(item) not in seen]
    seen.update(map(id, found))
    return found


def _call(item: object, name: str, names: NameAllocator) -> tuple[list[ExecutionStep], list[ExecutionStep]]:
    """Call an object's `setup` and `exit`, each with a net of its own, and return what is to run."""
    methods = [getattr(item, phase, None) for phase in ("setup", "exit")]
    if not any(map(callable, methods)):
        raise BuildError(
            f"{name}: expected an object with a method setup(net) or exit(net) as set-up attribute of a net, found "
            f"{type(item).__name__}: {item!r}"
        )
    steps: list[list[ExecutionStep]] = []
    # Whatever the program that compiles is just building, these names are the group's own affair.
    with NameRoot(names):
        for phase, method in zip(("setup", "exit"), methods, strict=True):
            steps.append([] if method is None else _steps(method, f"{name}/{phase}"))
    return steps[0], steps[1]


def _steps(method: object, name: str) -> list[ExecutionStep]:
    assert callable(method)
    net = Net.named(name)
    returned = _listed(method(net)) or []
    # Attributes alone count too: a set-up may bring along a set-up for the node.
    sources = [net, *returned] if net.ops or net._attributes else returned
    steps = [to_execution_step(source) for source in sources]  # type: ignore[arg-type]  # it is checked there
    steps = [step for step in steps if not step.empty]
    for step in steps:
        step.freeze("being a set-up step")
    return steps


def _listed(value: object) -> list[object] | None:
    if value is None:
        return None
    return list(value) if isinstance(value, (list, tuple)) else [value]
