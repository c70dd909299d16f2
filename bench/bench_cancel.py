"""How long it takes from an order to stop until the run has ended, for each way in which a task can be busy or waiting.

A sibling of the task fails while the task has been at it for a while, and the time counts from there to where `run`
raises: all threads have ended by then. The peer is what bare threads need for the same: one sets an event that the
other waits for, and both are joined.

    pytest bench/bench_cancel.py --benchmark-enable
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

import jobcore
from engine import WAITS
from jobcore import LocalSession, Task, TaskGroup, ops
from jobcore.errors import TaskGroupError
from jobcore.graph import execution_step

FOREVER = 3600
ROUNDS = 20
# Until the task is where it waits, or deep in its loop.
BUSY_S = 0.01


def call(function: Callable[..., object], *arguments: object) -> None:
    ops.Python(lambda inputs, outputs: function(*arguments))()


def native_loop() -> None:
    ops.CreateCounter([], ["counter"])
    with ops.loop(2**62):
        ops.CountUp("counter")


def while_net() -> None:
    with ops.WhileNet():
        with ops.Condition():
            ops.Const(True)
        ops.Const(1, "x")


def loop_of_functions() -> None:
    with ops.loop(2**62):
        ops.net(lambda ws: None)


def looks() -> None:
    while True:
        jobcore.check_cancelled()


def parts_at_once() -> None:
    def sleeps(ws: jobcore.Workspace) -> None:
        jobcore.sleep(FOREVER)

    ops.net(execution_step("parts", [sleeps] * 3, concurrent_substeps=True))


# By the names in engine.WAITS: how many instances, and what they do.
BUILDERS: dict[str, tuple[int, Callable[[], object]]] = {
    "native sleep": (1, lambda: ops.Sleep([], [], seconds=FOREVER)),
    "sleep in Python": (1, lambda: call(jobcore.sleep, FOREVER)),
    "dequeue": (1, lambda: ops.DequeueBlobs("empty", ["y"])),
    "enqueue": (1, lambda: ops.EnqueueBlobs(["full", "x"], ["x"])),
    "dequeue of any of several": (
        1,
        lambda: ops.WeightedSampleDequeueBlobs(["empty"], ["y", "which"], weights=[1.0]),
    ),
    "rebatching dequeue": (1, lambda: ops.DequeueRebatchingQueue("batches", ["y"], num_elements=2)),
    "native loop": (1, native_loop),
    "while": (1, while_net),
    "loop of Python functions": (1, loop_of_functions),
    "check_cancelled": (1, lambda: call(looks)),
    "parts at once": (1, parts_at_once),
    "8 instances, dequeue": (8, lambda: ops.DequeueBlobs("empty", ["y"])),
    "8 instances, native loop": (8, native_loop),
}


class _Order:
    """Gives the order when all instances have begun, and knows when."""

    def __init__(self, instances: int) -> None:
        self.instances = instances
        self.begun = threading.Semaphore(0)
        self.given = 0.0

    def give(self) -> None:
        for _ in range(self.instances):
            assert self.begun.acquire(timeout=60)
        time.sleep(BUSY_S)
        self.given = time.perf_counter()
        raise ValueError("on purpose")


def group_of(instances: int, wait: Callable[[], object], order: _Order) -> TaskGroup:
    with TaskGroup() as group:
        with Task(name="waits", num_instances=instances):
            with ops.local_init():
                ops.Const(1.0, "x")
                ops.CreateBlobsQueue([], ["empty"], num_blobs=1, capacity=1)
                ops.CreateBlobsQueue([], ["full"], num_blobs=1, capacity=1)
                ops.CreateRebatchingQueue([], ["batches"], capacity=1, num_blobs=1)
                ops.EnqueueBlobs(["full", "x"], ["x"])
            call(order.begun.release)
            wait()
        with Task(name="fails"):
            call(order.give)
    return group


@pytest.mark.benchmark(group="cancel")
@pytest.mark.parametrize("wait", WAITS)
def bench_cancel(benchmark: Any, wait: str) -> None:
    instances, build = BUILDERS[wait]
    order = _Order(instances)
    spent: list[float] = []
    with LocalSession() as session:
        compiled = LocalSession.compile(group_of(instances, build, order))

        def run() -> None:
            with pytest.raises(TaskGroupError, match="on purpose"):
                session.run(compiled)
            spent.append(time.perf_counter() - order.given)

        benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    keep(benchmark, spent)


@pytest.mark.benchmark(group="cancel")
def bench_cancel_peer(benchmark: Any) -> None:
    spent: list[float] = []

    def run() -> None:
        event, given = threading.Event(), [0.0]

        def give() -> None:
            time.sleep(BUSY_S)
            given[0] = time.perf_counter()
            event.set()

        threads = [threading.Thread(target=event.wait), threading.Thread(target=give)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        spent.append(time.perf_counter() - given[0])

    benchmark.pedantic(run, rounds=ROUNDS, warmup_rounds=1)
    keep(benchmark, spent)


def keep(benchmark: Any, spent: list[float]) -> None:
    """Keep the seconds from the order on for ``report.py``; what pytest-benchmark prints is a whole run."""
    if benchmark.enabled:
        benchmark.extra_info["all_seconds"] = spent[1:]
