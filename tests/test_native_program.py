"""The native executor in a program of its own; ``.ci/sanitize`` runs the same program under the sanitizers."""

from __future__ import annotations

from pathlib import Path

from native_build import run_program


def test_loops_of_many_native_threads(tmp_path: Path) -> None:
    run_program("program", tmp_path)


def test_tensors_that_many_native_threads_work_on(tmp_path: Path) -> None:
    run_program("tensors", tmp_path)
