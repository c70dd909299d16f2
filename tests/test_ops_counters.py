"""The kernels of counters and timers."""

from __future__ import annotations

import numpy as np
import pytest

from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore.errors import BlobKindError, BlobValueError, TimerStateError
from jobcore.graph import Net
from jobcore.workspace import Workspace
from op_tools import result, run, same


def test_counting() -> None:
    net, ws = Net("n"), Workspace()
    c = net.CreateCounter([], "c", init_count=1)
    down = [net.CountDown(c) for _ in range(3)]
    up, value, done = net.CountUp(c), net.RetrieveCount(c), net.CheckCounterDone(c)
    reset = [net.ResetCounter(c, init_count=5), net.ResetCounter(c)]
    assert net.ResetCounter(c, [], init_count=7) is None
    run(net, ws)
    for ref, expected in zip(
        [*down, up, value, done, *reset], [False, True, True, -2, -1, True, -1, 5], strict=True
    ):
        found = ws.fetch(ref)
        same(found, np.bool_(expected) if isinstance(expected, bool) else np.int64(expected))
    assert ws.fetch("c").retrieve() == 7


def test_creating_a_counter_again_resets_the_one_that_others_hold() -> None:
    net, ws = Net("n"), Workspace()
    net.CreateCounter([], "c", init_count=3)
    run(net, ws)
    held = ws.fetch("c")
    held.count_up()
    run(net, ws)
    assert ws.fetch("c") is held
    assert held.retrieve() == 3


def test_a_counter_is_made_in_place_of_another_kind() -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("c", 1.5)
    net.CreateCounter([], "c")
    run(net, ws)
    assert isinstance(ws.fetch("c"), Counter)


@pytest.mark.parametrize(
    "op_type", ["CountUp", "CountDown", "ResetCounter", "RetrieveCount", "CheckCounterDone"]
)
def test_only_counters_count(op_type: str) -> None:
    with pytest.raises(
        BlobKindError, match=rf"op {op_type} \(in0\).*expected a counter, found 'in0': float64 \(2,\)"
    ):
        result(op_type, np.zeros(2))
    net, ws = Net("n"), Workspace()
    ws.create_blob("c")
    net.add_op(op_type, "c")
    with pytest.raises(BlobValueError, match="expected a counter in 'c', but the blob is empty"):
        run(net, ws)


def test_timing() -> None:
    net, ws = Net("n"), Workspace()
    t = net.TimerBegin([], "t", counter_name="load")
    first, second = net.TimerGet(t), net.TimerGetAndEnd(t)
    net.TimerBegin([], t)
    net.TimerEnd(t)
    run(net, ws)
    timer = ws.fetch("t")
    assert isinstance(timer, Timer)
    assert (timer.name, timer.count, timer.running) == ("load", 2, False)
    for ref in (first, second):
        assert (ws.fetch(ref).dtype, ws.fetch(ref).shape) == (np.int64, ())
    assert 0 <= ws.fetch(first) <= ws.fetch(second) <= timer.sum_ns


def test_a_timer_is_named_after_its_blob() -> None:
    net, ws = Net("n"), Workspace()
    net.TimerBegin()
    run(net, ws)
    assert ws.fetch("n/TimerBegin").name == "n/TimerBegin"


@pytest.mark.parametrize("op_type", ["TimerGet", "TimerEnd", "TimerGetAndEnd"])
def test_a_stopped_timer_tells_no_time(op_type: str) -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("t", Timer("t"))
    net.add_op(op_type, "t")
    with pytest.raises(TimerStateError):
        run(net, ws)
    ws.feed("t", 3)
    with pytest.raises(BlobKindError, match=r"expected a timer, found 't': int64 \(\)"):
        run(net, ws)


def test_a_running_timer_cannot_be_started() -> None:
    net, ws = Net("n"), Workspace()
    net.TimerBegin([], "t")
    net.TimerBegin([], "t")
    with pytest.raises(TimerStateError):
        run(net, ws)
