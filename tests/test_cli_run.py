"""``jobcore run``: lines, settings, wrong use and failures, each with its exit status."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from cli_tools import JOB, jc, weights


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Be in a directory with the job file ``job.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


# -- run: what a good day looks like


def test_a_run_prints_a_line_per_event_and_says_where_its_checkpoints_are(here):
    result = jc("run", "job.py")
    patterns = [
        r"run: job\.py, checkpoints in runs/job",
        r"init: \d\.\d{3} s",
        r"epoch 0/3: saved \d\.\d\d kB in [\d.]+ s",
        *(rf"epoch {n}/3: [\d.]+ s, loss [\d.]+; saved \d\.\d\d kB in [\d.]+ s" for n in (1, 2, 3)),
        r"stopped at epoch 3/3: epoch_limiter\(3\)",
        r"completed: epoch 3/3 in [\d.]+ s; checkpoints in runs/job",
    ]
    lines = result.stdout.splitlines()
    assert len(lines) == len(patterns)
    assert [
        line for line, pattern in zip(lines, patterns, strict=True) if not re.fullmatch(pattern, line)
    ] == []
    assert result.stderr == ""
    assert sorted(path.name for path in Path("runs/job").glob("epoch.*")) == [
        f"epoch.{n}.1.json" for n in range(4)
    ]


def test_the_same_command_again_runs_no_further_epoch(here):
    jc("run", "job.py")
    lines = jc("run", "job.py").stdout.splitlines()
    assert [re.sub(r"[\d.]+ (s|kB)", "#", line) for line in lines] == [
        "run: job.py, checkpoints in runs/job",
        "resumed from epoch 3/3: loaded # in #",
        "stopped at epoch 3/3: the run had ended already",
        "completed: epoch 3/3 in #; checkpoints in runs/job",
    ]


def test_raising_the_epochs_goes_on_as_if_there_had_been_no_end(here):
    jc("run", "job.py")
    resumed = jc("run", "job.py", "--set", "epochs=5")
    assert re.findall(r"^epoch (\d+)/5:", resumed.stdout, re.M) == ["4", "5"]
    jc("run", "job.py", "--dir", "straight", "--set", "epochs=5")
    assert weights("runs/job/local.5.2.zarr.zip") == weights("straight/local.5.1.zarr.zip")


def test_a_run_goes_on_from_the_epoch_that_is_named(here):
    jc("run", "job.py")
    result = jc("run", "job.py", "--resume", "1")
    assert "resumed from epoch 1/3" in result.stdout
    assert re.findall(r"^epoch (\d+)/3:", result.stdout, re.M) == ["2", "3"]


def test_checkpoints_are_files_or_directories_as_the_user_wishes(here):
    jc("run", "job.py", "--db-type", "zarr")
    assert all(path.is_dir() for path in Path("runs/job").glob("local.*"))
    assert len(list(Path("runs/job").glob("local.*.1.zarr"))) == 4
    # What was saved in the one way is gone on from in the other.
    for db_type, epochs in (("zarr.zip", 4), ("zarr", 5)):
        result = jc("run", "job.py", "--db-type", db_type, "--set", f"epochs={epochs}")
        assert f"resumed from epoch {epochs - 1}/{epochs}" in result.stdout
    assert sorted(path.name for path in Path("runs/job").glob("local.[45].*")) == [
        "local.4.2.zarr.zip",
        "local.5.3.zarr",
    ]
    jc("run", "job.py", "--dir", "straight", "--set", "epochs=5")
    assert weights("runs/job/local.5.3.zarr") == weights("straight/local.5.1.zarr.zip")


def test_a_start_from_scratch_says_what_it_leaves_behind(here):
    jc("run", "job.py")
    result = jc("run", "job.py", "--resume", "none", "--set", "epochs=1")
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("warning: starting from scratch: 4 epochs in ")
    assert warning.endswith("up to epoch 3, will no longer count; --resume latest would go on from there")
    assert re.findall(r"^epoch (\d+)/1:", result.stdout, re.M) == ["0", "1"]
    assert "note: 4 epochs of generation 1 superseded" in jc("ls", "runs/job").stdout


def test_what_lies_beside_the_job_file_can_be_imported_also_late_and_the_script_part_does_not_run(here):
    folder = here / "else where"
    folder.mkdir()
    (folder / "early_sibling.py").write_text("LIMIT = 1")
    (folder / "late_sibling.py").write_text("VALUE = 7")
    (folder / "my-job.v2.py").write_text(
        "import dataclasses, jobcore\n"
        "from early_sibling import LIMIT\n"
        "@dataclasses.dataclass\n"
        "class Settings:\n    limit: 'int' = LIMIT\n"
        "def build_job():\n"
        "    with jobcore.Job() as job:\n"
        "        @job.epoch_group.task(outputs=['v'])\n"
        "        def late(ws):\n"
        "            import late_sibling\n"
        "            ws.feed('v', late_sibling.VALUE)\n"
        "        jobcore.epoch_limiter(job, Settings().limit)\n"
        "    return job\n"
        "if __name__ == '__main__':\n    raise SystemExit('not a script')\n"
    )
    path, modules = list(sys.path), set(sys.modules)
    result = jc("run", "else where/my-job.v2.py")
    assert "epoch 1/1: " in result.stdout
    assert "v 7;" in result.stdout
    assert Path("runs/my-job.v2").is_dir()
    assert sys.path == path
    assert set(sys.modules) - modules == {"early_sibling", "late_sibling"}
    for name in ("early_sibling", "late_sibling"):
        del sys.modules[name]


def test_a_quick_edit_of_the_job_file_is_not_missed(here):
    for epochs in (3, 4):
        before = (here / "job.py").stat() if epochs == 4 else None
        (here / "job.py").write_text(JOB.replace("epochs: int = 3", f"epochs: int = {epochs}"))
        if before is not None:
            os.utime(here / "job.py", ns=(before.st_atime_ns, before.st_mtime_ns))
        assert f"completed: epoch {epochs}/{epochs}" in jc("run", "job.py").stdout


# -- run: used wrongly


PARAMETERS = """Parameters of build_job:
  epochs  int         = 3
  size    int         = 10
  pause   float       = 0.0
  seed    int         = 0
  words   str | None  = None
"""


@pytest.mark.parametrize(
    ("settings", "says"),
    [
        (["epoch=5"], "has no parameter 'epoch'; did you mean 'epochs'?\n" + PARAMETERS),
        (["nothing_like_it=5"], "has no parameter 'nothing_like_it'\n" + PARAMETERS),
        (["epochs=many"], "--set epochs: expected int, found 'many'"),
        (["epochs=1.5"], "--set epochs: expected int, found '1.5'"),
        (["pause=1,5"], "--set pause: expected float, found '1,5'"),
        (["epochs"], "--set: expected key=value, found 'epochs'"),
        (["=3"], "--set: expected key=value, found '=3'"),
        (["epochs=3", "epochs=4"], "--set epochs: expected one value, found '3' and '4'"),
    ],
)
def test_a_wrong_setting_is_a_usage_error(here, settings, says):
    result = jc("run", "job.py", *(word for setting in settings for word in ("--set", setting)), status=2)
    assert says in result.stderr
    assert not Path("runs").exists()


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (None, "found no file jab.py; did you mean job.py?"),
        ("x = 1\ndef make(): ...\n", "expected a function build_job that returns a Job, found the functions make"),
        ("import math\n", "expected a function build_job that returns a Job, found no functions"),
        ("build_job = 3\n", "expected a function build_job, found int"),
        ("def build_job(): pass\n", "found NoneType; does build_job end with 'return job'?"),
        ("def build_job(): return 3\n", "expected build_job to return a Job, found int"),
        ("async def build_job(): pass\n", "found coroutine; build_job must not be async"),
        ("def build_job(data): pass\n", "build_job needs --set data=...\nParameters of build_job:\n  data  a Python"),
        ("def build_job(a, /): pass\n", "expected parameters of build_job that can be given by name, found 'a'"),
        ("import sys; sys.exit(3)\n", "found that it exits (status 3)"),
    ],
)  # fmt: skip
def test_a_file_that_defines_no_job_is_a_usage_error(here, text, says):
    if text is not None:
        (here / "jab.py").write_text(text)
    assert says in jc("run", "jab.py", status=2).stderr


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["run", "."], "found the directory ."),
        (["run", "job.py", "--dir", "job.py"], "--dir: expected a directory for checkpoints, found the file job.py"),
        (["run", "job.py", "--resume", "last"], "expected latest, none, or a number of at least 0, found 'last'"),
        (["run", "job.py", "--resume", "-1"], "expected latest, none, or a number of at least 0, found '-1'"),
        (["run", "job.py", "--on-save-failure", "0"], "expected warn, raise, or a number of at least 1, found '0'"),
        (["run", "job.py", "--db-type", "zip"], "'zip' is not one of 'zarr.zip', 'zarr'"),
        (["run", "~nobody-of-that-name/job.py"], "found no file ~nobody-of-that-name/job.py"),
        (["run"], "Missing argument 'FILE'"),
        (["go"], "No such command 'go'"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_usage_errors(here, arguments, says):
    assert says in jc(*arguments, status=2).stderr


def test_a_file_that_cannot_be_looked_at_is_a_usage_error(here):
    (here / "loop.py").symlink_to("loop.py")
    assert "found a path that cannot be read: loop.py: " in jc("run", "loop.py", status=2).stderr
