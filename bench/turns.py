"""What takes microseconds and what it is held against, in turn.

A processor that others share changes its speed within a second, and by more for one kind of work than for another. So
the two sides take turns, many times in each round, and a ratio is taken of the times of a round.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

__all__ = ["keep_turns", "take_turns", "thousand_empty_calls"]

_ROUNDS = 15
_PAIRS = 20


def take_turns(benchmark: Any, ours: Callable[[], object], limit: Callable[[], object]) -> None:
    """Measure `ours` as it is, and then in turn with its limit."""
    benchmark(ours)
    limit()
    if benchmark.enabled:
        keep_turns(benchmark, [_round(ours, limit) for _ in range(_ROUNDS)])


def keep_turns(benchmark: Any, turns: list[tuple[float, float]]) -> None:
    """Keep the seconds of both sides in each round, for ``report.py``."""
    benchmark.extra_info["turns"] = turns


def thousand_empty_calls() -> None:
    """Call a function of one argument that does nothing 1,000 times: times are scaled by that."""
    for _ in range(1000):
        _nothing(None)


def _nothing(argument: object) -> None:
    pass


def _round(ours: Callable[[], object], limit: Callable[[], object]) -> tuple[float, float]:
    """Return the seconds of one call of each, both of a mean."""
    spent = [0.0, 0.0]
    for number in range(_PAIRS):
        for side in (0, 1) if number % 2 else (1, 0):
            call = limit if side else ours
            begin = time.perf_counter()
            call()
            spent[side] += time.perf_counter() - begin
    return spent[0] / _PAIRS, spent[1] / _PAIRS
