"""Loads of everything, into new arrays or into arrays that fit without any thought, without an object for each blob."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from jobcore._fast.sharing import fitting_arrays
from jobcore.errors import FormatError
from jobcore.store.container import ContainerReader
from jobcore.store.layout import Spec
from jobcore.store.metadata import Table
from jobcore.store.plan import LoadPlan
from jobcore.store.root import Root
from jobcore.store.values import decode
from jobcore.store.zipreader import ZipReader

__all__ = ["load_into", "load_native", "load_new"]

_Form = tuple[tuple[int, ...], np.dtype[Any]]


def load_native(reader: ContainerReader, root: Root) -> dict[str, Any] | None:
    """Load every blob as a new value, in native code alone.

    Parameters
    ----------
    reader, root
        The database.

    Returns
    -------
    dict of str to object, or None
        Name to value, in the order of the database; ``None`` where this way cannot do it, or something is wrong.
    """
    columns, specs = root.columns, root.specs
    if columns is None or not isinstance(reader, ZipReader):
        return None
    dtypes = LoadPlan(reader.path, Table([], [], specs)).dtypes()
    if dtypes is None:
        return None
    try:
        values: dict[str, Any] | None = reader.read_all(specs, columns, dtypes)
        if values is None:
            return None
        others = {index: one.kind for index, one in enumerate(specs) if one.kind != "tensor"}
        if others:
            for name, index in zip(columns.names, columns.columns()[0], strict=True):
                if index in others:
                    values[name] = decode(others[index], values[name])
    except (FormatError, ValueError, MemoryError):
        return None  # a shape that no array can have, or a value that is none: which, a plan tells
    return values


def load_new(
    reader: ContainerReader, root: Root, plan: LoadPlan, load: Callable[[list[str]], dict[str, Any]]
) -> dict[str, Any] | None:
    """Load every blob as a new value.

    Parameters
    ----------
    reader, root
        The database.
    plan
        What plans its loads.
    load
        Loads single blobs by their names.

    Returns
    -------
    dict of str to object, or None
        Name to value, in the order of the database; ``None`` where only a plan can do it, or tell what is wrong.

    Raises
    ------
    FormatError
        The database is damaged, or no array can have the shape of a blob.
    MemoryError
        There is not enough.
    """
    table, dtypes = root.table, plan.dtypes()
    aliases = plan.aliases()
    if dtypes is None or aliases is None:
        return None
    names = table.names
    tensor = [spec.kind == "tensor" for spec in table.specs]
    blobs = [blob for blob, index in enumerate(table.spec) if tensor[index]]
    others = [name for name, index in zip(names, table.spec, strict=True) if not tensor[index]]
    values = load(others) if others else {}
    reader.check_sizes(table, blobs)
    arrays = _new_arrays(table, blobs, _forms(table.specs, dtypes))
    reader.read_arrays(table, blobs, arrays)
    if not (values or aliases):
        return dict(zip(names, arrays, strict=True))
    values.update(zip([names[blob] for blob in blobs], arrays, strict=True))
    held = dict(zip(blobs, arrays, strict=True))
    values.update((alias.name, plan.view(alias, dtype, held[alias.base])) for alias, dtype in aliases)
    return {name: values[name] for name in table.listing()}


def load_into(
    reader: ContainerReader, root: Root, plan: LoadPlan, into: dict[str, Any]
) -> dict[str, Any] | None:
    """Load every blob into an array of a mapping.

    Parameters
    ----------
    reader, root, plan
        The database, and what plans its loads.
    into
        Name to array.

    Returns
    -------
    dict of str to ndarray, or None
        What the mapping holds; ``None`` where only a plan can do it, or tell what is wrong: nothing is touched then.

    Raises
    ------
    FormatError
        The database is damaged.
    """
    dtypes, kinds = plan.dtypes(), {spec.kind for spec in root.specs}
    if dtypes is None or not kinds <= {"tensor"}:
        return None
    table = root.table
    if table.aliases:
        return None
    arrays = fitting_arrays(into, table.names, table.spec, _forms(table.specs, dtypes))
    if arrays is None:
        return None
    filled = dict(into)
    reader.read_arrays(table, list(range(len(arrays))), arrays)
    return filled


def _forms(specs: list[Spec], dtypes: list[np.dtype[Any]]) -> list[_Form]:
    return [(spec.shape, dtype) for spec, dtype in zip(specs, dtypes, strict=True)]


def _new_arrays(table: Table, blobs: list[int], forms: list[_Form]) -> list[np.ndarray[Any, Any]]:
    empty = np.empty
    try:
        return [empty(*forms[table.spec[blob]]) for blob in blobs]
    except ValueError as error:
        for blob in blobs:
            shape, dtype = forms[table.spec[blob]]
            try:
                np.empty(shape, dtype)
            except ValueError:
                name = table.names[blob]
                raise FormatError(
                    f"blob {name!r:.120}: no array can have the shape {shape}: {error}", place=name
                ) from error
        raise
