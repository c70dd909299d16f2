"""Small Python state as values that can be copied, stored and restored.

A *state* is built of None, bool, int, float, complex, str, bytes, list, tuple, dict with str keys, and
NumPy arrays and scalars. It is stored as tagged JSON, which is text that anybody can read, and comes back
as equal values of the same types; no class of the user's is ever looked up, so a checkpoint loads where the
training code is not installed. The encoding is described in ``docs/reference/format.md``.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import struct
from collections.abc import Callable
from typing import Any

import numpy as np

from jobcore._dtypes import dtype_from_spec, dtype_spec, refusal
from jobcore.errors import BlobKindError, BlobValueError, FormatError

__all__ = ["copy_state", "decode_state", "encode_state"]

#: How deep lists, tuples and dicts may be nested.
MAX_DEPTH = 64
_EXACT = 2**53 - 1  # larger integers lose digits in readers that keep every JSON number as a double
_KINDS = "None, bool, int, float, complex, str, bytes, list, tuple, dict with str keys, NumPy array or scalar"


def copy_state(value: object, where: str = "state") -> Any:
    """Copy a state deeply and check it.

    Subclasses of the builtin types (``OrderedDict``, ``IntEnum``, named tuples) become the builtin type,
    so that a value looks the same before it was stored and after it was loaded.

    Parameters
    ----------
    value
        The state.
    where
        What to call it in an error, usually the name of the blob.

    Returns
    -------
    object
        An equal value that shares nothing mutable with `value`.

    Raises
    ------
    BlobKindError
        A leaf is of a type that cannot be stored; the text gives its path, such as ``cfg['opt'][3]``.
    BlobValueError
        Nested deeper than 64 levels (a list that contains itself, for one), or text that is not Unicode.
    """
    return _copy(value, where, 0)


def encode_state(value: object, where: str = "state") -> bytes:
    """Write a state as canonical tagged JSON.

    Parameters
    ----------
    value
        The state, as :func:`copy_state` takes it.
    where
        What to call it in an error.

    Returns
    -------
    bytes
        UTF-8 JSON text; the same value always gives the same bytes.

    Raises
    ------
    BlobKindError, BlobValueError
        As for :func:`copy_state`.
    """
    tree = _encode(_copy(value, where, 0))
    return json.dumps(tree, ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode()


def decode_state(data: bytes | bytearray | memoryview) -> Any:
    """Read what :func:`encode_state` wrote.

    Parameters
    ----------
    data
        UTF-8 JSON text; it may come from a damaged or hostile file.

    Returns
    -------
    object
        The state.

    Raises
    ------
    FormatError
        The bytes are not a state.
    """
    try:
        # Objects are decoded from the innermost outwards by the hook, so depth costs no Python stack.
        value = json.loads(str(data, "utf-8"), object_pairs_hook=_decode_object, parse_constant=_no_constant)
    except FormatError:
        raise
    except (ValueError, TypeError, KeyError, OverflowError, RecursionError, struct.error) as error:
        raise FormatError(f"expected a state as tagged JSON, found {bytes(data[:60])!r}: {error}") from error
    _check(value, 0)
    return value


def _copy(value: object, where: str, depth: int) -> Any:
    # numpy.float64 is a float and numpy.str_ a str, so NumPy's scalars must be asked for first.
    if isinstance(value, np.ndarray | np.generic):
        if isinstance(value, np.ma.MaskedArray):
            raise BlobKindError(f"{where}: a masked array cannot be stored", hint="store .data and .mask")
        reason = refusal(value.dtype)
        if reason is not None:
            raise BlobKindError(f"{where}: {reason}", hint="use an array of numbers, bytes or text")
        return np.array(value, copy=True) if isinstance(value, np.ndarray) else value
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, complex):
        return complex(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, str):
        return _text(value, where)
    if isinstance(value, list | tuple | dict):
        if depth == MAX_DEPTH:
            raise BlobValueError(f"{where:.200}: nested deeper than {MAX_DEPTH} levels")
        if isinstance(value, dict):
            return {
                _key(key, where): _copy(item, f"{where}[{key!r}]", depth + 1) for key, item in value.items()
            }
        items = [_copy(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        return tuple(items) if isinstance(value, tuple) else items
    raise BlobKindError(
        f"{where}: expected {_KINDS}, found {type(value).__module__}.{type(value).__qualname__}"
    )


def _text(value: str, where: str) -> str:
    text = str(value)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BlobValueError(
            f"{where}: expected Unicode text, found a lone surrogate in {text!r:.80}"
        ) from error
    return text


def _key(key: object, where: str) -> str:
    if not isinstance(key, str):
        raise BlobKindError(
            f"{where}: expected dict keys of type str, found {key!r:.80} of type {type(key).__qualname__}",
            hint="convert the keys with str(), or use a list of pairs",
        )
    return _text(key, f"{where}[{key!r}]")


def _encode(value: Any) -> Any:
    kind = type(value)
    if value is None or kind is bool or kind is str:
        return value
    if kind is int:
        return value if -_EXACT <= value <= _EXACT else {"$int": hex(value)}
    if kind is float:
        # Bits, not text: a NaN may carry a payload, and JSON has neither NaN nor infinity.
        return value if value - value == 0.0 else {"$float": struct.pack(">d", value).hex()}
    if kind is complex:
        return {"$complex": [_encode(value.real), _encode(value.imag)]}
    if kind is bytes:
        return {"$bytes": base64.b64encode(value).decode()}
    if kind is list:
        return [_encode(item) for item in value]
    if kind is tuple:
        return {"$tuple": [_encode(item) for item in value]}
    if kind is dict:
        # A key of the user's that begins with "$" gets one more, so that it is never taken for a tag.
        return {"$" + k if k.startswith("$") else k: _encode(item) for k, item in value.items()}
    array = np.asarray(value)
    body = {
        "dtype": dtype_spec(array.dtype),
        "shape": list(array.shape),
        "data": base64.b64encode(array.tobytes()).decode(),
    }
    return {"$array" if isinstance(value, np.ndarray) else "$scalar": body}


def _check(value: Any, depth: int) -> None:
    # What could not be saved must not come in either: it would fail far from here, when it is copied or saved again.
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise FormatError(f"expected Unicode text, found a lone surrogate in {value!r:.80}") from error
    elif isinstance(value, list | tuple | dict):
        if depth == MAX_DEPTH:
            raise FormatError(f"expected at most {MAX_DEPTH} levels of lists, tuples and dicts, found more")
        for item in value.values() if isinstance(value, dict) else value:
            _check(item, depth + 1)
        if isinstance(value, dict):
            for key in value:
                _check(key, depth + 1)


def _no_constant(text: str) -> Any:
    raise FormatError(f"expected JSON, found the constant {text}")


def _decode_object(pairs: list[tuple[str, Any]]) -> Any:
    if len(pairs) == 1 and pairs[0][0].startswith("$") and not pairs[0][0].startswith("$$"):
        tag, body = pairs[0]
        decode = _TAGS.get(tag)
        if decode is None:
            raise FormatError(f"expected one of the tags {', '.join(_TAGS)}, found {tag!r:.80}")
        return decode(body)
    result = {}
    for key, item in pairs:
        if key.startswith("$"):
            if not key.startswith("$$"):
                raise FormatError(
                    f"expected an object with the tag {key!r:.80} alone, found {len(pairs)} members"
                )
            key = key[1:]
        if key in result:
            raise FormatError(f"expected each key once, found {key!r:.80} twice")
        result[key] = item
    return result


def _decode_complex(body: Any) -> complex:
    real, imag = body
    return complex(float(real), float(imag))


def _decode_float(body: Any) -> float:
    (value,) = struct.unpack(">d", bytes.fromhex(body))
    return float(value)


def _decode_bytes(body: Any) -> bytes:
    try:
        return base64.b64decode(body, validate=True)
    except binascii.Error as error:
        raise FormatError(f"expected base64, found {body!r:.60}: {error}") from error


def _decode_tuple(body: Any) -> tuple[Any, ...]:
    if type(body) is not list:
        raise FormatError(f"expected the items of a tuple as an array, found {body!r:.60}")
    return tuple(body)


def _decode_array(body: Any) -> Any:
    dtype = dtype_from_spec(body["dtype"])
    data = _decode_bytes(body["data"])
    shape = body["shape"]
    if not all(type(n) is int and n >= 0 for n in shape) or math.prod(shape) * dtype.itemsize != len(data):
        raise FormatError(f"expected data of {dtype} for the shape {shape!r:.80}, found {len(data)} bytes")
    array = np.empty(shape, dtype)
    array.reshape(-1).view(np.uint8)[...] = np.frombuffer(data, np.uint8)
    return array


def _decode_scalar(body: Any) -> Any:
    array = _decode_array(body)
    if array.shape != ():
        raise FormatError(f"expected a scalar, found an array of shape {array.shape}")
    return array[()]


_TAGS: dict[str, Callable[[Any], Any]] = {
    "$int": lambda body: int(body, 16),
    "$float": _decode_float,
    "$complex": _decode_complex,
    "$bytes": _decode_bytes,
    "$tuple": _decode_tuple,
    "$array": _decode_array,
    "$scalar": _decode_scalar,
}
