"""The command as a process: help, exit statuses, what it loads, streams that close or lack characters."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import jobcore
from cli_tools import COMMAND, JOB, environment, flip_in_blob, jc, start

ROOT = Path(__file__).parents[1]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Be in a directory with the job file ``job.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


# -- the command as a process


def process(*arguments: object, cwd: Path, **changes: str | None) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *map(str, arguments)], cwd=cwd, env=environment(**changes), capture_output=True, text=True
    )


@pytest.mark.parametrize("command", [[], ["run"], ["ls"], ["show"], ["verify"]])
def test_help_has_examples(command):
    shown = jc(*command, "--help").stdout
    assert re.search(r"^ +Examples:\n +jobcore ", shown, re.M)


def test_the_version_is_that_of_the_package():
    assert jc("--version").stdout == f"jobcore {jobcore.__version__}\n"


def test_exit_statuses_reach_the_shell(here):
    jc("run", "job.py")
    assert process("run", "job.py", "--set", "x=1", cwd=here).returncode == 2
    flip_in_blob("runs/job/local.3.1.zarr.zip", "weights")
    found = process("verify", "runs/job", cwd=here)
    assert (found.returncode, found.stderr) == (1, "")


def test_looking_at_a_run_loads_nothing_heavy(here):
    jc("run", "job.py", "--set", "epochs=1")
    program = """
import sys
from jobcore.cli.main import main
for arguments in (["--help"], ["ls", "runs/job"], ["show", "runs/job"], ["verify", "runs/job"]):
    status = main(arguments)
    loaded = {"zarr", "numcodecs", "sklearn", "rich", "tensorstore", "xarray"} & set(sys.modules)
    print(status, sorted(loaded), file=sys.stderr)
"""
    found = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)
    assert found.stderr == "0 []\n" * 4


@pytest.mark.parametrize(("gone", "named"), [(["click"], "click"), (["click", "rich"], "click and rich")])
def test_without_its_extra_the_command_says_what_to_install(here, gone, named):
    scripts = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]
    module, function = scripts["jobcore"].split(":")
    program = f"""
import sys
for name in {gone!r}:
    sys.modules[name] = None
import jobcore, jobcore.cli
from {module} import {function}
sys.exit({function}())
"""
    found = subprocess.run([sys.executable, "-c", program], env=environment(), capture_output=True, text=True)
    assert found.returncode == 1
    assert found.stderr == (
        f"jobcore: the command line needs {named}, which this Python does not have\n"
        'install it with: pip install "jobcore[cli]"\n'
    )


def test_a_reader_that_has_had_enough_ends_a_listing_quietly(here):
    jobcore.save("many.zarr.zip", {f"blob {n}": n for n in range(5000)})
    child = start("show", "many.zarr.zip", cwd=here)
    assert child.stdout is not None
    assert child.stderr is not None
    assert child.stdout.readline() == "many.zarr.zip\n"
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait() == 1
    child.stderr.close()


def test_a_reader_that_has_had_enough_does_not_end_a_training(here):
    child = start("run", "job.py", "--set", "pause=0.1", cwd=here)
    assert child.stdout is not None
    assert child.stderr is not None
    child.stdout.readline()
    child.stdout.close()
    assert child.stderr.read() == ""
    assert child.wait() == 0
    child.stderr.close()
    assert Path("runs/job/epoch.3.1.json").exists()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_a_terminal_that_lacks_the_characters_of_a_name_shows_escapes(here, encoding):
    jobcore.save("names.zarr.zip", {"größe": 1, "重み": 2})
    found = subprocess.run(
        [*COMMAND, "show", "names.zarr.zip"], env=environment(PYTHONIOENCODING=encoding), capture_output=True
    )
    assert found.returncode == 0
    assert (b"gr\xf6\xdfe " if encoding == "latin-1" else rb"gr\xf6\xdfe ") in found.stdout
    assert rb"\u91cd\u307f" in found.stdout
