"""What a session adds to the work itself, each against the same work without one.

``one task``: a group of one task, whose step does nothing, or one feed and fetch; the peer is the plain call of the
step. ``two tasks``: a group of two tasks; the peer starts and joins two bare threads.
"""

from __future__ import annotations

import threading
from functools import partial

import pytest

from jobcore import LocalSession, Task, TaskGroup, Workspace
from jobcore.graph import Net
from turns import take_turns, thousand_empty_calls


def nothing(ws):
    pass


def python_step(ws):
    ws.feed("x", 1.0)
    ws.fetch("x")


def group_of(*steps):
    group = TaskGroup()
    for number, step in enumerate(steps):
        Task(step=step, name=str(number), group=group)
    return group


@pytest.fixture
def session():
    with LocalSession() as session:
        yield session


@pytest.fixture
def ws():
    return Workspace()


@pytest.mark.benchmark(group="one task, empty")
def bench_session_empty_task(benchmark, session):
    take_turns(benchmark, partial(session.run, LocalSession.compile(group_of(nothing))), thousand_empty_calls)


@pytest.mark.benchmark(group="one task, empty")
def bench_session_empty_task_by_its_group(benchmark, session):
    benchmark(session.run, group_of(nothing))


@pytest.mark.benchmark(group="one task, empty")
def bench_peer_empty_call(benchmark, ws):
    benchmark(nothing, ws)


@pytest.mark.benchmark(group="one task, empty")
def bench_peer_thousand_empty_calls(benchmark):
    benchmark(thousand_empty_calls)


@pytest.mark.benchmark(group="one task, a feed and a fetch")
def bench_session_python_step(benchmark, session):
    benchmark(session.run, LocalSession.compile(group_of(python_step)))


@pytest.mark.benchmark(group="one task, a feed and a fetch")
def bench_peer_python_call(benchmark, ws):
    benchmark(python_step, ws)


@pytest.mark.benchmark(group="one task, a net of 100 ops")
def bench_session_net(benchmark, session):
    session.workspace().counter("c")
    net = Net("n")
    for _ in range(100):
        net.CountUp("c", "before")
    benchmark(session.run, LocalSession.compile(net))


@pytest.mark.benchmark(group="one task, a net of 100 ops")
def bench_peer_loop_of_calls(benchmark, ws):
    counter = ws.counter("c")

    def loop():
        for _ in range(100):
            ws.feed("before", counter.count_up())

    benchmark(loop)


@pytest.mark.benchmark(group="two tasks, empty")
def bench_session_two_tasks(benchmark, session):
    benchmark(session.run, LocalSession.compile(group_of(nothing, nothing)))


@pytest.mark.benchmark(group="two tasks, empty")
def bench_peer_two_bare_threads(benchmark, ws):
    def two():
        threads = [threading.Thread(target=nothing, args=(ws,)) for _ in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    benchmark(two)
