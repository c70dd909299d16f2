"""Reading many small blobs by the layout that the table implies, beside a plain read of the file and making the arrays.

python -m pytest bench/bench_reader.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore.store import load, save

COUNTS = (200, 2000)


@pytest.fixture(params=COUNTS)
def stored(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[int, Path, dict[str, Any]]:
    blobs: dict[str, Any] = {f"blob{i}": np.full(64, i, np.float32) for i in range(request.param)}
    save(tmp_path / "x", blobs, durable=False)
    return request.param, tmp_path / "x", blobs


def test_load_new(benchmark: Any, stored: tuple[int, Path, dict[str, Any]]) -> None:
    count, path, _ = stored
    benchmark.group = f"read {count} blobs of 256 B"
    benchmark(load, path)


def test_load_in_place(benchmark: Any, stored: tuple[int, Path, dict[str, Any]]) -> None:
    count, path, blobs = stored
    benchmark.group = f"read {count} blobs of 256 B"
    benchmark(load, path, into=blobs)


def test_a_plain_read_and_as_many_arrays(benchmark: Any, stored: tuple[int, Path, dict[str, Any]]) -> None:
    count, path, _ = stored
    benchmark.group = f"read {count} blobs of 256 B"

    def limit() -> None:
        path.read_bytes()
        _ = [np.empty(64, np.float32) for _ in range(count)]

    benchmark(limit)
