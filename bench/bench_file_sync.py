"""Two small new files forced to the disk: together, against one after the other, and against one of them alone."""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from jobcore._fast.file_sync import sync_files


def in_turn(descriptors: Sequence[int]) -> None:
    for fd in descriptors:
        os.fsync(fd)


WAYS: dict[str, tuple[int, Callable[[list[int]], object]]] = {
    "jobcore: two together": (2, sync_files),
    "peer: two in turn": (2, in_turn),
    "limit: one": (1, in_turn),
}


@pytest.mark.benchmark(group="file sync: two small new files")
@pytest.mark.parametrize("way", WAYS)
def bench_file_sync(benchmark: Any, way: str, folder: Path) -> None:
    count, sync = WAYS[way]
    numbers = itertools.count()
    with ExitStack() as stack:

        def new() -> tuple[tuple[list[int]], dict[str, Any]]:
            files = [
                stack.enter_context((folder / f"{way[:4]}{next(numbers)}").open("wb", buffering=0))
                for _ in range(count)
            ]
            for file in files:
                file.write(b"x" * 5000)
            return ([file.fileno() for file in files],), {}

        benchmark.pedantic(sync, setup=new, rounds=50 if benchmark.enabled else 1)
