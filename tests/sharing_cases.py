"""Arrays that share memory in every way, for tests of saves and loads."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import strategies as st

from store_cases import any_bits, same_bits

Array = np.ndarray[Any, Any]

containers = pytest.mark.parametrize("suffix", [".zarr.zip", ".zarr"])


def model() -> dict[str, Any]:
    """Views of every sort before and after their bases, and what shares nothing."""
    w = np.arange(60, dtype="<f4").reshape(12, 5)
    f = np.asfortranarray(np.arange(6.0).reshape(2, 3))
    return {
        "transposed": w.T,
        "steps": 5,
        "w": w,
        "again": w,
        "row": w[3],
        "tail": w[-2:],
        "columns": w[:, 1:4:2],
        "backwards": w[::-2, ::-1],
        "one": w[4, 2:3],
        "scalar": w[11, 4, ...],
        "bits": w.view("<u4"),
        "halves": w.view(ml_dtypes.bfloat16),
        "spread": np.broadcast_to(w[0], (3, 5)),
        "reshaped": w.reshape(5, 12),
        "alone": np.arange(3),
        "text": "w",
        "fortran": f,
        "fortran again": f,
        "nothing": w[:0],
        "end": np.float32(1),
    }


VIEWS = {
    "transposed": "w",
    "again": "w",
    "row": "w",
    "tail": "w",
    "columns": "w",
    "backwards": "w",
    "one": "w",
    "scalar": "w",
    "bits": "w",
    "halves": "w",
    "spread": "w",
    "reshaped": "w",
    "fortran again": "fortran",
}


def equal(found: Mapping[str, Any], values: Mapping[str, Any]) -> bool:
    return list(found) == list(values) and all(
        same_bits(np.asarray(found[name]), np.asarray(value)) if name != "text" else found[name] == value
        for name, value in values.items()
    )


def tensors(values: Mapping[str, Any]) -> dict[str, Array]:
    return {name: np.asarray(value) for name, value in values.items() if name != "text"}


def address(array: Array) -> int:
    return int(array.__array_interface__["data"][0])


@st.composite
def any_views(draw: st.DrawFn) -> list[Array]:
    """Views of two buffers, strided in every way."""
    buffers = [any_bits(np.dtype("u1"), (48,), seed) for seed in range(2)]
    found = []
    for _ in range(draw(st.integers(1, 12))):
        buffer = draw(st.sampled_from(buffers))
        dtype = np.dtype(draw(st.sampled_from(["u1", "<i2", ">f4", "f8", "V3"])))
        shape = tuple(draw(st.lists(st.integers(0, 4), max_size=3)))
        strides = [draw(st.sampled_from([-8, -4, -2, -1, 0, 1, 2, 4, 8, 16])) for _ in shape]
        if draw(st.booleans()):
            strides = list(np.empty(shape, dtype).strides)
        low = sum(min(0, (n - 1) * step) for n, step in zip(shape, strides, strict=True))
        high = sum(max(0, (n - 1) * step) for n, step in zip(shape, strides, strict=True)) + dtype.itemsize
        if 0 in shape:
            low, high = 0, dtype.itemsize
        if high - low <= len(buffer):
            offset = draw(st.integers(0, len(buffer) - (high - low))) - low
            found.append(np.ndarray(shape, dtype, buffer, offset, strides))
    return found
