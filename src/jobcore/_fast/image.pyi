from collections.abc import Callable, Iterable
from typing import Any, final

import numpy as np
from _typeshed import ReadableBuffer

from jobcore._fast.arena import Arena
from jobcore._fast.chunk import BlockWriter

__all__ = ["ZipImage"]

@final
class ZipImage:
    def __init__(
        self,
        specs: list[tuple[bytes, bytes, int, int, int, int]],
        sink: BlockWriter | Arena,
        long_key: Callable[[str], str],
        wide: int = 4294967295,
    ) -> None: ...
    @property
    def end(self) -> int: ...
    @property
    def entries(self) -> int: ...
    @property
    def index_bytes(self) -> int: ...
    def add(
        self,
        names: list[str],
        arrays: list[np.ndarray[Any, Any]],
        spec: list[int],
        start: int = 0,
        stop: int | None = None,
    ) -> int: ...
    def add_gathered(
        self, name: str, index: int, pieces: Callable[[int], Iterable[ReadableBuffer]]
    ) -> None: ...
    def add_encoded(self, name: str, index: int, chunks: Iterable[ReadableBuffer]) -> list[int]: ...
    def copy(self, threads: int = 2) -> None: ...
    def root(self, head: bytes, specs: bytes, tail: bytes, more: bytes = b"") -> None: ...
    def index(self) -> memoryview: ...
    def finish(self, end: ReadableBuffer) -> int: ...
