from collections.abc import Callable
from typing import Any, final

import numpy as np
from _typeshed import ReadableBuffer

__all__ = ["ZipLayout"]

@final
class ZipLayout:
    def __init__(
        self,
        specs: list[tuple[bytes, bytes, int, int, int, int]],
        names: list[str],
        spec: list[int],
        places: list[int],
        sums: list[int],
        long_key: Callable[[str], str],
        wide: int = 4294967295,
    ) -> None: ...
    @property
    def ok(self) -> bool: ...
    @property
    def end(self) -> int: ...
    def offset(self, blob: int) -> int: ...
    def same_index(self, directory: ReadableBuffer) -> int | None: ...
    def read(
        self, fd: int, blobs: list[int], arrays: list[np.ndarray[Any, Any] | None], threads: int = 2
    ) -> bool: ...
