"""Values of every kind, data type and layout, for tests of what stores them."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import numpy as np

from jobcore._dtypes import dtype_from_spec
from jobcore._fast.counter import Counter
from jobcore.errors import FormatError

__all__ = ["NAMES", "any_bits", "arrays", "data_types", "kinds", "same"]

#: Names that a file system, a URL or a JSON document may stumble over; none gives the key of another.
NAMES = (
    "w",
    "W",
    "fc1/weight:0",
    "größe",
    "\u0000\n\t",
    ".",
    "..",
    ".hidden",
    "__init__",
    "zarr.json",
    "c",
    "c.0",
    "nul.txt",
    "con",
    "a/../b",
    "a\\b",
    " ",
    "=",
    "~w",
    "ends.",
    "🙂" * 80,
    "x" * 300,
    "x" * 301,
)
_NATIVE = ["i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
_OTHER: list[Any] = [
    *("?", "i1", "u1", "<M8[ns]", ">M8[D]", "<m8[25s]", "S1", "S7", "<U3", ">U2", "V5"),
    [("a", "<f4"), ("b", ">i2")],
    [("inner", [("x", "f4", (2, 3))]), ("größe", "S3")],
    {"names": ["late"], "formats": ["<i4"], "offsets": [12], "itemsize": 20},
]
_ML_NAMES = ("bfloat16", "float8_e4m3fn", "float8_e5m2", "int4", "uint4")


def data_types() -> list[np.dtype[Any]]:
    """Give a data type of each sort that can be stored; those of `ml_dtypes` only where it is installed."""
    found = [np.dtype(order + code) for order in "<>" for code in _NATIVE]
    found += [np.dtype(spec) for spec in _OTHER]
    for name in _ML_NAMES:
        try:
            found.append(dtype_from_spec(name))
        except FormatError:  # the package is not installed
            break
    return found


def any_bits(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """Give an array of random bytes, NaN payloads and padding included; only bools are true or false."""
    generator = np.random.default_rng(seed)
    array = np.empty(shape, dtype)
    flat = array.reshape(-1).view(np.uint8)
    flat[...] = generator.integers(0, 2 if dtype.kind == "b" else 256, flat.shape, np.uint8)
    return array


def arrays() -> Iterator[tuple[str, np.ndarray[Any, Any]]]:
    """Give name and array for each data type and each way in which an array can lie in memory."""
    for number, dtype in enumerate(data_types()):
        whole = any_bits(dtype, (6, 4, 3), number)
        frozen = whole.copy()
        frozen.flags.writeable = False
        layouts = {
            "whole": whole,
            "0-d": any_bits(dtype, (), number),
            "one": whole[:1, 0, 0],
            "empty": whole[:0],
            "empty inside": whole[:, :0],
            "fortran": np.asfortranarray(whole),
            "steps": whole[::2, 1:],
            "backwards": whole[::-1, :, ::-1],
            "turned": whole.transpose(2, 0, 1),
            "repeated": np.broadcast_to(whole[0], (3, 4, 3)),
            "read-only": frozen,
        }
        for layout, array in layouts.items():
            yield f"{number} {dtype} {layout}", array


def kinds() -> dict[str, object]:
    """Give a value of every kind that is stored, the extreme ones too."""
    generator = np.random.default_rng(7)
    generator.random(3)
    return {
        "tensor": np.arange(75, dtype="<f4").reshape(25, 3),
        "counter": Counter(42),
        "most": np.int64(2**63 - 1),
        "text": "größe \u0000 🙂",
        "no text": "",
        "bytes": bytes(range(256)),
        "no bytes": b"",
        "state": {"$": (1, [2.5, None, True]), "big": -(2**70), "inf": float("inf"), "w": np.arange(3)},
        "nothing": None,
        "numpy": generator,
        "python": random.Random(7),
    }


def same(one: object, other: object) -> bool:
    """Tell whether two values are equal in kind, data type, shape and every bit; generators by what comes next."""
    if isinstance(one, np.ndarray | np.generic):
        if not isinstance(other, np.ndarray | np.generic):
            return False
        return (one.dtype, one.shape) == (other.dtype, other.shape) and _bits(one) == _bits(other)
    if type(one) is not type(other):
        return False
    if isinstance(one, Counter) and isinstance(other, Counter):
        return one.retrieve() == other.retrieve()
    if isinstance(one, np.random.Generator) and isinstance(other, np.random.Generator):
        return one.bit_generator.state == other.bit_generator.state
    if isinstance(one, random.Random) and isinstance(other, random.Random):
        return one.getstate() == other.getstate()
    if isinstance(one, dict) and isinstance(other, dict):
        return list(one) == list(other) and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return one == other


def _bits(array: Any) -> bytes:
    found = np.asarray(array)
    if found.dtype.names:
        # As plain bytes: a copy by fields would leave out what lies between them.
        found = found.view(np.dtype((np.void, found.itemsize)))
    return found.tobytes()
