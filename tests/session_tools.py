"""Steps and groups that the tests of sessions share."""

from __future__ import annotations

import signal
import threading

from jobcore import LocalSession, NetBuilder, Task, TaskGroup, ops, sleep
from jobcore.graph import Net, Plan, execution_step

FOREVER = 3600


def add(name, amount=1):
    """A step that adds to a blob, which it makes when it is not there."""

    def step(ws):
        ws.feed(name, (int(ws.fetch(name)) if ws.has_blob(name) else 0) + amount)

    return step


def boom(ws):
    raise ValueError("boom")


def hang(ws):
    sleep(FOREVER)
    raise AssertionError("nobody stopped this task")


def after(event, action):
    """A step that waits for `event` before it acts."""

    def step(ws):
        assert event.wait(60)
        action()

    return step


def constant(name, value, blob):
    """A net that makes one blob."""
    net = Net(name)
    net.Const(value, blob)
    return net


def group_of(*steps, **options):
    group = TaskGroup(**options)
    for number, step in enumerate(steps):
        Task(step=step, name=f"t{number}", group=group)
    return group


def concurrent(*parts):
    return execution_step("parts", list(parts), concurrent_substeps=True)


def interrupt_main():
    """Press Ctrl-C."""
    signal.pthread_kill(threading.main_thread().ident, signal.SIGINT)


def builder():
    with NetBuilder("b") as nb:
        ops.Const(7, "x")
    return nb


def task():
    return Task(step=add("x", 7))


def plan():
    steps = Plan(execution_step("one", constant("n1", 3, "y")))
    steps.add_step(lambda ws: ws.feed("x", ws.fetch("y") + 4))
    return steps


RUNNABLES = {
    "callable": lambda: add("x", 7),
    "net": lambda: constant("n", 7, "x"),
    "builder": builder,
    "step": lambda: execution_step("s", constant("n", 7, "x")),
    "plan of one": lambda: Plan(execution_step("s", constant("n", 7, "x"))),
    "plan of two": plan,
    "task": task,
    "list": lambda: [constant("n", 3, "x"), add("x", 4)],
    "callable object": lambda: _Feeder(),
    "compiled": lambda: LocalSession.compile(constant("n", 7, "x")),
}


class _Feeder:
    def __call__(self, ws):
        ws.feed("x", 7)
