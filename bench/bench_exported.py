"""Arrays of other libraries: 1,000 of them as arrays of NumPy, by their buffers.

The peer is what NumPy does with an object that exports a buffer; the limit is asking for the buffer alone.
"""

from __future__ import annotations

import array
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobcore._fast.exported import exported_array

VALUES = [array.array("f", range(16)) for _ in range(1000)]

WAYS: dict[str, Callable[[Any], object]] = {
    "jobcore": exported_array,
    "peer: numpy.asarray of the buffer": lambda value: np.asarray(memoryview(value)),
    "limit: memoryview": memoryview,
}


@pytest.mark.benchmark(group="exported: 1,000 foreign arrays")
@pytest.mark.parametrize("way", WAYS)
def bench_exported(benchmark: Any, way: str) -> None:
    call = WAYS[way]
    benchmark(lambda: [call(value) for value in VALUES])
