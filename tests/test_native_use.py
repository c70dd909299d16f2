"""Other packages may cimport the core: the shipped declarations compile, and hold their promises off the GIL.

Threads under the GIL can hardly race inside one method, so this is also where lost updates would show.
"""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

import jobcore
from jobcore import Counter, Timer

BUILD = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup

source, include = sys.argv[1:3]
setup(
    script_args=["-q", "build_ext", "--inplace"],
    name="race",
    ext_modules=cythonize(
        [Extension("race", [source])], include_path=[include], language_level=3, build_dir="c", quiet=True
    ),
)
"""


@pytest.fixture(scope="module")
def race(tmp_path_factory: pytest.TempPathFactory) -> ModuleType:
    source = Path(__file__).parent / "native" / "race.pyx"
    folder = tmp_path_factory.mktemp("native")
    (folder / "race.pyx").write_text(source.read_text())
    (folder / "build.py").write_text(BUILD)
    include = str(Path(jobcore.__file__).parents[1])
    done = subprocess.run(
        [sys.executable, "build.py", "race.pyx", include], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("race.*.so")
    spec = importlib.util.spec_from_file_location("race", built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_addition_is_lost(race: ModuleType, together: Callable[..., list[object]]) -> None:
    counter = Counter(7)
    together(4, lambda number: race.add(counter, [3, -1, 5, -7][number], 200_000))
    assert counter.retrieve() == 7


def test_every_exchanged_value_comes_out_once(race: ModuleType, together: Callable[..., list[int]]) -> None:
    counter, times = Counter(), 100_000
    came_out = sum(together(4, lambda number: race.exchange(counter, number * times, times)))
    put_in = sum(range(4 * times))
    assert came_out + counter.retrieve() == put_in


def test_every_span_that_began_ended_once(
    race: ModuleType, together: Callable[..., list[tuple[int, int, int, int]]]
) -> None:
    timer = Timer()
    begun, ended, sums_ns, shortest_ns = zip(
        *together(4, lambda number: race.spans(timer, 50_000)), strict=True
    )
    assert sum(begun) == sum(ended) == timer.count
    assert sum(sums_ns) == timer.sum_ns
    assert min(shortest_ns) >= 0
    assert not timer.running
