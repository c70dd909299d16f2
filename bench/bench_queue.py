"""Queues: records handed from one thread to another.

``native``: both threads work without the GIL, through the interface that programs use; the record is one 0-d int64
whose memory goes round. ``program``: the ops EnqueueBlobs and DequeueBlobs of two programs, which copy a blob into the
record and the record into a blob. ``python``: `put` and `get`, which copy. The peers are the queues of the standard
library, which hand over a reference, under a GIL that changes hands every 5 ms. Each measurement is `ROWS` records;
read the ratio inside a group, and records a second in the extra information.

The rows of a rebatching queue have as peers a bare copy of as many bytes, and the plain way: a list of rows, stacked.
"""

from __future__ import annotations

import queue
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from bench_program import Context, row
from jobcore import Workspace
from jobcore._fast.program import Program, native_kernel
from jobcore._fast.queue import BlobQueue
from jobcore._fast.rebatch import RebatchingQueue
from jobcore.graph import OpContext, schema
from jobcore.graph.registry import make_op

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from native_build import build

ROWS = 100_000
SMALL = 10_000


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("handover", tmp_path_factory.mktemp("native"))


def hand_over(
    benchmark: Any, rows: int, make: Callable[[], tuple[Callable[[], object], Callable[[], object]]]
) -> None:
    """Measure a writer and a reader in a thread each."""
    with ThreadPoolExecutor(2) as pool:

        def both() -> None:
            write, read = make()
            for done in [pool.submit(write), pool.submit(read)]:
                done.result()

        benchmark(both)
    if benchmark.stats is not None:
        benchmark.extra_info["records_per_second"] = round(rows / benchmark.stats.stats.median)


@pytest.mark.benchmark(group=f"queue: {ROWS:,} small records between two threads")
@pytest.mark.parametrize("capacity", [1, 8, 100, 1000])
def bench_native(benchmark: Any, native: ModuleType, capacity: int) -> None:
    def make() -> tuple[Callable[[], object], Callable[[], object]]:
        records = BlobQueue(capacity)
        return lambda: native.produce(records, 0, ROWS), lambda: native.consume(records, ROWS)

    hand_over(benchmark, ROWS, make)


def program(records: BlobQueue, op_type: str, inputs: list[str], outputs: list[str]) -> Callable[[], object]:
    """Return a call that runs an op on the queue `ROWS` times, in a workspace of its own with an int64 ``x``."""
    names = ("queue", "x")
    made = make_op(op_type, inputs, outputs, {}, "", "")
    slots = [tuple(names.index(name) for name in group) for group in (inputs, outputs)]
    payload = ("", schema(op_type).kernel, made, OpContext)
    op = ("op", 0, 0, *slots, native_kernel(op_type), True, payload)
    code = Program(names, 1, [row("set", constant=ROWS), row("loop", 4), op, row("jump", 1), row("end")])
    ws = Workspace()
    ws.feed("queue", records)
    ws.feed("x", 1)
    return lambda: code.run(ws, Context())


@pytest.mark.benchmark(group=f"queue: {ROWS:,} small records between two threads")
@pytest.mark.parametrize("capacity", [1, 8, 100, 1000])
def bench_program(benchmark: Any, capacity: int) -> None:
    def make() -> tuple[Callable[[], object], Callable[[], object]]:
        records = BlobQueue(capacity)
        return (
            program(records, "EnqueueBlobs", ["queue", "x"], []),
            program(records, "DequeueBlobs", ["queue"], ["x"]),
        )

    hand_over(benchmark, ROWS, make)


@pytest.mark.benchmark(group=f"queue: {ROWS:,} small records between two threads")
@pytest.mark.parametrize("kind", ["queue.SimpleQueue", "queue.Queue(100)"])
def bench_peer(benchmark: Any, kind: str) -> None:
    def make() -> tuple[Callable[[], object], Callable[[], object]]:
        records: Any = queue.SimpleQueue() if kind == "queue.SimpleQueue" else queue.Queue(100)

        def write() -> None:
            for _ in repeat(None, ROWS):
                records.put(1)

        def read() -> None:
            for _ in repeat(None, ROWS):
                records.get()

        return write, read

    hand_over(benchmark, ROWS, make)


@pytest.mark.benchmark(group=f"queue: {ROWS:,} small records between two threads")
def bench_python(benchmark: Any) -> None:
    def make() -> tuple[Callable[[], object], Callable[[], object]]:
        records, record = BlobQueue(100), [1]

        def write() -> None:
            for _ in repeat(None, ROWS):
                records.put(record)

        def read() -> None:
            for _ in repeat(None, ROWS):
                records.get()

        return write, read

    hand_over(benchmark, ROWS, make)


class Plain:
    """A list of copies."""

    def __init__(self) -> None:
        self.records: queue.SimpleQueue[Any] = queue.SimpleQueue()

    def put(self, values: list[Any]) -> None:
        self.records.put([value.copy() for value in values])

    def get(self) -> list[Any]:
        found: list[Any] = self.records.get()
        return found


@pytest.mark.benchmark(group="queue: 1,000 x put and get of 1 KiB in one thread")
@pytest.mark.parametrize("who", ["jobcore", "jobcore, moved", "peer: copy into queue.SimpleQueue"])
def bench_one_thread(benchmark: Any, who: str) -> None:
    array = np.zeros(256, np.float32)
    records: Any = Plain() if who.startswith("peer") else BlobQueue(4)
    move = {"move": True} if who.endswith("moved") else {}

    def run() -> None:
        record = [array.copy()]
        for _ in repeat(None, 1000):
            records.put(record, **move)
            record = records.get()

    benchmark(run)


@pytest.mark.benchmark(group=f"queue: {SMALL:,} rows of 1 KiB in batches of 64, out in batches of 48")
@pytest.mark.parametrize("who", ["jobcore", "peer: rows in a list, stacked", "limit: one copy"])
def bench_rebatching(benchmark: Any, who: str) -> None:
    rows = SMALL // 64 * 64
    batch = np.ones((64, 256), np.float32)
    whole = np.ones((rows, 256), np.float32)

    def jobcore() -> None:
        records = RebatchingQueue(128)
        left = 0
        for _ in range(rows // 64):
            records.enqueue([batch], batch=True)
            left += 64
            while left >= 48:
                records.dequeue(48)
                left -= 48

    def plain() -> None:
        records: list[Any] = []
        for _ in range(rows // 64):
            records += [row.copy() for row in batch]
            while len(records) >= 48:
                np.stack(records[:48])
                del records[:48]

    benchmark({"jobcore": jobcore, "limit: one copy": whole.copy}.get(who, plain))
