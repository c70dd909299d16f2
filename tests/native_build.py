"""Builds what is in ``tests/native`` against the shipped declarations, as another package would."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import sysconfig
from pathlib import Path
from types import ModuleType

import numpy as np

import jobcore

BUILD = """
import sys
from Cython.Build import cythonize
from setuptools import Extension, setup

name, package, *include = sys.argv[1:]
setup(
    script_args=["-q", "build_ext", "--inplace"],
    name=name,
    ext_modules=cythonize(
        [Extension(name, [name + ".pyx"], include_dirs=include)],
        include_path=[package],
        language_level=3,
        build_dir="c",
        quiet=True,
    ),
)
"""


def build(name: str, folder: Path) -> ModuleType:
    """Compile ``tests/native/<name>.pyx`` in `folder`, and import it."""
    source = Path(__file__).parent / "native" / f"{name}.pyx"
    (folder / source.name).write_text(source.read_text())
    (folder / "build.py").write_text(BUILD)
    package = Path(jobcore.__file__).parent
    done = subprocess.run(
        [sys.executable, "build.py", name, str(package.parent), np.get_include(), str(package / "_fast")],
        cwd=folder,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob(f"{name}.*.so")
    spec = importlib.util.spec_from_file_location(name, built)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run_program(name: str, folder: Path, *arguments: str) -> None:
    """Compile ``tests/native/<name>.c``, and run it to its good end; ``.ci/sanitize`` does so under the sanitizers."""
    # Of Python and NumPy, for what looks into arrays; nothing of theirs is called.
    headers = [Path(jobcore.__file__).parent / "_fast", np.get_include(), sysconfig.get_path("include")]
    program = folder / name
    subprocess.run(
        [
            *("cc", "-std=gnu11", "-Wall", "-Wextra", "-Wno-unused-function", "-Werror", "-O2"),
            *(f"-I{place}" for place in headers),
            *(str(Path(__file__).parent / "native" / f"{name}.c"), "-o", str(program), "-lpthread"),
        ],
        check=True,
    )
    done = subprocess.run(
        [str(program), *arguments], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout == "well\n"
