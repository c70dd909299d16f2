"""Programs at random end as plain Python says they must: their blobs, their counters, and every failure."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from program_cases import Maker, build, check, observe
from program_oracle import interpret

pytestmark = pytest.mark.usefixtures("quiet_threads")

ROUNDS = 50


def one(rng, **options):
    program = Maker(rng, **options).program()
    check(interpret(program), observe(program))
    return program


# Making a failing program smaller would take it minutes, and the seeds below find small ones.
@settings(max_examples=60, phases=[Phase.reuse, Phase.generate])
@given(rng=st.randoms(use_true_random=False))
def test_programs_with_threads(rng):
    one(rng)


@pytest.mark.parametrize("failures", [0.0, 0.02, 0.1])
@pytest.mark.parametrize("concurrency", [False, True])
def test_many_programs(failures, concurrency):
    for seed in range(ROUNDS):
        one(Random(seed), failures=failures, concurrency=concurrency)


@pytest.mark.exhaustive
@pytest.mark.parametrize("concurrency", [False, True])
def test_thousands_of_programs(concurrency):
    for seed in range(ROUNDS, ROUNDS + 4000):
        one(Random(seed), failures=0.03, concurrency=concurrency)


def test_a_program_runs_the_same_again():
    for seed in range(20):
        program = Maker(Random(seed), failures=0).program()
        group = build(program)
        assert observe(program, group) == observe(program, group)


def test_the_programs_have_all_that_there_is_to_compare():
    """Every kind of statement is among them, and all kinds of ends."""
    kinds, ends = set(), set()

    def walk(body):
        for do in body:
            kinds.add(do.kind)
            for inner in do.bodies:
                walk(inner)

    for seed in range(ROUNDS):
        program = Maker(Random(seed), failures=0.02).program()
        for case in program.tasks:
            walk(case.body)
            for body in case.blocks.values():
                walk(body)
        expected = interpret(program)
        ends.add((bool(expected.failures), expected.exact))
    assert kinds == {
        "set", "flag", "math", "compare", "logic", "count", "call", "python", "stop", "stop_if",
        "fail", "fail_call", "fail_if", "missing", "bad_stop",
        "loop", "endless", "while", "guard", "if", "ifnet", "step", "beside", "at_once", "instances",
    }  # fmt: skip
    assert ends == {(False, True), (True, True), (True, False)}
