"""Mutexes, atomic sums and flags, iterations, deadlines: what tasks at work at once agree by."""

from __future__ import annotations

import numpy as np
import pytest

import jobcore
from jobcore import LocalSession, Net, Task, TaskGroup, Workspace, ops
from jobcore.errors import BlobKindError, BlobValueError, BuildError, TaskGroupError
from op_tools import run
from session_tools import hang


@pytest.mark.parametrize(
    ("fetch_add", "dtype"), [("AtomicFetchAdd", np.int32), ("AtomicFetchAdd64", np.int64)], ids=["32", "64"]
)
@pytest.mark.parametrize("workspace_type", ["private", "global"])
def test_a_hundred_workers_take_every_number_once(fetch_add, dtype, workspace_type) -> None:
    workers, rounds = 100, 200
    total = workers * rounds
    group = TaskGroup(workspace_type)
    with group, Task(num_instances=workers) as task:
        with ops.task_init():
            mutex = ops.CreateMutex([], "mutex")
            left = ops.Const(total, "left", dtype=dtype)
            checksum = ops.Const(0, "checksum", dtype=dtype)
        minus_one = ops.Const(-1, dtype=dtype)
        add = getattr(ops, fetch_add)
        with ops.loop(rounds):
            _, taken = add([mutex, left, minus_one], [left, "taken"])
            add([mutex, checksum, taken], [checksum, "before"])
        task.add_outputs([left, checksum])
    LocalSession().run(group)
    found = [output.fetch() for output in task.outputs()]
    assert found == [0, 200_010_000]
    assert [value.dtype for value in found] == [dtype, dtype]


def test_sums_wrap_around_and_arrays_are_added_item_by_item() -> None:
    net, ws = Net("n"), Workspace()
    ws.feed("m", 0)
    net.CreateMutex([], "m")
    net.AtomicFetchAdd(["m", "a", "b"], ["a", "old"])
    ws.feed("a", np.array([1, 2**31 - 1], np.int32))
    ws.feed("b", np.int32(1))
    run(net, ws)
    assert ws.fetch("a").tolist() == [2, -(2**31)]
    assert ws.fetch("old").tolist() == [1, 2**31 - 1]


@pytest.mark.parametrize(
    ("a", "b", "error", "says"),
    [
        (np.int64(1), np.int32(1), BlobKindError, "expected a tensor of int32, found 'a': int64"),
        (np.int32(1), np.float32(1), BlobKindError, "found 'b': float32"),
        (np.int32(1), np.ones(2, np.int32), BlobValueError, r"of shape \(\), found \(2,\)"),
    ],
)
def test_a_sum_of_other_kinds_is_refused(a, b, error, says) -> None:
    net, ws = Net("n"), Workspace()
    net.CreateMutex([], "m")
    net.AtomicFetchAdd(["m", "a", "b"], ["a", "old"])
    ws.feed("a", a)
    ws.feed("b", b)
    with pytest.raises(error, match=says):
        run(net, ws)
    assert ws.fetch("a") == a


def test_a_mutex_is_checked_and_outlives_a_checkpoint(tmp_path) -> None:
    net, ws = Net("n"), Workspace()
    net.CreateMutex([], "m")
    run(net, ws)
    path = tmp_path / "m.zarr.zip"
    jobcore.save(path, {"m": ws.blob("m")})
    loaded = Workspace()
    loaded.feed("m", jobcore.load(path)["m"])
    loaded.feed("i", np.int64(4))
    use = Net("use")
    use.AtomicIter(["m", "i"], "i")
    run(use, loaded)
    assert loaded.fetch("i") == 5
    loaded.feed("m", {"no": "mutex"})
    with pytest.raises(BlobKindError, match="expected a mutex"):
        run(use, loaded)


def test_an_atomic_sum_must_go_where_it_came_from() -> None:
    net = Net("n")
    with pytest.raises(BuildError, match="input that is added to, 'a', found 'c'"):
        net.AtomicFetchAdd(["m", "a", "b"], ["c", "old"])
    with pytest.raises(BuildError, match="found the input 'b'"):
        net.AtomicFetchAdd(["m", "a", "b"], ["a", "b"])


def test_a_flag_is_down_at_first_and_stays_up() -> None:
    net, ws = Net("n"), Workspace()
    net.CreateAtomicBool([], "flag")
    for condition in ("no", "yes", "no"):
        net.ConditionalSetAtomicBool(["flag", condition])
        net.CheckAtomicBool("flag", 1)
    ws.feed("no", False)
    ws.feed("yes", True)
    run(net, ws)
    assert [bool(ws.fetch(op.outputs[0])) for op in net.ops if op.type == "CheckAtomicBool"] == [
        False,
        True,
        True,
    ]
    ws.feed("yes", 1)
    with pytest.raises(BlobKindError, match="expected a single boolean, found 'yes': int64"):
        run(net, ws)


def test_a_flag_that_one_of_many_instances_puts_up_is_seen() -> None:
    group = TaskGroup()
    with group, Task(num_instances=16) as task:
        with ops.task_init():
            flag = ops.CreateAtomicBool([], "flag")
            counter = ops.CreateCounter([], "counter")
        is_last = ops.EQ([ops.CountUp(counter), ops.Const(7)])
        with ops.loop(50):
            ops.ConditionalSetAtomicBool([flag, is_last])
        task.add_output(flag)
    LocalSession().run(group)
    assert task.outputs()[0].fetch()


def test_iterations_count_from_one_and_go_on() -> None:
    net, ws = Net("n"), Workspace()
    net.Iter([], "i")
    net.Iter("j", "j")
    ws.create_blob("j")
    for expected in (1, 2):
        run(net, ws)
        assert (ws.fetch("i"), ws.fetch("j")) == (expected, expected)
    ws.feed("i", np.array([41], np.int64))
    run(net, ws)
    assert ws.fetch("i").tolist() == [42]
    ws.feed("i", 1.5)
    with pytest.raises(BlobKindError, match="expected a single int64"):
        run(net, ws)
    with pytest.raises(BuildError, match="expected 'i' as output"):
        net.Iter("i", "k")


def test_atomic_iterations_of_many_instances_are_all_counted() -> None:
    group = TaskGroup()
    with group, Task(num_instances=8) as task:
        with ops.task_init():
            mutex, i = ops.CreateMutex([], "mutex"), ops.Const(0, "atomic_i")
        with ops.loop(100):
            ops.AtomicIter([mutex, i], i)
        task.add_output(i)
    before = {s.name: s.value for s in jobcore.stat_registry().export()}
    LocalSession().run(group)
    assert task.outputs()[0].fetch() == 800
    after = {s.name: s.value for s in jobcore.stat_registry().export()}
    name = "atomic_iter/stats/atomic_i/num_iter"
    assert after[name] - before.get(name, 0) == 800


def test_a_deadline_passes_and_is_in_no_checkpoint() -> None:
    net, ws = Net("n"), Workspace()
    net.CreateDeadline([], "now", seconds=0)
    net.CreateDeadline([], "never", seconds=1e300)
    net.Sleep([], [], seconds=0.001)
    net.DeadlinePassed("now", "now_over")
    net.DeadlinePassed("never", "never_over")
    run(net, ws)
    assert (bool(ws.fetch("now_over")), bool(ws.fetch("never_over"))) == (True, False)
    assert ws.blob("now").transient


@pytest.mark.parametrize("seconds", [-1, float("nan"), float("inf"), "x"])
def test_seconds_are_checked(seconds) -> None:
    with pytest.raises(BuildError, match="seconds, at least 0"):
        Net("n").Sleep([], [], seconds=seconds)


def test_a_sleep_ends_when_the_group_is_cancelled() -> None:
    group = TaskGroup()
    with group:
        with Task(name="sleeper"):
            ops.Sleep([], [], seconds=3600)
        with Task(name="failing"):
            ops.Python(lambda inputs, outputs: 1 / 0)()
        Task(step=hang)
    with pytest.raises(TaskGroupError, match="division by zero"):
        LocalSession().run(group)
