"""Work that is shared out among a few threads."""

from __future__ import annotations

import signal
import threading
from functools import partial
from itertools import repeat

import numpy as np
import pytest

from jobcore.store import workers


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_everything_is_done_once(threads: int) -> None:
    done: list[int] = []
    workers.each((partial(done.append, n) for n in range(1000)), threads)
    assert sorted(done) == list(range(1000))


@pytest.mark.parametrize("threads", [1, 3])
def test_the_first_error_ends_all(threads: int) -> None:
    done: list[int] = []

    def work(number: int) -> None:
        if number == 10:
            raise OSError("bad disk")
        done.append(number)

    with pytest.raises(OSError, match="bad disk"):
        workers.each((partial(work, n) for n in range(100_000)), threads)
    assert len(done) < 100_000
    assert not [t for t in threading.enumerate() if t.name == "jobcore-store"]


def test_an_error_of_the_iterator_is_one_too() -> None:
    def works():
        yield lambda: None
        raise MemoryError

    with pytest.raises(MemoryError):
        workers.each(works(), 3)


def test_an_interrupt_waits_for_what_is_under_way() -> None:
    go_on = threading.Event()
    finished: list[bool] = []

    def work() -> None:
        if threading.current_thread() is threading.main_thread():
            finished.append(False)  # only there an interrupt can come between any two steps of it
        if not go_on.is_set():
            threading.Timer(0.05, go_on.set).start()
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        go_on.wait()
        finished.append(True)

    with pytest.raises(KeyboardInterrupt):
        workers.each(repeat(work), 2)
    assert all(finished)
    assert 0 < len(finished) < 1000
    assert not [t for t in threading.enumerate() if t.name == "jobcore-store"]


def test_a_thread_that_begins_after_the_end_does_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    late: list[threading.Thread] = []
    start = threading.Thread.start

    def interrupted(thread: threading.Thread) -> None:
        late.append(thread)  # where it was interrupted, nobody knows whether it goes on
        raise KeyboardInterrupt

    done: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(workers.threading.Thread, "start", interrupted)
        with pytest.raises(KeyboardInterrupt):
            workers.each((partial(done.append, n) for n in range(10)), 3)
    for thread in late:
        start(thread)
        thread.join(30)
    assert len(late) == 1
    assert done == []


def test_threads_have_the_context_of_the_caller() -> None:
    said: list[str] = []
    with np.errstate(over="ignore"):
        workers.each([lambda: said.append(np.geterr()["over"])] * 20, 3)
    assert said == ["ignore"] * 20


def test_where_no_thread_can_be_started_the_caller_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers.threading.Thread, "start", refuse)
    done: list[int] = []
    workers.each((partial(done.append, n) for n in range(10)), 4)
    assert done == list(range(10))


@pytest.mark.parametrize("count", [0, 1, 2047, 2048, 2049, 10_000])
def test_giving_way_gives_everything_in_order(count: int) -> None:
    assert list(workers.giving_way(range(count))) == list(range(count))
