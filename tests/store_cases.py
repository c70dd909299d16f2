"""What the tests of the store share: every data type, arrays of any bits, and databases made by hand."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

import slow_image
from jobcore.store import ChunkPolicy

TINY = ChunkPolicy(target_bytes=24, max_bytes=40)

NATIVE = [
    "?",
    "i1",
    "u1",
    *(
        order + code
        for order in "<>"
        for code in ["i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16"]
    ),
]
ML_NAMES = [
    name
    for name in dir(ml_dtypes)
    if isinstance(getattr(ml_dtypes, name), type) and issubclass(getattr(ml_dtypes, name), np.generic)
]
MAPPED = ["<M8[ns]", ">M8[D]", "<M8", "<m8[25s]", ">m8[us]", *(getattr(ml_dtypes, name) for name in ML_NAMES)]
RAW = [
    "S1",
    "S7",
    "<U3",
    ">U2",
    "V5",
    "V8",
    "g",
    "G",
    [("a", "<f4"), ("b", ">i2")],
    np.dtype([("a", "i1"), ("b", "f8")], align=True),
    [("inner", [("x", "f4", (2, 3)), ("y", ml_dtypes.bfloat16)]), ("größe/$", "S3")],
    np.dtype({"names": ["late"], "formats": ["<i4"], "offsets": [12], "itemsize": 20}),
]
DTYPES = [np.dtype(code) for code in [*NATIVE, *MAPPED, *RAW]]


def any_bits(dtype: np.dtype[Any], shape: tuple[int, ...], seed: int = 0) -> np.ndarray[Any, Any]:
    """An array of random bytes, NaN payloads and padding bytes included; only bools are true or false."""
    rng = np.random.default_rng(seed)
    array = np.empty(shape, dtype)
    flat = array.reshape(-1).view(np.uint8)
    flat[...] = rng.integers(0, 2 if dtype.kind == "b" else 256, flat.shape, np.uint8)
    return array


def same_bits(one: np.ndarray[Any, Any], other: np.ndarray[Any, Any]) -> bool:
    return one.dtype == other.dtype and one.shape == other.shape and one.tobytes() == other.tobytes()


def parts_of(path: Path) -> tuple[list[tuple[str, bytes]], dict[str, Any]]:
    """The entries of a database, without the root, and the root document."""
    import zipfile

    with zipfile.ZipFile(path) as file:
        entries = [(name, file.read(name)) for name in file.namelist()]
    (_, root) = entries.pop()
    return entries, json.loads(root)


def build(path: Path, entries: Iterable[tuple[str, bytes]], root: Any) -> Path:
    """A database of any entries, with a true index and digest round them."""
    slow_image.build(path, entries, root if isinstance(root, bytes) else json.dumps(root).encode())
    return path
