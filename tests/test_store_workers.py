"""Work that is shared out among a few threads."""

from __future__ import annotations

import threading
from functools import partial

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
    started, go_on = threading.Event(), threading.Event()
    finished: list[bool] = []
    caller = threading.current_thread()

    def work() -> None:
        if threading.current_thread() is caller:
            started.wait()
            threading.Timer(0.05, go_on.set).start()
            raise KeyboardInterrupt
        started.set()
        go_on.wait()
        finished.append(True)

    with pytest.raises(KeyboardInterrupt):
        workers.each([work, work], 2)
    assert finished == [True]


def test_where_no_thread_can_be_started_the_caller_does_it_all(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(workers.threading.Thread, "start", refuse)
    done: list[int] = []
    workers.each((partial(done.append, n) for n in range(10)), 4)
    assert done == list(range(10))
