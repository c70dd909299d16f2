"""Checkpoint databases from inside a net: Save, Checkpoint, Load and DBExists.

Names in a database are absolute: the name scope of the building program goes into the blob names of the op
and into nothing else.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np

from jobcore._fast.counter import Counter
from jobcore._rng import RNG, rng_algorithm, rng_restore, rng_state
from jobcore.errors import BuildError, CheckpointNotFoundError, FormatError, MismatchError
from jobcore.graph.args import boolean, integer, path, sequence, text
from jobcore.graph.kernels import wrong_kind
from jobcore.graph.op import Op, OpContext
from jobcore.graph.registry import register_op, schema
from jobcore.store import open_database, write_database
from jobcore.store.containers import known_types
from jobcore.workspace import Blob

__all__: list[str] = []

_DB_TYPE = text(default="zarr.zip", doc="The container.", choices=known_types)


def strip(name: str, prefix: str) -> str:
    """Return what follows the first `prefix` in `name`, all of it where there is none."""
    if not prefix:
        return name
    _, found, rest = name.partition(prefix)
    return rest if found else name


def saved_names(op: Op) -> tuple[str, ...]:
    """Return the name in the database of each input of a Save."""
    overrides: tuple[str, ...] = op.args["blob_name_overrides"]
    return overrides or tuple(strip(name, op.args["strip_prefix"]) for name in op.inputs)


def _check_save(op: Op) -> None:
    overrides = op.args["blob_name_overrides"]
    if overrides and op.args["strip_prefix"]:
        raise BuildError("expected blob_name_overrides or strip_prefix, found both")
    if overrides and len(overrides) != len(op.inputs):
        raise BuildError(
            f"expected a name for each of the {len(op.inputs)} inputs in blob_name_overrides, "
            f"found {len(overrides)}"
        )
    names = saved_names(op)
    if "" in names:
        raise BuildError(f"nothing is left of the name {op.inputs[names.index('')]!r} in the database")
    _refuse_repeats(names, "two inputs would be saved as")


def _refuse_repeats(names: Iterable[str], what: str) -> None:
    seen: set[str] = set()
    for name in names:
        if name in seen:
            raise BuildError(f"{what} {name!r}")
        seen.add(name)


@register_op(
    "Save",
    num_inputs=(1, None),
    num_outputs=0,
    args={
        "db": path(doc="Path of the database to write."),
        "db_type": _DB_TYPE,
        "strip_prefix": text(default="", doc="Save each blob as what follows this in its name."),
        "blob_name_overrides": sequence(text(), default=(), doc="Names in the database, one per input."),
        "overwrite": boolean(default=False, doc="Replace a file that is there, in one step."),
    },
    check=_check_save,
)
def save(ctx: OpContext) -> None:
    """Write blobs to a new database, completely or not at all.

    Inputs: the blobs, each of a kind that can be stored; no output. Transient blobs can be named too. A file
    that is there already is a SaveError unless ``overwrite`` is set.
    """
    _save(ctx, ctx.args["db"])


def _save(ctx: OpContext, path: str) -> None:
    values: dict[str, object] = {}
    for name, blob in zip(saved_names(ctx.op), ctx.inputs, strict=True):
        if blob.kind == "empty":
            raise wrong_kind(ctx, blob, "a value to save")
        # The value and not the blob: what is asked for by name must be stored or be an error, while a
        # database leaves out transient blobs and timers that it merely comes across.
        values[name] = blob.value
    write_database(path, values, db_type=ctx.args["db_type"], overwrite=ctx.args["overwrite"])


def _numbered(pattern: str, iteration: int) -> str:
    return pattern % iteration


def _check_checkpoint(op: Op) -> None:
    pattern = op.args["db"]
    try:
        told_apart = _numbered(pattern, 1) != _numbered(pattern, 2)
    except (TypeError, ValueError) as error:
        raise BuildError(
            f"argument 'db': expected a path with one place for the iteration, such as 'run/%08d.zarr.zip', found "
            f"{pattern!r} ({error})"
        ) from None
    if not told_apart:
        # All would be one file, and the second one be refused after a night of training.
        raise BuildError(
            f"argument 'db': expected a place for the iteration, such as %08d, found {pattern!r}"
        )
    _check_save(op)


_CHECKPOINT: dict[str, Any] = {
    "num_inputs": (1, None),
    "num_outputs": 0,
    "args": {
        "db": path(doc="Path of each database, with a place for the iteration: `run/%08d.zarr.zip`."),
        "every": integer(minimum=1, default=1, doc="Save when this divides the iteration."),
        **{name: spec for name, spec in schema("Save").args.items() if name != "db"},
    },
    "check": _check_checkpoint,
}


@register_op("Snapshot", **_CHECKPOINT)
@register_op("Checkpoint", **_CHECKPOINT)
def checkpoint(ctx: OpContext) -> None:
    """Save blobs at some iterations, each time to a database of its own; Checkpoint and Snapshot are one.

    Inputs: the iteration, a single integer as Iter and AtomicIter make it, then the other blobs; no output. When
    ``every`` divides the iteration, all inputs are saved as by Save, and else nothing is done.
    """
    first = ctx.inputs[0]
    value = first.fetch() if first.kind == "tensor" else None
    if not isinstance(value, np.ndarray) or value.size != 1 or value.dtype.kind not in "iu":
        raise wrong_kind(ctx, first, "a single integer")
    iteration = int(value.reshape(()))
    if iteration % ctx.args["every"] == 0:
        _save(ctx, _numbered(ctx.args["db"], iteration))


def _check_load(op: Op) -> None:
    args = op.args
    if bool(args["db"]) == bool(args["dbs"]):
        raise BuildError(f"expected db or dbs, found {'both' if args['db'] else 'neither'}")
    _refuse_repeats(args["dbs"], "dbs names twice the database")
    sources = args["source_blob_names"]
    if sources:
        for other in ("strip_prefix", "add_prefix", "load_all"):
            if args[other]:
                raise BuildError(f"expected source_blob_names or {other}, found both")
        if len(sources) != len(op.outputs):
            raise BuildError(
                f"expected a name for each of the {len(op.outputs)} outputs in source_blob_names, "
                f"found {len(sources)}"
            )
        _refuse_repeats(sources, "two outputs would be loaded from")
    if not op.outputs and not args["load_all"]:
        raise BuildError("expected outputs or load_all, found neither")


@register_op(
    "Load",
    num_inputs=0,
    num_outputs=(0, None),
    default_outputs=0,
    args={
        "db": path(default="", doc="Path of the database."),
        "dbs": sequence(path(), default=(), doc="Paths of several databases that share no blob."),
        "db_type": _DB_TYPE,
        "add_prefix": text(default="", doc="Goes in front of each name of the database."),
        "strip_prefix": text(default="", doc="Of each name of the database, only what follows this counts."),
        "source_blob_names": sequence(text(), default=(), doc="Names in the database, one per output."),
        "load_all": boolean(default=False, doc="Load every blob; outputs, if any, must be among them."),
        "allow_incomplete": boolean(default=False, doc="Leave outputs that are not stored as they are."),
    },
    check=_check_load,
)
def load(ctx: OpContext) -> None:
    """Load blobs from one database or several; every byte is checked before any blob is touched.

    No input; outputs: the blobs, with ``load_all`` none or some of them. Counters and random generators that
    are there already are set in place, bound arrays are filled in place.
    """
    loaded: dict[str, tuple[str, Any]] = {}
    with ExitStack() as opened:
        origin: dict[str, str] = {}
        for file in ctx.args["dbs"] or (ctx.args["db"],):
            database = opened.enter_context(open_database(file))
            kinds = {blob.name: blob.kind for blob in database.info.blobs}
            wanted = _wanted(ctx, kinds)
            for target in wanted:
                if target in origin:
                    raise MismatchError(
                        f"{ctx.op.call()}: blob {target!r} is in {origin[target]} and in {database.path}"
                    )
                origin[target] = database.path
            values = database.load(wanted.values())
            loaded.update((target, (kinds[source], values[source])) for target, source in wanted.items())
    missing = [name for name in ctx.op.outputs if name not in loaded]
    if missing and not ctx.args["allow_incomplete"]:
        raise MismatchError(
            f"{ctx.op.call()}: {len(missing)} outputs are not stored: {', '.join(map(repr, missing))}",
            hint="correct the names, or pass allow_incomplete=True to keep what those blobs hold",
        )
    blobs = {blob.name: blob for blob in ctx.outputs}
    places = {name: blobs.get(name) or ctx.workspace.create_blob(name) for name in loaded}
    problems = [p for name, (_, value) in loaded.items() if (p := _misfit(places[name], value)) is not None]
    if problems:
        raise MismatchError(f"{ctx.op.call()}: nothing was loaded: {'; '.join(problems)}")
    for name, (kind, value) in loaded.items():
        _place(places[name], kind, value)


def _wanted(ctx: OpContext, stored: Iterable[str]) -> dict[str, str]:
    """Return the blob names to load and the name that each has in this database."""
    args = ctx.args
    if args["source_blob_names"]:
        present = set(stored)
        pairs = zip(ctx.op.outputs, args["source_blob_names"], strict=True)
        return {output: source for output, source in pairs if source in present}
    found: dict[str, str] = {}
    outputs = set(ctx.op.outputs)
    for source in stored:
        target = args["add_prefix"] + strip(source, args["strip_prefix"])
        if not args["load_all"] and target not in outputs:
            continue
        if not target:
            raise MismatchError(f"{ctx.op.call()}: nothing is left of the name {source!r} of the database")
        if target in found:
            raise MismatchError(
                f"{ctx.op.call()}: {found[target]!r} and {source!r} of the database would both become {target!r}"
            )
        found[target] = source
    return found


def _misfit(blob: Blob, value: object) -> str | None:
    if not blob.bound:
        return None
    expected = f"blob {blob.name!r} is bound to an array of {blob.dtype} {blob.shape}"
    if not isinstance(value, np.ndarray):
        return f"{expected}, a value of type {type(value).__name__} is stored"
    if value.dtype != blob.dtype or value.shape != blob.shape:
        return f"{expected}, {value.dtype} {value.shape} is stored"
    return None


def _place(blob: Blob, kind: str, value: Any) -> None:
    existing = blob.value
    if kind == "empty":
        blob.reset()
    elif kind == "tensor":
        blob.adopt(value)
    elif isinstance(value, Counter) and isinstance(existing, Counter):
        # Whoever holds the counter goes on with the loaded value.
        existing.restore(value.retrieve())
    elif (
        isinstance(value, RNG)
        and isinstance(existing, RNG)
        and rng_algorithm(existing) == rng_algorithm(value)
    ):
        rng_restore(existing, *rng_state(value))
    else:
        blob.feed(value)


@register_op(
    "DBExists",
    num_inputs=0,
    num_outputs=1,
    args={"db_name": path(doc="Path of the database."), "db_type": _DB_TYPE},
)
def db_exists(ctx: OpContext) -> None:
    """Tell whether there is a database with an index that is whole.

    No input; output: bool, 0-d. False for a file that is missing, cut off, or something else; the blobs'
    own bytes are not read. A file that may not be read is an OSError.
    """
    try:
        with open_database(ctx.args["db_name"]):
            found = True
    except (CheckpointNotFoundError, FormatError):
        found = False
    ctx.outputs[0].feed(np.bool_(found))
