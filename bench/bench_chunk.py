"""The block writer and the chunk reader, each beside the plain system calls for as many bytes."""

from __future__ import annotations

import os

import numpy as np
import pytest

from jobcore._fast.chunk import BlockWriter, read_chunks

SIZE = 32 << 20


@pytest.fixture(scope="module")
def data() -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, SIZE, dtype=np.uint8)


@pytest.fixture
def fd(tmp_path):
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


def plain_write(fd: int, data: np.ndarray) -> None:
    view = memoryview(data)
    for at in range(0, SIZE, 1 << 20):
        os.pwrite(fd, view[at : at + (1 << 20)], at)


def block_write(fd: int, data: np.ndarray, direct: bool) -> None:
    writer = BlockWriter(fd, direct=direct)
    writer.append(data)
    writer.finish()


@pytest.mark.benchmark(group="chunk: 32 MiB into the page cache")
@pytest.mark.parametrize("how", ["plain", "block writer, checksummed"])
def bench_write(benchmark, fd, data, how):
    benchmark(plain_write if how == "plain" else lambda *a: block_write(*a, False), fd, data)


@pytest.mark.benchmark(group="chunk: 32 MiB to the disk, synced")
@pytest.mark.parametrize("how", ["plain", "block writer, checksummed"])
def bench_write_durable(benchmark, fd, data, how):
    def run():
        os.ftruncate(fd, 0)
        if how == "plain":
            plain_write(fd, data)
        else:
            block_write(fd, data, True)
        os.fsync(fd)

    benchmark(run)


@pytest.mark.benchmark(group="chunk: read 32 MiB from the page cache")
@pytest.mark.parametrize("how", ["plain", "1 thread, checksummed", "2 threads, checksummed"])
def bench_read(benchmark, fd, data, how):
    plain_write(fd, data)
    target = np.zeros(SIZE, np.uint8)
    if how == "plain":
        benchmark(os.preadv, fd, [target], 0)
    else:
        benchmark(read_chunks, fd, [(0, SIZE, target)], int(how[0]))
    assert np.array_equal(target, data)
