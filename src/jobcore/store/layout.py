"""How an array lies in the database: Zarr data type, stored shape and chunks.

A :class:`Spec` is all that the table says about a blob except its name and places; everything else about
its layout follows from it and is computed here, for the writer and the reader alike. The rules are
section 3 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, cast

import numpy as np

from jobcore._dtypes import DTypeSpec, dtype_spec, is_ml_dtype
from jobcore.errors import FormatError
from jobcore.store.codecs import MAX_BYTES, Codec, StoredCodec, encoded_bound, parse_codecs

__all__ = [
    "DATA_TYPES",
    "KINDS",
    "ChunkPolicy",
    "Spec",
    "bytes_of",
    "gathered",
    "make_spec",
    "parse_spec",
    "storage_of",
    "without_fields",
]

_MiB = 1 << 20
_MAX_BYTES = 2**63 - 1
_MAX_AXES = 64
_GATHER = 1 << 19  # bytes copied at a time from memory that is not contiguous; short, for the GIL is held

#: The kinds of blobs that are stored.
KINDS = ("tensor", "counter", "string", "bytes", "state", "rng", "empty")

#: Bytes of one element of each Zarr data type that the format uses.
DATA_TYPES = {
    "bool": 1,
    **{f"{sign}int{8 * size}": size for sign in ("", "u") for size in (1, 2, 4, 8)},
    "float16": 2,
    "float32": 4,
    "float64": 8,
    "complex64": 8,
    "complex128": 16,
}
_NATIVE = {"b": "bool", "i": "int", "u": "uint", "f": "float", "c": "complex"}


@dataclass(frozen=True, slots=True)
class ChunkPolicy:
    """How arrays are cut into chunks.

    Attributes
    ----------
    target_bytes
        Wanted size of a chunk, in bytes.
    max_bytes
        An array up to this size, in bytes, is one chunk; no chunk of several rows is larger.
    """

    target_bytes: int = 32 * _MiB
    max_bytes: int = 64 * _MiB

    def __post_init__(self) -> None:
        for what in ("target_bytes", "max_bytes"):
            value = getattr(self, what)
            if isinstance(value, bool) or not isinstance(value, int):
                raise TypeError(f"expected {what} as an int, found {type(value).__qualname__}")
        if not 0 < self.target_bytes <= self.max_bytes:
            raise ValueError(
                f"expected 0 < target_bytes <= max_bytes, found {self.target_bytes} and {self.max_bytes}"
            )

    def rows(self, stored_shape: tuple[int, ...], width: int) -> int:
        """Choose how many rows a chunk has.

        Parameters
        ----------
        stored_shape
            Shape of the array as stored.
        width
            Bytes of one stored element.

        Returns
        -------
        int
            Rows along axis 0 in a chunk, at least 1.
        """
        if not stored_shape:
            return 1
        rows = stored_shape[0]
        row_bytes = math.prod(stored_shape[1:]) * width
        if rows * row_bytes <= self.max_bytes:
            return max(1, rows)
        most = max(1, self.max_bytes // row_bytes)
        least = min(most, max(1, -(-self.target_bytes // (2 * row_bytes))))
        # Any number of chunks k is best served by ceil(rows / k) rows, which wastes fewer than k rows. Start
        # at the wanted size and walk outwards until the zeros at the end are less than one part in a hundred.
        middle = max(1, round(rows * row_bytes / self.target_bytes))
        best, best_waste = 1, math.inf
        for distance in range(max(middle, 64)):
            for count in {middle + distance, middle - distance}:
                if count < 1:
                    continue
                size = -(-rows // count)
                if not least <= size <= most:
                    continue
                waste = -(-rows // size) * size - rows
                if waste * 100 < rows:
                    return size
                if waste < best_waste:
                    best, best_waste = size, waste
        return best if best_waste < math.inf else most


@dataclass(frozen=True, slots=True)
class Spec:
    """Kind, type and layout of a blob.

    Attributes
    ----------
    kind
        One of :data:`KINDS`, or a kind of a later version.
    dtype
        The true data type, as :func:`jobcore._dtypes.dtype_spec` gives it.
    shape
        Shape of the blob.
    data_type
        Zarr data type, a key of :data:`DATA_TYPES`.
    item_bytes
        Length in bytes of the last axis that stands for one element, or 0 when there is none.
    chunk_rows
        Rows of the stored array in one chunk.
    codecs
        The codecs that encode a chunk, as documents have them; none where chunks are stored as they are.
    stored_shape
        Shape of the Zarr array.
    chunk_shape
        Shape of one chunk.
    chunks
        Number of chunks.
    row_bytes, chunk_bytes
        Bytes of one row along axis 0 of the stored array, and of one chunk.
    nbytes
        Bytes of the blob itself, without the zeros that fill its last chunk.
    """

    kind: str
    dtype: DTypeSpec
    shape: tuple[int, ...]
    data_type: str
    item_bytes: int
    chunk_rows: int
    codecs: tuple[StoredCodec, ...] = ()
    stored_shape: tuple[int, ...] = field(init=False, compare=False)
    chunk_shape: tuple[int, ...] = field(init=False, compare=False)
    chunks: int = field(init=False, compare=False)
    row_bytes: int = field(init=False, compare=False)
    chunk_bytes: int = field(init=False, compare=False)
    nbytes: int = field(init=False, compare=False)

    def __post_init__(self) -> None:
        stored = (*self.shape, self.item_bytes) if self.item_bytes else self.shape
        width = DATA_TYPES[self.data_type]
        row_bytes = math.prod(stored[1:]) * width
        chunk_shape = tuple(max(1, n) for n in (self.chunk_rows, *stored[1:])) if stored else ()
        rows = stored[0] if stored else 1
        set_field = object.__setattr__
        set_field(self, "stored_shape", stored)
        set_field(self, "chunk_shape", chunk_shape)
        set_field(self, "row_bytes", row_bytes)
        set_field(self, "chunks", -(-rows // self.chunk_rows) if 0 not in stored else 0)
        set_field(self, "chunk_bytes", self.chunk_rows * row_bytes)
        set_field(self, "nbytes", math.prod(stored) * width)

    @property
    def big_endian(self) -> bool:
        """Whether the elements are stored with their highest byte first."""
        return isinstance(self.dtype, str) and self.dtype[0] == ">" and self.item_bytes == 0

    @property
    def stored_bound(self) -> int:
        """Most bytes of a stored chunk; exactly those of each one where there are no codecs."""
        return encoded_bound(self.chunk_bytes) if self.codecs else self.chunk_bytes

    def row_range(self, chunk: int) -> tuple[int, int]:
        """Give the first row of a chunk and the one after its last, without the rows that only fill it."""
        low = chunk * self.chunk_rows
        rows = self.stored_shape[0] if self.stored_shape else 1
        return low, min(low + self.chunk_rows, rows)

    def chunk_key(self, key: str, chunk: int) -> str:
        """Give the key of a chunk of the blob whose node is `key`."""
        if not self.stored_shape:
            return f"{key}/c"
        return f"{key}/c.{chunk}" + ".0" * (len(self.stored_shape) - 1)

    def to_json(self) -> list[Any]:
        """Give the row of the table of specs."""
        row = [self.kind, self.dtype, list(self.shape), self.data_type, self.item_bytes, self.chunk_rows]
        return [*row, list(self.codecs)] if self.codecs else row

    def identity(self) -> str:
        """Give a text that is equal for equal specs; `dtype` may be a dict, so specs are not hashable."""
        return json.dumps(self.to_json(), separators=(",", ":"))


def bytes_of(array: np.ndarray[Any, Any]) -> memoryview:
    """Show the memory of a C-contiguous array of any dtype without Python objects as bytes."""
    # NumPy gives no buffer of dates and of ml_dtypes, but one of the same memory as integers.
    return memoryview(cast(Any, array.reshape(-1).view(np.uint8)))


def without_fields(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """Show a structured array as plain bytes: a copy by fields would leave out what lies between them."""
    return array if array.dtype.names is None else array.view(np.dtype((np.void, array.itemsize)))


def make_spec(
    kind: str, dtype: np.dtype[Any], shape: tuple[int, ...], policy: ChunkPolicy, codec: Codec | None = None
) -> Spec:
    """Lay out an array.

    Parameters
    ----------
    kind
        One of :data:`KINDS`.
    dtype
        True data type, one that :func:`jobcore._dtypes.refusal` lets pass.
    shape
        Shape of the blob.
    policy
        How to cut it.
    codec
        What encodes its chunks; nothing by default.

    Returns
    -------
    Spec
        The layout.
    """
    data_type, item_bytes = storage_of(dtype)
    stored = (*shape, item_bytes) if item_bytes else shape
    rows = policy.rows(stored, DATA_TYPES[data_type])
    codecs = (codec.stored(item_bytes or DATA_TYPES[data_type]),) if codec is not None else ()
    return Spec(kind, dtype_spec(dtype), shape, data_type, item_bytes, rows, codecs)


def parse_spec(row: object, where: str, *, codecs: bool = False) -> Spec:
    """Read a row of the table of specs, which may come from a damaged or hostile file.

    Parameters
    ----------
    row
        The JSON value.
    where
        What to call it in an error.
    codecs
        Whether the version of the format has codecs; a row of an earlier one may have anything in their place.

    Returns
    -------
    Spec
        The layout, every number of it in range.

    Raises
    ------
    FormatError
        The row breaks a rule of the format.
    """
    if not isinstance(row, list) or len(row) < 6:
        raise FormatError(f"{where}: expected [kind, dtype, shape, data_type, item_bytes, chunk_rows]")
    kind, dtype, shape, data_type, item_bytes, chunk_rows = row[:6]
    if not isinstance(kind, str) or not isinstance(dtype, str | dict) or not dtype:
        raise FormatError(f"{where}: expected a kind and a data type, found {kind!r:.80} and {dtype!r:.80}")
    if not isinstance(data_type, str) or data_type not in DATA_TYPES:
        raise FormatError(f"{where}: expected one of {', '.join(DATA_TYPES)}, found {data_type!r:.80}")
    if not isinstance(shape, list) or len(shape) > _MAX_AXES or not all(_is_size(n) for n in shape):
        raise FormatError(f"{where}: expected a shape of at most {_MAX_AXES} axes, found {shape!r:.80}")
    if not _is_size(item_bytes) or (item_bytes and data_type != "uint8"):
        raise FormatError(f"{where}: item_bytes {item_bytes!r:.80} does not go with {data_type}")
    rows = [*shape, item_bytes][0] if shape or item_bytes else 1
    if not _is_size(chunk_rows) or not 1 <= chunk_rows <= max(1, rows):
        raise FormatError(f"{where}: expected 1 to {max(1, rows)} rows in a chunk, found {chunk_rows!r:.80}")
    total = math.prod(max(1, n) for n in shape) * max(1, item_bytes) * DATA_TYPES[data_type]
    if total > _MAX_BYTES:
        raise FormatError(f"{where}: shape {shape!r:.80} of {data_type} is larger than any array can be")
    found = parse_codecs(row[6], where) if codecs and len(row) > 6 else ()
    spec = Spec(kind, dtype, tuple(shape), data_type, item_bytes, chunk_rows, found)
    if found and spec.chunk_bytes > MAX_BYTES:
        raise FormatError(f"{where}: expected at most {MAX_BYTES} bytes in a chunk, found {spec.chunk_bytes}")
    return spec


def _is_size(value: object) -> bool:
    return type(value) is int and 0 <= value <= _MAX_BYTES


def storage_of(dtype: np.dtype[Any]) -> tuple[str, int]:
    """Say how elements of a true data type are stored.

    Parameters
    ----------
    dtype
        The true data type, one that :func:`jobcore._dtypes.refusal` lets pass.

    Returns
    -------
    tuple of str and int
        The Zarr data type and `item_bytes`.
    """
    if is_ml_dtype(dtype) or dtype.kind in "mM":
        return f"uint{8 * dtype.itemsize}", 0
    stem = _NATIVE.get(dtype.kind)
    if stem is not None:
        name = stem if stem == "bool" else f"{stem}{8 * dtype.itemsize}"
        if name in DATA_TYPES:
            return name, 0
    return "uint8", dtype.itemsize


def gathered(array: np.ndarray[Any, Any]) -> Iterator[memoryview]:
    """Give the bytes of an array in C order, in small pieces that are put together one by one.

    Parameters
    ----------
    array
        Any array of at least one axis, contiguous or not.

    Yields
    ------
    memoryview
        The next bytes.
    """
    if array.size == 0:
        return
    row_bytes = array.nbytes // len(array)
    if row_bytes > _GATHER and array.ndim > 1:
        # A row may be most of the state: gathered as one it would take as much memory again.
        for row in array:
            yield from gathered(row)
        return
    step = max(1, _GATHER // row_bytes)
    for at in range(0, len(array), step):
        yield bytes_of(np.ascontiguousarray(array[at : at + step]))
