"""What the machine can do: plain system calls and copies, measured beside what they bound.

Each function does one thing, with warm and aligned memory of its own, and gives the seconds that it took; making files
ready and removing them is not counted.
"""

from __future__ import annotations

import contextlib
import mmap
import os
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import cache, partial
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from states import PIECE, SCALE, MiB

Bytes = NDArray[np.uint8]

_numbers = count()


def together(calls: Sequence[Callable[[], object]]) -> None:
    """Call each in a thread of its own; a single one in this thread."""
    if len(calls) == 1:
        calls[0]()
        return
    for future in [_threads().submit(call) for call in calls]:
        future.result()


@cache
def _threads() -> ThreadPoolExecutor:
    return ThreadPoolExecutor(4)


def huge(nbytes: int) -> Bytes:
    """Memory of huge pages where there are any, page-aligned, not yet touched."""
    # Private: a shared mapping, the default, gets no huge pages.
    area = mmap.mmap(-1, max(1, nbytes), flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        area.madvise(mmap.MADV_HUGEPAGE)
    return np.frombuffer(area, np.uint8)


_arenas: dict[str, Bytes] = {}


def arena(name: str, nbytes: int) -> Bytes:
    """Warm memory that is kept, full of random bytes."""
    found = _arenas.get(name)
    if found is None or found.size < nbytes:
        found = _arenas[name] = huge(-(-nbytes // PIECE) * PIECE)
        for start in range(0, found.size, PIECE):
            found[start : start + PIECE] = np.frombuffer(os.urandom(PIECE), np.uint8)
    return found[:nbytes]


def halves(nbytes: int) -> list[tuple[int, int]]:
    middle = nbytes // 2 // 4096 * 4096
    return [(0, middle), (middle, nbytes)]


def new_file(folder: Path) -> Path:
    return folder / f"limit{next(_numbers)}"


class Way(NamedTuple):
    """How to write directly: requests in flight, bytes in each, and whether the room is allocated before."""

    requests: int
    block: int
    allocate: bool


WAYS = [
    Way(requests, block * MiB, allocate)
    for requests, block in [(1, 4), (1, 16), (2, 4), (4, 1), (4, 4)]
    for allocate in (False, True)
]


def direct_write(folder: Path, nbytes: int, way: Way | None = None) -> float:
    """Write that many bytes past the page cache, then ``fdatasync``."""
    way = way or best_way(folder)
    data, path = arena("from", nbytes + -nbytes % 4096).data, new_file(folder)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL
    starts = count(0, way.block)  # its next() is atomic

    def write() -> None:
        while (start := next(starts)) < len(data):
            part = data[start : start + way.block]
            if os.pwrite(fd, part, start) != len(part):
                raise OSError(f"{path}: the disk is full")

    begin = perf_counter()
    try:
        fd = os.open(path, flags | getattr(os, "O_DIRECT", 0))
    except OSError:  # a file system in memory
        path.unlink(missing_ok=True)
        fd = os.open(path, flags)
    try:
        if way.allocate and hasattr(os, "posix_fallocate"):
            os.posix_fallocate(fd, 0, len(data))
        together([write] * way.requests)
        (os.fdatasync if hasattr(os, "fdatasync") else os.fsync)(fd)
        return perf_counter() - begin
    finally:
        os.close(fd)
        path.unlink()


@cache
def best_way(folder: Path) -> Way:
    """The fastest way to write here, found by trying all of them twice."""
    nbytes = max(4, round(96 * SCALE)) * MiB
    trials = {way: [direct_write(folder, nbytes, way) for _ in range(2)] for way in WAYS}
    return min(trials, key=lambda way: min(trials[way]))


def buffered_write(folder: Path, nbytes: int, files: int = 1, *, durable: bool = False) -> float:
    """Write that many bytes through the page cache into new files, one thread for each."""
    data = arena("from", nbytes).data
    parts = [data] if files == 1 else [data[low:high] for low, high in halves(nbytes)]
    paths = [new_file(folder) for _ in parts]

    def write(path: Path, part: memoryview) -> None:
        fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)
        try:
            while part:
                part = part[os.write(fd, part[: 16 * MiB]) :]
            if durable:
                os.fsync(fd)
        finally:
            os.close(fd)

    begin = perf_counter()
    together([partial(write, path, part) for path, part in zip(paths, parts, strict=True)])
    seconds = perf_counter() - begin
    for path in paths:
        path.unlink()
    return seconds


def many_files(folder: Path, sizes: Sequence[int]) -> float:
    """Write files of these sizes through the page cache, in two threads, two files in each folder."""
    data, base = arena("from", max(sizes)).data, new_file(folder)
    base.mkdir()
    directory = os.open(base, os.O_RDONLY)
    numbers = count()  # its next() is atomic

    def write() -> None:
        while (number := next(numbers)) < len(sizes):
            key = f"{number // 2}"
            with contextlib.suppress(FileExistsError):
                os.mkdir(key, dir_fd=directory)
            fd = os.open(f"{key}/{number}", os.O_WRONLY | os.O_CREAT | os.O_EXCL, dir_fd=directory)
            part = data[: sizes[number]]
            while part:
                part = part[os.write(fd, part[: 16 * MiB]) :]
            os.close(fd)

    begin = perf_counter()
    try:
        together([write, write])
        return perf_counter() - begin
    finally:
        os.close(directory)
        empty_files(base)


def empty_files(folder: Path) -> None:
    """Free the room that the files of a folder take; they stay."""
    for path in folder.rglob("*"):
        if path.is_file():
            path.chmod(0o600)
            os.truncate(path, 0)


def copy(nbytes: int, block: int = 0) -> float:
    """Copy that many bytes between warm arenas in two threads, in blocks of the best size."""
    source, target, block = arena("from", nbytes), arena("to", nbytes), block or best_block()

    def part(low: int, high: int) -> None:
        for start in range(low, high, block):
            stop = min(start + block, high)
            np.copyto(target[start:stop], source[start:stop])

    begin = perf_counter()
    together([partial(part, low, high) for low, high in halves(nbytes)])
    return perf_counter() - begin


@cache
def best_block() -> int:
    """The block size at which NumPy copies fastest; libraries choose the kind of store by it."""
    blocks = [MiB, 16 * MiB, 1 << 40]
    nbytes = max(4, round(256 * SCALE)) * MiB
    trials = {block: [copy(nbytes, block) for _ in range(4)] for block in blocks}
    return min(blocks, key=lambda block: min(trials[block]))


def _pread(path: Path, target: Bytes, threads: int) -> None:
    view, block = target.data, 4 * MiB

    def read(low: int, high: int) -> None:
        while low < high:
            low += os.preadv(fd, [view[low : min(high, low + block)]], low)

    fd = os.open(path, os.O_RDONLY)
    try:
        parts = halves(target.size) if threads == 2 else [(0, target.size)]
        together([partial(read, low, high) for low, high in parts])
    finally:
        os.close(fd)


def read(path: Path, threads: int = 2) -> float:
    """Read a file into warm memory."""
    target = arena("to", path.stat().st_size)
    begin = perf_counter()
    _pread(path, target, threads)
    return perf_counter() - begin


@cache
def cold_threads(path: Path) -> int:
    """How many threads read a file fastest from the disk, 1 or 2."""
    found: dict[int, float] = {}
    for threads in (1, 2):
        evict(path)
        found[threads] = read(path, threads)
    evict(path)
    return min(found, key=lambda threads: found[threads])


def read_fresh(path: Path) -> float:
    """Read a file in two threads into fresh memory of huge pages."""
    nbytes = path.stat().st_size
    begin = perf_counter()
    target = huge(nbytes)
    _pread(path, target, 2)
    return perf_counter() - begin


def evict(path: Path) -> None:
    """Drop a file, or what a folder holds, from the page cache."""
    for one in [path] if path.is_file() else path.rglob("*"):
        if one.is_file() and hasattr(os, "posix_fadvise"):
            fd = os.open(one, os.O_RDONLY)
            os.fsync(fd)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def fill(path: Path, nbytes: int) -> Path:
    """Make a file of that many bytes, on the disk and in the page cache."""
    with path.open("wb") as file:
        file.write(arena("from", nbytes).data)
        os.fsync(file.fileno())
    return path


def create_arrays(arrays: dict[str, NDArray[Any]]) -> float:
    """Create as many arrays, of the same shapes, under the same names."""
    begin = perf_counter()
    made = {name: np.empty(array.shape, array.dtype) for name, array in arrays.items()}
    seconds = perf_counter() - begin
    assert len(made) == len(arrays)
    return seconds
