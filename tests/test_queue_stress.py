"""Queues under many threads, with and without the GIL: nothing is lost, nothing comes twice, nobody hangs."""

from __future__ import annotations

import random
import sys
import threading
from collections import Counter as Tally
from collections.abc import Callable, Iterator
from itertools import chain
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from jobcore._fast.blob import Blob
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.queue import BlobQueue
from jobcore.errors import Cancelled, ClosedError, WaitTimeoutError
from native_build import build
from stress_tools import seeds, watched

DONE, CLOSED, CANCELLED, TIMEOUT, NEEDS_GIL = range(5)


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("handover", tmp_path_factory.mktemp("native"))


@pytest.fixture(autouse=True)
def restless() -> Iterator[None]:
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    yield
    sys.setswitchinterval(interval)


def at_once(calls: list[Callable[[], Any]]) -> list[Any]:
    """Call each in a thread of its own; an exception comes back as a result."""
    results: list[Any] = [None] * len(calls)

    def run(number: int) -> None:
        try:
            results[number] = calls[number]()
        except BaseException as error:
            results[number] = error

    threads = [threading.Thread(target=run, args=(number,), daemon=True) for number in range(len(calls))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive(), "a thread hangs"
    return results


class Round:
    """One queue, its writers and readers, and an end at a random moment."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)
        self.queue = BlobQueue(self.draw.choice([1, 1, 2, 5, 50]), 2)
        self.flag = CancelFlag()
        self.put: list[list[int]] = []
        self.got: list[list[int]] = []

    def writer(self, first: int, count: int) -> Callable[[], None]:
        done: list[int] = []
        self.put.append(done)
        draw = random.Random(first)

        def write() -> None:
            source = Blob("source")
            for n in range(first, first + count):
                way = draw.randrange(4)
                try:
                    if way == 0:
                        source.feed(np.array([n]))
                        self.queue.put([source, str(n)], move=True, flag=self.flag)
                    elif way == 1:
                        self.queue.put([np.array([n]), {"n": n}], flag=self.flag)
                    else:
                        while True:
                            try:
                                self.queue.put([np.array([n]), n], draw.random() / 500, flag=self.flag)
                                break
                            except WaitTimeoutError:
                                continue
                except (ClosedError, Cancelled):
                    return
                done.append(n)

        return write

    def reader(self) -> Callable[[], None]:
        mine: list[int] = []
        self.got.append(mine)
        draw = random.Random(len(self.got))

        def read() -> None:
            blobs = [Blob("number"), Blob("other")]
            while True:
                way = draw.randrange(4)
                try:
                    if way == 0:
                        if not self.queue.get_into(blobs, flag=self.flag):
                            return
                        number = blobs[0].fetch()
                    elif way == 1:
                        number = self.queue.get(draw.random() / 500, flag=self.flag)[0]
                    elif way == 2:
                        record = self.queue.try_get()
                        if record is None:
                            continue
                        number = record[0]
                    else:
                        number = self.queue.get(flag=self.flag)[0]
                except WaitTimeoutError:
                    continue
                except (ClosedError, Cancelled):
                    return
                mine.append(int(number[0]))

        return read

    def left(self) -> list[int]:
        self.queue.close()
        rest = []
        while True:
            try:
                rest.append(int(self.queue.get()[0][0]))
            except ClosedError:
                return rest


@pytest.mark.parametrize("seed", range(40))
def test_nothing_is_lost_when_a_queue_ends_at_a_random_moment(seed: int) -> None:
    nothing_is_lost(seed)


@pytest.mark.exhaustive
def test_nothing_is_lost_in_thousands_of_rounds() -> None:
    for seed in seeds(40, 3000, True):
        with watched():
            nothing_is_lost(seed)


def nothing_is_lost(seed: int) -> None:
    case = Round(seed)
    draw = case.draw
    calls: list[Callable[[], Any]] = [
        case.writer(1000 * number, draw.randrange(60)) for number in range(draw.randint(1, 4))
    ]
    writers = len(calls)
    calls += [case.reader() for _ in range(draw.randint(1, 4))]
    case.queue.register_writer(writers)

    def finish(write: Callable[[], None]) -> Callable[[], None]:
        def run() -> None:
            write()
            case.queue.writer_done()

        return run

    calls[:writers] = map(finish, calls[:writers])
    end = draw.choice([None, case.queue.close, case.flag.set])
    if end is not None:
        pause = threading.Event()
        delay = draw.random() / 50
        calls.append(lambda: (pause.wait(delay), end()))
    results = at_once(calls)
    assert not [result for result in results if isinstance(result, BaseException)]
    came = [*chain(*case.got), *case.left()]
    assert Tally(came) == Tally(chain(*case.put))
    for mine in case.got:
        for number in range(writers):
            own = [n for n in mine if n // 1000 == number]
            assert own == sorted(own)
    assert case.queue.enqueued_records == case.queue.dequeued_records == len(came)
    assert case.queue.num_writers == 0


@pytest.mark.parametrize("seed", range(15))
def test_readers_that_join_records_lose_none_when_they_are_interrupted(seed: int) -> None:
    readers_lose_none(seed)


@pytest.mark.exhaustive
def test_readers_lose_none_in_thousands_of_rounds() -> None:
    for seed in seeds(15, 1000, True):
        with watched():
            readers_lose_none(seed)


def readers_lose_none(seed: int) -> None:
    draw = random.Random(seed)
    queue, flag = BlobQueue(draw.choice([1, 3, 20])), CancelFlag()
    count = 150
    got: list[list[int]] = [[], [], []]

    put: list[int] = []

    def write() -> None:
        for n in range(count):
            try:
                queue.put([np.array([n])], flag=flag)
            except Cancelled:
                break
            put.append(n)
        queue.close()

    def reader(number: int) -> Callable[[], None]:
        own = random.Random(number + seed)

        def read() -> None:
            while True:
                try:
                    (found,) = queue.get(
                        own.choice([0, own.random() / 1000, None]), num_records=own.randint(1, 7), flag=flag
                    )
                except WaitTimeoutError:
                    continue
                except (ClosedError, Cancelled):
                    return
                got[number].extend(found.tolist())

        return read

    pause = threading.Event()
    calls: list[Callable[[], Any]] = [write, *map(reader, range(3))]
    if seed % 2:
        calls.append(lambda: (pause.wait(draw.random() / 100), flag.set()))
    results = at_once(calls)
    assert not [result for result in results if isinstance(result, BaseException)]
    came = list(chain(*got))
    while True:
        try:
            came += queue.get()[0].tolist()
        except ClosedError:
            break
    assert sorted(came) == put
    assert seed % 2 or len(put) == count


# ------------------------------------------------------------------------------------------------ without the GIL


@pytest.mark.parametrize("capacity", [1, 2, 7, 100])
@pytest.mark.parametrize(("writers", "readers"), [(1, 1), (3, 2)])
def test_native_threads_hand_over_everything_once(
    native: ModuleType, capacity: int, writers: int, readers: int
) -> None:
    queue, count = BlobQueue(capacity), 20_000 if capacity > 2 else 4_000
    queue.register_writer(writers)

    def write(number: int) -> Callable[[], Any]:
        return lambda: (native.produce(queue, number * count, count), queue.writer_done())

    results = at_once([*map(write, range(writers)), *[lambda: native.consume(queue)] * readers])
    assert [result[0] for result in results[:writers]] == [(DONE, count)] * writers
    assert {answer for answer, _, _ in results[writers:]} == {CLOSED}
    total = writers * count
    assert sum(done for _, done, _ in results[writers:]) == total == queue.dequeued_records
    assert sum(added for _, _, added in results[writers:]) == total * (total - 1) // 2
    assert queue.dequeued_bytes == 8 * total


def test_native_threads_and_python_share_a_queue(native: ModuleType) -> None:
    queue = BlobQueue(5)
    queue.register_writer(2)
    found: list[int] = []

    def read() -> None:
        while True:
            try:
                found.append(int(queue.get()[0]))
            except ClosedError:
                return

    def write() -> None:
        for n in range(2_000):
            queue.put([np.int64(n)])
        queue.writer_done()

    results = at_once(
        [
            lambda: (native.produce(queue, 2_000, 2_000), queue.writer_done()),
            write,
            read,
            lambda: native.consume(queue),
        ]
    )
    answer, done, total = results[3]
    assert answer == CLOSED
    assert done + len(found) == 4_000
    assert total + sum(found) == 4_000 * 3_999 // 2


def test_native_waits_end(native: ModuleType) -> None:
    queue, flag = BlobQueue(1), CancelFlag()
    assert native.consume(queue, 1, 0) == (TIMEOUT, 0, 0)
    assert native.consume(queue, 1, 2_000_000) == (TIMEOUT, 0, 0)
    assert native.produce(queue, 0, 2, 2_000_000) == (TIMEOUT, 1)
    threading.Timer(0.01, flag.set).start()
    assert native.produce(queue, 0, 1, -1, flag) == (CANCELLED, 0)
    threading.Timer(0.01, queue.close).start()
    assert native.produce(queue, 0, 1) == (CLOSED, 0)
    assert native.consume(queue) == (CLOSED, 1, 0)


def test_a_value_that_may_be_part_of_a_cycle_is_moved_with_the_gil_only(native: ModuleType) -> None:
    queue = BlobQueue(2)
    queue.put([[1]])
    assert native.consume(queue, 1) == (NEEDS_GIL, 0, 0)
    assert queue.get() == [[1]]
