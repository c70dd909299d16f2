"""Cursors over columns: reading rows of them in batches, in order or in any other.

A cursor is a state: the names of the columns, and where each level of nesting stands. It is part of a checkpoint, and
any number of tasks and instances may read by one cursor: each row goes to one of them.
"""

from __future__ import annotations

import operator
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BlobKindError, BlobValueError, BuildError
from jobcore.graph.args import boolean, integer, optional, sequence, text
from jobcore.graph.blob_locks import lock_of
from jobcore.graph.kernels import describe_blob, tensor, wrong_kind
from jobcore.graph.op import Op, OpContext
from jobcore.graph.ops_columns import column_views
from jobcore.graph.registry import register_op
from jobcore.graph.trees import ColumnTree, column_tree
from jobcore.workspace import Blob

__all__: list[str] = []

_CONSISTENT = "the op CheckDatasetConsistency looks at all columns"
_BATCH = integer(minimum=1, default=1, doc="How many rows at most.")
_ENFORCE = boolean(default=False, doc="Leave rows that are too few for a whole batch.")


def _check_fields(op: Op) -> None:
    try:
        column_tree(op.args["fields"])
    except ValueError as error:
        raise BuildError(f"argument 'fields': {error}") from error


@register_op(
    "CreateTreeCursor",
    num_inputs=0,
    num_outputs=1,
    args={"fields": sequence(text(), doc="Names of the columns, in the order in which ops get them.")},
    check=_check_fields,
)
def create_tree_cursor(ctx: OpContext) -> None:
    """Make a cursor that stands before the first row.

    No input; output: the cursor, a state. The names say how the columns are nested: ``a:lengths`` has the number of
    items of each row in the other columns that begin with ``a:``.
    """
    fields = ctx.args["fields"]
    ctx.outputs[0].feed({"fields": list(fields), "offsets": [0] * column_tree(fields).levels})


def _move(blob: Blob, offsets: Sequence[int]) -> None:
    """Put a cursor, whose lock is held, to another place."""
    # In place: to feed the state would copy and check all of it, names included, for each batch. Whoever takes the
    # value of the blob gets a copy, and a slice is assigned in one step.
    blob.value["offsets"][:] = offsets


def _cursor(ctx: OpContext) -> tuple[ColumnTree, list[int]]:
    blob = ctx.inputs[0]
    value = blob.value
    if blob.kind != "state" or not isinstance(value, dict) or value.keys() != {"fields", "offsets"}:
        raise wrong_kind(ctx, blob, "a cursor")
    fields, offsets = value["fields"], value["offsets"]
    try:
        if not all(type(name) is str for name in fields):
            raise ValueError("a name of a column is no text")
        tree, places = column_tree(tuple(fields)), list(map(operator.index, offsets))
    except (TypeError, ValueError) as error:
        raise BlobValueError(
            f"{ctx.op.call()}: expected a cursor in {blob.name!r}, found a state: {error}"
        ) from error
    if len(places) != tree.levels or min(places) < 0:
        raise BlobValueError(
            f"{ctx.op.call()}: expected in cursor {blob.name!r} a place of at least 0 for each of {tree.levels} "
            f"levels, found {offsets!r:.80}"
        )
    return tree, places


def _check_columns(ctx: OpContext, tree: ColumnTree, found: int) -> None:
    if found != len(tree.fields):
        raise BlobValueError(
            f"{ctx.op.call()}: expected {len(tree.fields)} columns, those of cursor {ctx.inputs[0].name!r}, "
            f"{', '.join(tree.fields)}, found {found}"
        )


@register_op("ResetCursor", num_inputs=1, num_outputs=0)
def reset_cursor(ctx: OpContext) -> None:
    """Put a cursor before the first row.

    Input: the cursor; no output.
    """
    with lock_of(ctx.inputs[0]):
        tree, _ = _cursor(ctx)
        _move(ctx.inputs[0], [0] * tree.levels)


@register_op("GetCursorOffset", num_inputs=1, num_outputs=1)
def get_cursor_offset(ctx: OpContext) -> None:
    """Tell where a cursor stands.

    Input: the cursor; output: how many items of each level it has passed, the rows first; int64, 1-D.
    """
    with lock_of(ctx.inputs[0]):
        _, offsets = _cursor(ctx)
    ctx.outputs[0].feed(np.array(offsets, np.int64))


@register_op(
    "CursorAtEnd",
    num_inputs=2,
    num_outputs=1,
    args={"min_rows": integer(minimum=1, default=1, doc="Fewer rows than that are none.")},
)
def cursor_at_end(ctx: OpContext) -> None:
    """Tell whether a cursor has come to the end, and leave it where it is.

    Inputs: the cursor, and a column of rows, or the numbers of rows of ReadRandomBatch; output: whether fewer than
    ``min_rows`` (1) are left, bool, 0-d. A cursor that was never made is not at the end.
    """
    cursor = ctx.inputs[0]
    at_end = False
    if cursor.kind != "empty":
        with lock_of(cursor):
            _, offsets = _cursor(ctx)
            at_end = len(column_views(ctx, 1)[0]) - offsets[0] < ctx.args["min_rows"]
    ctx.outputs[0].feed(np.bool_(at_end))


def _check_read(op: Op) -> None:
    columns = len(op.inputs) - (3 if op.type == "ReadRandomBatch" else 1)
    if len(op.outputs) != columns:
        raise BuildError(f"expected {columns} outputs, one for each column, found {len(op.outputs)}")
    if op.outputs and set(op.outputs) & set(op.inputs):
        raise BuildError("expected outputs that are none of the inputs")


@register_op(
    "ReadNextBatch",
    num_inputs=(2, None),
    num_outputs=(1, None),
    args={"batch_size": _BATCH, "enforce_batch_size": _ENFORCE},
    check=_check_read,
)
def read_next_batch(ctx: OpContext) -> None:
    """Read the next rows.

    Inputs: the cursor, then the columns; outputs: those of the batch. Behind the last row they have no rows. With
    ``enforce_batch_size`` a batch has ``batch_size`` rows or none, and the cursor stays before rows that are too few.
    """
    with lock_of(ctx.inputs[0]):
        tree, start = _cursor(ctx)
        _check_columns(ctx, tree, len(ctx.inputs) - 1)
        columns = column_views(ctx, 1)
        count = _batch(ctx, len(columns[0]) - start[0])
        try:
            end = tree.advance(columns, start, count)
        except ValueError as error:
            raise BlobValueError(f"{ctx.op.call()}: {error}", hint=_CONSISTENT) from error
        if count:
            _move(ctx.inputs[0], end)
    for output, part in zip(ctx.outputs, tree.cut(columns, start, end), strict=True):
        output.feed(part)


def _batch(ctx: OpContext, left: int) -> int:
    size: int = ctx.args["batch_size"]
    if left < size and ctx.args["enforce_batch_size"]:
        return 0
    return max(0, min(size, left))


@register_op("ComputeOffset", num_inputs=(2, None), num_outputs=1)
def compute_offset(ctx: OpContext) -> None:
    """Find out where each row begins in each level of nesting, for ReadRandomBatch.

    Inputs: the cursor, which only tells the names, then the columns; output: int64 of shape (rows + 1, levels).
    """
    tree, _ = _cursor(ctx)
    _check_columns(ctx, tree, len(ctx.inputs) - 1)
    columns = column_views(ctx, 1)
    try:
        tree.sizes(columns)
    except ValueError as error:
        raise BlobValueError(f"{ctx.op.call()}: {error}") from error
    ctx.outputs[0].feed(tree.offsets(columns))


@register_op(
    "SortAndShuffle",
    num_inputs=(2, None),
    num_outputs=1,
    args={
        "sort_by_field_idx": integer(minimum=-1, default=-1, doc="Column to sort by; -1: not at all."),
        "shuffle_size": integer(minimum=1, default=1, doc="How many batches are mixed at a time."),
        "batch_size": _BATCH,
        "seed": optional(integer(minimum=0, doc="Of the shuffle; by default each run draws anew.")),
    },
)
def sort_and_shuffle(ctx: OpContext) -> None:
    """Make an order of rows for ReadRandomBatch: sorted, then mixed.

    Inputs: the cursor, which only tells the names, then the columns, and after them, which may be left out, a random
    generator to draw from; output: numbers of rows, int64, 1-D. Rows are sorted by the column, one of a number or text
    per row, and those of equal value keep their order. Then each stretch of ``shuffle_size`` batches is mixed, and
    last the whole batches change places; with ``shuffle_size`` 1 only they do, and with ``batch_size`` 1 too nothing
    is mixed.
    """
    tree, _ = _cursor(ctx)
    count = len(tree.fields)
    given = len(ctx.inputs) - 1
    generator = _generator(ctx, count) if given == count + 1 else np.random.default_rng(ctx.args["seed"])
    _check_columns(ctx, tree, min(given, count) if given == count + 1 else given)
    columns = column_views(ctx, 1, 1 + count)
    by, batch, mixed = ctx.args["sort_by_field_idx"], ctx.args["batch_size"], ctx.args["shuffle_size"]
    order = np.arange(len(columns[0]), dtype=np.int64)
    if by >= 0:
        if by >= count or tree.level_of[by] != 0 or columns[by].ndim != 1:
            raise BlobValueError(
                f"{ctx.op.call()}: expected as sort_by_field_idx the number of a column of one number or text per row, "
                f"found {by}" + (f", {tree.fields[by]!r}" if by < count else f" of {count}")
            )
        order = np.argsort(columns[by], kind="stable").astype(np.int64)
    if mixed > 1 or batch > 1:
        stretch = mixed * batch
        if mixed > 1:
            for at in range(0, len(order), stretch):
                generator.shuffle(order[at : at + stretch])
        # The last batch may be short: it stays last, so that all others are whole.
        whole = len(order) // batch
        places = generator.permutation(whole)
        head = order[: whole * batch].reshape(whole, batch)[places].reshape(-1)
        order = np.concatenate((head, order[whole * batch :]))
    ctx.outputs[0].feed(order)


def _generator(ctx: OpContext, count: int) -> np.random.Generator:
    value = ctx.inputs[1 + count].value
    if not isinstance(value, np.random.Generator):
        raise wrong_kind(ctx, ctx.inputs[1 + count], "a numpy.random.Generator")
    return value


@register_op(
    "CreateGenerator",
    num_inputs=0,
    num_outputs=1,
    args={"seed": optional(integer(minimum=0, doc="By default each run starts differently."))},
)
def create_generator(ctx: OpContext) -> None:
    """Make a random generator, which is part of a checkpoint and goes on where it was.

    No input; output: a generator, NumPy's default one.
    """
    ctx.outputs[0].feed(np.random.default_rng(ctx.args["seed"]))


@register_op(
    "ReadRandomBatch",
    num_inputs=(4, None),
    num_outputs=(1, None),
    args={
        "batch_size": _BATCH,
        "enforce_batch_size": _ENFORCE,
        "loop_over": boolean(default=False, doc="Begin again after the last row, and never end."),
    },
    check=_check_read,
)
def read_random_batch(ctx: OpContext) -> None:
    """Read the next rows of a given order.

    Inputs: the cursor, which counts the numbers of rows that were used; these numbers, int64, 1-D; what ComputeOffset
    made; then the columns. Outputs: the columns of the batch. At the end they have no rows. With ``loop_over`` every
    batch has ``batch_size`` rows, as many times as it takes, unless there are no rows at all; without,
    ``enforce_batch_size`` is as for ReadNextBatch.
    """
    with lock_of(ctx.inputs[0]):
        tree, start = _cursor(ctx)
        _check_columns(ctx, tree, len(ctx.inputs) - 3)
        order, offsets = _order(ctx, tree)
        if ctx.args["loop_over"] and len(order):
            places = (start[0] + np.arange(ctx.args["batch_size"])) % len(order)
            end = (start[0] + ctx.args["batch_size"]) % len(order)
        else:
            count = _batch(ctx, len(order) - start[0])
            places = np.arange(start[0], start[0] + count)
            end = start[0] + count
        if end != start[0]:
            _move(ctx.inputs[0], [end, *start[1:]])
        columns = column_views(ctx, 3)
    rows = order[places]
    if len(rows) and not 0 <= rows.min() <= rows.max() < len(offsets) - 1:
        raise BlobValueError(
            f"{ctx.op.call()}: expected numbers of rows from 0 to {len(offsets) - 2}, "
            f"found {rows.min()} to {rows.max()}",
            hint="run ComputeOffset again when rows were added",
        )
    try:
        parts = tree.gather(columns, offsets, rows)
    except IndexError as error:
        raise BlobValueError(
            f"{ctx.op.call()}: the offsets in {ctx.inputs[2].name!r} do not fit the columns: {error}",
            hint="run ComputeOffset again when rows were added or taken out",
        ) from error
    for output, part in zip(ctx.outputs, parts, strict=True):
        output.feed(part)


def _order(ctx: OpContext, tree: ColumnTree) -> tuple[NDArray[Any], NDArray[Any]]:
    order, offsets = tensor(ctx, 1), tensor(ctx, 2)
    if order.dtype != np.int64 or order.ndim != 1:
        raise BlobKindError(
            f"{ctx.op.call()}: expected numbers of rows, 1-D int64, found {describe_blob(ctx.inputs[1])}"
        )
    if offsets.dtype != np.int64 or offsets.ndim != 2 or offsets.shape[1] != tree.levels or not len(offsets):
        raise BlobKindError(
            f"{ctx.op.call()}: expected what ComputeOffset made, int64 of shape (rows + 1, {tree.levels}), "
            f"found {describe_blob(ctx.inputs[2])}"
        )
    return order, offsets
