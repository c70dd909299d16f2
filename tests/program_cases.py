"""Programs at random, and what they must do.

A program is plain data: statements in bodies, bodies in tasks. `build` writes it with `ops`; `interpret` runs it in
plain Python, by the meaning of the statements and without any code of the library. Both must end in the same state,
and with the same failures. Whoever has another way to run programs can be compared with the same oracle.

What runs at once in a program touches nothing in common but counters, which are only counted up: so whatever the
order, there is one end. Only after a failure beside other work the state depends on the order; `Outcome.exact` says so.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from jobcore import LocalSession, NetBuilder, Session, Task, TaskGroup, ops
from jobcore.errors import TaskGroupError
from jobcore.graph import execution_step

COUNTERS = ("c0", "c1", "c2")
NEVER_MS = 3_600_000_000
BEFORE, AFTER = (
    ("local_init", "task_init", "task_instance_init"),
    ("task_instance_exit", "task_exit", "local_exit"),
)
REPORTERS = ("task_reporter", "local_reporter")


@dataclass(frozen=True)
class Do:
    """One statement: what, with which names and values, round which bodies."""

    kind: str
    args: tuple = ()
    bodies: tuple[tuple[Do, ...], ...] = ()


@dataclass(frozen=True)
class TaskCase:
    """A task: its body, and the other blocks by kind."""

    name: str
    instances: int
    blocks: dict[str, tuple[Do, ...]]
    body: tuple[Do, ...]
    watched: tuple[str, ...]


@dataclass(frozen=True)
class Program:
    """A group of tasks."""

    kind: str
    tasks: tuple[TaskCase, ...]


@dataclass
class Outcome:
    """How a program ended.

    `state` has the watched blobs and the counters. `failures` are the names of the statements that failed, in order;
    unless `exact`, those that may have, one of which at least did, and `certain` those of them that did.
    """

    state: dict[str, object] = field(default_factory=dict)
    failures: list[str] = field(default_factory=list)
    exact: bool = True
    certain: set[str] = field(default_factory=set)


# -- making programs


class Maker:
    """Makes programs; all decisions come from `rng`, which hypothesis may provide."""

    def __init__(self, rng: Random, *, failures: float = 0.04, concurrency: bool = True) -> None:
        self.rng = rng
        self.failures = failures
        self.concurrency = concurrency
        self._number = 0

    def fresh(self, letter: str) -> str:
        self._number += 1
        return f"{letter}{self._number}"

    def program(self, tasks: int | None = None) -> Program:
        count = tasks or (self.rng.choice([1, 1, 1, 2, 3]) if self.concurrency else 1)
        return Program(
            self.rng.choice(["global", "private"]), tuple(self.task(f"t{number}") for number in range(count))
        )

    def task(self, name: str) -> TaskCase:
        instances = self.rng.choice([1, 1, 1, 2, 4]) if self.concurrency else 1
        kinds = (*BEFORE, *AFTER, *REPORTERS)
        blocks = {kind: self.body(Scope(), 1) for kind in kinds if self.rng.random() < 0.3}
        scope = Scope()
        body = (*self.declare(scope), *self.body(scope, 4))
        watched = tuple(scope.ints + scope.flags) if instances == 1 else ()
        return TaskCase(name, instances, blocks, body, watched)

    def declare(self, scope: Scope) -> list[Do]:
        """Statements that make some blobs of a scope's own."""
        made = []
        for _ in range(2):
            made.append(Do("set", (self.fresh("x"), self.rng.randrange(-3, 4))))
            scope.ints.append(made[-1].args[0])
            made.append(Do("flag", (self.fresh("f"), self.rng.random() < 0.5)))
            scope.flags.append(made[-1].args[0])
        return made

    def body(self, scope: Scope, depth: int) -> tuple[Do, ...]:
        inner = scope.inner()
        made = self.declare(inner) if not inner.ints else []
        for _ in range(self.rng.randrange(1, 5)):
            made.append(self.nested(inner, depth) if depth and self.rng.random() < 0.45 else self.leaf(inner))
        return tuple(made)

    def leaf(self, scope: Scope) -> Do:
        rng = self.rng
        if rng.random() < self.failures:
            kind = rng.choice(["fail", "fail_call", "fail_if", "missing", "bad_stop"])
            return Do(kind, (self.fresh("F"), rng.choice(scope.flags if kind == "fail_if" else scope.ints)))
        kind = rng.choice(
            ["math", "math", "compare", "logic", "count", "call", "python", "set", "stop_if", "stop"]
        )
        if kind == "stop" and rng.random() < 0.7:
            kind = "count"
        if kind == "count":
            return Do(kind, (rng.choice(COUNTERS),))
        if kind == "stop":
            return Do(kind)
        if kind == "stop_if":
            return Do(kind, (rng.choice(scope.flags + scope.seen_flags),))
        if kind in ("call", "python", "set"):
            return Do(kind, (rng.choice(scope.ints), rng.randrange(-3, 4)))
        values = scope.ints + scope.seen_ints
        if kind == "math":
            name = rng.choice(["Add", "Sub", "Mul"])
            return Do(kind, (name, rng.choice(values), rng.choice(values), rng.choice(scope.ints)))
        if kind == "compare":
            name = rng.choice(["LT", "GE", "EQ"])
            return Do(kind, (name, rng.choice(values), rng.choice(values), rng.choice(scope.flags)))
        flags = scope.flags + scope.seen_flags
        return Do(
            kind, (rng.choice(["And", "Or"]), rng.choice(flags), rng.choice(flags), rng.choice(scope.flags))
        )

    def nested(self, scope: Scope, depth: int) -> Do:
        rng = self.rng
        kinds = ["loop", "loop", "endless", "guard", "if", "if", "ifnet", "while", "step", "beside"]
        # Two levels of threads in threads are enough.
        kind = rng.choice(kinds + (["at_once", "instances"] if self.concurrency and depth > 2 else []))
        below = depth - 1
        flags, values = scope.flags + scope.seen_flags, scope.ints + scope.seen_ints
        if kind == "loop":
            count = rng.choice([0, 1, 2, 3, 3, rng.choice(values)])
            index = rng.choice([None, rng.choice(scope.ints)])
            # A blob may hold any number: such a loop is cut short by a count of its own.
            return Do(kind, (count, self.fresh("n"), index), (self.body(scope, below),))
        if kind in ("endless", "while"):
            halves = (
                (self.body(scope, below), self.body(scope, below))
                if kind == "endless"
                else (self.body(scope, below),)
            )
            return Do(kind, (self.fresh("n"), rng.randrange(1, 4)), halves)
        if kind == "guard":
            return Do(kind, (rng.choice(scope.flags),), (self.body(scope, below),))
        if kind == "if":
            conditions = tuple(rng.choice(flags) for _ in range(rng.randrange(1, 4)))
            branches = len(conditions) + rng.randrange(2)
            return Do(kind, (conditions,), tuple(self.body(scope, below) for _ in range(branches)))
        if kind == "ifnet":
            return Do(
                kind, (rng.choice(flags),), tuple(self.body(scope, below) for _ in range(rng.randrange(1, 3)))
            )
        if kind == "step":
            how = rng.choice(["plain", "iter", "until", "once", "own"])
            flag = rng.choice(scope.flags if how == "until" else flags)
            return Do(kind, (how, self.fresh("S"), flag, rng.randrange(3)), (self.body(scope, below),))
        # What runs beside other work writes blobs of its own only.
        if kind == "beside":
            return Do(kind, (self.fresh("S"),), (self.body(scope.beside(), 0), self.body(scope, below)))
        count = rng.randrange(2, 4)
        parts = 1 if kind == "instances" else count
        return Do(
            kind, (self.fresh("S"), count), tuple(self.body(scope.beside(), below) for _ in range(parts))
        )


@dataclass
class Scope:
    """Names of integers and flags that are set for certain here: those that may be written, and those only read."""

    ints: list[str] = field(default_factory=list)
    flags: list[str] = field(default_factory=list)
    seen_ints: list[str] = field(default_factory=list)
    seen_flags: list[str] = field(default_factory=list)

    def inner(self) -> Scope:
        return Scope(*(list(names) for names in (self.ints, self.flags, self.seen_ints, self.seen_flags)))

    def beside(self) -> Scope:
        return Scope([], [], self.ints + self.seen_ints, self.flags + self.seen_flags)


# -- building them


def build(program: Program) -> TaskGroup:
    """Write a program with `ops`."""
    with TaskGroup(program.kind) as group:
        for case in program.tasks:
            with Task(name=case.name, num_instances=case.instances, outputs=case.watched):
                for kind, body in case.blocks.items():
                    with getattr(ops, kind)(*([NEVER_MS] if kind in REPORTERS else [])):
                        write(body)
                write(case.body)
    return group


def write(body: tuple[Do, ...]) -> None:
    for do in body:
        globals()[f"_write_{do.kind}"](do, *do.args)


def _write_set(do, name, value):
    ops.Const(value, name)


def _write_flag(do, name, value):
    ops.Const(value, name)


def _write_math(do, op, a, b, out):
    getattr(ops, op)([a, b], out)


_write_compare = _write_logic = _write_math


def _write_count(do, name):
    ops.CountUp(name)


def _write_call(do, name, amount):
    ops.net(lambda ws: ws.feed(name, ws.fetch(name) + amount))


def _write_python(do, name, amount):
    ops.Python(lambda inputs, outputs: outputs[0].feed(inputs[0].fetch() + amount))([name], [name])


class Planned(Exception):
    """What a failing statement raises."""


def _fail(*of):
    raise Planned


def _write_fail(do, name, _):
    ops.Python(_fail)(name=name)


def _write_fail_call(do, name, _):
    ops.net(execution_step(name, _fail))


def _write_fail_if(do, name, flag):
    def check(inputs, outputs):
        if inputs[0].fetch():
            raise Planned

    ops.Python(check)([flag], [], name=name)


def _write_missing(do, name, _):
    ops.Copy("nobody makes this", f"copy {name}", name=name)


def _write_bad_stop(do, name, number):
    ops.StopIf(number, [], name=name)


def _write_stop(do):
    ops.stop()


def _write_stop_if(do, flag):
    ops.stop_if(flag)


def _write_loop(do, count, cut, index):
    if isinstance(count, str):
        # At most three rounds: the smaller one of the blob and 3.
        ops.Copy(count, cut)
        with ops.If(ops.GT([cut, ops.Const(3)])):
            ops.Const(3, cut)
        count = cut
    with ops.loop(count) as loop:
        if index is not None:
            ops.Copy(loop.iter(), index)
        write(do.bodies[0])


def _write_endless(do, name, limit):
    ops.Const(0, name)
    with ops.loop():
        write(do.bodies[0])
        ops.Add([name, ops.Const(1)], name)
        ops.stop_if(ops.GE([name, ops.Const(limit)]))
        write(do.bodies[1])


def _write_while(do, name, limit):
    ops.Const(0, name)
    with ops.WhileNet():
        with ops.Condition():
            ops.Add([name, ops.Const(1)], name)
            ops.LT([name, ops.Const(limit)])
        write(do.bodies[0])


def _write_guard(do, flag):
    with ops.stop_guard() as guard:
        write(do.bodies[0])
    ops.Copy(guard.has_stopped(), flag)


def _write_if(do, conditions):
    branch = None
    for number, body in enumerate(do.bodies):
        if branch is None:
            block = ops.If(conditions[0])
        elif number < len(conditions):
            block = branch.Elif(conditions[number])
        else:
            block = branch.Else()
        with block as branch:
            write(body)


def _write_ifnet(do, flag):
    with ops.IfNet(flag):
        write(do.bodies[0])
    if len(do.bodies) > 1:
        with ops.Else():
            write(do.bodies[1])


def _builder(body):
    with NetBuilder() as builder:
        write(body)
    return builder


def _write_step(do, how, name, flag, count):
    flags = {
        "plain": {},
        "iter": {"num_iter": count},
        "until": {"should_stop_blob": flag},
        "once": {"should_stop_blob": flag, "only_once": True},
        "own": {"own_workspace": True},
    }[how]
    parts = [_builder(do.bodies[0])]
    if how == "until":
        # The second part sees to an end.
        parts.append(lambda ws: ws.feed(flag, True))
    ops.net(execution_step(name, parts, **flags))


def _write_beside(do, name):
    report = execution_step("report", [_builder(do.bodies[0])], run_every_ms=NEVER_MS)
    ops.net(execution_step(name, [report, _builder(do.bodies[1])]))


def _write_at_once(do, name, count):
    ops.net(execution_step(name, [_builder(body) for body in do.bodies], concurrent_substeps=True))


def _write_instances(do, name, count):
    own = execution_step("own", [_builder(do.bodies[0])], own_workspace=True)
    ops.net(execution_step(name, [own], num_concurrent_instances=count))


# -- running them


def observe(
    program: Program, group: TaskGroup | None = None, new_session: Callable[[], Session] = LocalSession
) -> Outcome:
    """Run a program in a new session, and return what came out."""
    group = group or build(program)
    outcome = Outcome()
    with new_session() as session:
        node = session.workspace()
        for name in COUNTERS:
            node.counter(name)
        try:
            session.run(group)
        except TaskGroupError as error:
            outcome.failures = [failed_statement(failure.step) for failure in error.failures]
        for case, task in zip(program.tasks, group.tasks(), strict=True):
            for output, name in zip(task.outputs(), case.watched, strict=True):
                if program.kind == "private" and not outcome.failures:
                    outcome.state[name] = output.fetch()[()]
                elif program.kind == "global" and node.has_blob(name):
                    outcome.state[name] = node.fetch(name)[()]
        outcome.state.update((name, node.fetch(name).retrieve()) for name in COUNTERS)
    return outcome


def failed_statement(step: str) -> str:
    """Return the name of the statement that a failure's path ends with."""
    return re.findall(r"\bF\d+\b", step)[-1]


def check(expected: Outcome, found: Outcome) -> None:
    """Compare how a program ended with how it must."""
    if expected.exact:
        assert found.failures == expected.failures
        assert found.state == expected.state
    else:
        assert found.failures
        assert not set(found.failures) - set(expected.failures)
        assert not expected.certain - set(found.failures)
