"""What a step tree becomes when it is compiled: flat, frozen, with every name and kernel looked up."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeAlias

from jobcore.errors import BuildError
from jobcore.graph import ExecutionStep, Kernel, Net, Op, schema

__all__ = ["NetProgram", "OpProgram", "Place", "StepProgram", "compile_step"]


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
class NetProgram:
    """The ops of one net, in order."""

    ops: tuple[OpProgram, ...]


Part: TypeAlias = "NetProgram | StepProgram"


@dataclass(frozen=True, slots=True, eq=False)
class StepProgram:
    """One step of the tree.

    Attributes
    ----------
    place
        Where it stands.
    parts
        Nets or substeps, in order.
    function
        The callable of a step that is one, else None; `parts` is empty then.
    num_iter
        How often, or None: until the stop blob says so.
    stop_blob
        Looked at after each part, or None.
    concurrent
        The parts run in a thread each.
    """

    place: Place
    parts: tuple[Part, ...]
    function: Callable[..., object] | None
    num_iter: int | None
    stop_blob: str | None
    concurrent: bool


def compile_step(step: ExecutionStep, path: tuple[str, ...] = ()) -> StepProgram:
    """Compile a step and everything below it.

    Parameters
    ----------
    step
        The step; the caller has frozen it.
    path
        Names above it.

    Raises
    ------
    BuildError
        An op type is unknown: it was taken out of the registry after the op was built.
    """
    path = (*path, step.name)
    parts: tuple[Part, ...] = tuple(_compile_net(net, path) for net in step.nets) or tuple(
        compile_step(substep, path) for substep in step.substeps
    )
    return StepProgram(
        place=Place(" / ".join(path), step.built_at or None),
        parts=parts,
        function=step.function,
        num_iter=step.num_iter,
        stop_blob=step.should_stop_blob,
        concurrent=step.concurrent_substeps and len(step.substeps) > 1,
    )


def _compile_net(net: Net, path: tuple[str, ...]) -> NetProgram:
    # A step made of one net is named after it: once is enough.
    above = path if path[-1] == net.name else (*path, net.name)
    return NetProgram(tuple(_compile_op(op, above) for op in net.ops))


def _compile_op(op: Op, path: tuple[str, ...]) -> OpProgram:
    label = f"{op.type} {op.name!r}" if op.name else op.type
    try:
        kernel = schema(op.type).kernel
    except BuildError as error:
        raise BuildError(f"{op.describe()}: {error.message}", hint=error.hint) from error
    return OpProgram(op, kernel, Place(" / ".join((*path, label)), op.built_at or None))
