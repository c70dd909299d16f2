"""What is shipped: the source archive builds alone, and the wheel holds what users and type checkers need."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from email.parser import Parser
from pathlib import Path, PurePosixPath

import pytest

ROOT = Path(__file__).parents[1]
FAST = ROOT / "src" / "jobcore" / "_fast"
UNITS = sorted(path.stem for path in FAST.glob("*.pyx"))
# Units whose twin and benchmark are those of the unit that they are a part or the sibling of.
PART_OF = {
    "arena": "image",
    "blob": "workspace",
    "cancel": "queue",
    "crc32c": "crc",
    "frame": "program",
    "fresh": "table",
    "queue_core": "queue",
    "queue_totals": "queue",
    "rebatch": "queue",
    "run": "program",
}
SHIPPED_SOURCES = ["setup.py", "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE", "CHANGELOG.md"]
FOLDERS = ["src", "tests", "bench", "docs", "examples"]


def run_hook(folder: Path, hook: str, into: Path) -> Path:
    """Call a hook of the build backend in `folder`, as pip does, with the packages that are installed here."""
    code = f"import setuptools.build_meta as b; print(b.{hook}({str(into)!r}))"
    # Only the contents matter here: no optimisation, and no switch of the build that runs the tests.
    env = os.environ | {"CFLAGS": "-O0", "JOBCORE_DEBUG": "", "JOBCORE_SANITIZE": ""}
    env.pop("PYTHONPATH", None)
    done = subprocess.run([sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, env=env)
    assert done.returncode == 0, done.stdout + done.stderr
    return into / done.stdout.split()[-1]


# Compiles everything, which takes minutes where other programs want the processors too.
pytestmark = pytest.mark.timeout(1200)


@pytest.fixture(scope="module")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    checkout = tmp_path_factory.mktemp("checkout")
    ignored = shutil.ignore_patterns("*.so", "__pycache__", "*.egg-info")
    for folder in FOLDERS:
        shutil.copytree(ROOT / folder, checkout / folder, ignore=ignored)
    for name in SHIPPED_SOURCES:
        shutil.copy(ROOT / name, checkout / name)
    return run_hook(checkout, "build_sdist", tmp_path_factory.mktemp("sdist"))


@pytest.fixture(scope="module")
def wheel(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("unpacked")
    with tarfile.open(sdist) as archive:
        archive.extractall(folder, filter="data")
    (unpacked,) = folder.iterdir()
    return run_hook(unpacked, "build_wheel", tmp_path_factory.mktemp("wheel"))


def test_the_source_archive_holds_all_sources_and_nothing_generated(sdist: Path) -> None:
    with tarfile.open(sdist) as archive:
        names = {str(PurePosixPath(*PurePosixPath(n).parts[1:])) for n in archive.getnames()}
    tracked = [
        path.relative_to(ROOT).as_posix()
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and path.suffix not in {".so", ".pyc"} and ".egg-info" not in path.as_posix()
    ]
    assert set(tracked) | set(SHIPPED_SOURCES) <= names
    assert not [n for n in names if n.endswith((".so", ".pyc")) or n.startswith("build")]
    assert not [n for n in names if n.endswith(".c") and not n.startswith(("bench/", "tests/"))]


def test_the_wheel_holds_modules_stubs_and_declarations(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
    package = [n.removeprefix("jobcore/") for n in names if n.startswith("jobcore/")]
    source = ROOT / "src" / "jobcore"
    expected = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*")
        if path.suffix in {".py", ".pyi", ".pxd", ".h"} or path.name == "py.typed"
    }
    native = {n for n in package if n.endswith(".so")}
    assert set(package) - native == expected
    assert sorted(n.removeprefix("_fast/").split(".")[0] for n in native) == UNITS
    info = {PurePosixPath(n).parts[0] for n in names} - {"jobcore"}
    assert len(info) == 1, f"expected jobcore and its dist-info only, found {info}"
    assert any(n.endswith(".dist-info/licenses/LICENSE") for n in names)


def test_the_wheel_describes_itself(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        (metadata,) = [n for n in archive.namelist() if n.endswith(".dist-info/METADATA")]
        about = Parser().parsestr(archive.read(metadata).decode())
        (scripts,) = [n for n in archive.namelist() if n.endswith(".dist-info/entry_points.txt")]
        entry_points = archive.read(scripts).decode()
    assert about["Name"] == "jobcore"
    assert f'__version__ = "{about["Version"]}"' in (ROOT / "src/jobcore/_version.py").read_text()
    assert about["License-Expression"] == "Apache-2.0"
    assert about["Requires-Python"] == ">=3.11"
    plain = {re.split(r"[<>=]", r)[0] for r in about.get_all("Requires-Dist", []) if "extra ==" not in r}
    assert plain == {"numpy", "numcodecs", "zarr"}
    assert set(about.get_all("Provides-Extra", [])) >= {"cli", "examples", "test", "bench"}
    assert "jobcore = jobcore.cli.main:main" in entry_points


def test_the_wheel_works_by_itself(wheel: Path, tmp_path: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path)
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path)!r}); import jobcore; print(jobcore.__file__)\n"
        "counter = jobcore.Counter(1); assert (counter.count_down(), counter.count_down()) == (False, True)"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip().startswith(str(tmp_path))


@pytest.mark.parametrize("unit", UNITS)
def test_a_native_unit_is_complete(unit: str) -> None:
    whole = PART_OF.get(unit, unit)
    expected = [
        FAST / f"{unit}.pxd",
        FAST / f"{unit}.pyi",
        ROOT / "tests" / f"slow_{whole}.py",
        ROOT / "bench" / f"bench_{whole}.py",
    ]
    missing = [str(path.relative_to(ROOT)) for path in expected if not path.exists()]
    assert not missing, f"{unit}.pyx comes with declarations, stubs, a slow twin and a benchmark: {missing}"


def test_compiler_directives_stand_in_setup_only() -> None:
    comment = re.compile(r"^\s*#\s*(cython|distutils)\s*:", re.MULTILINE)
    sources = [path for path in FAST.iterdir() if path.suffix in {".pyx", ".pxd"}]
    assert [path.name for path in sources if comment.search(path.read_text())] == []
    assert comment.search("# cython: boundscheck=False")


def test_the_build_script_stays_short() -> None:
    assert len((ROOT / "setup.py").read_text().splitlines()) < 100
