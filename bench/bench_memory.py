"""Memory that saves and loads need beside the state, each round in a process of its own."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from child import run
from rounds import keep
from states import ROUNDS, SCALE, STATES

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/clear_refs").exists(), reason="the kernel does not tell the most memory of a time"
)


@pytest.mark.parametrize("name", STATES)
def bench_extra(benchmark: Any, folder: Path, name: str) -> None:
    benchmark.group = f"memory, {name}"
    rounds = min(ROUNDS, 3) if benchmark.enabled else 1  # it hardly varies
    found: list[dict[str, float]] = []
    benchmark.pedantic(lambda: found.append(run("memory", name, folder)), rounds=rounds)
    for row in found[0]:
        keep(benchmark, f"memory-{row}", name, [one[row] for one in found])


# Forgotten names, tables and buffers show with many blobs, forgotten arenas with large ones.
@pytest.mark.parametrize(("name", "part"), [("S3", 1), ("S1", 1 / 4)], ids=["S3", "S1"])
def bench_growth(benchmark: Any, folder: Path, name: str, part: float) -> None:
    benchmark.group = f"memory growth, {name}"
    saves = 50 if benchmark.enabled else 6
    found = benchmark.pedantic(run, args=("growth", name, folder, saves, SCALE * part))
    for kind, mib in found.items():
        keep(benchmark, "memory-growth", f"{name}, {kind}", [mib])
