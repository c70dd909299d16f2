"""The native threads in a program of their own; ``.ci/sanitize`` runs the same program under the sanitizers."""

from __future__ import annotations

from pathlib import Path

from native_build import run_program


def test_writers_readers_and_arenas_of_many_threads(tmp_path: Path) -> None:
    run_program("threads", tmp_path, str(tmp_path))
