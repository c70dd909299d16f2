"""Jobs: what an epoch costs beside its work, and whether that grows with the run or with the workspace.

``epoch``: an epoch without work; the peer is as many runs of an empty task in a session. ``epoch saved``: an epoch that
a manager saves, with ten tiny blobs, in turn with durable saves of the same blobs. ``output``: a task whose output
is read, in a workspace of 10 and of 20,000 blobs.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jobcore
from jobcore import Job, JobRunner, LocalSession, MultiNodeCheckpointManager, Task, TaskGroup
from turns import keep_turns, take_turns, thousand_empty_calls

EPOCHS = 500
BLOBS = {f"blob{number}": np.arange(4) for number in range(10)}


def nothing(ws: jobcore.Workspace) -> None:
    pass


def seconds_of(call: Callable[[], object]) -> float:
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def empty_calls() -> float:
    """Return the seconds of 1,000 empty calls, as a median of several times."""
    return statistics.median(seconds_of(thousand_empty_calls) for _ in range(20))


def job(epochs: int, blobs: dict[str, Any] | None = None) -> Job:
    with Job() as made:
        if blobs:

            @made.init_group.task
            def init(ws: jobcore.Workspace) -> None:
                for name, value in blobs.items():
                    ws.feed(name, value)

        jobcore.epoch_limiter(made, epochs)
    return made


def group() -> TaskGroup:
    with TaskGroup() as made:
        Task(step=nothing, name="t")
    return made


@pytest.mark.benchmark(group=f"job: {EPOCHS} epochs without work")
@pytest.mark.parametrize("who", ["epochs", "peer: empty tasks"])
def bench_epoch(benchmark: Any, who: str) -> None:
    with LocalSession() as session:
        if who == "epochs":
            turns: list[tuple[float, float]] = []

            def train(runner: JobRunner) -> None:
                before = empty_calls()
                seconds = seconds_of(lambda: runner.train(session))
                turns.append((seconds, (before + empty_calls()) / 2))

            benchmark.pedantic(train, setup=lambda: ((JobRunner(job(EPOCHS)),), {}), rounds=9)
            keep_turns(benchmark, turns)
        else:
            empty = group()
            benchmark.pedantic(lambda: [session.run(empty) for _ in range(EPOCHS)], rounds=9)


@pytest.mark.benchmark(group="job: 50 epochs saved, ten tiny blobs")
@pytest.mark.parametrize("who", ["first 50", "50 after 1,000"])
def bench_epoch_saved(benchmark: Any, who: str, folder: Path) -> None:
    numbers = itertools.count()
    before = 0 if who == "first 50" or not benchmark.enabled else 1000
    turns: list[tuple[float, float]] = []

    def saves() -> None:
        for _ in range(25):
            jobcore.save(folder / f"tiny {who} {next(numbers)}.zarr.zip", BLOBS)

    def train() -> None:
        begun: list[float] = []
        saved = 0.0

        def clock(ws: jobcore.Workspace) -> None:
            nonlocal saved
            now = time.perf_counter()
            if len(begun) in (before, before + 50):
                # Half of the saves before those epochs, half after them; the clock goes on when they are done.
                saved += seconds_of(saves)
            begun.append(now if len(begun) == before + 50 else time.perf_counter())

        made = job(before + 51, BLOBS)
        with made:
            Task(step=clock, name="clock", group=made.epoch_group)
        manager = MultiNodeCheckpointManager(str(folder / f"run {who} {next(numbers)}"))
        with LocalSession() as session:
            JobRunner(made, manager).train(session)
        # From epoch to epoch, within one run: what a start reads, of all epochs before, is no part of them.
        turns.append((begun[-1] - begun[-51], saved))

    benchmark.pedantic(train, rounds=3 if before else 9)
    keep_turns(benchmark, turns)


def reader(session: LocalSession, blobs: int) -> Callable[[], None]:
    """Return a call that runs a task 100 times and reads its output, among so many blobs."""
    with TaskGroup() as group:
        task = Task(step=lambda ws: ws.feed("x", 1), outputs=["x"], name="t")
    for number in range(blobs):
        session.workspace().feed(f"blob{number}", number)

    def read() -> None:
        for _ in range(100):
            session.run(group)
            session.fetch_output(task.outputs()[0])

    return read


@pytest.mark.benchmark(group="job: 100 outputs read")
@pytest.mark.parametrize("blobs", [10, 20_000])
def bench_output(benchmark: Any, blobs: int) -> None:
    with LocalSession() as session, LocalSession() as other:
        read = reader(session, blobs)
        if blobs > 10:
            take_turns(benchmark, read, reader(other, 10))
        else:
            benchmark(read)
