"""Records of 1 KiB through three stages: a reader, a stage that changes them, and one that takes them.

Run: ``python -m pytest bench/bench_pipe.py --benchmark-enable``. Each measurement is `RECORDS` records; read the ratio,
and records a second in the extra information. Three stages are, here, two queues:

``jobcore, native``: the stage is one op (Neg); ``jobcore, python``: a plain Python function of the array; ``jobcore,
32 at a time``: the same function, of records that the queue joins. The peers do the same with NumPy: a
``torch.utils.data.DataLoader`` with a worker process (the data set makes a record, the worker's data set changes it,
the loop takes it), alone and in batches of 32, and two ``multiprocessing`` queues between three processes. Their start
is not counted: the clock runs from the first record to the last.
"""

from __future__ import annotations

import multiprocessing
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from jobcore import LocalSession, Net, TaskGroup, ops
from jobcore.data import Reader, ReaderWithLimit, Scalar, Struct, pipe, python_processor

try:
    from torch.utils.data import DataLoader, IterableDataset
except ImportError:
    DataLoader = IterableDataset = None  # type: ignore[assignment,misc]

RECORDS = 10_000
CAPACITY = 100
RECORD = np.arange(128, dtype=np.float64)  # 1 KiB


class Constant(Reader):
    """Gives one array again and again."""

    def __init__(self) -> None:
        super().__init__(Struct(("x", Scalar((np.float64, (1,))))))

    def read(self, net: Net) -> Any:
        stop = net.Const(False, net.next_blob("stop"))
        return stop, [net.Const(RECORD, net.next_blob("x"))]


def negate(record: Any) -> Any:
    return {"x": ops.Neg(record.x.leaf())}


def take(record: Any) -> None:
    ops.IsEmpty(record.x.leaf())


def pipeline(processor: Any, joined: int = 1) -> Callable[[], float]:
    with TaskGroup() as group:
        first = pipe(ReaderWithLimit(Constant(), RECORDS), capacity=CAPACITY)
        if joined > 1:
            first._num_records = joined
        second = pipe(first, processor=processor, capacity=CAPACITY)
        pipe(second, processor=take)
    session = LocalSession()
    compiled = session.compile(group)

    def run() -> float:
        begin = time.perf_counter()
        session.run(compiled)
        return time.perf_counter() - begin

    return run


if IterableDataset is not None:

    class Negated(IterableDataset):  # type: ignore[misc,type-arg]
        """Two of the three stages, in the worker."""

        def __iter__(self) -> Iterator[Any]:
            for _ in range(RECORDS + 1):
                yield -RECORD.copy()


def _same(item: Any) -> Any:
    return item


def torch_workers(batch_size: int | None, workers: int = 1) -> Callable[[], float]:
    # Arrays go through a pipe as they are; made tensors, each would need a file of shared memory.
    collate = None if batch_size else _same
    loader = DataLoader(
        Negated(), batch_size=batch_size, num_workers=workers, prefetch_factor=CAPACITY, collate_fn=collate
    )

    def run() -> float:
        items = iter(loader)
        next(items)
        begin = time.perf_counter()
        for _ in items:
            pass
        return (time.perf_counter() - begin) / workers

    return run


def _read(out: Any) -> None:
    for _ in range(RECORDS + 1):
        out.put(RECORD.copy())
    out.put(None)


def _negate(source: Any, out: Any) -> None:
    while (found := source.get()) is not None:
        out.put(-found)
    out.put(None)


def processes() -> float:
    context = multiprocessing.get_context("fork")
    first, second = context.Queue(CAPACITY), context.Queue(CAPACITY)
    stages = [
        context.Process(target=_read, args=(first,)),
        context.Process(target=_negate, args=(first, second)),
    ]
    for stage in stages:
        stage.start()
    second.get()
    begin = time.perf_counter()
    while second.get() is not None:
        pass
    seconds = time.perf_counter() - begin
    for stage in stages:
        stage.join()
    return seconds


def ways() -> dict[str, Callable[[], Callable[[], float]]]:
    found: dict[str, Callable[[], Callable[[], float]]] = {
        "jobcore, native": lambda: pipeline(negate),
        "jobcore, python": lambda: pipeline(python_processor(np.negative)),
        "jobcore, 32 at a time": lambda: pipeline(python_processor(np.negative), 32),
        "peer: multiprocessing": lambda: processes,
    }
    if DataLoader is not None:
        found["peer: DataLoader, 1 worker"] = lambda: torch_workers(None)
        found["peer: DataLoader, 2 workers"] = lambda: torch_workers(None, 2)
        found["peer: DataLoader, 1 worker, batches of 32"] = lambda: torch_workers(32)
    return found


@pytest.mark.benchmark(group=f"pipe: {RECORDS:,} records of 1 KiB through three stages")
@pytest.mark.parametrize("way", list(ways()))
def bench_pipe(benchmark: Any, way: str) -> None:
    run = ways()[way]()
    seconds = [run() for _ in range(3 if benchmark.enabled else 1)]
    # The clock of the run itself, which leaves out the start of processes.
    benchmark.pedantic(lambda: None, rounds=1)
    benchmark.extra_info["all_seconds"] = seconds
    benchmark.extra_info["seconds"] = sorted(seconds)[len(seconds) // 2]
    benchmark.extra_info["records_per_second"] = round(RECORDS / sorted(seconds)[len(seconds) // 2])


if __name__ == "__main__":
    medians = {}
    for name, prepare in ways().items():
        run = prepare()
        medians[name] = sorted(run() for _ in range(3))[1]
    for joined in (False, True):
        # Records one by one are compared with such, and those that come 32 at a time with batches of 32.
        group = {name: seconds for name, seconds in medians.items() if ("32" in name) == joined}
        peers = [seconds for name, seconds in group.items() if name.startswith("peer")]
        for name, seconds in group.items():
            ratio = f"{min(peers) / seconds:6.2f} x the faster peer" if peers else ""
            print(f"{name:45s} {RECORDS / seconds:12,.0f} records/s   {ratio}")
