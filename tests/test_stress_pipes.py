"""Pipelines that fail, stop, are cancelled, closed and interrupted at random: nobody hangs, nothing is lost or doubled.

Each round builds a pipeline from a seed: sources, stages with instances, queues with few places, several writers and
readers of one queue. Then something happens to it, or nothing; after that the same group runs once more, undisturbed,
and hands on every row.
"""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter as Tally
from collections.abc import Iterable, Iterator
from random import Random
from typing import Any

import numpy as np
import pytest

from jobcore import LocalSession, TaskGroup, ops, sleep
from jobcore.data import (
    Queue,
    Reader,
    ReaderWithLimit,
    Struct,
    pipe,
    python_processor,
    python_sink,
    reader_from,
)
from jobcore.errors import Cancelled, ClosedError, TaskGroupError
from jobcore.runtime import current_token
from stress_tools import rounds

pytestmark = pytest.mark.usefixtures("quiet_threads")

ROUNDS = 40
LONG_ROUNDS = 2000
ENDS = ("nothing", "failures", "stop", "cancel", "close", "interrupt")
FORM = Struct(("x", np.int64), ("y", np.int64))


class Planned(Exception):
    """An error on purpose; its text is unique."""


class Pipeline:
    """A random pipeline, and a record of what happened in it."""

    def __init__(self, rng: Random, end: str) -> None:
        self.rng = rng
        self.end = end
        self.rows = 0
        self.name = "none"
        self._lock = threading.Lock()
        self.begin(quiet=False)
        self.group = self._group()

    def begin(self, *, quiet: bool) -> None:
        """Forget what happened; a quiet run is not disturbed from inside."""
        self.quiet = quiet
        self.got: list[int] = []
        self.raised: list[str] = []
        self.begun: Tally[str] = Tally()
        self.ended: Tally[str] = Tally()
        self._calls = 0
        # How often something is done before anything happens.
        self._fuse = self.rng.randrange(60)

    # -- while it runs

    def act(self, pause: float = 0.0) -> bool:
        """Do what is to be done at this point; return whether the stream stops here."""
        if self.quiet:
            return False
        with self._lock:
            self._calls += 1
            over = self._calls - self._fuse
        if pause:
            sleep(pause)
        if over < 0:
            return False
        if self.end == "failures" and over % 7 == 0:
            self.fail()
        if self.end == "cancel":
            current_token().cancel("a stage wants it")
        return self.end == "stop"

    def fail(self) -> None:
        with self._lock:
            name = f"error {len(self.raised)}"
            self.raised.append(name)
        raise Planned(name)

    def note(self, where: Tally[str], name: str) -> None:
        with self._lock:
            where[name] += 1

    def collect(self, x: Any, y: Any) -> None:
        assert np.array_equal(x, -y)
        if self.act():
            raise StopIteration
        with self._lock:
            self.got.extend(x.tolist())

    # -- while it is built

    def _group(self) -> TaskGroup:
        rng = self.rng
        with TaskGroup(rng.choice(["private", "global"])) as group:
            queue = self._sources()
            for number in range(rng.randrange(3)):
                queue = self._stage(queue, number)
            for number in range(rng.choice([1, 1, 2])):
                pipe(
                    queue,
                    processor=python_sink(self.collect),
                    num_threads=self._threads(),
                    name=f"sink{number}",
                )
        return group

    def _threads(self) -> int:
        return self.rng.choice([1, 1, 2, 4])

    def _queue(self) -> Queue:
        return Queue(self.rng.choice([1, 1, 2, 7]), num_dequeue_records=self.rng.choice([1, 1, 3]))

    def _sources(self) -> Queue:
        queue = self._queue()
        for number in range(self.rng.choice([1, 1, 2, 3])):
            count = self.rng.choice([0, 1, 5, 20, 40])
            pipe(self._reader(count), queue, num_threads=self._threads(), name=f"source{number}")
        return queue

    def _reader(self, count: int) -> Reader:
        records = []
        for _ in range(count):
            rows = self.rng.randrange(4)
            x = np.arange(self.rows, self.rows + rows)
            records.append({"x": x, "y": -x})
            self.rows += rows
        kind = self.rng.choice(["list", "generator", "limit"])
        if kind == "list":
            return reader_from(records, FORM)
        if kind == "generator":
            pause = self.rng.choice([0, 0, 0.0005])
            return reader_from(lambda position: self._give(records[position:], pause), FORM)
        return ReaderWithLimit(reader_from(records, FORM), self.rng.choice([None, count, count + 3]))

    def _give(self, records: Iterable[Any], pause: float) -> Iterator[Any]:
        for record in records:
            if self.act(pause):
                return
            yield record

    def _stage(self, queue: Queue, number: int) -> Queue:
        pause, framed = self.rng.choice([0, 0, 0.001]), self.rng.random() < 0.5
        plain = self.rng.random() < 0.5

        def change(x: Any, y: Any) -> dict[str, Any]:
            if self.act(pause):
                raise StopIteration
            return {"x": y, "y": x}

        def process(record: Any) -> Any:
            if framed:
                with ops.task_instance_init():
                    ops.Python(lambda inputs, outputs: self.note(self.begun, f"stage {number}"))()
                with ops.task_instance_exit():
                    ops.Python(lambda inputs, outputs: self.note(self.ended, f"stage {number}"))()
                with ops.task_reporter(self.rng.choice([0.05, 3_600_000])):
                    ops.Python(lambda inputs, outputs: None)()
            x, y = ops.Copy(record.x.leaf()), ops.Copy(record.y.leaf())
            if framed:
                ops.Python(lambda inputs, outputs: self.act(pause))()
            return {"x": x, "y": y}

        output = self._queue()
        pipe(
            queue,
            output,
            processor=python_processor(change) if plain else process,
            num_threads=self._threads(),
            name=f"stage{number}",
        )
        return output


def play(rng: Random, end: str) -> None:
    case = Pipeline(rng, end)
    # Rows change their sign in some stages.
    everything = set(range(case.rows))
    session = LocalSession()
    error = disturbed(case, session, rng.random() * 0.01)
    expected: dict[str, tuple[type[BaseException], ...]] = {
        "failures": (TaskGroupError,),
        "cancel": (Cancelled, TaskGroupError),
        "close": (ClosedError,),
        "interrupt": (KeyboardInterrupt,),
    }
    assert error is None or isinstance(error, expected.get(end, ())), error
    reported = [str(f.error) for f in error.failures] if isinstance(error, TaskGroupError) else []
    assert Tally(reported) == Tally(case.raised)
    if end != "interrupt":
        # An interruption ends the block that it hits.
        assert case.begun == case.ended
    got = Tally(map(abs, case.got))
    assert set(got) <= everything
    assert max(got.values(), default=1) == 1
    if end == "nothing":
        assert set(got) == everything
    assert session.is_open() == (end != "close")
    if end == "close":
        session = LocalSession()
    case.begin(quiet=True)
    session.run(case.group)
    session.close()
    assert Tally(map(abs, case.got)) == Tally(everything)
    assert case.begun == case.ended


def disturbed(case: Pipeline, session: LocalSession, delay: float) -> BaseException | None:
    """Run a pipeline, do to it from outside what is to be done, and return what came out."""
    main = threading.main_thread().ident
    assert main is not None

    def meddle() -> None:
        time.sleep(delay)
        if case.end == "close":
            session.close()
        elif case.end == "interrupt":
            signal.pthread_kill(main, signal.SIGUSR1)

    helper = threading.Thread(target=meddle)
    error: BaseException | None = None
    try:
        helper.start()
        try:
            session.run(case.group)
        finally:
            helper.join()
    except BaseException as caught:
        error = caught
    # The signal itself may have ended the wait for it.
    helper.join()
    return error


@pytest.mark.parametrize("end", ENDS)
def test_pipelines_end_at_random(end: str) -> None:
    rounds(__name__, end, 0, ROUNDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ENDS)
def test_thousands_of_pipelines(end: str) -> None:
    rounds(__name__, end, ROUNDS, LONG_ROUNDS, long=True)
