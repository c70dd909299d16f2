"""Timer: 1,000 spans in one measurement, so that the harness itself does not show.

A span cannot cost less than the two readings of the clock that it needs: the first peer is those readings,
made from Python with no bookkeeping at all.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import repeat
from typing import Any

import pytest

from jobcore import Timer

SPANS = 1_000


class PlainTimer:
    """The same bookkeeping in Python, without the thread safety."""

    def __init__(self) -> None:
        self._begun_ns = -1
        self.sum_ns = 0
        self.count = 0

    def begin(self) -> None:
        if self._begun_ns >= 0:
            raise RuntimeError("running")
        self._begun_ns = time.perf_counter_ns()

    def end(self) -> int:
        if self._begun_ns < 0:
            raise RuntimeError("stopped")
        span_ns = time.perf_counter_ns() - self._begun_ns
        self._begun_ns = -1
        self.sum_ns += span_ns
        self.count += 1
        return span_ns


def spans(begin: Callable[[], object], end: Callable[[], object]) -> None:
    for _ in repeat(None, SPANS):
        begin()
        end()


@pytest.mark.benchmark(group="timer: 1,000 x begin and end")
@pytest.mark.parametrize("kind", [Timer, PlainTimer], ids=["jobcore", "peer: Python class"])
def bench_span(benchmark: Any, kind: type[Timer] | type[PlainTimer]) -> None:
    timer = kind()
    benchmark(spans, timer.begin, timer.end)
    assert timer.count % SPANS == 0
    assert timer.count > 0


@pytest.mark.benchmark(group="timer: 1,000 x begin and end")
def bench_span_peer_clock_only(benchmark: Any) -> None:
    benchmark(spans, time.perf_counter_ns, time.perf_counter_ns)


@pytest.mark.benchmark(group="timer: 1,000 x read twice")
@pytest.mark.parametrize("who", ["jobcore", "peer: perf_counter_ns"])
def bench_get(benchmark: Any, who: str) -> None:
    timer = Timer()
    timer.begin()
    read = timer.get if who == "jobcore" else time.perf_counter_ns
    benchmark(spans, read, read)
    assert timer.end() > 0
