"""How long a save keeps another Python thread from running."""

from __future__ import annotations

import threading
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

import pytest

from bench_save import Saves
from rounds import alternate, keep
from states import STATES

NAP_S = 2e-4


class Sleeper:
    """A thread that sleeps for short times, and notes by how much it woke too late at worst."""

    def __enter__(self) -> Sleeper:
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.worst_s = 0.0
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._end.is_set():
            begin = perf_counter()
            sleep(NAP_S)
            self.worst_s = max(self.worst_s, perf_counter() - begin - NAP_S)


@pytest.mark.parametrize("name", STATES)
def bench_held_up(benchmark: Any, folder: Path, name: str) -> None:
    benchmark.group = f"threads, {name}"
    saves = Saves(folder, name)
    held_ms: list[float] = []
    idle_s: list[float] = []

    def save() -> None:
        with Sleeper() as sleeper:
            saves()
        held_ms.append(sleeper.worst_s * 1e3)

    def idle() -> None:
        with Sleeper() as sleeper:
            sleep(0.5)
        idle_s.append(sleeper.worst_s)

    rounds = len(alternate(benchmark, save, idle, before=saves.before, after=saves.after))
    keep(benchmark, "threads", name, held_ms[-rounds:] if rounds else [], limit_s=idle_s)
