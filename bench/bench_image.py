"""Laying a database out in an arena: the stall of an asynchronous save, beside a bare copy of as many bytes.

python -m pytest bench/bench_image.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import threading
from typing import Any

import numpy as np
import pytest

from jobcore.store import ChunkPolicy, arenas, zipwriter
from jobcore.store.container import Content
from jobcore.store.metadata import Header
from jobcore.store.values import collect
from jobcore.store.write import make_table

STATES = {"4 x 8 MiB": (4, 8 << 20), "64 x 256 KiB": (64, 256 << 10), "2000 x 256 B": (2000, 256)}


@pytest.fixture(params=STATES)
def state(request: pytest.FixtureRequest) -> tuple[str, dict[str, Any]]:
    count, size = STATES[request.param]
    return request.param, {f"blob{i}": np.full(size // 4, i, np.float32) for i in range(count)}


def content(blobs: dict[str, Any]) -> Content:
    collected = collect(blobs)
    table = make_table(collected, ChunkPolicy())
    return Content(table.names, collected.arrays, table, Header())


def test_image_into_a_warm_arena(benchmark: Any, state: tuple[str, dict[str, Any]]) -> None:
    name, blobs = state
    benchmark.group = f"image, {name}"
    made = content(blobs)
    with arenas.taken(zipwriter.bound(made)) as arena:
        benchmark(zipwriter.fill, arena, made)


def test_planning_included(benchmark: Any, state: tuple[str, dict[str, Any]]) -> None:
    name, blobs = state
    benchmark.group = f"image, {name}"
    with arenas.taken(zipwriter.bound(content(blobs))) as arena:
        benchmark(lambda: zipwriter.fill(arena, content(blobs)))


def test_a_bare_copy_by_two_threads(benchmark: Any, state: tuple[str, dict[str, Any]]) -> None:
    name, blobs = state
    benchmark.group = f"image, {name}"
    source = np.concatenate(list(blobs.values()))
    target = np.ones_like(source)
    half = len(source) // 2

    def copy() -> None:
        other = threading.Thread(target=np.copyto, args=(target[half:], source[half:]))
        other.start()
        np.copyto(target[:half], source[:half])
        other.join()

    benchmark(copy)
