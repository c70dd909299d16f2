from collections.abc import Callable
from typing import Any, final

import numpy as np
from _typeshed import ReadableBuffer

from jobcore._fast.fresh import Rooms
from jobcore._fast.table import RootTable

__all__ = ["ZipLayout"]

@final
class ZipLayout:
    def __init__(
        self,
        specs: list[tuple[bytes, bytes, int, int, int, int]],
        table: RootTable,
        long_key: Callable[[str], str],
        wide: int = 4294967295,
        encoded: list[bool] | None = None,
        sizes: list[int] | None = None,
    ) -> None: ...
    @property
    def end(self) -> int: ...
    def begin(self, directory: ReadableBuffer, fd: int = -1, rooms: Rooms | None = None) -> None: ...
    def finish(self) -> tuple[int | None, bool | None]: ...
    def offset(self, blob: int) -> int: ...
    def read(
        self,
        fd: int,
        blobs: list[int],
        arrays: list[np.ndarray[Any, Any] | None],
        threads: int = 2,
        fresh: bool = False,
    ) -> bool: ...
