"""Saves, stalls and loads beside what others need for the same state, at equal durability.

In each round everybody has a turn. A slow peer gets no more turns once it has used its time, ``JOBCORE_BENCH_BUDGET``;
peers that take milliseconds for a blob get a tenth of 20,000 blobs, and their seconds are multiplied by ten.
"""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from time import perf_counter
from typing import Any

import pytest

import jobcore
from bench_async import AsyncSaves, jax_arrays
from bench_save import Saves, remove
from peers import PEERS, Peer, force
from rounds import alternate, keep, ratios
from states import BUDGET_S, STATES, State, empty, same, state

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # peers warn of their own affairs
    pytest.mark.timeout(1800),
]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.fixture
def place(folder: Path) -> Iterator[Path]:
    """A folder for one test: what a failed one leaves does not fail the next."""
    found = folder / "place"
    found.mkdir()
    yield found
    shutil.rmtree(found)


class Turns:
    """The turns of one peer on one state; the seconds of each are kept."""

    def __init__(self, folder: Path, name: str, peer: Peer) -> None:
        self.peer, self.seconds, self.spent_s = peer, list[float](), 0.0
        self._folder, self._numbers = folder, count()
        self.arrays, self.times = part(state(name), peer)
        self.values = peer.prepare(self.arrays)
        self._warm()

    def _warm(self) -> None:
        # The first call imports much, and starts threads.
        small = {"a": next(iter(self.arrays.values()))[:1].copy()}
        path, values = self.path(), self.peer.prepare(small)
        self.peer.save(path, values)
        self.peer.load(path, values)
        remove(path)
        if self.peer.background:
            self.peer.start(path, values)()
            remove(path)

    def path(self) -> Path:
        return self._folder / f"peer{next(self._numbers)}"

    def measure(self, act: Callable[[], object]) -> None:
        begin = perf_counter()
        act()
        self.seconds.append((perf_counter() - begin) * self.times)
        self.spent_s += self.seconds[-1] / self.times

    @property
    def over(self) -> bool:
        return self.spent_s > BUDGET_S

    def save(self) -> None:
        if self.over:
            return
        path = self.path()

        def act() -> None:
            self.peer.save(path, self.values)
            force(path)

        self.measure(act)
        remove(path)

    def stall(self) -> None:
        if self.over:
            return
        path, waits = self.path(), list[Callable[[], object]]()
        self.measure(lambda: waits.append(self.peer.start(path, self.values)))
        begin = perf_counter()
        waits[0]()
        force(path)
        self.spent_s += perf_counter() - begin
        remove(path)


def part(arrays: State, peer: Peer) -> tuple[State, int]:
    """What a peer gets of a state, and by what to multiply its time."""
    if not peer.slow or len(arrays) < 5000:
        return arrays, 1
    names = list(arrays)[: len(arrays) // 10]
    return {name: arrays[name] for name in names}, 10


def compare(benchmark: Any, row: str, name: str, ours_s: list[float], turns: dict[str, Turns]) -> None:
    for peer, turn in turns.items():
        keep(benchmark, row, f"{name}, {peer}", ratios(ours_s, turn.seconds), limit_s=turn.seconds)
    benchmark.extra_info["ours_s"] = ours_s


@pytest.mark.parametrize("name", STATES)
def bench_save(benchmark: Any, place: Path, name: str) -> None:
    benchmark.group = f"peer-save, {name}"
    saves = Saves(place, name)
    turns = {key: Turns(place, name, peer()) for key, peer in PEERS.items()}

    def others() -> None:
        for turn in turns.values():
            turn.save()

    ours_s = alternate(benchmark, saves, others, before=saves.before, after=saves.after)
    compare(benchmark, "peer-save", name, ours_s, turns)


@pytest.mark.parametrize("source", sorted({peer.source for peer in PEERS.values() if peer.background}))
@pytest.mark.parametrize("name", STATES)
def bench_stall(benchmark: Any, place: Path, name: str, source: str) -> None:
    benchmark.group = f"peer-stall, {name}"
    # The same arrays for both sides.
    saves = AsyncSaves(place, name, jax_arrays(state(name)) if source == "JAX" else None)
    turns = {
        key: Turns(place, name, peer())
        for key, peer in PEERS.items()
        if peer.background and peer.source == source
    }

    def others() -> None:
        for turn in turns.values():
            turn.stall()

    ours_s = alternate(benchmark, saves, others, before=saves.before, after=saves.after)
    compare(benchmark, "peer-stall", name, ours_s, turns)


@pytest.mark.parametrize("key", PEERS)
@pytest.mark.parametrize("name", STATES)
def bench_load(benchmark: Any, place: Path, name: str, key: str) -> None:
    benchmark.group = f"peer-load, {name}"
    peer = PEERS[key]()
    turn = Turns(place, name, peer)
    into, ours, theirs = empty(name), place / "ours.zarr.zip", turn.path()
    target = peer.prepare(part(into, peer)[0])
    peer.save(theirs, turn.values)
    jobcore.save(ours, state(name), durable=False)

    def other() -> None:
        if not turn.over:
            turn.measure(lambda: peer.load(theirs, target))

    ours_s = alternate(benchmark, lambda: jobcore.load(ours, into=into), other)
    compare(benchmark, "peer-load", name, ours_s, {key: turn})
    assert same(into, state(name))
