"""CRC-32 and CRC-32C: each kernel against zlib and a plain copy of as many bytes, which is about what memory allows.

In cache the limit is the processor's multiplier, and the copy shows how far away that is; from memory a kernel that
keeps up with the copy is as fast as it can be. ``GB/s`` in the extra information is of the data, at the median. Small
data shows what a call costs.
"""

from __future__ import annotations

import zlib
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jobcore._fast import crc, crc32c

Bytes = NDArray[np.uint8]

SIZES = {"256 B": 256, "256 KiB, in cache": 256 << 10, "256 MiB, from memory": 256 << 20}
KERNELS = [f"jobcore: {name}" for name in crc.implementations()]
CASTAGNOLI = [f"jobcore, crc32c: {name}" for name in crc32c.implementations()]


@pytest.fixture(scope="module")
def source() -> Bytes:
    return np.frombuffer(np.random.default_rng(0).bytes(max(SIZES.values())), np.uint8)


@pytest.fixture(scope="module")
def target(source: Bytes) -> Bytes:
    return np.full_like(source, 1)  # written to once, so that no page is new in the first round


def measured(benchmark: Any, nbytes: int, call: Callable[[], object]) -> object:
    found = benchmark(call)
    if benchmark.stats is not None:
        benchmark.extra_info["GB/s"] = round(nbytes / benchmark.stats.stats.median / 1e9, 2)
    return found


def expected(who: str, data: Bytes) -> int:
    return crc32c.crc32c(data) if who in CASTAGNOLI else zlib.crc32(data)


def read(who: str, data: Bytes, into: Bytes) -> Callable[[], object]:
    if who == "peer: zlib.crc32":
        return partial(zlib.crc32, data)
    if who == "limit: np.copyto":
        return partial(np.copyto, into, data)
    if who in CASTAGNOLI:
        return partial(crc32c.crc32c_with, who.removeprefix("jobcore, crc32c: "), data)
    return partial(crc.crc32_with, who.removeprefix("jobcore: "), data)


@pytest.mark.benchmark(group="crc: checksum")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("who", [*KERNELS, *CASTAGNOLI, "peer: zlib.crc32", "limit: np.copyto"])
def bench_checksum(benchmark: Any, source: Bytes, target: Bytes, size: str, who: str) -> None:
    nbytes = SIZES[size]
    benchmark.group = f"crc: checksum of {size}"
    found = measured(benchmark, nbytes, read(who, source[:nbytes], target[:nbytes]))
    assert found in (None, expected(who, source[:nbytes]))


def copy_then_checksum(checksum: Callable[[Bytes], int], into: Bytes, data: Bytes) -> int:
    np.copyto(into, data)
    return checksum(into)


def copy(who: str, data: Bytes, into: Bytes) -> Callable[[], object]:
    if who == "peer: np.copyto, then zlib.crc32":
        return partial(copy_then_checksum, zlib.crc32, into, data)
    if who == "two passes: np.copyto, then crc32":
        return partial(copy_then_checksum, crc.crc32, into, data)
    if who == "limit: np.copyto":
        return partial(np.copyto, into, data)
    if who in CASTAGNOLI:
        return partial(crc32c.copy_crc32c_with, who.removeprefix("jobcore, crc32c: "), into, data)
    return partial(crc.copy_crc32_with, who.removeprefix("jobcore: "), into, data)


@pytest.mark.benchmark(group="crc: copy with checksum")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(
    "who",
    [
        *KERNELS,
        *CASTAGNOLI,
        "two passes: np.copyto, then crc32",
        "peer: np.copyto, then zlib.crc32",
        "limit: np.copyto",
    ],
)
def bench_copy(benchmark: Any, source: Bytes, target: Bytes, size: str, who: str) -> None:
    nbytes = SIZES[size]
    benchmark.group = f"crc: copy with checksum of {size}"
    found = measured(benchmark, nbytes, copy(who, source[:nbytes], target[:nbytes]))
    assert found in (None, expected(who, source[:nbytes]))


COMBINE_BYTES = 1 << 40


@pytest.mark.benchmark(group="crc: combine, second piece of 1 TiB")
@pytest.mark.parametrize("who", ["jobcore", "limit: int ^ int"])
def bench_combine(benchmark: Any, who: str) -> None:
    first, second = crc.crc32(b"first"), crc.crc32(b"second")
    if who == "jobcore":
        assert benchmark(crc.crc32_combine, first, second, COMBINE_BYTES) != first ^ second
    else:
        assert benchmark(int.__xor__, first, second) == first ^ second
