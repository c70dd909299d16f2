"""The meaning of the programs of `program_cases`, in plain Python."""

from __future__ import annotations

import operator
from contextlib import suppress

from program_cases import COUNTERS, Do, Outcome, Program, TaskCase

OPERATORS = {
    "Add": operator.add,
    "Sub": operator.sub,
    "Mul": operator.mul,
    "LT": operator.lt,
    "GE": operator.ge,
    "EQ": operator.eq,
    "And": operator.and_,
    "Or": operator.or_,
}


class Stop(Exception):
    """A stop on its way outwards."""


class Failed(Exception):
    """A failure on its way outwards; it has been written down."""


def interpret(program: Program) -> Outcome:
    """Tell how a program must end."""
    oracle = _Oracle(beside=len(program.tasks) > 1)
    node: dict[str, object] = {}
    group = node if program.kind == "global" else {}
    failed = False
    watched: dict[str, object] = {}
    try:
        _every(oracle, [c.blocks["local_init"] for c in program.tasks if "local_init" in c.blocks], [group])
    except Failed:
        failed = True
    begun = not failed
    for case in program.tasks if begun else ():
        own = [group] if program.kind == "global" else [{}, group]
        try:
            oracle.task(case, own)
        except Failed:
            failed = True
        watched.update((name, _look(own, name)) for name in case.watched if _visible(own, name) is not None)
    # Last reports are made at once, before the first local exit.
    reporters = [c.blocks["local_reporter"] for c in program.tasks if begun and "local_reporter" in c.blocks]
    exits = [c.blocks["local_exit"] for c in program.tasks if "local_exit" in c.blocks]
    several = len(reporters) > 1
    oracle.beside += several
    failed = oracle.shielded(reporters, [group]) or failed
    oracle.beside -= several
    failed = oracle.shielded(exits, [group]) or failed
    outcome = oracle.outcome
    # Of a run that failed only what is in the node's workspace can be seen.
    outcome.state = {} if failed and program.kind == "private" else watched
    outcome.state.update(oracle.counters)
    return outcome


def _every(oracle: _Oracle, blocks: list[tuple[Do, ...]], spaces: list[dict[str, object]]) -> None:
    for block in blocks:
        oracle.block(block, spaces)


def _visible(spaces: list[dict[str, object]], name: str) -> dict[str, object] | None:
    return next((space for space in spaces if name in space), None)


def _look(spaces: list[dict[str, object]], name: str) -> object:
    found = _visible(spaces, name)
    assert found is not None, f"the program reads {name}, which is not set"
    return found[name]


def _put(spaces: list[dict[str, object]], name: str, value: object) -> None:
    found = _visible(spaces, name)
    if isinstance(value, int) and not isinstance(value, bool):
        value = (value + 2**63) % 2**64 - 2**63
    (spaces[0] if found is None else found)[name] = value


class _Oracle:
    """Runs bodies. `spaces` are workspaces, the innermost first."""

    def __init__(self, beside: bool) -> None:
        self.outcome = Outcome()
        self.counters = dict.fromkeys(COUNTERS, 0)
        # How many things that run at once are around; a failure there leaves the others somewhere.
        self.beside = int(beside)

    # -- tasks

    def task(self, case: TaskCase, spaces: list[dict[str, object]]) -> None:
        blocks = case.blocks
        many = case.instances > 1
        self.framed(
            blocks,
            "task_init",
            "task_exit",
            spaces,
            lambda: self.with_report(
                blocks.get("task_reporter") if many else None, spaces, lambda: self.instances(case, spaces)
            ),
        )

    def instances(self, case: TaskCase, spaces: list[dict[str, object]]) -> None:
        many = case.instances > 1
        report = None if many else case.blocks.get("task_reporter")

        def one() -> None:
            own = [{}, *spaces] if many else spaces
            self.framed(
                case.blocks,
                "task_instance_init",
                "task_instance_exit",
                own,
                lambda: self.with_report(report, own, lambda: self.block(case.body, own)),
            )

        self.at_once([one] * case.instances)

    def framed(self, blocks, before, after, spaces, work) -> None:
        well = False
        try:
            if before in blocks:
                self.block(blocks[before], spaces)
            work()
            well = True
        finally:
            if after in blocks and self.shielded([blocks[after]], spaces) and well:
                raise Failed

    def with_report(self, report, spaces, work) -> None:
        ending: Exception | None = None
        try:
            work()
        except (Stop, Failed) as error:
            ending = error
        failed = report is not None and self.shielded([report], spaces)
        if failed:
            raise Failed
        if ending is not None:
            raise ending

    def shielded(self, blocks, spaces) -> bool:
        """Run blocks that run in any case; tell whether one failed."""
        failed = False
        for block in blocks:
            if block and block[0].kind in ("fail", "fail_call") and not self.beside:
                self.outcome.certain.add(block[0].args[0])
            try:
                self.block(block, spaces)
            except Failed:
                failed = True
        return failed

    def block(self, body, spaces) -> None:
        """Run a body that catches stops."""
        with suppress(Stop):
            self.body(body, spaces)

    def at_once(self, works) -> None:
        """Run works in any order; each catches stops."""
        failed = 0
        several = len(works) > 1
        self.beside += several
        for work in works:
            try:
                work()
            except Failed:
                failed += 1
            except Stop:
                assert several
        self.beside -= several
        if failed:
            raise Failed

    # -- statements

    def body(self, body, spaces) -> None:
        for do in body:
            getattr(self, f"run_{do.kind}")(do, spaces, *do.args)

    def fails(self, name: str) -> None:
        self.outcome.failures.append(name)
        if self.beside:
            self.outcome.exact = False
        raise Failed

    def run_set(self, do, spaces, name, value):
        _put(spaces, name, value)

    run_flag = run_set

    def run_math(self, do, spaces, op, a, b, out):
        _put(spaces, out, OPERATORS[op](_look(spaces, a), _look(spaces, b)))

    run_compare = run_logic = run_math

    def run_count(self, do, spaces, name):
        self.counters[name] += 1

    def run_call(self, do, spaces, name, amount):
        _put(spaces, name, _look(spaces, name) + amount)

    run_python = run_call

    def run_fail(self, do, spaces, name, _):
        self.fails(name)

    run_fail_call = run_missing = run_bad_stop = run_fail

    def run_fail_if(self, do, spaces, name, flag):
        if _look(spaces, flag):
            self.fails(name)

    def run_stop(self, do, spaces):
        raise Stop

    def run_stop_if(self, do, spaces, flag):
        if _look(spaces, flag):
            raise Stop

    def run_loop(self, do, spaces, count, cut, index):
        if isinstance(count, str):
            count = min(_look(spaces, count), 3)
            _put(spaces, cut, count)
        try:
            for number in range(count):
                if index is not None:
                    _put(spaces, index, number)
                self.body(do.bodies[0], spaces)
        except Stop:
            pass

    def run_endless(self, do, spaces, name, limit):
        _put(spaces, name, 0)
        try:
            while True:
                self.body(do.bodies[0], spaces)
                _put(spaces, name, _look(spaces, name) + 1)
                if _look(spaces, name) >= limit:
                    break
                self.body(do.bodies[1], spaces)
        except Stop:
            pass

    def run_while(self, do, spaces, name, limit):
        _put(spaces, name, 0)
        own = [{}, *spaces]
        try:
            while True:
                _put(own, name, _look(own, name) + 1)
                if not _look(own, name) < limit:
                    break
                self.body(do.bodies[0], own)
        except Stop:
            pass

    def run_guard(self, do, spaces, flag):
        stopped = False
        try:
            self.body(do.bodies[0], spaces)
        except Stop:
            stopped = True
        _put(spaces, flag, stopped)

    def run_if(self, do, spaces, conditions):
        # Conditions are looked at one after another, and a branch cannot change which one runs.
        for number, body in enumerate(do.bodies):
            if number >= len(conditions) or _look(spaces, conditions[number]):
                self.body(body, spaces)
                return

    def run_ifnet(self, do, spaces, flag):
        taken = bool(_look(spaces, flag))
        if taken or len(do.bodies) > 1:
            self.body(do.bodies[0 if taken else 1], [{}, *spaces])

    def run_step(self, do, spaces, how, name, flag, count):
        body = do.bodies[0]
        if how == "plain":
            self.body(body, spaces)
        elif how == "own":
            self.body(body, [{}, *spaces])
        else:
            try:
                if how == "iter":
                    for _ in range(count):
                        self.body(body, spaces)
                else:
                    # Looked at after each part: the body, and what sets the flag.
                    while True:
                        self.body(body, spaces)
                        if how == "once" or _look(spaces, flag):
                            break
                        _put(spaces, flag, True)
                        break
            except Stop:
                pass

    def run_beside(self, do, spaces, name):
        self.with_report(do.bodies[0], spaces, lambda: self.body(do.bodies[1], spaces))

    def run_at_once(self, do, spaces, name, count):
        self.at_once([lambda b=body: self.block(b, spaces) for body in do.bodies])

    def run_instances(self, do, spaces, name, count):
        self.at_once([lambda: self.block(do.bodies[0], [{}, *spaces])] * count)
