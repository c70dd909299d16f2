"""The array that another object's buffer is, in plain Python."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

_NUMBERS = frozenset("?bBhHiIlLqQefd")


def exported_array(value: object) -> NDArray[Any] | None:
    """Return the array, or None where the buffer is not of plain numbers of this machine."""
    try:
        view = memoryview(value)  # type: ignore[arg-type]  # whatever it is
    except TypeError:
        return None
    return np.asarray(view) if view.format.removeprefix("@") in _NUMBERS else None
