"""The table of a root document: parsed in native code and by `json`, and the arrays that are made of it.

python -m pytest bench/bench_table.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from jobcore._fast.fresh import Rooms
from jobcore._fast.table import RootTable

COUNT = 20_000
SMALL = 500  # when the benchmark runs as a test

FORM = ((16, 8), np.dtype("f4"))


def blobs_of(request: pytest.FixtureRequest) -> int:
    return COUNT if request.config.getoption("benchmark_enable") else SMALL


def columns(count: int) -> dict[str, list[Any]]:
    return {
        "name": [f"layers/{i}/weight" for i in range(count)],
        "spec": [0] * count,
        "specs": [["tensor", "<f4", [16, 8], "float32", 0, 16]],
        "place": [640 * i for i in range(count)],
        "crc32": [i * 2654435761 % 2**32 for i in range(count)],
    }


@pytest.mark.benchmark(group="table")
@pytest.mark.parametrize("who", ["jobcore", "peer: json", "limit: a copy of the text"])
def bench_parse(benchmark: Any, request: pytest.FixtureRequest, who: str) -> None:
    count = blobs_of(request)
    text = json.dumps(columns(count), separators=(",", ":")).encode()
    work: dict[str, Callable[[bytes], Any]] = {"jobcore": RootTable.parse, "peer: json": json.loads}
    benchmark.group = f"table of {count:,} blobs"
    assert benchmark(work.get(who, bytearray), text) is not None


@pytest.mark.benchmark(group="fresh")
@pytest.mark.parametrize("who", ["jobcore", "peer: numpy.empty"])
def bench_fresh(benchmark: Any, request: pytest.FixtureRequest, who: str) -> None:
    count = blobs_of(request)
    table = columns(count)
    native = RootTable(table["name"], table["spec"], table["place"], table["crc32"])

    def plain() -> dict[str, Any]:
        return {name: np.empty(*FORM) for name in table["name"]}

    benchmark.group = f"{count:,} new arrays"
    made = benchmark((lambda: Rooms([FORM], native).arrays()) if who == "jobcore" else plain)
    assert len(made) == count
