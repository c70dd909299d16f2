"""Programs: what an op, a round of a loop and a Python step cost, each against the least that it could.

The limit of a counter op and of an empty round is an atomic addition in a loop of C; that of a Python step is a plain
call of it in a Python loop; that of an addition of tensors, the same function of NumPy into memory that is there, from
a Python loop. Each measurement does 100,000 of them, of tensors 10,000. Read the ratio inside a group.
"""

from __future__ import annotations

import ctypes
import subprocess
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from jobcore import Workspace
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.program import Program, native_kernel
from jobcore.graph import OpContext, schema
from jobcore.graph.registry import make_op
from turns import take_turns

TIMES = 100_000
TENSORS = 10_000
OPS = 10


class Context:
    """What a program wants to know of its run, which is neither cancelled nor fails."""

    def __init__(self) -> None:
        self.token = self
        self.flag = CancelFlag()


@pytest.fixture(scope="module")
def atomic_adds(tmp_path_factory: pytest.TempPathFactory) -> Callable[[int], int]:
    library = tmp_path_factory.mktemp("limits") / "limits.so"
    source = Path(__file__).with_name("limits.c")
    subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    function = ctypes.CDLL(str(library)).atomic_adds
    function.argtypes, function.restype = [ctypes.c_int64], ctypes.c_int64
    return function


def row(code: str, target: int = 0, constant: object = None, payload: object = None) -> tuple[Any, ...]:
    return (code, target, 0, (), (), None, constant, payload)


def op(op_type: str, inputs: list[str], outputs: list[str], names: tuple[str, ...]) -> tuple[Any, ...]:
    made = make_op(op_type, inputs, outputs, {}, "", "")
    slots = [tuple(names.index(name) for name in group) for group in (inputs, outputs)]
    return ("op", 0, 0, *slots, native_kernel(op_type), None, ("", schema(op_type).kernel, made, OpContext))


def loop(
    names: tuple[str, ...], body: list[tuple[Any, ...]], times: int = TIMES, **arrays: NDArray[Any]
) -> Callable[[], object]:
    """Return a call that runs `body` so often, on a workspace with a counter, two numbers and `arrays`."""
    head = [row("set", constant=times), row("loop", len(body) + 3)]
    program = Program(names, 1, [*head, *body, row("jump", 1), row("end")])
    ws = Workspace()
    ws.counter("counter")
    ws.feed("x", 0)
    ws.feed("y", 1)
    for name, array in arrays.items():
        ws.feed(name, array)
    return lambda: program.run(ws, Context())


def nothing(ws: Workspace) -> None:
    pass


@pytest.mark.benchmark(group=f"program: {TIMES:,} x counter op in a net")
@pytest.mark.parametrize("who", ["jobcore", "limit: atomic add in C"])
def bench_counter_op(benchmark: Any, who: str, atomic_adds: Callable[[int], int]) -> None:
    if who == "jobcore":
        names = ("counter", "x")
        ours = loop(names, [op("CountUp", ["counter"], ["x"], names)] * OPS, TIMES // OPS)
        take_turns(benchmark, ours, partial(atomic_adds, TIMES))
    else:
        benchmark(atomic_adds, TIMES)


@pytest.mark.benchmark(group=f"program: {TIMES:,} x round of an empty loop")
@pytest.mark.parametrize("who", ["jobcore", "limit: atomic add in C"])
def bench_empty_round(benchmark: Any, who: str, atomic_adds: Callable[[int], int]) -> None:
    if who == "jobcore":
        take_turns(benchmark, loop((), []), partial(atomic_adds, TIMES))
    else:
        benchmark(atomic_adds, TIMES)


@pytest.mark.benchmark(group=f"program: {TIMES:,} x addition of two numbers")
@pytest.mark.parametrize("who", ["jobcore", "limit: atomic add in C"])
def bench_addition(benchmark: Any, who: str, atomic_adds: Callable[[int], int]) -> None:
    if who == "jobcore":
        names = ("x", "y")
        benchmark(loop(names, [op("Add", ["x", "y"], ["x"], names)] * OPS, TIMES // OPS))
    else:
        benchmark(atomic_adds, TIMES)


@pytest.mark.benchmark(group=f"program: {TENSORS:,} x addition of two tensors")
@pytest.mark.parametrize("who", ["jobcore", "limit: NumPy"])
@pytest.mark.parametrize("items", [1, 128, 2048])
def bench_tensor_addition(benchmark: Any, who: str, items: int) -> None:
    a, b = np.zeros(items), np.ones(items)
    benchmark.group += f" of {8 * items:,} bytes"

    def plain() -> None:
        for _ in range(TENSORS):
            np.add(a, b, out=a)

    if who == "jobcore":
        names = ("a", "b")
        ours = loop(names, [op("Add", ["a", "b"], ["a"], names)] * OPS, TENSORS // OPS, a=a, b=b)
        take_turns(benchmark, ours, plain)
    else:
        benchmark(plain)


@pytest.mark.benchmark(group=f"program: {TIMES:,} x empty Python step")
@pytest.mark.parametrize("who", ["jobcore", "limit: plain call"])
def bench_python_step(benchmark: Any, who: str) -> None:
    ws = Workspace()

    def plain() -> None:
        for _ in range(TIMES):
            nothing(ws)

    if who == "jobcore":
        take_turns(benchmark, loop((), [("call", 0, 0, (), (), None, None, ("", nothing))]), plain)
    else:
        benchmark(plain)
