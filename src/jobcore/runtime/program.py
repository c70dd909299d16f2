"""What a step tree becomes when it is compiled: flat, frozen, with every name and kernel looked up."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import TypeAlias

from jobcore._fast.program import Program
from jobcore.errors import BuildError
from jobcore.graph import Control, ExecutionStep, Kernel, Net, Op, schema
from jobcore.graph.control import STOPS
from jobcore.graph.setups import DEFAULT_REPORT_MS, NodeBlocks, TaskBlocks

__all__ = [
    "NetProgram",
    "NodeProgram",
    "OpProgram",
    "Part",
    "Place",
    "ReporterProgram",
    "StepProgram",
    "StopProgram",
    "compile_block",
    "compile_node",
    "compile_reporters",
    "compile_step",
    "compile_task",
]


@dataclass(frozen=True, slots=True, eq=False)
class Place:
    """Where in a task something stands, for errors.

    Attributes
    ----------
    path
        Names of steps, net and op type from the task's step down, with `` / `` between them.
    built_at
        ``file:line`` of the statement that built it, or None when unknown.
    """

    path: str
    built_at: str | None


@dataclass(frozen=True, slots=True, eq=False)
class OpProgram:
    """One op with its kernel."""

    op: Op
    kernel: Kernel
    place: Place


@dataclass(frozen=True, slots=True, eq=False)
class StopProgram:
    """A stop among the ops of a net.

    Attributes
    ----------
    condition
        The blob with one boolean, or None: always.
    place
        Where it stands.
    """

    condition: str | None
    place: Place


@dataclass(frozen=True, slots=True, eq=False)
class NetProgram:
    """The ops and stops of one net, in order."""

    ops: tuple[OpProgram | StopProgram, ...]


Part: TypeAlias = "NetProgram | StepProgram"


@dataclass(frozen=True, slots=True, eq=False)
class StepProgram:
    """One step of the tree.

    A run of it does these, from the outside in: a `When` decides whether anything is done; `own_workspace`; the
    steps of `init`, one after another, and at the end of everything those of `exit`, always and shielded from
    cancellation; `reporters` beside what follows; the rounds, by `control` or else by `num_iter` and `stop_blob`;
    in each round the content once, or `instances` copies of it at once. The content is `function`, or the `parts`:
    in order, or all at once when `concurrent`.

    Attributes
    ----------
    place
        Where it stands.
    parts
        Nets or substeps, in order. Of a `While` two steps: condition and body.
    function
        The callable of a step that is one, else None; `parts` is empty then.
    num_iter
        How often, or None: until the stop blob says so. 1 with a `control`.
    stop_blob
        Looked at after each part, or None.
    concurrent
        The parts run in a thread each.
    once
        The rounds end with the first one.
    own_workspace
        Runs in a new workspace below the present one. What a `When` or a `Guard` reads and writes is looked up in
        the present one, everything else in the new one.
    instances
        How many copies of the content run at once, each in a thread of its own when more than 1.
    control
        See `jobcore.graph.control`; None for a plain step.
    catches_stop
        Whether a stop ends with this step, and does not go on outwards.
    reporters
        Run beside the rounds.
    init, exit
        Run before and after. Each of them catches stops.
    native
        A program that does the same, for as much of the step as is a sequence: all of it when `sequential`, else all
        rounds when there is one instance, else one round. None when it starts threads, is a callable, or has not been
        lowered.
    plain
        Whether it is one call of its function and nothing else.
    """

    place: Place
    parts: tuple[Part, ...] = ()
    function: Callable[..., object] | None = None
    num_iter: int | None = 1
    stop_blob: str | None = None
    concurrent: bool = False
    once: bool = False
    own_workspace: bool = False
    instances: int = 1
    control: Control | None = None
    catches_stop: bool = False
    reporters: tuple[ReporterProgram, ...] = ()
    init: tuple[StepProgram, ...] = ()
    exit: tuple[StepProgram, ...] = ()
    native: Program | None = None
    plain: bool = field(init=False)

    def __post_init__(self) -> None:
        plain = (
            self.function is not None
            and self.num_iter == 1
            and self.stop_blob is None
            and self.control is None
        )
        object.__setattr__(self, "plain", plain and self.sequential)

    @property
    def sequential(self) -> bool:
        """Whether this step itself needs neither threads nor a frame round it; its parts may."""
        return not (
            self.concurrent
            or self.instances > 1
            or self.own_workspace
            or self.reporters
            or self.init
            or self.exit
        )


@dataclass(frozen=True, slots=True, eq=False)
class ReporterProgram:
    """A step that runs again and again beside others.

    Attributes
    ----------
    step
        The step; it catches stops.
    interval_s
        Seconds between the end of one report and the next.
    """

    step: StepProgram
    interval_s: float


@dataclass(frozen=True, slots=True, eq=False)
class NodeProgram:
    """What runs before, beside and after all tasks of a node; see `StepProgram` for `init`, `exit`, `reporters`."""

    name: str
    init: tuple[StepProgram, ...]
    exit: tuple[StepProgram, ...]
    reporters: tuple[ReporterProgram, ...]


def compile_node(name: str, blocks: NodeBlocks) -> NodeProgram:
    """Compile the blocks of a node; errors as for `compile_step`."""
    return NodeProgram(
        name,
        tuple(map(compile_block, blocks.init)),
        tuple(map(compile_block, blocks.exit)),
        compile_reporters(blocks.reporters),
    )


def compile_step(
    step: ExecutionStep, path: tuple[str, ...] = (), *, catches_stop: bool = False
) -> StepProgram:
    """Compile a step and everything below it.

    Parameters
    ----------
    step
        The step; the caller has frozen it.
    path
        Names above it.
    catches_stop
        Whether a stop ends with it in any case: it runs in a thread of its own, or is a block of its own.

    Raises
    ------
    BuildError
        An op type is unknown: it was taken out of the registry after the op was built.
    """
    path = (*path, step.name)
    beside = [substep for substep in step.substeps if substep.run_every_ms is not None]
    within = [substep for substep in step.substeps if substep.run_every_ms is None]
    parts: tuple[Part, ...] = tuple(_compile_net(net, path) for net in step.nets) or tuple(
        compile_step(substep, path, catches_stop=step.concurrent_substeps) for substep in within
    )
    return StepProgram(
        place=Place(" / ".join(path), step.built_at or None),
        parts=parts,
        function=step.function,
        num_iter=step.num_iter,
        stop_blob=step.should_stop_blob,
        concurrent=step.concurrent_substeps and len(within) > 1,
        once=step.only_once,
        own_workspace=step.own_workspace,
        instances=step.num_concurrent_instances,
        control=step.control,
        catches_stop=step.catches_stop or catches_stop,
        reporters=compile_reporters(beside, path),
    )


def compile_block(step: ExecutionStep, path: tuple[str, ...] = ()) -> StepProgram:
    """Compile a step that stands by itself: a stop in it ends it."""
    return compile_step(step, path, catches_stop=True)


def compile_reporters(
    steps: Iterable[ExecutionStep], path: tuple[str, ...] = ()
) -> tuple[ReporterProgram, ...]:
    """Compile report steps; those without a period run every second."""
    return tuple(
        ReporterProgram(compile_block(step, path), (step.run_every_ms or DEFAULT_REPORT_MS) / 1000)
        for step in steps
    )


def compile_task(step: ExecutionStep, blocks: TaskBlocks, num_instances: int) -> StepProgram:
    """Compile the step of a task with its instances, and with what runs before, beside and after them.

    Parameters
    ----------
    step, blocks
        Frozen by the caller.
    num_instances
        At least 1.

    Raises
    ------
    BuildError
        As `compile_step`.
    """
    body = compile_step(step)
    reporters = compile_reporters(blocks.reporters)
    if num_instances == 1 and reporters:
        body = StepProgram(body.place, (body,), catches_stop=True, reporters=reporters)
    if blocks.instance_init or blocks.instance_exit:
        body = StepProgram(
            body.place,
            (body,),
            catches_stop=True,
            init=tuple(map(compile_block, blocks.instance_init)),
            exit=tuple(map(compile_block, blocks.instance_exit)),
        )
    if num_instances > 1:
        own = StepProgram(body.place, (body,), own_workspace=True, catches_stop=True)
        body = StepProgram(
            body.place, (own,), instances=num_instances, catches_stop=True, reporters=reporters
        )
    if blocks.init or blocks.exit:
        body = StepProgram(
            body.place,
            (body,),
            catches_stop=True,
            init=tuple(map(compile_block, blocks.init)),
            exit=tuple(map(compile_block, blocks.exit)),
        )
    return body


def _compile_net(net: Net, path: tuple[str, ...]) -> NetProgram:
    # A step made of one net is named after it: once is enough.
    above = path if path[-1] == net.name else (*path, net.name)
    return NetProgram(tuple(_compile_op(op, above) for op in net.ops))


def _compile_op(op: Op, path: tuple[str, ...]) -> OpProgram | StopProgram:
    label = f"{op.type} {op.name!r}" if op.name else op.type
    place = Place(" / ".join((*path, label)), op.built_at or None)
    if op.type in STOPS:
        return StopProgram(op.inputs[0] if op.inputs else None, place)
    try:
        kernel = schema(op.type).kernel
    except BuildError as error:
        raise BuildError(f"{op.describe()}: {error.message}", hint=error.hint) from error
    return OpProgram(op, kernel, place)
