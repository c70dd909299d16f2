"""Measurements that need a process of their own: ``python child.py WHAT STATE FOLDER`` prints them as JSON.

``training``: BLAS has one thread, set before NumPy is imported. ``memory``, ``growth``: a heap that nothing else used.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from itertools import count
from pathlib import Path
from time import perf_counter, sleep
from typing import Any

from states import ROUNDS, SCALE, GiB, MiB, empty, nbytes, state


def run(what: str, name: str, folder: Path, rounds: int = ROUNDS, scale: float = SCALE) -> Any:
    """Measure in a new process."""
    env = os.environ | {f"{library}_NUM_THREADS": "1" for library in ("OPENBLAS", "OMP", "MKL")}
    env |= {"JOBCORE_BENCH_ROUNDS": str(rounds), "JOBCORE_BENCH_SCALE": str(scale)}
    paths = [str(Path(__file__).parent), *sys.path]
    env["PYTHONPATH"] = os.pathsep.join(path for path in paths if path)
    command = [sys.executable, __file__, what, name, str(folder)]
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stderr}")
    return json.loads(done.stdout)


def training(name: str, folder: Path) -> dict[str, Any]:
    """Time lost by a loop of matrix products of 4 ms while a save runs; the rounds before it are the usual ones."""
    import numpy as np

    import jobcore

    arrays = state(name)
    side = 64

    def step() -> float:
        begin = perf_counter()
        np.matmul(left, right, out=out)
        return perf_counter() - begin

    while True:
        left, right = (np.full((side, side), 0.5, np.float32) for _ in range(2))
        out = np.empty_like(left)
        if min(step() for _ in range(9)) >= 4e-3:
            break
        side += 32
    found: dict[str, Any] = {
        key: [] for key in ("lost_s_per_gib", "background_s_per_gib", "longest", "quiet_longest", "step_ms")
    }
    for number in range(-1, ROUNDS):  # the first save warms the arena
        begin = perf_counter()
        quiet = [step() for _ in range(150 if ROUNDS > 1 else 10)]
        usual = (perf_counter() - begin) / len(quiet)
        path = folder / f"training{number}.zarr.zip"
        begin = perf_counter()
        pending = jobcore.save_async(path, arrays)
        stalled = perf_counter() - begin
        steps: list[float] = []
        while not pending.done:
            steps.append(step())
        spent = perf_counter() - begin
        pending.wait()
        path.unlink()
        if number < 0:
            continue
        gib = nbytes(arrays) / GiB
        lost = spent - len(steps) * usual
        found["lost_s_per_gib"].append(lost / gib)
        found["background_s_per_gib"].append((lost - stalled) / gib)
        found["longest"].append(max(steps, default=0.0) / statistics.median(quiet))
        found["quiet_longest"].append(max(quiet) / statistics.median(quiet))
        found["step_ms"].append(statistics.median(quiet) * 1e3)
    return found


def _status(key: str) -> float:
    """A size from the kernel's account of this process, in MiB."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(key):
            return int(line.split()[1]) / 1024
    raise ValueError(f"expected {key} in /proc/self/status")


def memory(name: str, folder: Path) -> dict[str, Any]:
    """Most memory in use during an operation beyond that before it, in MiB; each in its first run here."""
    import jobcore

    arrays, into, path = state(name), empty(name), folder / "memory.zarr.zip"

    def most(call: Any) -> float:
        before = _status("VmRSS")
        Path("/proc/self/clear_refs").write_text("5")  # the high-water mark starts anew
        call()
        return _status("VmHWM") - before

    found = {
        "save": most(lambda: jobcore.save(path, arrays)),
        "load": most(lambda: jobcore.load(path, into=into)),
    }
    path.unlink()
    found["async"] = most(lambda: jobcore.save_async(path, arrays).wait()) - nbytes(arrays) / MiB
    path.unlink()
    return found


def growth(name: str, folder: Path) -> dict[str, Any]:
    """Memory after a save in each round beyond that after 5, in MiB."""
    import jobcore

    arrays, numbers = state(name), count()

    def synchronous() -> None:
        path = folder / f"growth{next(numbers)}.zarr.zip"
        jobcore.save(path, arrays, durable=False)
        path.unlink()

    def asynchronous() -> None:
        path = folder / f"growth{next(numbers)}.zarr.zip"
        jobcore.save_async(path, arrays, durable=False).wait()
        path.unlink()

    found = {}
    for kind, save in {"save": synchronous, "async": asynchronous}.items():
        for number in range(ROUNDS):
            save()
            if number == 4:
                sleep(0.1)
                early = _status("VmRSS")
        sleep(0.1)
        found[kind] = _status("VmRSS") - early
    return found


if __name__ == "__main__":
    what, name, folder = sys.argv[1:]
    print(json.dumps({"training": training, "memory": memory, "growth": growth}[what](name, Path(folder))))
