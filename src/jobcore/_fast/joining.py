"""Joins the tensors of several records of a queue."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from jobcore._fast.blob_errors import describe
from jobcore.errors import BlobKindError, BlobValueError

__all__ = ["concatenated"]

HINT = "take one record at a time; all are still in the queue"


def concatenated(label: str, values: Sequence[Any]) -> npt.NDArray[Any]:
    """Return a new array of all values along axis 0.

    Parameters
    ----------
    label
        What the values are, for errors.
    values
        One or more.

    Raises
    ------
    BlobKindError
        One of them is no tensor.
    BlobValueError
        One has no dimension, or another dtype or other sizes than the first.
    """
    first = values[0]
    for value in values:
        if not isinstance(value, np.ndarray):
            raise BlobKindError(f"{label}: expected tensors to join, found {describe(value)}", hint=HINT)
        if value.ndim == 0:
            raise BlobValueError(
                f"{label}: expected tensors of one dimension or more to join, found {describe(value)}",
                hint=HINT,
            )
        if value.dtype != first.dtype or value.shape[1:] != first.shape[1:]:
            raise BlobValueError(
                f"{label}: expected tensors that differ in axis 0 only, found {describe(first)} "
                f"and {describe(value)}",
                hint=HINT,
            )
    return np.concatenate(values)
