"""A session over many runs, 1,000 of most: memory, objects, threads, files and blobs stay flat."""

from __future__ import annotations

import gc
import os
import threading
import tracemalloc

import numpy as np
import psutil
import pytest

from jobcore import LocalSession, Task, TaskGroup, WorkspaceType, ops
from jobcore.errors import TaskGroupError
from jobcore.graph import execution_step


def work(ws):
    ws.feed("scratch", np.zeros(1000))
    ws.feed("total", ws.fetch("total") + 1)


def fails(ws):
    ws.feed("scratch", np.zeros(1000))
    raise ValueError("on purpose")


def single():
    group = TaskGroup()
    group.task(outputs=["total", "scratch"])(work)
    return group


def pair():
    group = TaskGroup()
    group.task(name="a", outputs=["scratch"])(work)
    with group, Task(name="b"):
        ops.Add([ops.Const(1), ops.Const(2)])
    Task(outputs=["declared"], group=group)
    return group


def instances():
    group = TaskGroup(WorkspaceType.GLOBAL)
    group.task(num_instances=2)(lambda ws: ws.feed("own", np.zeros(100)))
    return group


def failing():
    group = TaskGroup()
    group.task(name="a")(work)
    group.task(name="b", outputs=["scratch"])(fails)
    return group


def blocks():
    group = TaskGroup()
    with group, Task(name="a", outputs=["x"], num_instances=2):
        for kind in ("local", "task", "task_instance"):
            with getattr(ops, f"{kind}_init")():
                ops.Const(0, f"{kind} x")
            with getattr(ops, f"{kind}_exit")():
                ops.Copy(f"{kind} x", "x")
        for kind in ("local", "task"):
            with getattr(ops, f"{kind}_reporter")(interval_ms=1e6):
                ops.Const(1)
        with ops.loop(2) as loop, ops.IfNet(ops.LT([loop.iter(), ops.Const(1)])):
            ops.stop_if(ops.Const(True))
    return group


class Nested:
    """Makes everything anew at every run: a group, a step and a closure over both."""

    def __init__(self, session):
        self.session = session

    def __call__(self):
        group = TaskGroup()
        step = execution_step("parts", [work, lambda ws: group], concurrent_substeps=True)
        Task(step=[step, lambda ws: self.session.run(lambda inner: step)], group=group)
        return group


def run(session, runnable):
    try:
        session.run(runnable)
    except TaskGroupError:
        return 1
    return 0


def objects():
    gc.collect()
    return len(gc.get_objects())


@pytest.mark.parametrize(
    ("shape", "runs"),
    [(single, 1000), (pair, 1000), (instances, 1000), (failing, 1000), (blocks, 300), (Nested, 200)],
)
def test_many_runs_leave_nothing_behind(shape, runs):
    process = psutil.Process()
    with LocalSession() as session:
        session.workspace().feed("total", 0)
        if shape is Nested:
            make = Nested(session)
        else:
            group = shape()

            def make():
                return group

        def some(count):
            return sum(run(session, make()) for _ in range(count))

        # The first runs fill caches: of the interpreter, of NumPy and of what is compiled.
        some(50)
        blobs, threads, files = session.workspace().blob_names(), threading.active_count(), process.num_fds()
        alive = objects()
        tracemalloc.start()
        try:
            some(20)
            gc.collect()
            begin = tracemalloc.get_traced_memory()[0]
            failures = some(runs)
            gc.collect()
            grown = tracemalloc.get_traced_memory()[0] - begin
        finally:
            tracemalloc.stop()
        # Frames, free lists and counters of the interpreter move a little; a leak of anything per run is at least
        # as many objects as runs.
        assert abs(objects() - alive) < runs // 5
        assert grown < 32 * runs
        assert session.workspace().blob_names() == blobs
        assert threading.active_count() == threads
        assert process.num_fds() == files
        assert failures == (runs if shape is failing else 0)


@pytest.mark.parametrize("shape", [single, pair, instances, blocks])
def test_a_run_makes_no_garbage_that_only_the_collector_finds(shape):
    with LocalSession() as session:
        session.workspace().feed("total", 0)
        group = shape()
        session.run(group)
        gc.collect()
        gc.disable()
        try:
            for _ in range(10):
                session.run(group)
            assert gc.collect() == 0
        finally:
            gc.enable()


def test_sessions_that_are_opened_and_closed_leave_nothing_behind():
    group = pair()

    def one():
        with LocalSession() as session:
            session.workspace().feed("total", 0)
            session.workspace(f"node {os.getpid()}").feed("x", np.zeros(1000))
            session.run(group)

    for _ in range(20):
        one()
    alive = objects()
    for _ in range(200):
        one()
    assert abs(objects() - alive) < 20
