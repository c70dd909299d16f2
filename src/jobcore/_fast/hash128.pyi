from typing import Any, SupportsIndex, TypeAlias

from _typeshed import ReadableBuffer
from numpy.typing import NDArray

__all__ = ["hash128", "hash128_with", "implementations"]

# NumPy's stubs declare the buffer of an array from Python 3.12 on only.
_Readable: TypeAlias = ReadableBuffer | NDArray[Any]

def hash128(data: _Readable, zeros: SupportsIndex = 0) -> bytes: ...
def hash128_with(kernel: str, data: _Readable, zeros: SupportsIndex = 0) -> bytes: ...
def implementations() -> tuple[str, ...]: ...
