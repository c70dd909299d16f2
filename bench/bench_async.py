"""Asynchronous saves: how long the caller stands still, when all is durable, and what training loses meanwhile."""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from time import perf_counter, process_time
from typing import Any

import pytest

import jobcore
import limits
from bench_save import Saves
from child import run
from rounds import alternate, keep, ratios
from states import LARGE, ROUNDS, GiB, State, nbytes, state


class AsyncSaves(Saves):
    """Saves in the background: the call is what is measured, the end is waited for after it."""

    def __init__(self, folder: Path, name: str, arrays: dict[str, Any] | None = None) -> None:
        super().__init__(folder, name)
        self.arrays = arrays or self.arrays
        self.background_s: list[float] = []
        self.cpu_s: list[float] = []

    def __call__(self) -> None:
        self.pending = jobcore.save_async(self.path, self.arrays)

    def after(self) -> None:
        begin, cpu = perf_counter(), process_time()
        self.pending.wait()
        self.background_s.append(perf_counter() - begin)
        self.cpu_s.append(process_time() - cpu)
        super().after()


@pytest.mark.parametrize("name", LARGE)
def bench_stall(benchmark: Any, folder: Path, name: str) -> None:
    saves = AsyncSaves(folder, name)
    size = nbytes(saves.arrays)
    copy_s: list[float] = []
    direct_s: list[float] = []
    limits.best_way(folder)

    def other() -> None:
        copy_s.append(limits.copy(size))
        direct_s.append(limits.direct_write(folder, size))

    benchmark.group = f"stall, {name}"
    ours_s = alternate(benchmark, saves, other, before=saves.before, after=saves.after)
    rounds = len(ours_s)
    if rounds:  # the first save warmed the arena
        keep(benchmark, "stall", name, ratios(ours_s, copy_s), limit_s=copy_s)
        keep(benchmark, "background", name, ratios(saves.background_s[-rounds:], direct_s), limit_s=direct_s)
        keep(benchmark, "background-cpu", name, [cpu / (size / GiB) for cpu in saves.cpu_s[-rounds:]])


def read_only(arrays: State) -> dict[str, Any]:
    copies = {key: array.copy() for key, array in arrays.items()}
    for array in copies.values():
        array.flags.writeable = False
    return copies


def jax_arrays(arrays: State) -> dict[str, Any]:
    import jax

    return {key: jax.device_put(array) for key, array in arrays.items()}


SOURCES: dict[str, Callable[[State], dict[str, Any]]] = {"read-only": read_only}
if importlib.util.find_spec("jax"):
    SOURCES["JAX"] = jax_arrays


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.parametrize("name", ["S1", "S2"])
def bench_stall_immutable(benchmark: Any, folder: Path, name: str, source: str) -> None:
    saves = AsyncSaves(folder, name, SOURCES[source](state(name)))
    benchmark.group = f"stall-immutable, {name}"
    copy_s: list[float] = []
    ours_s = alternate(
        benchmark,
        saves,
        lambda: copy_s.append(limits.copy(nbytes(state(name)))),
        before=saves.before,
        after=saves.after,
    )
    keep(
        benchmark, "stall-immutable", f"{name}, {source}", [second * 1e3 for second in ours_s], limit_s=copy_s
    )


@pytest.mark.parametrize("name", LARGE)
def bench_training(benchmark: Any, folder: Path, name: str) -> None:
    benchmark.group = f"training, {name}"
    found = benchmark.pedantic(run, args=("training", name, folder, ROUNDS if benchmark.enabled else 1))
    if benchmark.enabled:
        more = {key: found[key] for key in ("step_ms", "quiet_longest")}
        keep(benchmark, "training-lost", name, found["lost_s_per_gib"], **more)
        after = found["background_s_per_gib"]
        keep(benchmark, "training-lost", f"{name}, without the stall", after, bounded=False, **more)
        keep(benchmark, "training-longest", name, found["longest"], **more)
