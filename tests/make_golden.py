"""How the golden databases in ``tests/data/`` were made: ``python tests/make_golden.py PATH [3]``.

A golden file is never made anew for a version that was released: each of them must load for ever. When the format
gets a new version, this script makes the file of that version beside the old ones. A path that ends in ``.zarr``
becomes a directory. With 3, blobs are encoded, and there are aliases.
"""

from __future__ import annotations

import random
import sys
from typing import Any

import ml_dtypes
import numpy as np

from jobcore import Counter
from jobcore.store import AliasOf, BlobPolicy, Blosc, ChunkPolicy, Zstd, write_database

#: Cuts `weights` into chunks, the last of which is filled up, and leaves everything else whole.
CHUNKS = ChunkPolicy(target_bytes=96, max_bytes=128)
HEADER: dict[str, Any] = {
    "run": "golden",
    "node": "trainer:0",
    "epoch": 3,
    "generation": 2,
    "stop": {"epochs": 10},
    "user": {"lr": 0.5, "note": "größe", "tags": ["a", None, True]},
    "skipped": [("scratch", "transient")],
}


def values() -> dict[str, object]:
    """Every kind of blob, every way in which a data type is stored, and names of every sort."""
    counter = Counter(42)
    generator = np.random.Generator(np.random.PCG64(7))
    generator.random(3, dtype=np.float32)
    return {
        "weights": np.arange(75, dtype="<f4").reshape(25, 3) / 8,
        "Bias/größe": np.array([[1.5, -2.5]], ">f8"),
        "flags": np.array([True, False]),
        "ints": np.array([-1, 2**40], "<i8"),
        "complex": np.array([1 - 2j, np.inf], "<c16"),
        "scalar": np.float16(0.25),
        "empty": np.zeros((2, 0, 3), "<u2"),
        "half": np.array([1, -2.5], ml_dtypes.bfloat16),
        "tiny": np.array([-3, 7], ml_dtypes.int4),
        "when": np.array(["2020-02-29"], "<M8[D]"),
        "labels": np.array([b"ab", b"c"]),
        "text array": np.array(["é", "ab"], "<U2"),
        "records": np.array([(1, (2.0, 3.0))], [("id", "<i2"), ("xy", "<f4", (2,))]),
        "steps": counter,
        "title": "größe",
        "blob": b"\x00\xff",
        "config": {"$": (1, [2.5, None]), "big": 2**70, "nan": float("inf"), "w": np.arange(3, dtype="<i4")},
        "numpy rng": generator,
        "python rng": random.Random(7),
        ".hidden": 1.0,
        "x" * 300: 2.0,
    }


#: Each codec and each shuffle, in one chunk and in several, of tensors and of what is none.
OPTIONS_3: dict[str, Any] = {
    "chunks": CHUNKS,
    "policies": {
        "weights": BlobPolicy(codec=Zstd()),
        "half": BlobPolicy(codec=Blosc()),
        "text array": BlobPolicy(codec=Blosc("lz4", 9, "shuffle")),
        "records": BlobPolicy(codec=Blosc()),
        "scalar": BlobPolicy(codec=Zstd(-1)),
        "empty": BlobPolicy(codec=Zstd()),
        "config": BlobPolicy(codec=Zstd()),
        "*rng": BlobPolicy(codec=Zstd(22)),  # of no effect: these are no tensors
        "other ints": AliasOf("ints"),
    },
}


def values_3() -> dict[str, object]:
    """The same, and views of some."""
    blobs = values()
    weights: Any = blobs["weights"]
    ints: Any = blobs["ints"]
    return {
        "tied": weights,
        "column": weights[::-2, 1],
        **blobs,
        "as bytes": weights[3:5].view(np.uint8),
        "other ints": ints.copy(),
    }


if __name__ == "__main__":
    if sys.argv[2:] == ["3"]:
        write_database(sys.argv[1], values_3(), **OPTIONS_3, **HEADER)
    else:
        write_database(sys.argv[1], values(), chunks=CHUNKS, **HEADER)
