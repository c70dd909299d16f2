from collections.abc import Iterable
from typing import Any, SupportsIndex, TypeAlias, final

from _typeshed import ReadableBuffer
from numpy.typing import NDArray

__all__ = ["ChunkFiles"]

# NumPy's stubs declare the buffer of an array from Python 3.12 on only.
_Readable: TypeAlias = ReadableBuffer | NDArray[Any]

@final
class ChunkFiles:
    def __init__(self, directory: int, mode: int = 0o444) -> None: ...
    def folder(self, key: str) -> None: ...
    def file(self, key: str, data: _Readable, keep: bool = False) -> int: ...
    def chunk(
        self, key: str, data: _Readable, zeros: SupportsIndex = 0, keep: bool = False
    ) -> tuple[int, bytes, int]: ...
    def chunk_in_pieces(
        self,
        key: str,
        pieces: Iterable[_Readable],
        nbytes: SupportsIndex,
        zeros: SupportsIndex = 0,
        keep: bool = False,
    ) -> tuple[int, bytes, int]: ...
