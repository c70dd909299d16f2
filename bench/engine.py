"""The rows of the engine's table: what is held against what, and how far it may be from it.

Where the two sides of a row took turns (`turns.py`), a ratio is that of a round. Else they are benchmarks of one run,
and what is compared are their medians. The suites of the storage engine keep their rows themselves: `rounds.py`.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

__all__ = ["WAITS", "engine_table"]

#: What a task may be at when it is told to stop: `bench_cancel.py` measures each.
WAITS = (
    "native sleep",
    "sleep in Python",
    "dequeue",
    "enqueue",
    "dequeue of any of several",
    "rebatching dequeue",
    "native loop",
    "while",
    "loop of Python functions",
    "check_cancelled",
    "parts at once",
    "8 instances, dequeue",
    "8 instances, native loop",
)


class Measured(NamedTuple):
    """Seconds of a benchmark: least, median, greatest; and those of rounds in which it took turns with its limit."""

    low: float
    median: float
    high: float
    turns: Sequence[tuple[float, float]] = ()


Seconds = Mapping[str, Measured]


class Value(NamedTuple):
    """One case of a row: the median, the least and the greatest value, and what the limit is."""

    median: float
    low: float
    high: float
    limit: str = ""


class EngineRow(NamedTuple):
    """A row: cases by name, each made of the seconds that were measured; KeyError where they were not."""

    what: str
    bound_text: str
    bound: float
    unit: str
    cases: Mapping[str, Callable[[Seconds], Value]]
    least: bool = False  # the bound is the least value instead of the greatest


def time_text(seconds: float) -> str:
    """Return seconds in a unit that fits them."""
    for unit, size in (("s", 1.0), ("ms", 1e-3), ("µs", 1e-6)):
        if seconds >= size:
            return f"{seconds / size:.3g} {unit}"
    return f"{seconds * 1e9:.3g} ns"


def ratio(ours: str, times: int = 1) -> Callable[[Seconds], Value]:
    """Return a case: how many times as long as the limit, which took turns, ours takes. Each does it so many times."""

    def value(found: Seconds) -> Value:
        turns = found[ours].turns
        ratios = [mine / other for mine, other in turns]
        limit = statistics.median(other for _, other in turns)
        return Value(statistics.median(ratios), min(ratios), max(ratios), time_text(limit / times))

    return value


def micros(ours: str, times: int = 1) -> Callable[[Seconds], Value]:
    """Return a case: how many microseconds ours takes, scaled to a machine on which an empty function takes 50 ns.

    It took turns with 1,000 calls of such a function.
    """

    def value(found: Seconds) -> Value:
        turns = found[ours].turns
        scaled = [mine / times * (50e-9 / (calls / 1000)) * 1e6 for mine, calls in turns]
        mine, calls = (statistics.median(side) for side in zip(*turns, strict=True))
        text = f"{time_text(mine / times)} where an empty function takes {time_text(calls / 1000)}"
        return Value(statistics.median(scaled), min(scaled), max(scaled), text)

    return value


def rate(ours: str, records: int, limit: str) -> Callable[[Seconds], Value]:
    """Return a case: millions of records a second, with what the limit does."""

    def value(found: Seconds) -> Value:
        low, median, high = (records / seconds / 1e6 for seconds in found[ours][:3])
        return Value(median, high, low, f"{records / found[limit].median / 1e6:.2g} M/s")

    return value


def millis(ours: str, limit: str) -> Callable[[Seconds], Value]:
    """Return a case: milliseconds, of which the greatest counts; with the median of the limit."""

    def value(found: Seconds) -> Value:
        low, _, high = (seconds * 1e3 for seconds in found[ours][:3])
        return Value(high, low, high, time_text(found[limit].median))

    return value


def faster(ours: str, *peers: str) -> Callable[[Seconds], Value]:
    """Return a case: how many times as long as ours the fastest of those peers takes that were there."""

    def value(found: Seconds) -> Value:
        other = min(found[name].median for name in peers if name in found)
        low, median, high = found[ours][:3]
        return Value(other / median, other / high, other / low, time_text(other))

    return value


_HANDED = "bench_native[{}]"
_SINGLE = tuple(
    f"bench_pipe[peer: {peer}]"
    for peer in ("multiprocessing", "DataLoader, 1 worker", "DataLoader, 2 workers")
)

ENGINE: tuple[EngineRow, ...] = (
    EngineRow(
        "`Counter.count_down()` from Python",
        "1.3 x an empty method of a Cython class",
        1.3,
        "x",
        {"": ratio("bench_stop_condition[count_down]", times=1000)},
    ),
    EngineRow(
        "a counter op inside a net",
        "2 x an atomic add in a C loop",
        2.0,
        "x",
        {"one thread": ratio("bench_counter_op[jobcore]", times=100_000)},
    ),
    EngineRow(
        "one round of an empty native loop",
        "3 x an atomic add",
        3.0,
        "x",
        {"": ratio("bench_empty_round[jobcore]", times=100_000)},
    ),
    EngineRow(
        "an empty Python step in a loop of a program",
        "2 x a plain Python call",
        2.0,
        "x",
        {"": ratio("bench_python_step[jobcore]", times=100_000)},
    ),
    EngineRow(
        "feed + fetch of a scalar",
        "4 x a dictionary store and look-up of a 0-d array",
        4.0,
        "x",
        {
            "float": ratio("bench_scalar[jobcore: feed and fetch a float]", times=1000),
            "0-d array": ratio("bench_scalar[jobcore: feed and fetch a 0-d array]", times=1000),
        },
    ),
    EngineRow(
        "feed + fetch of 1 KiB",
        "3 x the copy of 1 KiB in NumPy",
        3.0,
        "x",
        {"": ratio("bench_kibibyte[jobcore: feed and fetch]", times=1000)},
    ),
    EngineRow(
        "an empty task in a session",
        "20 µs where an empty function takes 0.05 µs",
        20.0,
        "µs",
        {"compiled": micros("bench_session_empty_task")},
    ),
    EngineRow(
        "an epoch of a job with no work, no manager",
        "40 µs on the same scale",
        40.0,
        "µs",
        {"500 epochs": micros("bench_epoch[epochs]", times=500)},
    ),
    EngineRow(
        "an epoch with a manager and ten tiny blobs",
        "1.5 x the durable save of ten tiny blobs by itself",
        1.5,
        "x",
        {
            "first 50": ratio("bench_epoch_saved[first 50]", times=50),
            "50 after 1,000": ratio("bench_epoch_saved[50 after 1,000]", times=50),
        },
    ),
    EngineRow(
        "reading one output among 20,000 blobs",
        "no growth (1.1 x the same among 10)",
        1.1,
        "x",
        {"": ratio("bench_output[20000]", times=100)},
    ),
    EngineRow(
        "a queue hand-over between two native threads",
        "at least 2 million a second; the limit is `queue.SimpleQueue`",
        2.0,
        "M/s",
        {
            f"capacity {capacity}": rate(_HANDED.format(capacity), 100_000, "bench_peer[queue.SimpleQueue]")
            for capacity in (8, 100, 1000)
        },
        least=True,
    ),
    EngineRow(
        "a pipe of 1 KiB records through three stages",
        "at least 5 x `multiprocessing` or `torch.utils.data`, whichever is faster",
        5.0,
        "x",
        {
            "net as processor": faster("bench_pipe[jobcore, native]", *_SINGLE),
            "Python function": faster("bench_pipe[jobcore, python]", *_SINGLE),
            "Python function, 32 at a time": faster(
                "bench_pipe[jobcore, 32 at a time]", "bench_pipe[peer: DataLoader, 1 worker, batches of 32]"
            ),
        },
        least=True,
    ),
    EngineRow(
        "an order to stop, until the run has ended; the slowest counts",
        "100 ms; the limit is two bare threads and an event",
        100.0,
        "ms",
        {wait: millis(f"bench_cancel[{wait}]", "bench_cancel_peer") for wait in WAITS},
    ),
)


def engine_table(documents: list[Any]) -> list[str]:
    """Return the lines of the table; none where nothing of it was measured.

    Parameters
    ----------
    documents
        What pytest-benchmark wrote, one for each run.
    """
    found: dict[str, Measured] = {}
    for one in (one for document in documents for one in document["benchmarks"]):
        about = one["extra_info"]
        seconds = about.get("all_seconds") or [one["stats"][name] for name in ("min", "median", "max")]
        found[one["name"]] = Measured(
            min(seconds), statistics.median(seconds), max(seconds), about.get("turns", ())
        )
    lines = []
    for row in ENGINE:
        start = f"{row.what} | {row.bound_text}"
        for case, value_of in row.cases.items():
            try:
                value = value_of(found)
            except (KeyError, ValueError):
                continue
            lines.append(f"| {start} | {case} | {_text(value, row)} | {value.limit} | {_met(value, row)} |")
            start = " | "
    head = ["| what | bound | case | median (min to max) | limit | |", "|---|---|---|---|---|---|"]
    return head + lines if lines else []


def _met(value: Value, row: EngineRow) -> str:
    met = value.median >= row.bound if row.least else value.median <= row.bound
    return "met" if met else "**not met**"


def _text(value: Value, row: EngineRow) -> str:
    return f"{value.median:.3g} {row.unit} ({value.low:.3g} to {value.high:.3g})"
