"""Whether the blobs of a record may be moved into a queue: nobody looks at them after they were written."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from jobcore.data.reader import Part
from jobcore.data.schema import Field
from jobcore.graph import ExecutionStep, Guard, Net
from jobcore.graph.control import LOCAL_REPORT, REPORT_STEP
from jobcore.graph.step import to_execution_step
from jobcore.outputs import TaskOutput

__all__ = ["only_written"]


def only_written(record: Field, parts: list[Part], others: list[Net], final_outputs: Any) -> bool:
    """Tell whether the blobs of a record are made anew in each round, and nobody looks at them after it."""
    blobs = {str(blob) for blob in record.field_blobs()}
    if blobs & _output_names(final_outputs):
        return False
    steps = [to_execution_step(part) for part in parts]
    nets = [net for step in steps for net in step.all_nets()]
    for net in (*nets, *others):
        if net.get_attributes(REPORT_STEP) or net.get_attributes(LOCAL_REPORT):
            return False
    if any(_has_function(step) for step in steps):
        return False
    if any(op.args.get("pass_workspace") for net in (*nets, *others) for op in net.ops):
        return False
    if any(blob in blobs for net in others for op in net.ops for blob in op.inputs):
        return False
    return blobs <= _made_first(steps, blobs, set())


def _output_names(outputs: Any) -> set[str]:
    if outputs is None:
        return set()
    listed = [outputs] if isinstance(outputs, (str, TaskOutput)) else list(outputs)
    names: set[str] = set()
    for output in listed:
        names.update(map(str, output.names) if isinstance(output, TaskOutput) else [str(output)])
    return names


def _has_function(step: ExecutionStep) -> bool:
    return step.function is not None or any(map(_has_function, step.substeps))


def _made_first(steps: Iterable[ExecutionStep], blobs: set[str], spoiled: set[str]) -> set[str]:
    """Return those of `blobs` that ops which run in every round make before any op reads them."""
    made: set[str] = set()
    for step in steps:
        plain = step.control is None or isinstance(step.control, Guard)
        once = step.only_once or (step.num_iter == 1 and step.should_stop_blob is None)
        if plain and once and not step.own_workspace and step.num_concurrent_instances == 1:
            for net in step.nets:
                for op in net.ops:
                    spoiled.update(b for b in op.inputs if b in blobs and b not in made)
                    made.update(b for b in op.outputs if b in blobs)
            made |= _made_first(step.substeps, blobs, spoiled) if not step.concurrent_substeps else set()
        else:
            touched = {b for net in step.all_nets() for op in net.ops for b in (*op.inputs, *op.outputs)}
            spoiled.update(b for b in touched & blobs if b not in made)
    return made - spoiled
