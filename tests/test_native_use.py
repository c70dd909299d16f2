"""Other packages may cimport the core: the shipped declarations compile, and hold their promises off the GIL.

Threads under the GIL can hardly race inside one method, so this is also where lost updates would show.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

from jobcore import Counter, LocalSession, NetBuilder, Timer, Workspace, ops
from jobcore.graph import register_op, registry
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


def test_an_op_of_ones_own_runs_natively(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    native = build("kernel", tmp_path)
    monkeypatch.setattr(registry, "_schemas", dict(registry._schemas))

    @register_op("Triple", num_inputs=1, num_outputs=1, inplace=True, native=native.kernel())
    def triple(ctx):
        """Give three times the input."""
        ctx.outputs[0].feed(3 * ctx.inputs[0].view())

    ws = Workspace()
    ws.feed("x", 1)
    ws.feed("a", np.array([1.5]))
    with NetBuilder("n") as builder, ops.loop(10):
        ops.Triple("x", "x")
        ops.Triple("a", "b")
    with LocalSession(ws) as session:
        session.run(builder)
    assert ws["x"] == 3**10
    assert ws["b"] == 4.5
    assert native.calls() >= 9
