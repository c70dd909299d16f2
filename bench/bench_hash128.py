"""The 128-bit hash: each kernel against a cryptographic hash, the CRC and a plain copy of as many bytes.

From memory the limit is what the memory gives: a kernel that keeps up with the copy is as fast as it can be. ``GB/s``
in the extra information is of the data, at the median. Small data shows what a call costs.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jobcore._fast import crc, hash128

Bytes = NDArray[np.uint8]

SIZES = {"256 B": 256, "256 KiB, in cache": 256 << 10, "256 MiB, from memory": 256 << 20}
SMALL = 1 << 20  # all there is when the benchmark runs as a test
KERNELS = [f"jobcore: {name}" for name in hash128.implementations()]


@pytest.fixture(scope="module")
def source(request: pytest.FixtureRequest) -> Bytes:
    largest = max(SIZES.values()) if request.config.getoption("benchmark_enable") else SMALL
    return np.frombuffer(np.random.default_rng(0).bytes(largest), np.uint8)


@pytest.fixture(scope="module")
def target(source: Bytes) -> Bytes:
    return np.full_like(source, 1)  # written to once, so that no page is new in the first round


def blake2b(data: Bytes) -> bytes:
    return hashlib.blake2b(data, digest_size=16).digest()


def work(who: str, data: Bytes, into: Bytes) -> Callable[[], object]:
    if who == "peer: hashlib.blake2b":
        return partial(blake2b, data)
    if who == "peer: crc32":
        return partial(crc.crc32, data)
    if who == "limit: np.copyto":
        return partial(np.copyto, into, data)
    return partial(hash128.hash128_with, who.removeprefix("jobcore: "), data)


@pytest.mark.benchmark(group="hash128")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("who", [*KERNELS, "peer: crc32", "peer: hashlib.blake2b", "limit: np.copyto"])
def bench_hash(benchmark: Any, source: Bytes, target: Bytes, size: str, who: str) -> None:
    benchmark.group = f"hash128 of {size}"
    data = source[: SIZES[size]]
    found = benchmark(work(who, data, target[: SIZES[size]]))
    if benchmark.stats is not None:
        benchmark.extra_info["GB/s"] = round(data.nbytes / benchmark.stats.stats.median / 1e9, 2)
    if who in KERNELS:
        assert found == hash128.hash128(data)
