"""Files of chunks: 64 new files in one directory, each with its checksum and its hash.

The limit is a plain write of as many bytes to as many new files; the peer does the same three things one after the
other, with the checksum and the hash of this package over the whole chunk. The files are removed in the end, and
emptied between the rounds, since a file system makes files more slowly just after many were removed.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore._fast.chunk_file import ChunkFiles
from jobcore._fast.crc32c import crc32c
from jobcore._fast.hash128 import hash128

FILES = 64
SIZES = {"4 KiB": 4 << 10, "1 MiB": 1 << 20}
FLAGS = os.O_WRONLY | os.O_CREAT | os.O_EXCL


def plain(directory: int, name: str, data: memoryview, tail: bytes = b"") -> None:
    fd = os.open(name, FLAGS, 0o444, dir_fd=directory)
    try:
        os.writev(fd, [data, tail])
    finally:
        os.close(fd)


def three_steps(directory: int, name: str, data: memoryview) -> None:
    hash128(data)
    plain(directory, name, data, crc32c(data).to_bytes(4, "little"))


WAYS: dict[str, Callable[[int], Callable[[str, memoryview], object]]] = {
    "jobcore": lambda directory: ChunkFiles(directory).chunk,
    "peer: hash, checksum, write": lambda directory: lambda name, data: three_steps(directory, name, data),
    "limit: plain write": lambda directory: lambda name, data: plain(directory, name, data),
}


@pytest.mark.benchmark(group="chunk file: 64 new files")
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("way", WAYS)
def bench_chunk_file(benchmark: Any, way: str, size: str, folder: Path) -> None:
    place = folder / f"{way[:4]} {size}"
    place.mkdir()
    directory = os.open(place, os.O_RDONLY)
    data = memoryview(np.random.default_rng(0).bytes(SIZES[size]))
    write, numbers = WAYS[way](directory), itertools.count()

    def before() -> None:
        for path in place.iterdir():
            path.chmod(0o644)
            os.truncate(path, 0)

    def files() -> None:
        for _ in range(FILES):
            write(str(next(numbers)), data)

    try:
        benchmark.pedantic(files, setup=before, rounds=9)
    finally:
        os.close(directory)
