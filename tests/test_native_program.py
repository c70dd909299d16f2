"""The native executor in a program of its own; ``.ci/sanitize`` runs the same program under the sanitizers."""

from __future__ import annotations

import subprocess
import sysconfig
from pathlib import Path

import numpy as np

import jobcore

SOURCE = Path(__file__).parent / "native" / "program.c"


def test_loops_of_many_native_threads(tmp_path: Path) -> None:
    # The kernels of queues look into arrays; nothing of Python or NumPy is called.
    headers = [Path(jobcore.__file__).parent / "_fast", np.get_include(), sysconfig.get_path("include")]
    program = tmp_path / "program"
    warnings = ["-Wall", "-Wextra", "-Wno-unused-function", "-Werror"]
    subprocess.run(
        [
            *("cc", "-std=gnu11", *warnings, "-O2", *(f"-I{place}" for place in headers)),
            *(str(SOURCE), "-o", str(program), "-lpthread"),
        ],
        check=True,
    )
    done = subprocess.run([str(program)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout == "well\n"
