"""The states that are measured, and how large and how often: all of it set by environment variables.

``JOBCORE_BENCH_SCALE`` is the part of the full size, 1 for a measurement; the default is small, so that each suite
also runs as a test. ``JOBCORE_BENCH_ROUNDS`` is the number of rounds, ``JOBCORE_BENCH_BUDGET`` the seconds after which
a slow peer gets no further round.
"""

from __future__ import annotations

import math
import os
from functools import lru_cache
from typing import Any

import ml_dtypes
import numpy as np
from numpy.typing import NDArray

State = dict[str, NDArray[Any]]

SCALE = float(os.environ.get("JOBCORE_BENCH_SCALE", 1 / 256))
ROUNDS = int(os.environ.get("JOBCORE_BENCH_ROUNDS", 5))
BUDGET_S = float(os.environ.get("JOBCORE_BENCH_BUDGET", 5))

KiB, MiB, GiB = 1 << 10, 1 << 20, 1 << 30

PIECE = 4 * MiB

STATES = ("S1", "S2", "S3", "S4")
LARGE = ("S1", "S2", "S4")

_FLOAT32 = np.dtype(np.float32)
_BFLOAT16 = np.dtype(ml_dtypes.bfloat16)


def _transformer() -> dict[str, tuple[int, ...]]:
    # 24 layers of width 704: 161 million parameters, 1.5 GiB with both moments.
    side = math.sqrt(SCALE)
    width, layers = 64 * max(1, round(11 * side)), max(2, round(24 * side))
    shapes: dict[str, tuple[int, ...]] = {"embedding": (max(64, round(26_000 * side)), width)}
    for layer in range(layers):
        part = f"layers.{layer}."
        shapes[f"{part}attention.qkv.weight"] = (3 * width, width)
        shapes[f"{part}attention.out.weight"] = (width, width)
        shapes[f"{part}mlp.up.weight"] = (4 * width, width)
        shapes[f"{part}mlp.down.weight"] = (width, 4 * width)
        shapes[f"{part}mlp.up.bias"] = (4 * width,)
        for norm in ("norm1", "norm2"):
            shapes[f"{part}{norm}.weight"] = (width,)
    return shapes


def _layout(name: str) -> dict[str, tuple[tuple[int, ...], np.dtype[Any]]]:
    if name == "S1":
        rows = max(1, round(SCALE * 65_536))
        return {f"layer{number}.weight": ((rows, 1024), _FLOAT32) for number in range(4)}
    if name == "S2":
        count = max(4, round(SCALE * 1024))
        return {f"layer{number}.weight": ((512, 512), _FLOAT32) for number in range(count)}
    if name == "S3":
        count = max(40, round(SCALE * 20_000))
        return {f"layer{number}.scale": ((64,), _FLOAT32) for number in range(count)}
    layout: dict[str, tuple[tuple[int, ...], np.dtype[Any]]] = {}
    for key, shape in _transformer().items():
        layout[key] = (shape, _BFLOAT16)
        layout[f"optimizer.mean.{key}"] = layout[f"optimizer.variance.{key}"] = (shape, _FLOAT32)
    return layout


def empty(name: str) -> State:
    """A state whose values are set, to zero: its memory is there, its pages are warm."""
    return {key: np.full(shape, 0, dtype) for key, (shape, dtype) in _layout(name).items()}


@lru_cache(maxsize=1)
def state(name: str) -> State:
    """The state of that name, no two parts of it alike. Only the last one asked for is kept."""
    arrays, rng = empty(name), np.random.Generator(np.random.SFC64(0))
    for array in arrays.values():
        flat = array.reshape(-1).view(np.uint8)
        for start in range(0, flat.size, PIECE):
            part = flat[start : start + PIECE]
            part[:] = np.frombuffer(rng.bytes(part.size), np.uint8)
    return arrays


def nbytes(arrays: State) -> int:
    return sum(array.nbytes for array in arrays.values())


def same(one: State, other: State) -> bool:
    return one.keys() == other.keys() and all(
        np.array_equal(array.reshape(-1).view(np.uint8), other[key].reshape(-1).view(np.uint8))
        for key, array in one.items()
    )
