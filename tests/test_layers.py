"""A module imports its own layer or a lower one, and outside packages only where the table allows them."""

from __future__ import annotations

import sys
from fnmatch import fnmatch
from pathlib import Path

import pytest

from import_scan import Import, imports_of, scan, source_files

ROOT = Path(__file__).parents[1] / "src" / "jobcore"

# Modules and packages right below jobcore, lowest layer first; docs/design.md says what each layer is.
LAYERS = [
    ["_telling", "_types", "_version", "errors"],
    ["_fast"],
    ["_dtypes", "_rng", "_state", "lowlevel", "statistics", "store", "tracing", "workspace"],
    ["graph"],
    ["data", "groups", "nodes", "outputs", "tasks"],
    ["runtime"],
    ["checkpoint", "epoch_saver", "events", "job", "job_*", "runner"],
    ["__main__", "cli", "integrations", "report", "testing"],
]
FACADE = len(LAYERS)  # jobcore/__init__.py sees all, and nobody below sees it

# Outside packages, and the modules below jobcore that may import them. Layer 0 has the standard library only.
OUTSIDE = {
    "click": ["cli"],
    "ml_dtypes": ["_dtypes", "store"],
    "numcodecs": ["store"],
    "numpy": [name for layer in LAYERS[1:] for name in layer],
    "rich": ["cli"],
    "zarr": ["store"],
}
CYTHON_OWN = {"cpython", "cython", "libc", "libcpp", "posix"}
# Type checkers bring these with them; they are not there at run time.
STUBS_ONLY = {"_typeshed", "typing_extensions"}
# A file that runs code when it is read cannot be checked before it is trusted.
FORBIDDEN = {"marshal", "pickle", "shelve"}


def layer_of(top: str) -> int | None:
    """Return the layer of the module or package ``jobcore.<top>``, the facade's for an empty `top`."""
    if top in ("", "__init__"):
        return FACADE
    return next((i for i, names in enumerate(LAYERS) if any(fnmatch(top, n) for n in names)), None)


def faults(top: str, found: Import, *, stub: bool = False) -> list[str]:
    """Return what is wrong with an import found in a file, or a stub file, of ``jobcore.<top>``."""
    own = layer_of(top)
    package, _, rest = found.module.partition(".")
    if own is None:
        return [f"jobcore.{top} has no layer: add it to LAYERS in tests/test_layers.py"]
    if package != "jobcore":
        return [] if stub and package in STUBS_ONLY else outside_faults(top, package)
    if rest:
        targets = [rest.split(".")[0]]
    else:
        # `from jobcore import x` means a module when x is one, and the facade otherwise.
        targets = [name if layer_of(name) is not None else "" for name in found.names] or [""]
    wrong = []
    for target in targets:
        layer = layer_of(target)
        if layer is None:
            wrong.append(f"jobcore.{target} has no layer: add it to LAYERS in tests/test_layers.py")
        elif layer > own:
            name = f"jobcore.{target}" if target else "the facade, jobcore/__init__.py"
            wrong.append(f"layer {own} ({top}) imports layer {layer} ({name}); only its own or lower ones")
    return wrong


def outside_faults(top: str, package: str) -> list[str]:
    """Return what is wrong with importing an outside `package` in a file of ``jobcore.<top>``."""
    if package in FORBIDDEN:
        return [f"{package} may not be imported at all"]
    if package in sys.stdlib_module_names or package in CYTHON_OWN or package == "__future__":
        return []
    allowed = OUTSIDE.get(package)
    if allowed is None:
        return [f"{package} is no known dependency: add it to OUTSIDE in tests/test_layers.py"]
    if not any(fnmatch(top, name) for name in allowed):
        return [f"{package} may be imported in {', '.join(allowed)} only"]
    return []


def top_of(path: Path) -> str:
    return path.relative_to(ROOT).with_suffix("").parts[0]


def check(top: str, text: str, *, cython: bool, package: str = "jobcore") -> list[str]:
    return [fault for found in scan(text, package, cython=cython) for fault in faults(top, found)]


def test_every_import_points_to_its_own_layer_or_down() -> None:
    wrong = [
        f"{path.relative_to(ROOT.parents[1])}:{found.line}: {fault}"
        for path in source_files(ROOT)
        for found in imports_of(path, ROOT)
        for fault in faults(top_of(path), found, stub=path.suffix == ".pyi")
    ]
    assert not wrong, "\n" + "\n".join(wrong)


def test_every_module_has_a_layer() -> None:
    unknown = {top for path in source_files(ROOT) if layer_of(top := top_of(path)) is None}
    assert not unknown, f"add to LAYERS in tests/test_layers.py, and to docs/design.md: {sorted(unknown)}"


def test_no_module_is_in_two_layers() -> None:
    names = [name for layer in LAYERS for name in layer]
    assert len(names) == len(set(names))


def test_the_real_files_are_read() -> None:
    found = {i.module for i in imports_of(ROOT / "_fast" / "counter.pyx", ROOT)}
    assert found == {"cython", "cpython.number", "libc.stdint", "jobcore._fast.atomics", "jobcore.errors"}
    assert {path.suffix for path in source_files(ROOT)} >= {".py", ".pyi", ".pyx", ".pxd"}


UPWARD = [
    "import jobcore.runtime",
    "import os, jobcore.runtime as r",
    "from jobcore.runtime.session import Session",
    "from jobcore import runtime",
    "from jobcore import Job",
    "from jobcore import errors, Job",
    "import jobcore",
    "from jobcore import *",
    "from ..runtime import Session",
    "from .. import runtime",
    "from ..runtime.session import (\n    Session,\n)",
    "from .. import errors, \\\n    runtime",
    "def f():\n    if True: from jobcore.job import Job",
    "def f(x: int) -> int: import jobcore.cli",
    "x = 1; from jobcore.tasks import Task",
    "try:\n    import jobcore.checkpoint\nexcept ImportError:\n    pass",
    "import importlib\nimportlib.import_module('jobcore.cli')",
    "from importlib import import_module\nm = import_module('jobcore.runtime.session')",
    "__import__('jobcore.job')",
]


@pytest.mark.parametrize("cython", [False, True], ids=["py", "pyx"])
@pytest.mark.parametrize("text", UPWARD)
def test_an_import_of_a_higher_layer_is_found(text: str, cython: bool) -> None:
    (fault,) = check("graph", text, cython=cython, package="jobcore.graph")
    assert "layer 3 (graph) imports layer" in fault


@pytest.mark.parametrize(
    "text",
    [
        "cimport jobcore.store.native",
        "cimport libc.math, jobcore.store.native as n",
        "from jobcore.store cimport native",
        "from ..store.native cimport (f,  # why\n    g as h)",
        "from .. cimport store",
        "from . .store cimport native",
        'cdef extern from "x.h":\n    int f() nogil\nfrom jobcore.store cimport native',
    ],
)
def test_a_cimport_of_a_higher_layer_is_found(text: str) -> None:
    (fault,) = check("_fast", text, cython=True, package="jobcore._fast")
    assert "layer 1 (_fast) imports layer 2" in fault


def test_an_import_for_type_checking_counts() -> None:
    text = "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from jobcore.job import Job\n"
    assert len(check("store", text, cython=False)) == 1


@pytest.mark.parametrize("cython", [False, True], ids=["py", "pyx"])
@pytest.mark.parametrize(
    "text",
    [
        "from jobcore import errors, store",
        "from .context import Managed\nfrom . import names\nfrom ..errors import (\n    BuildError,\n)",
        '"""Says\nimport jobcore.cli\n"""',
        "s = 'a \\' b'; t = \"import jobcore.cli\"  # import jobcore.cli",
        "from __future__ import annotations\nimport os.path\nimport numpy as np",
        "def f(a={'x': 1}):\n    yield from a\n    raise ValueError from None",
    ],
)
def test_a_proper_import_passes(text: str, cython: bool) -> None:
    assert check("graph", text, cython=cython, package="jobcore.graph") == []


def test_the_facade_may_import_all_and_only_it() -> None:
    text = "from jobcore.cli import main\nfrom jobcore.errors import JobcoreError"
    assert check("__init__", text, cython=False) == []
    assert len(check("cli", "import jobcore", cython=False)) == 1


@pytest.mark.parametrize(
    ("top", "text", "says"),
    [
        ("workspace", "import zarr", "zarr may be imported in store only"),
        ("checkpoint", "from numcodecs import blosc", "numcodecs may be imported in store only"),
        ("checkpoint", "import_module('zarr.storage')", "zarr may be imported in store only"),
        ("runtime", "import rich.table", "rich may be imported in cli only"),
        ("errors", "import numpy", "numpy may be imported in"),
        ("store", "import requests", "requests is no known dependency"),
        ("store", "import pickle", "pickle may not be imported"),
        ("scratch", "import os", "jobcore.scratch has no layer: add it to LAYERS"),
        ("graph", "import jobcore.scratch", "jobcore.scratch has no layer: add it to LAYERS"),
    ],
)
@pytest.mark.parametrize("cython", [False, True], ids=["py", "pyx"])
def test_outside_packages_and_unknown_modules_are_found(top: str, text: str, says: str, cython: bool) -> None:
    (fault,) = check(top, text, cython=cython)
    assert says in fault


def test_what_only_type_checkers_have_may_stand_in_stubs_only() -> None:
    (found,) = scan("from typing_extensions import Buffer", "jobcore._fast", cython=False)
    assert faults("_fast", found, stub=True) == []
    assert faults("_fast", found) != []


def test_the_line_of_an_import_is_told() -> None:
    text = '"""Doc\nstring."""\n\nx = [\n    1,\n]\nfrom os import (\n    path,\n)\n'
    for cython in (False, True):
        assert scan(text, "jobcore", cython=cython) == [Import(7, "os", ("path",))]
