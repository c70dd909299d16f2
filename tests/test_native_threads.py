"""The native threads in a program of their own; ``.ci/sanitize`` runs the same program under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jobcore

SOURCE = Path(__file__).parent / "native" / "threads.c"


def test_writers_readers_and_arenas_of_many_threads(tmp_path: Path) -> None:
    headers = Path(jobcore.__file__).parent / "_fast"
    program = tmp_path / "threads"
    warnings = ["-Wall", "-Wextra", "-Wno-unused-function", "-Werror"]
    subprocess.run(
        ["cc", "-std=gnu11", *warnings, "-O2", f"-I{headers}", str(SOURCE), "-o", str(program), "-lpthread"],
        check=True,
    )
    done = subprocess.run([str(program), str(tmp_path)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "well\n"
