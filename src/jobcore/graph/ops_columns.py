"""Columns of rows as a whole: checked, appended to, trimmed, and packed into one blob."""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BlobKindError, BlobValueError, BuildError
from jobcore.graph.args import integer, optional, sequence, text
from jobcore.graph.blob_locks import lock_of, locked
from jobcore.graph.kernels import describe_blob, wrong_kind
from jobcore.graph.op import Op, OpContext
from jobcore.graph.ops_sync import check_mutex
from jobcore.graph.registry import register_op
from jobcore.graph.rooms import extended
from jobcore.graph.trees import ColumnTree, column_tree
from jobcore.workspace import Blob

__all__ = ["column_views"]

_FIELDS = sequence(text(), doc="Names of the columns, in the order of the inputs.")

# Held while all columns of a record are looked at, or all are replaced: nobody sees some of them with new rows and
# others without. What takes long, copying rows, is done outside.
_all_columns = threading.Lock()


def column_views(
    ctx: OpContext, first: int, last: int | None = None, *, or_one_row: bool = False
) -> list[NDArray[Any]]:
    """Return inputs from `first` up to `last` as read-only arrays of one moment; with `or_one_row` scalars are one row.

    Raises
    ------
    BlobKindError, BlobValueError
        One is no tensor of rows, or empty.
    """
    blobs = ctx.inputs[first:last]
    for blob in blobs:
        if blob.kind != "tensor":
            raise wrong_kind(ctx, blob, "a column, a tensor")
    with _all_columns:
        views: list[NDArray[Any]] = [blob.view() for blob in blobs]
    if or_one_row and all(view.ndim == 0 for view in views):
        return [view.reshape(1) for view in views]
    for blob, view in zip(blobs, views, strict=True):
        if view.ndim == 0:
            raise BlobKindError(
                f"{ctx.op.call()}: expected a column, a tensor of one dimension or more, found {describe_blob(blob)}"
            )
    return views


def _check_fields(op: Op) -> None:
    fields = op.args["fields"]
    if len(fields) != len(op.inputs):
        raise BuildError(f"expected {len(op.inputs)} names, one for each column, found {len(fields)}")
    try:
        column_tree(fields)
    except ValueError as error:
        raise BuildError(f"argument 'fields': {error}") from error


def _consistent(ctx: OpContext, tree: ColumnTree, columns: list[NDArray[Any]]) -> list[int]:
    try:
        return tree.sizes(columns)
    except ValueError as error:
        raise BlobValueError(f"{ctx.op.call()}: {error}") from error


@register_op(
    "CheckDatasetConsistency",
    num_inputs=(1, None),
    num_outputs=0,
    args={"fields": _FIELDS},
    check=_check_fields,
)
def check_dataset_consistency(ctx: OpContext) -> None:
    """Fail where columns do not make rows: unequal counts, or lengths that do not add up.

    Inputs: the columns; no output.
    """
    _consistent(ctx, column_tree(ctx.args["fields"]), column_views(ctx, 0))


def _check_trim(op: Op) -> None:
    _check_fields(op)
    if op.outputs != op.inputs:
        raise BuildError(
            f"expected the inputs as outputs, {', '.join(op.inputs)}, found {', '.join(op.outputs)}"
        )


@register_op(
    "TrimDataset",
    num_inputs=(1, None),
    num_outputs=(1, None),
    args={"fields": _FIELDS, "multiple_of": integer(minimum=1, doc="Of what the rows are a multiple then.")},
    inplace=True,
    check=_check_trim,
)
def trim_dataset(ctx: OpContext) -> None:
    """Leave out the last rows, so that a multiple of ``multiple_of`` is left.

    Inputs: the columns; outputs: the same.
    """
    tree = column_tree(ctx.args["fields"])
    with lock_of(ctx.inputs[0]):
        columns = column_views(ctx, 0)
        rows = _consistent(ctx, tree, columns)[0]
        kept = rows - rows % ctx.args["multiple_of"]
        if kept == rows:
            return
        start = [0] * tree.levels
        parts = [part.copy() for part in tree.cut(columns, start, tree.advance(columns, start, kept))]
        _replace(ctx.outputs, parts)


def _replace(blobs: list[Blob], columns: list[NDArray[Any]]) -> None:
    with _all_columns:
        for blob, column in zip(blobs, columns, strict=True):
            if blob.bound:
                blob.feed(column)
            else:
                blob.adopt(column)


# --------------------------------------------------------------------------------------------------------- appending


def _check_append(op: Op) -> None:
    skipped = 1 if op.type == "AtomicAppend" else 0
    count, odd = divmod(len(op.inputs) - skipped, 2)
    if odd or not count:
        raise BuildError(
            f"expected columns, and as many with new rows, found {len(op.inputs) - skipped} inputs of that kind"
        )
    columns = op.inputs[skipped : skipped + count]
    if op.outputs and op.outputs != columns:
        raise BuildError(
            f"expected the columns as outputs, {', '.join(columns)}, found {', '.join(op.outputs)}"
        )
    if len(set(columns)) != count:
        raise BuildError("expected each column once, found one twice")
    fields = op.args["fields"]
    if fields is not None and len(fields) != count:
        raise BuildError(f"expected {count} names, one for each column, found {len(fields)}")


_APPENDED = {
    "fields": optional(sequence(text(), doc="Names of the columns; the new rows are checked by them."))
}


def _append(ctx: OpContext, first: int) -> None:
    """Append to the columns from input `first` on; the lock of the first of them is held."""
    count = (len(ctx.inputs) - first) // 2
    targets = ctx.inputs[first : first + count]
    added = column_views(ctx, first + count, or_one_row=True)
    if ctx.args["fields"] is not None:
        _consistent(ctx, column_tree(ctx.args["fields"]), added)
    grown = [
        _grown(ctx, target, new, blob)
        for target, new, blob in zip(targets, added, ctx.inputs[first + count :], strict=True)
    ]
    # All were made: nothing can fail any more, so that no column gets rows without the others.
    _replace(targets, grown)


def _grown(ctx: OpContext, target: Blob, new: NDArray[Any], source: Blob) -> NDArray[Any]:
    if target.kind == "empty":
        return new.copy()
    if target.kind != "tensor":
        raise wrong_kind(ctx, target, "a column, a tensor")
    old: NDArray[Any] = target.view()
    if old.ndim == 0 or (len(old) and old.shape[1:] != new.shape[1:]):
        raise BlobValueError(
            f"{ctx.op.call()}: expected rows of shape {old.shape[1:]} for {target.name!r}, "
            f"found {describe_blob(source)}"
        )
    if not len(old):
        return new.copy() if len(new) or old.dtype == new.dtype else old.copy()
    texts = old.dtype.kind == new.dtype.kind and old.dtype.kind in "SU"
    if old.dtype != new.dtype and not texts:
        raise BlobKindError(
            f"{ctx.op.call()}: expected rows of {old.dtype} for {target.name!r}, found {describe_blob(source)}"
        )
    return extended(old, new)


@register_op(
    "Append",
    num_inputs=(2, None),
    num_outputs=(0, None),
    args=_APPENDED,
    default_outputs=0,
    inplace=True,
    check=_check_append,
)
def append(ctx: OpContext) -> None:
    """Put rows behind those of columns, into all of them or, where one does not fit, into none.

    Inputs: the columns, then as many with the new rows; outputs: the columns again, or none. A column that is empty or
    without rows takes dtype and row shape of the first rows that come; later ones must be of the same, but text may be
    wider. New rows that are all scalars are one row. Tasks and instances that append to the same columns wait for each
    other.
    """
    with lock_of(ctx.inputs[0]):
        _append(ctx, 0)


@register_op(
    "AtomicAppend",
    num_inputs=(3, None),
    num_outputs=(0, None),
    args=_APPENDED,
    default_outputs=0,
    inplace=True,
    check=_check_append,
)
def atomic_append(ctx: OpContext) -> None:
    """Do what Append does while a mutex is held.

    Inputs: the mutex, the columns, then as many with the new rows; outputs: the columns again, or none.
    """
    with locked(check_mutex(ctx, 0), ctx.inputs[1]):
        _append(ctx, 1)


# ----------------------------------------------------------------------------------------------------------- packing


@register_op(
    "PackRecords", num_inputs=(1, None), num_outputs=1, args={"fields": _FIELDS}, check=_check_fields
)
def pack_records(ctx: OpContext) -> None:
    """Put the rows of columns into one blob.

    Inputs: the columns; output: a state with the names and the rows, each a list of arrays, one for each column. It
    goes through a queue like any value, and UnPackRecords makes columns of it again.
    """
    tree = column_tree(ctx.args["fields"])
    columns = column_views(ctx, 0)
    rows = _consistent(ctx, tree, columns)[0]
    offsets = tree.offsets(columns)
    records = [tree.cut(columns, offsets[row], offsets[row + 1]) for row in range(rows)]
    none = [column[:0] for column in columns]
    ctx.outputs[0].feed({"fields": list(tree.fields), "records": records, "none": none})


@register_op("UnPackRecords", num_inputs=1, num_outputs=(1, None), args={"fields": _FIELDS})
def unpack_records(ctx: OpContext) -> None:
    """Make columns of what PackRecords made.

    Input: the packed rows, of columns of these names; outputs: the columns.
    """
    fields = ctx.args["fields"]
    value = ctx.inputs[0].value
    if not isinstance(value, dict) or set(value) != {"fields", "records", "none"}:
        raise wrong_kind(ctx, ctx.inputs[0], "packed records")
    if value["fields"] != list(fields) or len(ctx.outputs) != len(fields):
        raise BlobValueError(
            f"{ctx.op.call()}: expected packed records of {', '.join(fields)} and as many outputs, "
            f"found {', '.join(value['fields'])}"
        )
    parts = [value["none"], *value["records"]]
    for number, output in enumerate(ctx.outputs):
        output.feed(np.concatenate([part[number] for part in parts]))
