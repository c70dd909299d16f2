"""Rounds in which what is measured and its limit take turns, and the form in which results are kept.

A shared disk changes its speed from one second to the next, so a ratio is taken within a round: the two sides run one
after the other, and every second round the other way about.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from states import ROUNDS


class Row(NamedTuple):
    """A row of the table: what is measured, how the bound is said, and the bound for the values kept."""

    what: str
    bound_text: str
    bound: float
    unit: str = "x"


ROWS: dict[str, Row] = {
    "save": Row(
        "synchronous durable save", "1.15 x the best plain O_DIRECT write of as many bytes + fdatasync", 1.15
    ),
    "save-fast": Row(
        "save without durability, zip", "1.25 x one thread writing as many bytes to one new file", 1.25
    ),
    "save-fast-directory": Row(
        "save without durability, directory", "1.25 x two threads writing to two new files", 1.25
    ),
    "stall": Row("stall of an asynchronous save", "1.25 x a two-thread copy between warm arenas", 1.25),
    "background-cpu": Row("processor time of the background write", "0.25 s per GiB", 0.25, "s/GiB"),
    "stall-immutable": Row("stall for immutable sources", "5 ms", 5.0, "ms"),
    "training-lost": Row("training time lost to an asynchronous save", "0.15 s per GiB", 0.15, "s/GiB"),
    "training-longest": Row("longest step during an asynchronous save", "2 x a usual one", 2.0),
    "background": Row(
        "asynchronous save, start to durable, less the stall", "1.15 x the O_DIRECT limit", 1.15
    ),
    "load": Row("load in place, warm cache", "1.3 x two threads of plain pread into warm memory", 1.3),
    "load-new": Row(
        "load into new arrays, warm cache", "1.2 x two threads of plain pread into fresh huge pages", 1.2
    ),
    "load-cold": Row("load, cold cache", "1.1 x a plain cold read", 1.1),
    "many-save": Row(
        "many small blobs, save durable",
        "3 x a plain write + fsync of a file of the same size, plus creating as many arrays",
        3.0,
    ),
    "many-load": Row(
        "many small blobs, load",
        "3 x a plain read of a file of the same size, plus creating as many arrays",
        3.0,
    ),
    "memory-save": Row("extra memory of a synchronous save", "64 MiB", 64.0, "MiB"),
    "memory-async": Row(
        "extra memory of an asynchronous save, beyond 1.0 x the state", "64 MiB", 64.0, "MiB"
    ),
    "memory-load": Row("extra memory of a load in place", "64 MiB", 64.0, "MiB"),
    "memory-growth": Row("growth of memory over 50 saves", "flat (4 MiB)", 4.0, "MiB"),
    "threads": Row("longest hold-up of another Python thread during a save", "5 ms", 5.0, "ms"),
    "incremental-bytes": Row(
        "incremental epoch, 5 % of chunks changed: bytes written", "6 % of the state", 0.06, "%"
    ),
    "incremental-time": Row(
        "incremental epoch, 5 % of chunks changed: time", "0.35 x a full durable save of S1", 0.35
    ),
    "peer-save": Row("against peers: durable save", "faster than each (ratio to the fastest)", 1.0),
    "peer-stall": Row("against peers: stall", "faster than each (ratio to the fastest)", 1.0),
    "peer-load": Row("against peers: load", "faster than each (ratio to the fastest)", 1.0),
}


def keep(
    benchmark: Any, row: str, case: str, values: Sequence[float], *, bounded: bool = True, **more: Any
) -> None:
    """Keep one value for each round of a row of the table, for ``report.py``.

    What is not ``bounded`` is told beside the row, and has no bound. ``limit_s`` are the seconds of the limit.
    """
    if not values:
        return
    median = statistics.median(values)
    benchmark.extra_info.setdefault("ratio", round(median, 4))
    rows = benchmark.extra_info.setdefault("rows", [])
    rounded = [round(value, 4) for value in values]
    rows.append({"row": row, "case": case, "values": rounded, "bounded": bounded, **more})


def ratios(ours: Sequence[float], limit: Sequence[float]) -> list[float]:
    """One for each round; none where nothing was measured."""
    return [one / other for one, other in zip(ours, limit, strict=False)]


def alternate(
    benchmark: Any,
    ours: Callable[[], object],
    other: Callable[[], object],
    *,
    before: Callable[[], object] = lambda: None,
    after: Callable[[], object] = lambda: None,
    rounds: int = ROUNDS,
) -> list[float]:
    """Measure ``ours`` in turn with ``other``, which measures itself; give the seconds of each round.

    ``before`` and ``after`` are called round each call of ``ours``, outside the measured time.
    """
    done = 0

    def theirs() -> None:
        os.sync()  # what was removed before is not paid for by whoever comes next
        other()

    def setup() -> None:
        if done % 2 == 0:
            theirs()
        before()
        os.sync()

    def teardown() -> None:
        nonlocal done
        after()
        if done % 2 == 1:
            theirs()
        done += 1

    if not benchmark.enabled:
        other()
        before()
        benchmark.pedantic(ours)
        after()
        return []
    before()
    ours()
    after()
    benchmark.pedantic(ours, setup=setup, teardown=teardown, rounds=rounds)
    return list(benchmark.stats.stats.data)
