"""Builds a Cython file of ``tests/native`` against the shipped declarations, as another package would."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
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
