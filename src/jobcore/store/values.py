"""Blobs of every kind as arrays to be stored, and back.

A tensor is stored as it is. All other kinds become a small array here: an integer for a counter, bytes for
the rest. The kinds are section 2 of ``docs/reference/format.md``.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from jobcore._dtypes import refusal
from jobcore._fast.counter import Counter
from jobcore._fast.exported import exported_array
from jobcore._fast.timer import Timer
from jobcore._rng import RNG, rng_restore, rng_state
from jobcore._state import decode_state, encode_state
from jobcore.errors import BlobKindError, BlobValueError, FormatError, UnsupportedBlobError
from jobcore.store.names import check_name
from jobcore.store.workers import giving_way
from jobcore.workspace import Blob, classify

__all__ = ["Collected", "collect", "decode", "plain_mapping"]

_NO_BYTES = np.empty(0, np.uint8)
# What classify() asks for before it comes to arrays of other libraries.
_OTHERS = (
    np.ndarray,
    np.generic,
    int,
    float,
    complex,
    str,
    bytes,
    bytearray,
    list,
    tuple,
    dict,
    Blob,
    Counter,
    Timer,
)


@dataclass(slots=True)
class Collected:
    """Blobs that are ready to be written.

    Attributes
    ----------
    names, kinds
        Of each blob, in order.
    arrays
        What is stored of each; tensors are not copied but referred to.
    skipped
        Name and reason of each blob that was left out.
    """

    names: list[str] = field(default_factory=list)
    kinds: list[str] = field(default_factory=list)
    arrays: list[np.ndarray[Any, Any]] = field(default_factory=list)
    skipped: list[tuple[str, str]] = field(default_factory=list)


def plain_mapping(blobs: Mapping[str, object]) -> Mapping[str, object]:
    """Take names and values of a mapping once, so that they stay what they are while they are looked at.

    Parameters
    ----------
    blobs
        As a caller gives them.

    Returns
    -------
    Mapping
        A copy that nobody else has, which does not copy the values.

    Raises
    ------
    TypeError
        It is no mapping.
    UnsupportedBlobError
        It gives a name more than once.
    """
    if not isinstance(blobs, Mapping):
        raise TypeError(f"expected blobs as a mapping from names to values, found {type(blobs).__qualname__}")
    if type(blobs) is dict:
        copy = blobs.copy()  # in one step, whatever other threads do to it
        if set(map(type, copy)) <= {str}:
            return copy
        blobs = copy
    found: dict[str, object] = {}
    for name, value in list(blobs.items()):
        # A class of the user's own may compare as it likes: what counts is the text.
        plain = "".join((name,)) if isinstance(name, str) else name
        if plain in found:
            raise UnsupportedBlobError(
                f"expected each name of a blob once, and nothing was written: {plain!r:.120} is repeated",
                hint="give the blobs as a dict",
            )
        found[plain] = value
    return found


def collect(blobs: Mapping[str, object]) -> Collected:
    """Take the values of blobs, all small ones by copy and all tensors by reference.

    Parameters
    ----------
    blobs
        Name to ``Blob`` or to any value that a blob can have. Blobs that are transient or timers are
        skipped, with the reason.

    Returns
    -------
    Collected
        What to write.

    Raises
    ------
    UnsupportedBlobError
        Values that cannot be stored; all of them are named.
    """
    result = Collected()
    refused: list[tuple[object, str]] = []
    # By identity, since the same few objects come again and again, and held, so that it stays theirs.
    reasons: dict[int, tuple[np.dtype[Any], str | None]] = {}
    foreign: dict[type, bool] = {}
    for name, value in giving_way(blobs.items()):
        if type(name) is str and name:
            kind = type(value)
            array: Any = value if kind is np.ndarray else _tensor_of(value) if kind is Blob else None
            if array is None:
                if kind not in foreign:
                    foreign[kind] = _is_foreign(kind)
                if foreign[kind]:
                    array = exported_array(value)
            if array is not None:
                known = reasons.get(id(array.dtype))
                if known is None:
                    known = reasons[id(array.dtype)] = array.dtype, refusal(array.dtype)
                if known[1] is None:
                    result.names.append(name)
                    result.kinds.append("tensor")
                    result.arrays.append(array)
                    continue
        reason = check_name(name)
        if reason is None:
            reason = _collect_one(result, name, value)
        if reason is not None:
            refused.append((name, reason))
    refused += _surrogates(result.names)
    if refused:
        lines = "; ".join(f"{name!r:.120}: {reason}" for name, reason in refused)
        raise UnsupportedBlobError(
            f"{len(refused)} of {len(blobs)} blobs cannot be stored, and nothing was written: {lines}",
            hint="leave them out, convert them to arrays of numbers, bytes or text, or make them transient",
        )
    return result


def _tensor_of(blob: Any) -> np.ndarray[Any, Any] | None:
    """Return the array of a blob, where that is all there is to be saved of it."""
    if blob.kind != "tensor" or blob.transient:
        return None
    value = blob.value
    return value if type(value) is np.ndarray else None


def _is_foreign(kind: type) -> bool:
    """Tell whether values of a type are arrays of another library, whose buffer is what NumPy would make of them."""
    return hasattr(kind, "__array__") and not issubclass(kind, _OTHERS)


def _surrogates(names: list[str]) -> list[tuple[object, str]]:
    try:
        "".join(names).encode()
    except UnicodeEncodeError:
        return [(name, reason) for name in names if (reason := check_name(name)) is not None]
    return []


def _collect_one(result: Collected, name: str, value: object) -> str | None:
    if type(value) is np.ndarray:
        kind: str = "tensor"
        inner: Any = value
    elif isinstance(value, Blob):
        kind, inner = value.kind, value.value
        if value.transient or kind in ("timer", "object"):
            result.skipped.append((name, "transient" if value.transient else f"a {kind} is not stored"))
            return None
    else:
        try:
            kind, inner = classify(name, value)
        except (BlobKindError, BlobValueError) as error:
            return error.message
    try:
        array = _encode(name, kind, inner)
    except (BlobKindError, BlobValueError) as error:
        return error.message
    except UnicodeEncodeError:
        return "expected Unicode text, found a lone surrogate"
    reason = refusal(array.dtype)
    if reason is None and isinstance(array, np.ma.MaskedArray):
        reason = "a masked array, whose mask would be lost"
    if reason is not None:
        return reason
    result.names.append(name)
    result.kinds.append(kind)
    result.arrays.append(array)
    return None


def _encode(name: str, kind: str, value: Any) -> np.ndarray[Any, Any]:
    if kind == "tensor":
        return value  # type: ignore[no-any-return]  # a tensor's value is its array
    if kind == "counter":
        return np.array(value.retrieve(), np.int64)
    if kind == "string":
        return _from_bytes(value.encode())
    if kind == "bytes":
        return _from_bytes(bytes(value))
    if kind == "state":
        return _from_bytes(encode_state(value, name))
    if kind == "rng":
        algorithm, state = rng_state(value, name)
        return _from_bytes(encode_state({"algorithm": algorithm, "state": state}, name))
    if kind == "empty":
        return _NO_BYTES
    raise BlobKindError(f"{name!r}: a {kind} cannot be stored")


def _from_bytes(data: bytes) -> np.ndarray[Any, Any]:
    return np.frombuffer(data, np.uint8) if data else _NO_BYTES


def decode(kind: str, array: np.ndarray[Any, Any]) -> Any:
    """Make the value of a blob from what was stored of it.

    Parameters
    ----------
    kind
        Kind of the blob.
    array
        What :func:`collect` made of it: its dtype and shape fit the kind.

    Returns
    -------
    object
        ndarray, ``Counter``, str, bytes, state, a random generator, or ``None`` for an empty blob.

    Raises
    ------
    FormatError
        The bytes are none of that kind, or the kind is not known.
    """
    if kind == "tensor":
        return array
    if kind == "counter":
        counter = Counter()
        counter.restore(int(array))
        return counter
    data = array.tobytes()
    if kind == "bytes":
        return data
    if kind == "string":
        try:
            return data.decode()
        except UnicodeDecodeError as error:
            raise FormatError(f"expected UTF-8 text: {error}") from error
    if kind == "state":
        return decode_state(data)
    if kind == "rng":
        return rng_restore(None, *parse_rng(data))
    if kind == "empty":
        return None
    raise FormatError(f"expected a kind that this version knows, found {kind!r:.80}")


def parse_rng(data: bytes) -> tuple[str, Any]:
    """Read the algorithm and the state of a stored random generator."""
    document = decode_state(data)
    if not isinstance(document, dict) or not isinstance(document.get("algorithm"), str):
        raise FormatError(f"expected the algorithm and state of a random generator, found {data[:60]!r}")
    return document["algorithm"], document.get("state")


def restore_rng(generator: RNG, data: bytes) -> RNG:
    """Put a stored state into a generator, or make a new one where its algorithm is another."""
    return rng_restore(generator, *parse_rng(data))
