"""Other packages may cimport the core: the shipped declarations compile, and hold their promises off the GIL.

Threads under the GIL can hardly race inside one method, so this is also where lost updates would show.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType

import pytest

from jobcore import Counter, Timer
from native_build import build


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    return build("race", tmp_path_factory.mktemp("native"))


def test_no_addition_is_lost(race: ModuleType, together: Callable[..., list[object]]) -> None:
    counter = Counter(7)
    together(4, lambda number: race.add(counter, [3, -1, 5, -7][number], 200_000))
    assert counter.retrieve() == 7


def test_every_exchanged_value_comes_out_once(race: ModuleType, together: Callable[..., list[int]]) -> None:
    counter, times = Counter(), 100_000
    came_out = sum(together(4, lambda number: race.exchange(counter, number * times, times)))
    put_in = sum(range(4 * times))
    assert came_out + counter.retrieve() == put_in


def test_every_span_that_began_ended_once(
    race: ModuleType, together: Callable[..., list[tuple[int, int, int, int]]]
) -> None:
    timer = Timer()
    begun, ended, sums_ns, shortest_ns = zip(
        *together(4, lambda number: race.spans(timer, 50_000)), strict=True
    )
    assert sum(begun) == sum(ended) == timer.count
    assert sum(sums_ns) == timer.sum_ns
    assert min(shortest_ns) >= 0
    assert not timer.running
