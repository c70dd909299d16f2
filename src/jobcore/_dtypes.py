"""Data types as plain JSON values, and back.

The checkpoint format names the data type of every array. NumPy's own text (``"<f4"``) does for most of
them; structured types need their fields, and the types of ``ml_dtypes`` (``bfloat16`` and the like) are
known to NumPy only once that package is imported, so they go by name.
"""

from __future__ import annotations

import re
import sys
from typing import Any

import numpy as np

from jobcore.errors import FormatError

__all__ = ["DTypeSpec", "dtype_from_spec", "dtype_spec", "is_ml_dtype", "refusal", "spec_text"]

#: A string for a plain type, an object for a structured one or a subarray of fields.
DTypeSpec = str | dict[str, Any]

# Everything that numpy.dtype.str may give for a type that we store. Checked before NumPy sees the text:
# numpy.dtype("f4,f4") or numpy.dtype("O") would otherwise build what no writer of ours ever wrote.
_PLAIN = re.compile(r"[<>|]([biufc]|[SUV])\d{1,10}|[<>][Mm]8(\[\d{0,10}(Y|M|W|D|h|m|s|ms|us|ns|ps|fs|as)\])?")
_ML_NAME = re.compile(r"b?(float|complex)\d+[a-z0-9_]*|u?int\d+")
_MAX_DEPTH = 32


def is_ml_dtype(dtype: np.dtype[Any]) -> bool:
    """Tell whether `dtype` is one of ``ml_dtypes``.

    Parameters
    ----------
    dtype
        Any NumPy data type.

    Returns
    -------
    bool
        True for ``bfloat16``, the 8-bit and smaller floats and the 4-bit and smaller integers.
    """
    return dtype.type.__module__.partition(".")[0] == "ml_dtypes"


def refusal(dtype: np.dtype[Any], depth: int = 0) -> str | None:
    """Say why arrays of `dtype` cannot be stored.

    Parameters
    ----------
    dtype
        Any NumPy data type.
    depth
        How many structured types and arrays of fields it is inside of.

    Returns
    -------
    str or None
        The reason, or ``None`` when the type can be stored.
    """
    if dtype.kind == "T":
        return f"dtype {dtype} holds text of variable length"
    if dtype.hasobject:
        return f"dtype {dtype} holds Python objects"
    if is_ml_dtype(dtype):
        if sys.byteorder != "little" or dtype.byteorder == ">":
            return f"dtype {dtype} in big-endian order"
        return None
    if depth == _MAX_DEPTH and (dtype.subdtype is not None or dtype.names is not None):
        return f"structured types are nested deeper than {_MAX_DEPTH} levels"
    if dtype.subdtype is not None:
        return refusal(dtype.base, depth + 1)
    if dtype.names is not None:
        for name in dtype.names:
            field = dtype.fields[name]  # type: ignore[index]  # names is not None, so fields is not either
            if len(field) > 2:
                return f"dtype {dtype} has a title on field {name!r}"
            reason = refusal(field[0], depth + 1)
            if reason is not None:
                return f"field {name!r}: {reason}"
    elif _PLAIN.fullmatch(dtype.str) is None:
        return f"dtype {dtype} has no portable form"
    if dtype.itemsize == 0:
        return f"dtype {dtype.str} has items of no bytes"
    return None


def dtype_spec(dtype: np.dtype[Any]) -> DTypeSpec:
    """Describe a data type as a JSON value.

    Parameters
    ----------
    dtype
        A type for which :func:`refusal` gives ``None``.

    Returns
    -------
    str or dict
        ``"<f4"``, ``"bfloat16"``, ``{"names": ..., "formats": ..., "offsets": ..., "itemsize": ...}`` or
        ``{"base": ..., "shape": [...]}``.
    """
    if is_ml_dtype(dtype):
        return dtype.name
    if dtype.subdtype is not None:
        base, shape = dtype.subdtype
        return {"base": dtype_spec(base), "shape": list(shape)}
    if dtype.names is not None:
        fields = [dtype.fields[name] for name in dtype.names]  # type: ignore[index]  # as above
        return {
            "names": list(dtype.names),
            "formats": [dtype_spec(field[0]) for field in fields],
            "offsets": [field[1] for field in fields],
            "itemsize": dtype.itemsize,
        }
    return dtype.str


def dtype_from_spec(spec: object) -> np.dtype[Any]:
    """Build the data type that `spec` describes.

    Parameters
    ----------
    spec
        What :func:`dtype_spec` gave; it may come from a damaged or hostile file.

    Returns
    -------
    numpy.dtype
        The type, equal to the one described.

    Raises
    ------
    FormatError
        The text is not a data type of the format, or needs ``ml_dtypes`` and that is not installed.
    """
    return _resolve(spec, 0)


def spec_text(spec: object) -> str:
    """Give a short text of a data type for people to read; it never fails.

    Parameters
    ----------
    spec
        As for :func:`dtype_from_spec`.

    Returns
    -------
    str
        ``"float32"``, ``">f4"``, ``"bfloat16"``, or the fields of a structured type.
    """
    try:
        return str(dtype_from_spec(spec))
    except FormatError:
        return spec if isinstance(spec, str) else str(spec)


def _resolve(spec: object, depth: int) -> np.dtype[Any]:
    try:
        if isinstance(spec, str):
            if _PLAIN.fullmatch(spec):
                return _checked(np.dtype(spec))
            if _ML_NAME.fullmatch(spec):
                return _ml_dtype(spec)
        elif isinstance(spec, dict) and depth < _MAX_DEPTH:
            if spec.keys() == {"base", "shape"}:
                shape = tuple(_count(n) for n in spec["shape"])
                return _checked(np.dtype((_resolve(spec["base"], depth + 1), shape)))
            if spec.keys() == {"names", "formats", "offsets", "itemsize"}:
                fields = {
                    "names": list(spec["names"]),
                    "formats": [_resolve(item, depth + 1) for item in spec["formats"]],
                    "offsets": [_count(n) for n in spec["offsets"]],
                    "itemsize": _count(spec["itemsize"]),
                }
                return _checked(np.dtype(fields))  # type: ignore[call-overload]  # numpy wants a TypedDict
    except FormatError:
        raise  # it is a ValueError too, and the hint of a missing package inside a field must stay
    except (TypeError, ValueError, OverflowError, MemoryError) as error:
        raise FormatError(f"expected a data type of the format, found {spec!r:.200}: {error}") from error
    raise FormatError(f"expected a data type of the format, found {spec!r:.200}")


def _checked(dtype: np.dtype[Any]) -> np.dtype[Any]:
    # What is refused when saving must not come in through a file either: "|V0" would divide by zero later.
    reason = refusal(dtype)
    if reason is not None:
        raise ValueError(reason)
    return dtype


def _count(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _ml_dtype(name: str) -> np.dtype[Any]:
    try:
        import ml_dtypes
    except ImportError as error:
        raise FormatError(
            f"data type {name!r} needs the package ml_dtypes, which is not installed",
            hint="pip install ml_dtypes",
        ) from error
    scalar = getattr(ml_dtypes, name, None)
    if not isinstance(scalar, type):
        raise FormatError(
            f"ml_dtypes {ml_dtypes.__version__} has no data type {name!r}", hint="pip install -U ml_dtypes"
        )
    return np.dtype(scalar)
