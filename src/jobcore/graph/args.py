"""Converters for op arguments: each returns a value that nobody can change any more, or says what is wrong."""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any, SupportsIndex

import numpy as np
from numpy.typing import NDArray

from jobcore.graph.blobref import BlobReference
from jobcore.graph.registry import REQUIRED, ArgSpec

__all__ = [
    "boolean",
    "constant",
    "data_type",
    "filled",
    "integer",
    "optional",
    "path",
    "sequence",
    "shape",
    "text",
]

INT64_MAX = 2**63 - 1


def integer(minimum: int | None = None, default: object = REQUIRED, doc: str = "") -> ArgSpec:
    """Return the spec of an int64 argument of at least `minimum`."""

    def convert(value: SupportsIndex) -> int:
        if isinstance(value, (bool, np.bool_)):
            raise TypeError("a boolean is no number")
        number = operator.index(value)
        if minimum is not None and number < minimum:
            raise ValueError(f"it is less than {minimum}")
        if not -INT64_MAX - 1 <= number <= INT64_MAX:
            raise ValueError("it does not fit 64 bits")
        return number

    limit = "" if minimum is None else f" of at least {minimum}"
    return ArgSpec(convert, f"an integer{limit}", default, doc)


def boolean(default: object = REQUIRED, doc: str = "") -> ArgSpec:
    """Return the spec of a flag; the integers 0 and 1 will do."""

    def convert(value: object) -> bool:
        if isinstance(value, (bool, np.bool_)) or (isinstance(value, int) and value in (0, 1)):
            return bool(value)
        raise TypeError("it is neither True nor False")

    return ArgSpec(convert, "True or False", default, doc)


def text(
    default: object = REQUIRED, doc: str = "", choices: Callable[[], Iterable[str]] | None = None
) -> ArgSpec:
    """Return the spec of a string, one of `choices` when given."""

    def convert(value: str) -> str:
        if not isinstance(value, str):
            raise TypeError("it is no string")
        if choices is not None and value not in choices():
            raise ValueError(f"it is none of {', '.join(choices())}")
        return str(value)

    return ArgSpec(convert, "a string", default, doc)


def path(default: object = REQUIRED, doc: str = "") -> ArgSpec:
    """Return the spec of a path of a file, kept as a string."""
    return ArgSpec(_path, "a path", default, doc)


def _path(value: str | os.PathLike[str]) -> str:
    found = os.fspath(value)
    if not isinstance(found, str):
        raise TypeError("it is made of bytes")
    if not found:
        raise ValueError("it is empty")
    return found


def sequence(item: ArgSpec, default: object = REQUIRED, doc: str = "") -> ArgSpec:
    """Return the spec of a list of what `item` describes, kept as a tuple."""

    def convert(values: Iterable[Any]) -> tuple[object, ...]:
        if isinstance(values, (str, bytes)):
            raise TypeError("it is one item and no list")
        return tuple(item.convert(value) for value in values)

    return ArgSpec(convert, f"a list, each item {item.expected}", default, doc)


def optional(spec: ArgSpec) -> ArgSpec:
    """Return `spec` for an argument that may be left out, or be ``None``."""

    def convert(value: object) -> object:
        return None if value is None else spec.convert(value)

    return ArgSpec(convert, f"{spec.expected} or None", None, spec.doc)


def shape(doc: str = "") -> ArgSpec:
    """Return the spec of a tensor shape: an integer or a sequence of them, kept as a tuple."""

    def convert(value: SupportsIndex | Sequence[SupportsIndex]) -> tuple[int, ...]:
        sizes = (value,) if isinstance(value, SupportsIndex) else tuple(value)
        result = tuple(operator.index(size) for size in sizes)
        if any(size < 0 for size in result):
            raise ValueError("a size is negative")
        return result

    return ArgSpec(convert, "a shape: integers of at least 0", doc=doc)


def data_type(doc: str = "") -> ArgSpec:
    """Return the spec of a NumPy dtype that a tensor can have."""
    return ArgSpec(_dtype, "a NumPy dtype", doc=doc)


def _dtype(value: Any) -> np.dtype[Any]:
    if value is None:
        raise TypeError("it is None")
    dtype: np.dtype[Any] = np.dtype(value)
    if dtype.hasobject:
        raise TypeError("a tensor cannot hold Python objects")
    return dtype


def constant(value: object, dtype: object = None) -> str | bytes | NDArray[Any]:
    """Return a value that can be a blob: a string, bytes, or a read-only array of its own.

    Parameters
    ----------
    value
        A string, bytes, a number, an array or nested lists of numbers.
    dtype
        Makes it an array of this dtype, a string and bytes too.

    Raises
    ------
    TypeError
        It is something else, or no array of plain items.
    ValueError
        Nested lists of unequal lengths.
    """
    if isinstance(value, BlobReference):
        raise TypeError("a blob reference is no value; use Copy")
    if dtype is None:
        if isinstance(value, str):
            return value
        if isinstance(value, (bytes, bytearray)):
            return bytes(value)
    array: NDArray[Any] = np.array(value) if dtype is None else np.array(value, dtype=_dtype(dtype))
    if array.dtype.hasobject:
        raise TypeError("it does not make an array of numbers, booleans or strings")
    array.flags.writeable = False
    return array


def filled(dtype: np.dtype[Any] | None) -> Callable[[object], NDArray[Any]]:
    """Return a converter to a read-only array of `dtype`; ``None`` means strings or bytes.

    Integers must fit and fractions are refused for them; floats may be rounded to the dtype.
    """

    def convert(value: object) -> NDArray[Any]:
        array = np.array(value)
        if array.size == 0:
            array = np.zeros(array.shape, "U1" if dtype is None else dtype)
        elif dtype is None:
            if array.dtype.kind not in "US":
                raise TypeError("it is not made of strings")
        else:
            array = cast(array, dtype)
        array.flags.writeable = False
        return array

    return convert


def cast(array: NDArray[Any], dtype: np.dtype[Any]) -> NDArray[Any]:
    """Return `array` as `dtype`; floats may be rounded, nothing else may be lost.

    Raises
    ------
    TypeError
        The kinds do not go together: a fraction for an integer, a number for a boolean.
    ValueError
        An integer does not fit.
    """
    if array.dtype.hasobject:
        raise TypeError("it does not make an array of plain items")
    wanted = {"b": "b", "i": "iub", "u": "iub", "f": "fiub", "c": "cfiub"}.get(dtype.kind)
    if wanted is not None and array.dtype.kind not in wanted:
        raise TypeError(f"{array.dtype} cannot become {dtype} without loss")
    with np.errstate(all="ignore"):
        result = array.astype(dtype)
    if dtype.kind in "iu" and not np.array_equal(result, array):
        raise ValueError(f"it does not fit {dtype}")
    return result


def elements(dimensions: Sequence[int]) -> int:
    """Return how many elements a tensor of this shape has."""
    return math.prod(dimensions)
