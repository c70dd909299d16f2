from typing import Any, SupportsIndex, TypeAlias

from _typeshed import ReadableBuffer, WriteableBuffer
from numpy.typing import NDArray

__all__ = [
    "copy_crc32c",
    "copy_crc32c_with",
    "crc32c",
    "crc32c_combine",
    "crc32c_with",
    "implementation",
    "implementations",
]

# NumPy's stubs declare the buffer of an array from Python 3.12 on only.
_Readable: TypeAlias = ReadableBuffer | NDArray[Any]
_Writable: TypeAlias = WriteableBuffer | NDArray[Any]

def crc32c(data: _Readable, value: SupportsIndex = 0) -> int: ...
def crc32c_with(name: str, data: _Readable, value: SupportsIndex = 0) -> int: ...
def copy_crc32c(dst: _Writable, src: _Readable, value: SupportsIndex = 0) -> int: ...
def copy_crc32c_with(name: str, dst: _Writable, src: _Readable, value: SupportsIndex = 0) -> int: ...
def crc32c_combine(crc1: SupportsIndex, crc2: SupportsIndex, len2: SupportsIndex) -> int: ...
def implementation() -> str: ...
def implementations() -> tuple[str, ...]: ...
