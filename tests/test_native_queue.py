"""The native queue in a program of its own; ``.ci/sanitize`` runs the same program under the sanitizers."""

from __future__ import annotations

import subprocess
from pathlib import Path

import jobcore

SOURCE = Path(__file__).parent / "native" / "queue.c"


def test_rows_between_many_native_threads(tmp_path: Path) -> None:
    headers = Path(jobcore.__file__).parent / "_fast"
    program = tmp_path / "queue"
    warnings = ["-Wall", "-Wextra", "-Wno-unused-function", "-Werror"]
    subprocess.run(
        ["cc", "-std=gnu11", *warnings, "-O2", f"-I{headers}", str(SOURCE), "-o", str(program), "-lpthread"],
        check=True,
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "well\n"
