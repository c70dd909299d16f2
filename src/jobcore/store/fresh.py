"""Arrays for loads of everything: new ones, or those of a mapping where they fit without any thought."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from jobcore.errors import FormatError
from jobcore.store.metadata import Table

__all__ = ["new_arrays", "straight_arrays"]


def new_arrays(table: Table, blobs: list[int], dtypes: list[np.dtype[Any]]) -> list[np.ndarray[Any, Any]]:
    """Make memory for blobs.

    Parameters
    ----------
    table
        The table of the database.
    blobs
        Which blobs.
    dtypes
        The true data type of each spec.

    Returns
    -------
    list of ndarray
        One for each blob, C-contiguous.

    Raises
    ------
    FormatError
        No array can have such a shape.
    MemoryError
        There is not enough.
    """
    forms = [(spec.shape, dtype) for spec, dtype in zip(table.specs, dtypes, strict=True)]
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


def straight_arrays(
    into: Mapping[str, Any], table: Table, dtypes: list[np.dtype[Any]]
) -> list[np.ndarray[Any, Any]] | None:
    """Give the arrays of a mapping, in table order, if they are exactly what is stored.

    Parameters
    ----------
    into
        Name to array.
    table
        The table of the database; all blobs are tensors.
    dtypes
        The true data type of each spec.

    Returns
    -------
    list of ndarray or None
        ``None`` unless each blob has a writable C-contiguous plain array of its shape and data type, all of them
        own their memory, and there are no others.
    """
    if len(into) != len(table.names):
        return None
    forms = [(spec.shape, dtype) for spec, dtype in zip(table.specs, dtypes, strict=True)]
    arrays: list[np.ndarray[Any, Any]] = []
    for name, index in zip(table.names, table.spec, strict=True):
        array = into.get(name)
        shape, dtype = forms[index]
        if type(array) is not np.ndarray or array.shape != shape or array.dtype != dtype:
            return None
        flags = array.flags
        if not (flags.c_contiguous and flags.writeable and flags.owndata):
            return None
        arrays.append(array)
    # Arrays that own their memory overlap only if they are the same.
    return arrays if len(set(map(id, arrays))) == len(arrays) else None
