"""Counter: 1,000 ticks in one measurement, so that the harness itself does not show.

The limit of any Python-callable object is an empty method; the peers are what one would write without the
counter. Read the ratio inside a group.
"""

from __future__ import annotations

import itertools
import sys
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import repeat
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from jobcore import Counter

sys.path.append(str(Path(__file__).parents[1] / "tests"))

from native_build import build
from turns import take_turns

TICKS = 1_000


class Empty:
    def count_up(self) -> None:
        pass


class LockedInt:
    """A Python int behind a lock: the plain way to count from several threads."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._value = 0

    def count_up(self) -> int:
        with self._lock:
            before = self._value
            self._value = before + 1
        return before

    def retrieve(self) -> int:
        return self._value


def tick(call: Callable[[], object]) -> None:
    for _ in repeat(None, TICKS):
        call()


COUNT_UP: dict[str, Callable[[], Callable[[], object]]] = {
    "jobcore": lambda: Counter().count_up,
    "limit: empty Python method": lambda: Empty().count_up,
    "peer: itertools.count": lambda: itertools.count().__next__,
    "peer: int behind a lock": lambda: LockedInt().count_up,
}


@pytest.mark.benchmark(group="counter: 1,000 x count up")
@pytest.mark.parametrize("who", COUNT_UP)
def bench_count_up(benchmark: Any, who: str) -> None:
    benchmark(tick, COUNT_UP[who]())


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("empty", tmp_path_factory.mktemp("native"))


_LIMIT = "limit: empty method of a Cython class"
STOP_CONDITION: dict[str, Callable[[ModuleType], Callable[[], object]]] = {
    "count_down": lambda native: Counter(2**62).count_down,
    "check_done": lambda native: Counter(2**62).check_done,
    "retrieve": lambda native: Counter(2**62).retrieve,
    _LIMIT: lambda native: native.Empty().count_down,
    "limit: empty Python method": lambda native: Empty().count_up,
}


@pytest.mark.benchmark(group="counter: 1,000 x test and count down")
@pytest.mark.parametrize("method", STOP_CONDITION)
def bench_stop_condition(benchmark: Any, method: str, native: ModuleType) -> None:
    ours, limit = STOP_CONDITION[method](native), STOP_CONDITION[_LIMIT](native)
    if method == "count_down":
        take_turns(benchmark, partial(tick, ours), partial(tick, limit))
    else:
        benchmark(tick, ours)


@pytest.mark.benchmark(group="counter: 2 threads, 1,000 x count up each")
@pytest.mark.parametrize("kind", [Counter, LockedInt], ids=["jobcore", "peer: int behind a lock"])
def bench_two_threads(benchmark: Any, kind: type[Counter] | type[LockedInt]) -> None:
    with ThreadPoolExecutor(2) as pool:

        def both() -> int:
            counter = kind()
            for done in [pool.submit(tick, counter.count_up) for _ in range(2)]:
                done.result()
            return counter.retrieve()

        assert benchmark(both) == 2 * TICKS


@pytest.mark.benchmark(group="counter: 1,000 x create")
@pytest.mark.parametrize("kind", [Counter, LockedInt], ids=["jobcore", "peer: int behind a lock"])
def bench_create(benchmark: Any, kind: type[Counter] | type[LockedInt]) -> None:
    benchmark(tick, kind)
