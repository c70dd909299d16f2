"""Values as arrays of a column's dtype."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["converted"]


def converted(value: Any, dtype: np.dtype[Any] | None) -> NDArray[Any]:
    """Return a value as an array of a dtype, or of NumPy's own for it where that is None.

    Parameters
    ----------
    value
        An array, or what becomes one.
    dtype
        Of which the base counts: the shape of rows is the caller's affair. Text is not cut to its width.

    Raises
    ------
    TypeError, ValueError, OverflowError, RuntimeError
        It cannot be converted, or would come out as other integers or booleans: 1.5 as 1, 300 as 44.
    """
    if dtype is None:
        return np.asarray(value)
    base = dtype.base
    if base.kind in "US":
        return np.asarray(value, base.kind)
    array: NDArray[Any] = np.asarray(value)
    if array.dtype == base:
        return array
    if base.kind in "fc" and array.dtype.kind in "biufc" and not np.can_cast(array.dtype, base, "same_kind"):
        raise TypeError(f"{array.dtype} does not fit {base}")
    with np.errstate(all="ignore"):
        made = array.astype(base)
    if base.kind in "iub":
        changed = made != (array if array.dtype.kind not in "US" else array.astype(np.float64))
        if np.any(changed):
            first = array.reshape(-1)[int(np.argmax(np.reshape(changed, -1)))]
            raise ValueError(f"{first!r} is no {base}")
    return made
