from typing import Any, final

import numpy as np

from jobcore._fast.table import RootTable

__all__ = ["Rooms"]

@final
class Rooms:
    def __init__(self, forms: list[tuple[tuple[int, ...], np.dtype[Any]]], table: RootTable) -> None: ...
    def arrays(self) -> dict[str, np.ndarray[Any, Any]]: ...
