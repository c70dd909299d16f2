"""Workspace: what a value costs on its way in and out.

Small values are timed 1,000 at a time, so that the harness itself does not show. Read the ratio inside a group:
the peer of a scalar is a dictionary that keeps a 0-d array, and copies nothing; that of an array is NumPy's own
copy.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from itertools import repeat
from typing import Any

import numpy as np
import pytest

from jobcore import Workspace
from turns import take_turns

TIMES = 1_000
NUMBER = np.array(1.5)
KIB = np.zeros(128)
MIB64 = np.zeros(8 << 20)

Call = Callable[[], object]


def many(call: Call) -> None:
    for _ in repeat(None, TIMES):
        call()


def fed(value: Any, depth: int = 0) -> Workspace:
    """Return a workspace with a value in it, seen through so many children."""
    ws = Workspace()
    ws["x"] = value
    for _ in range(depth):
        ws = Workspace(ws)
    return ws


def dictionary() -> Call:
    store: dict[str, Any] = {}

    def call() -> object:
        store["x"] = NUMBER
        return store["x"]

    return call


def dictionary_of_copies() -> Call:
    store: dict[str, Any] = {}

    def call() -> object:
        store["x"] = np.array(1.5)
        return store["x"].copy()

    return call


def scalar(value: Any, depth: int = 0) -> Call:
    ws = fed(1.5, depth)

    def call() -> object:
        ws.feed("x", value)
        return ws.fetch("x")

    return call


def item() -> Call:
    ws = fed(1.5)

    def call() -> object:
        ws["x"] = 1.5
        return ws["x"]

    return call


def number_of_a_blob() -> Call:
    blob = fed(1.5).blob("x")

    def call() -> object:
        blob.feed(1.5)
        return blob.fetch()

    return call


SCALARS: dict[str, Callable[[], Call]] = {
    "jobcore: feed and fetch a float": lambda: scalar(1.5),
    "jobcore: feed and fetch a 0-d array": lambda: scalar(NUMBER),
    "jobcore: ws[name] = float, ws[name]": item,
    "jobcore: of a blob that is held": number_of_a_blob,
    "jobcore: through three parents": lambda: scalar(1.5, 3),
    "peer: dict store and look-up of a 0-d array": dictionary,
    "peer: the same, with the copies": dictionary_of_copies,
}


HELD_AGAINST_A_DICT = ("jobcore: feed and fetch a float", "jobcore: feed and fetch a 0-d array")


@pytest.mark.benchmark(group="workspace: 1,000 x scalar in and out")
@pytest.mark.parametrize("who", SCALARS)
def bench_scalar(benchmark: Any, who: str) -> None:
    if who in HELD_AGAINST_A_DICT:
        take_turns(benchmark, partial(many, SCALARS[who]()), partial(many, dictionary()))
    else:
        benchmark(many, SCALARS[who]())


def kibibyte() -> Call:
    ws = fed(KIB)

    def call() -> object:
        ws.feed("x", KIB)
        return ws.fetch("x")

    return call


ARRAYS: dict[str, Callable[[], Call]] = {
    "jobcore: feed and fetch": kibibyte,
    "jobcore: feed": lambda: partial(fed(KIB).feed, "x", KIB),
    "jobcore: fetch": lambda: partial(fed(KIB).fetch, "x"),
    "jobcore: view": lambda: partial(fed(KIB).view, "x"),
    "peer: ndarray.copy": lambda: KIB.copy,
}


@pytest.mark.benchmark(group="workspace: 1,000 x 1 KiB")
@pytest.mark.parametrize("who", ARRAYS)
def bench_kibibyte(benchmark: Any, who: str) -> None:
    if who == "jobcore: feed and fetch":
        take_turns(benchmark, partial(many, ARRAYS[who]()), partial(many, KIB.copy))
    else:
        benchmark(many, ARRAYS[who]())


def bound() -> Workspace:
    ws = Workspace()
    ws.bind("x", np.zeros_like(MIB64))
    return ws


BIG: dict[str, Callable[[], Call]] = {
    "jobcore: feed": lambda: partial(fed(MIB64).feed, "x", MIB64),
    "jobcore: feed a bound blob": lambda: partial(bound().feed, "x", MIB64),
    "limit: numpy.copyto": lambda: partial(np.copyto, np.ones_like(MIB64), MIB64),
    "jobcore: fetch": lambda: partial(fed(MIB64).fetch, "x"),
    "peer: ndarray.copy": lambda: MIB64.copy,
}


@pytest.mark.benchmark(group="workspace: 64 MiB")
@pytest.mark.parametrize("who", BIG)
def bench_64_mebibytes(benchmark: Any, who: str) -> None:
    benchmark(BIG[who]())


@pytest.mark.benchmark(group="workspace: 1,000 new names")
@pytest.mark.parametrize("who", ["jobcore: feed", "peer: dict of copies"])
def bench_new_names(benchmark: Any, who: str) -> None:
    names = [f"n{n}" for n in range(TIMES)]

    def fill() -> object:
        if who.startswith("jobcore"):
            ws = Workspace()
            for name in names:
                ws.feed(name, NUMBER)
            return ws
        return {name: NUMBER.copy() for name in names}

    benchmark(fill)
