"""Settings and fixtures that more than one test file needs."""

from __future__ import annotations

import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from jobcore import LocalSession

# No deadline: it is an assertion about time, and fails on a busy machine for no fault of the code.
settings.register_profile(
    "jobcore", deadline=None, print_blob=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("jobcore")

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # A shell starts what it puts into the background so, and the programs that tests interrupt would inherit it.
    signal.signal(signal.SIGINT, signal.default_int_handler)
if signal.getsignal(signal.SIGHUP) is signal.SIG_IGN:
    # And so does nohup.
    signal.signal(signal.SIGHUP, signal.SIG_DFL)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--exhaustive", action="store_true", help="also the tests that try every call in every way"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    # Many minutes. A sample of each has a test of its own, which always runs.
    if not config.getoption("--exhaustive"):
        long = [item for item in items if item.get_closest_marker("exhaustive")]
        config.hook.pytest_deselected(items=long)
        items[:] = [item for item in items if item not in long]


@pytest.fixture
def together() -> Iterator[Callable[..., list[Any]]]:
    """Call a function in many threads at once: ``together(threads, function)``.

    All threads stand at one barrier before the call, and switch as often as the interpreter can, so that
    races happen. The function gets the number of its thread; results come back in that order, and an
    exception in place of the result that it prevented.
    """

    def run(threads: int, function: Callable[[int], Any]) -> list[Any]:
        barrier = threading.Barrier(threads)
        results: list[Any] = [None] * threads

        def call(number: int) -> None:
            barrier.wait()
            try:
                results[number] = function(number)
            except Exception as error:
                results[number] = error

        workers = [threading.Thread(target=call, args=(number,), daemon=True) for number in range(threads)]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
        return results

    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield run
    sys.setswitchinterval(interval)


@pytest.fixture
def session() -> Iterator[LocalSession]:
    """An open session, closed after the test."""
    with LocalSession() as session:
        yield session


@pytest.fixture
def quiet_threads(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """No thread dies of an exception that nobody hears of, and none is left."""
    heard: list[object] = []
    monkeypatch.setattr(threading, "excepthook", heard.append)
    before = threading.active_count()
    yield
    assert heard == []
    # One that has done its work may still be on its way out.
    deadline = time.monotonic() + 10
    while threading.active_count() > before and time.monotonic() < deadline:
        time.sleep(0.01)
    assert threading.active_count() <= before, threading.enumerate()
