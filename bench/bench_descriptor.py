"""A file that a `Descriptor` opens and closes, beside the two bare calls."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from jobcore._fast.descriptor import Descriptor

TIMES = 1000


@pytest.mark.benchmark(group=f"descriptor: {TIMES:,} x open and close")
@pytest.mark.parametrize("who", ["jobcore", "limit: os.open and os.close"])
def bench_open_and_close(benchmark: Any, who: str, tmp_path: Path) -> None:
    path = str(tmp_path / "x")
    Path(path).touch()

    def ours() -> None:
        for _ in range(TIMES):
            with Descriptor(path, os.O_RDONLY):
                pass

    def bare() -> None:
        for _ in range(TIMES):
            os.close(os.open(path, os.O_RDONLY))

    benchmark(ours if who == "jobcore" else bare)
