"""Codecs and arrays that tests of policies and codecs share."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from jobcore.store import (
    BlobPolicy,
    Blosc,
    Zstd,
    inspect,
)

CODECS = [
    Zstd(),
    Zstd(-7),
    Zstd(19),
    Blosc(),
    Blosc("lz4", 1, "shuffle"),
    Blosc("blosclz", 9, "noshuffle"),
    Blosc("zlib", 3, "shuffle"),
    Blosc("zstd", 0, "bitshuffle"),
]
KINDS = ["x.zarr.zip", "x.zarr"]


def encoded(codec: Any = Zstd(), **more: Any) -> BlobPolicy:  # noqa: B008 - a frozen value
    return BlobPolicy(codec=codec, **more)


def blob(path: Path, name: str) -> Any:
    return next(one for one in inspect(path).blobs if one.name == name)


def repeated(rows: int = 3000, columns: int = 100) -> np.ndarray[Any, Any]:
    return np.arange(rows * columns, dtype="<f4").reshape(rows, columns) % 17
