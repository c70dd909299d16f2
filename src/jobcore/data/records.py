"""Records in use: made in a net, fed into a workspace and fetched from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np

from jobcore.data.converting import converted
from jobcore.data.schema import Field, List, Scalar, Struct, as_field
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, Net
from jobcore.workspace import Workspace

__all__ = [
    "as_record",
    "const_record",
    "feed_record",
    "fetch_record",
    "from_blob_list",
    "from_column_list",
    "init_empty_record",
    "new_record",
]

_F = TypeVar("_F", bound=Field)


def as_record(value: Any) -> Field:
    """Make a record of almost anything.

    Parameters
    ----------
    value
        A `Field` is returned as it is. A `BlobReference` or an array becomes a column that stands in it; a mapping, or
        a list of pairs of name and value, a `Struct`; another list or tuple a `Tuple`; a dtype a column of it.

    Raises
    ------
    BuildError
        It is none of those.
    """
    return as_field(value)


def from_blob_list(schema: _F, values: Sequence[object]) -> _F:
    """Return a record of the form of `schema` whose columns stand in `values`, in order.

    Raises
    ------
    BuildError
        There are more or fewer of them than columns.
    """
    return schema.with_blobs(values)


def from_column_list(
    col_names: Sequence[str],
    col_types: Sequence[Any] | None = None,
    col_blobs: Sequence[object] | None = None,
) -> Struct:
    """Rebuild a record from the names of its columns.

    Parameters
    ----------
    col_names
        Paths joined by ``:``; fields ``lengths`` and ``values`` of one name make a `List`.
    col_types, col_blobs
        Dtypes and blobs of the columns, in the same order.

    Returns
    -------
    Struct
        Its columns come in this order where fields of one struct stand together.

    Raises
    ------
    BuildError
        The lists differ in length, a name is used twice, or there are lengths without values.
    """
    count = len(col_names)
    for what, given in (("dtypes", col_types), ("blobs", col_blobs)):
        if given is not None and len(given) != count:
            raise BuildError(f"expected {count} {what}, one for each column, found {len(given)}")
    tree: dict[str, Any] = {}
    for i, name in enumerate(col_names):
        *path, last = name.split(":")
        node = tree
        for part in path:
            node = node.setdefault(part, {})
            if isinstance(node, Scalar):
                raise BuildError(f"expected {part!r} to be a column or a struct, found both in {name!r}")
        if last in node:
            raise BuildError(f"expected each column once, found {name!r} twice, or as a struct too")
        node[last] = Scalar(
            None if col_types is None else col_types[i], None if col_blobs is None else col_blobs[i]
        )
    record = _grown(tree, "")
    if not isinstance(record, Struct):
        raise BuildError(f"expected named fields, found the bare columns {list(col_names)}")
    return record


def _grown(node: Any, path: str) -> Field:
    if isinstance(node, Scalar):
        return node
    if "lengths" in node:
        if set(node) != {"lengths", "values"} or not isinstance(node["lengths"], Scalar):
            raise BuildError(f"expected lengths and values in {path!r}, found {', '.join(node)}")
        return List(_grown(node["values"], f"{path}:values"), node["lengths"])
    return Struct(*((name, _grown(below, f"{path}:{name}".lstrip(":"))) for name, below in node.items()))


def new_record(net: Net, schema: _F) -> _F:
    """Return a record of the form of `schema` in blobs of new names of `net`; nothing makes them yet."""
    return schema.with_blobs([net.next_blob(name or "column") for name in schema.field_names()])


def const_record(
    net: Net,
    arrays: Mapping[str, object] | Sequence[object],
    schema: Field | None = None,
    blobs: Sequence[BlobReference] | None = None,
) -> Field:
    """Add ops that make columns from `arrays`, and return their record.

    Parameters
    ----------
    net
        Where the ops go.
    arrays
        The columns by name, in order; or with `schema` a list in its order.
    schema
        The form of the record, with the dtypes to convert to; by default made of the names and arrays.
    blobs
        Where the columns stand; by default new names of `net`.

    Raises
    ------
    BuildError
        Columns are missing or too many, or an array does not become one of the schema's dtype.
    """
    if schema is None:
        if not isinstance(arrays, Mapping):
            raise BuildError("expected arrays by column name, or a schema that names them, found neither")
        columns = [np.asarray(array) for array in arrays.values()]
        types = [np.dtype((c.dtype, c.shape[1:])) if c.ndim > 1 else c.dtype for c in columns]
        schema = from_column_list(list(arrays), types)
        arrays = columns
    values = _in_order(schema, arrays)
    if blobs is None:
        blobs = new_record(net, schema).field_blobs()
    named = zip(schema.field_names(), schema.field_types(), values, strict=True)
    columns = [_column(name, dtype, value) for name, dtype, value in named]
    for blob, column in zip(blobs, columns, strict=True):
        net.Const(column, blob)
    return schema.with_blobs(list(blobs))


def init_empty_record(net: Net, schema: _F, blobs: Sequence[BlobReference] | None = None) -> _F:
    """Add ops that make columns without rows, and return their record.

    Parameters
    ----------
    net
        Where the ops go.
    schema
        The form of the record. A column of unknown dtype is float32 until the first rows come.
    blobs
        Where the columns stand; by default the blobs of `schema` if it has all of them, else new names of `net`.
    """
    if blobs is None:
        blobs = (schema if schema.has_blobs() else new_record(net, schema)).field_blobs()
    for blob, dtype in zip(blobs, schema.field_types(), strict=True):
        net.Const(_no_rows(dtype), blob)
    return schema.with_blobs(list(blobs))


def feed_record(
    record: Field, arrays: Mapping[str, object] | Sequence[object] | Field, ws: Workspace
) -> None:
    """Feed the columns of a record into a workspace.

    Parameters
    ----------
    record
        Names the blobs.
    arrays
        The columns by name, or a list in the record's order, or a record of arrays. Each is converted to the dtype of
        its column.
    ws
        Where they go.

    Raises
    ------
    BuildError
        Columns are missing or too many, or one does not become an array of its dtype. Nothing was fed then.
    """
    blobs = record.field_blobs()
    values = arrays.field_blobs() if isinstance(arrays, Field) else _in_order(record, arrays)
    named = zip(record.field_names(), record.field_types(), values, strict=True)
    columns = [_column(name, dtype, value) for name, dtype, value in named]
    for blob, column in zip(blobs, columns, strict=True):
        ws.feed(blob, column)


def fetch_record(record: _F, ws: Workspace) -> _F:
    """Return a record of the same form whose columns are arrays: copies of what is in the workspace.

    ``fetch_record(record, ws).uid.leaf()`` is an array.
    """
    return record.with_blobs([np.asarray(ws.fetch(str(blob))) for blob in record.field_blobs()])


def _in_order(schema: Field, arrays: Mapping[str, object] | Iterable[object]) -> list[object]:
    names = schema.field_names()
    if not isinstance(arrays, Mapping):
        values = list(arrays)
        if len(values) != len(names):
            raise BuildError(f"expected {len(names)} columns, {names}, found {len(values)}")
        return values
    missing = [name for name in names if name not in arrays]
    extra = [name for name in arrays if name not in names]
    if missing or extra:
        raise BuildError(f"expected the columns {names}, found {list(arrays)}")
    return [arrays[name] for name in names]


def _column(name: str, dtype: np.dtype[Any] | None, value: Any) -> np.ndarray[Any, Any]:
    try:
        column = converted(value, dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        raise BuildError(
            f"column {name!r}: expected rows of {dtype}, found {value!r:.80}: {error}"
        ) from error
    shape = () if dtype is None else dtype.shape
    if column.size == 0 and column.ndim <= 1:
        column = column.reshape(0, *shape)
    if column.ndim == 0 or (shape and column.shape[1:] != shape):
        raise BuildError(
            f"column {name!r}: expected rows of shape {shape}, found an array of shape {column.shape}"
        )
    return column


def _no_rows(dtype: np.dtype[Any] | None) -> np.ndarray[Any, Any]:
    if dtype is None:
        return np.zeros(0, np.float32)
    base = np.dtype(f"{dtype.base.kind}1") if dtype.base.itemsize == 0 else dtype.base
    return np.zeros((0, *dtype.shape), base)
