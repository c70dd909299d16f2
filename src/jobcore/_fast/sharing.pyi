from collections.abc import Sequence
from typing import Any

import numpy as np

__all__ = ["find_shared", "fitting_arrays"]

def find_shared(arrays: Sequence[np.ndarray[Any, Any]]) -> list[tuple[int, int, int]]: ...
def fitting_arrays(
    into: dict[str, Any],
    names: list[str],
    spec: list[int],
    forms: list[tuple[tuple[int, ...], np.dtype[Any]]],
) -> list[np.ndarray[Any, Any]] | None: ...
