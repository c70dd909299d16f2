"""Groups that fail, are cancelled, closed and interrupted at random: no hang, no lost error, no lost exit block."""

from __future__ import annotations

import signal
import threading
import time
from collections import Counter as Tally
from random import Random

import pytest

from jobcore import LocalSession, Task, TaskGroup, ops, sleep
from jobcore.errors import Cancelled, ClosedError, TaskGroupError
from jobcore.graph import execution_step
from jobcore.runtime import current_token
from stress_tools import rounds

pytestmark = pytest.mark.usefixtures("quiet_threads")

ROUNDS = 60
ENDS = ("failures", "cancel", "close", "interrupt", "nothing")


class Planned(Exception):
    """An error on purpose; its text is unique."""


class Case:
    """A random group, and a record of what happened in it."""

    def __init__(self, rng: Random, end: str) -> None:
        self.rng = rng
        self.end = end
        self.failing = 0.08 if end == "failures" else 0.01 if end != "nothing" else 0.0
        self._lock = threading.Lock()
        self._number = 0
        self.raised: list[str] = []
        self.begun: Tally[str] = Tally()
        self.ended: Tally[str] = Tally()
        self.reports: Tally[str] = Tally()
        self.exits: dict[str, int] = {}
        self.group = self._group()

    # -- while it runs

    def fail(self) -> None:
        with self._lock:
            self._number += 1
            name = f"error {self._number}"
            self.raised.append(name)
        raise Planned(name)

    def note(self, where: Tally[str], name: str) -> None:
        with self._lock:
            where[name] += 1

    # -- while it is built

    def _group(self) -> TaskGroup:
        rng = self.rng
        with TaskGroup(rng.choice(["private", "global"])) as group:
            for task in range(rng.randrange(1, 4)):
                with Task(name=f"t{task}", node=rng.choice(["a", "b"]), num_instances=rng.choice([1, 1, 3])):
                    self._frame(f"t{task}")
                    self._body(3)
        return group

    def _frame(self, name: str) -> None:
        for before, after in (
            ("local_init", "local_exit"),
            ("task_init", "task_exit"),
            ("task_instance_init", "task_instance_exit"),
        ):
            level = name if before != "local_init" else f"node {Task.current().node} {name}"
            if self.rng.random() < 0.6:
                with getattr(ops, before)():
                    self._call(lambda b=f"{level} {after}": self.note(self.begun, b))
                    self._body(1)
                self.exits[f"{level} {after}"] = self.rng.randrange(1, 3)
                for _ in range(self.exits[f"{level} {after}"]):
                    with getattr(ops, after)():
                        self._call(lambda b=f"{level} {after}": self.note(self.ended, b))
                        self._body(1, exit=True)
        if self.rng.random() < 0.5:
            with ops.task_reporter(self.rng.choice([0.05, 1, 3_600_000])):
                self._call(lambda: self.note(self.reports, name))
                self._body(0)
        if self.rng.random() < 0.3:
            with ops.local_reporter(self.rng.choice([0.05, 1, 3_600_000])):
                self._body(0)

    def _call(self, function) -> None:
        ops.Python(lambda inputs, outputs: function())()

    def _body(self, depth: int, exit: bool = False) -> None:
        for _ in range(self.rng.randrange(1, 3)):
            if depth and self.rng.random() < 0.5:
                self._nested(depth - 1)
            else:
                self._leaf(exit)

    def _nested(self, depth: int) -> None:
        kind = self.rng.choice(["loop", "guard", "if", "threads", "instances", "reporter"])
        if kind == "loop":
            with ops.loop(self.rng.randrange(3)):
                self._body(depth)
        elif kind == "guard":
            with ops.stop_guard():
                self._body(depth)
                ops.stop()
        elif kind == "if":
            with ops.IfNet(ops.Const(True)):
                self._body(depth)
        elif kind == "threads":
            parts = [self._step() for _ in range(self.rng.randrange(2, 4))]
            ops.net(execution_step("threads", parts, concurrent_substeps=True))
        elif kind == "instances":
            ops.net(
                execution_step("instances", [self._step()], num_concurrent_instances=2, own_workspace=True)
            )
        else:
            report = execution_step("report", [self._step()], run_every_ms=self.rng.choice([0.05, 3_600_000]))
            ops.net(execution_step("beside", [report, self._step()]))

    def _step(self):
        kind, fails, seconds = self._decide()
        return execution_step("leaf", lambda ws: self._act(kind, fails, seconds))

    def _leaf(self, exit: bool) -> None:
        kind, fails, seconds = self._decide()
        if exit and kind == "cancels":
            kind = "works"
        if self.rng.random() < 0.5:
            ops.net(lambda ws: self._act(kind, fails, seconds))
        else:
            self._call(lambda: self._act(kind, fails, seconds))

    def _decide(self) -> tuple[str, bool, float]:
        kind = self.rng.choice(
            ["works", "works", "sleeps", "cleans", "cancels" if self.end == "cancel" else "works"]
        )
        return kind, self.rng.random() < self.failing, self.rng.random() * 0.002

    def _act(self, kind: str, fails: bool, seconds: float) -> None:
        if kind == "cancels" and seconds < 0.0005:
            current_token().cancel("a step wants it")
        if kind == "sleeps":
            sleep(seconds)
        if kind == "cleans":
            try:
                sleep(seconds)
            finally:
                if fails:
                    self.fail()
        if fails:
            self.fail()


def play(rng: Random, end: str) -> None:
    case = Case(rng, end)
    session = LocalSession()
    helper = None
    if end in ("close", "interrupt"):
        main = threading.main_thread().ident

        delay = rng.random() * 0.006

        def meddle():
            time.sleep(delay)
            if end == "close":
                session.close()
            else:
                signal.pthread_kill(main, signal.SIGUSR1)

        helper = threading.Thread(target=meddle)
    error: BaseException | None = None
    try:
        if helper is not None:
            helper.start()
        try:
            session.run(case.group)
        finally:
            if helper is not None:
                helper.join()
    except BaseException as caught:
        error = caught
    if helper is not None:
        # The signal itself may have ended the wait for it.
        helper.join()
    expected = {
        "failures": (TaskGroupError,),
        "cancel": (TaskGroupError, Cancelled),
        "close": (TaskGroupError, ClosedError),
        "interrupt": (TaskGroupError, KeyboardInterrupt),
        "nothing": (),
    }[end]
    assert error is None or isinstance(error, expected), error
    group = error if isinstance(error, TaskGroupError) else getattr(error, "__context__", None)
    reported = [str(f.error) for f in group.failures] if isinstance(group, TaskGroupError) else []
    if end == "interrupt":
        # It may hit the very statement that raises, or an exit block, in the calling thread.
        assert not Tally(reported) - Tally(case.raised)
    else:
        assert Tally(reported) == Tally(case.raised)
        for name, count in case.begun.items():
            assert case.ended[name] >= count * case.exits[name], name
    assert session.is_open() == (end != "close")
    if end != "close":
        done = []
        session.run(lambda ws: done.append(1))
        assert done
        session.close()


@pytest.mark.parametrize("end", ENDS)
def test_hundreds_of_rounds(end):
    rounds(__name__, end, 0, ROUNDS)


@pytest.mark.exhaustive
@pytest.mark.parametrize("end", ENDS)
def test_thousands_of_rounds(end):
    rounds(__name__, end, ROUNDS, 3000, long=True)
