"""The commands, as people use them: what they print, where, and with which exit status."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner, Result

import jobcore
from cli_tools import COMMAND, DEAF, JOB, environment, start
from jobcore.cli.app import app

ROOT = Path(__file__).parents[1]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Be in a directory with the job file ``job.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


def jc(*arguments: object, status: int = 0) -> Result:
    """Run a command in this process, and expect an exit status."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def weights(database: str) -> bytes:
    return jobcore.load(database)["weights"].tobytes()


def flip(path: str | Path, at: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(data)


def flip_in_blob(path: str, name: str) -> None:
    flip(path, Path(path).read_bytes().index(jobcore.load(path)[name].tobytes()))


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


def test_a_start_from_scratch_says_what_it_leaves_behind(here):
    jc("run", "job.py")
    result = jc("run", "job.py", "--resume", "none", "--set", "epochs=1")
    assert result.stderr == (
        "note: starting from scratch: 4 epochs in the run directory, up to epoch 3, will no longer count\n"
    )
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
        (["run"], "Missing argument 'FILE'"),
        (["go"], "No such command 'go'"),
    ],
)  # fmt: skip
def test_wrong_arguments_are_usage_errors(here, arguments, says):
    assert says in jc(*arguments, status=2).stderr


# -- run: failures


FAILING = """
import jobcore

def helper(n):
    raise ValueError(f"boom [red]{n}[/red]")

def build_job(epochs: int = 5, fail_at: int = 3, tasks: int = 1):
    with jobcore.Job() as job:
        @job.init_group.task
        def init(ws):
            ws.feed("n", 0)
        @job.epoch_group.task
        def count(ws):
            ws.feed("n", ws.fetch("n") + 1)
            if ws.fetch("n") == fail_at:
                helper(fail_at)
        jobcore.epoch_limiter(job, epochs)
    return job
"""


def test_a_failing_task_is_told_with_the_users_own_lines_and_how_to_go_on(here):
    (here / "failing.py").write_text(FAILING)
    error = jc("run", "failing.py", "--dir", "my run", status=1).stderr
    first, *rest = error.splitlines()
    assert first.startswith("error: task 'local/count' on node 'local', step 'count' built at ")
    assert first.endswith("ValueError: boom [red]3[/red]")
    assert "in count\n" in error
    assert "in helper\n" in error
    assert str(Path(jobcore.__file__).parent) not in error
    assert rest[-4:] == [
        "the full traceback: the same command with --traceback",
        "stopped in epoch 3/5",
        "epoch 2 is complete and safe in my run",
        "to go on from it: jobcore run failing.py --dir 'my run'",
    ]
    jc(*shlex.split(rest[-1].partition("jobcore ")[2]), "--set", "fail_at=0")


def test_the_full_traceback_comes_when_asked_for(here):
    (here / "failing.py").write_text(FAILING)
    error = jc("run", "failing.py", "--traceback", status=1).stderr
    assert "in helper\n" in error
    assert str(Path(jobcore.__file__).parent) in error


def test_every_failure_of_a_group_is_told(here):
    (here / "failing.py").write_text(
        FAILING.replace(
            "        jobcore.epoch_limiter",
            "        import threading\n"
            "        both = threading.Barrier(2)\n"
            "        for name in 'ab':\n"
            "            @job.epoch_group.task(name=name)\n"
            "            def fail(ws):\n"
            "                both.wait()\n"
            "                raise KeyError('k')\n"
            "        jobcore.epoch_limiter",
        )
    )
    error = jc("run", "failing.py", status=1).stderr
    assert sorted(re.findall(r"^error: task '(local/\w+)'", error, re.M)) == ["local/a", "local/b"]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("import jobcore\n1 / 0\n", ["error: ZeroDivisionError: division by zero", "bad.py", "line 2"]),
        ("def build_job(:\n", ["error: SyntaxError: ", "bad.py", "line 1"]),
        ("import not_a_module_here\n", ["error: ModuleNotFoundError", "line 1, in <module>"]),
        ("def build_job():\n    return {}['k']\n", ["error: KeyError: 'k'", "line 2, in build_job"]),
        (
            "import jobcore\ndef build_job():\n    with jobcore.Job() as job:\n        jobcore.epoch_limiter(job, 0)\n",
            ["error: expected num_epochs to be an integer of at least 1", "line 4, in build_job"],
        ),
        (
            "import jobcore\ndef build_job():\n    return jobcore.Job()\n",
            ["error: expected a job with a stop condition", "hint: use epoch_limiter"],
        ),
    ],
)  # fmt: skip
def test_errors_of_the_job_file_itself_show_its_lines_and_none_of_ours(here, text, says):
    (here / "bad.py").write_text(text)
    error = jc("run", "bad.py", status=1).stderr
    assert [part for part in says if part not in error] == []
    assert str(Path(jobcore.__file__).parent) not in error
    assert "importlib" not in error


def test_an_exit_from_inside_a_task_is_no_success(here):
    for code, status in (("7", 7), ("0", 1), ("'text'", 1)):
        (here / "exits.py").write_text(FAILING.replace("helper(fail_at)", f"raise SystemExit({code})"))
        error = jc("run", "exits.py", "--dir", code.strip("'"), status=status).stderr
        assert error.startswith(f"error: the job called sys.exit({code}) in epoch 3/5\n")
        assert "epoch 2 is complete and safe" in error


def test_an_epoch_that_is_not_there_is_named_with_those_that_are(here):
    jc("run", "job.py")
    result = jc("run", "job.py", "--resume", "7", status=1)
    assert "expected a complete epoch 7" in result.stderr
    assert "found epochs: 0, 1, 2, 3" in result.stderr
    assert "hint: --resume latest" in result.stderr


def test_a_damaged_newest_epoch_is_named_with_its_blob_and_the_one_before_is_taken(here):
    jc("run", "job.py")
    flip_in_blob("runs/job/local.3.1.zarr.zip", "weights")
    result = jc("run", "job.py")
    (warning,) = result.stderr.splitlines()
    assert warning.startswith("warning: epoch 3 is damaged and passed over: ")
    assert "'weights'" in warning
    assert "resumed from epoch 2/3" in result.stdout
    assert "epoch 3/3:" in result.stdout
    jc("verify", "runs/job")


def test_nothing_but_damaged_epochs_is_an_error(here):
    jc("run", "job.py", "--set", "epochs=1")
    for epoch in (0, 1):
        flip_in_blob(f"runs/job/local.{epoch}.1.zarr.zip", "weights")
    result = jc("run", "job.py", status=1)
    assert "hint: start from scratch with --resume none" in result.stderr


# -- run: a disk that refuses


def test_a_directory_that_cannot_be_is_found_before_anything_runs(here):
    result = jc("run", "job.py", "--dir", "job.py/run", status=1)
    assert "error: expected a run directory, found a file: " in result.stderr
    assert "Traceback" not in result.stderr
    assert result.stdout == "run: job.py, checkpoints in job.py/run\n"


@pytest.fixture
def read_only(monkeypatch):
    """Refuse every file, as a directory without write permission does (which a superuser would not notice)."""

    def refuse(path, *_arguments, **_options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("jobcore.store.files.write_new_file", refuse)


@pytest.mark.usefixtures("read_only")
def test_a_directory_that_cannot_be_written_is_found_before_an_epoch_is_trained(here):
    result = jc("run", "job.py", status=1)
    assert "error: expected a writable run directory" in result.stderr
    assert "Permission denied" in result.stderr
    assert "hint: " in result.stderr
    assert "epoch" not in result.stdout


@pytest.mark.usefixtures("read_only")
def test_a_run_that_only_warns_goes_on_without_checkpoints_and_tells_it_once_each(here):
    result = jc("run", "job.py", "--on-save-failure", "warn")
    assert "completed: epoch 3/3" in result.stdout
    assert "4 saves failed, newest saved: none" in result.stdout
    warnings = result.stderr.splitlines()
    assert all(line.startswith("warning: ") for line in warnings)
    assert len(warnings) == len(set(warnings)) == 5
    assert "CheckpointWarning" not in result.stderr


@pytest.mark.parametrize(("policy", "epochs"), [("raise", 2), ("2", 3)])
def test_a_run_ends_when_its_policy_says_so(here, policy, epochs):
    (here / "job.py").write_text(
        JOB.replace(
            "            jobcore.sleep(pause)",
            "            import pathlib, shutil\n"
            "            if ws.fetch('weights').any() and pathlib.Path('run').is_dir():\n"
            "                shutil.rmtree('run')\n"
            "                pathlib.Path('run').touch()",
        )
    )
    result = jc("run", "job.py", "--dir", "run", "--set", "epochs=9", "--on-save-failure", policy, status=1)
    assert re.findall(r"^epoch (\d)/9.*not saved", result.stdout, re.M) == [
        str(n) for n in range(2, epochs + 1)
    ]
    assert f"warning: epoch {epochs} could not be saved" in result.stderr
    assert "no epoch is complete yet" in result.stderr


# -- run: Ctrl-C


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the process ended first: {process.communicate()}")


def test_ctrl_c_says_what_is_safe_and_the_command_it_gives_goes_on(here):
    options = ["--dir", "my run", "--set", "epochs=3", "--set", "pause=0.3", "--set", "words=a b"]
    process = start("run", "job.py", *options, "--resume", "none", "--set", "seed=4", cwd=here)
    wait_for(process, "epoch 1/3:")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    heard, where, safe, how = error.splitlines()
    assert heard == "interrupted: stopping the running tasks"
    assert where in ("interrupted in epoch 2/3", "interrupted after epoch 1/3")
    assert safe == "epoch 1 is complete and safe in my run"
    # Without --resume none, which would start from scratch again.
    assert how == f"to go on from it: jobcore run job.py {shlex.join(options)} --set seed=4"
    result = jc(*shlex.split(how.partition("jobcore ")[2]))
    assert "resumed from epoch 1/3" in result.stdout
    jc("run", "job.py", "--dir", "straight", "--set", "seed=4")
    assert weights("my run/local.3.2.zarr.zip") == weights("straight/local.3.1.zarr.zip")


def test_ctrl_c_is_heard_while_tasks_take_their_time(here):
    (here / "deaf.py").write_text(DEAF)
    process = start("run", "deaf.py", cwd=here)
    wait_for(process, "deaf task runs")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == "interrupted: stopping the running tasks\n"
    assert process.poll() is None
    (here / "go").touch()
    _, error = process.communicate()
    assert process.returncode == 130
    assert "to go on from it: jobcore run deaf.py" in error


def test_ctrl_c_before_the_run_has_begun_changes_nothing(here):
    jc("run", "job.py")
    (here / "job.py").write_text("print('reading', flush=True)\nimport time\ntime.sleep(600)\n")
    process = start("run", "job.py", "--resume", "1", cwd=here)
    wait_for(process, "reading")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    assert error.splitlines()[1:] == [
        "interrupted while reading job.py",
        "nothing has changed: epoch 3 is the newest in runs/job",
        "to try again: jobcore run job.py --resume 1",
    ]


def test_a_process_that_was_told_to_ignore_ctrl_c_goes_on_ignoring_it(here):
    ignoring = (
        "import os, signal, sys\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\n"
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", ignoring, *COMMAND, "run", "job.py", "--set", "pause=0.2"],
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for(process, "epoch 1/3:")
    process.send_signal(signal.SIGINT)
    out, error = process.communicate()
    assert (process.returncode, error) == (0, "")
    assert "completed: epoch 3/3" in out


# -- ls


def test_ls_shows_the_epochs_that_exist(here):
    jc("run", "job.py")
    head, *rows = jc("ls", "runs/job").stdout.splitlines()
    assert re.split(r"  +", head) == ["epoch", "generation", "nodes", "blobs", "bytes", "saved at", "stop"]
    assert [re.split(r"  +", row.strip())[0] for row in rows] == ["0", "1", "2", "3"]
    assert re.fullmatch(
        r" +3 +1 +1 +3  \d\.\d\d kB  \d{4}-\d\d-\d\d \d\d:\d\d:\d\d  epoch_limiter\(3\)", rows[-1]
    )
    assert rows[-2].endswith("  -")


def test_ls_gives_the_same_as_json(here):
    jc("run", "job.py")
    jc("run", "job.py", "--resume", "2")
    found = json.loads(jc("ls", "runs/job", "--json").stdout)
    assert found["run_directory"] == str(here / "runs" / "job")
    assert [(e["epoch"], e["generation"]) for e in found["epochs"]] == [(0, 1), (1, 1), (2, 1), (3, 2)]
    assert [(e["epoch"], e["generation"]) for e in found["superseded"]] == [(3, 1)]
    newest = found["epochs"][-1]["nodes"]["local"]
    path = Path("runs/job") / newest["file"]
    assert newest == {
        "file": "local.3.2.zarr.zip",
        "bytes": path.stat().st_size,
        "digest": jobcore.inspect(path).digest,
        "blobs": 3,
        "fault": None,
    }
    assert found["epochs"][-1]["stop"]["met"] is True
    assert (found["faults"], found["unrecorded"]) == ([], [])


def test_ls_notes_what_is_damaged_missing_cut_off_and_left_over(here):
    jc("run", "job.py")
    run = Path("runs/job")
    flip(run / "epoch.3.1.json", 90)
    (run / "local.1.1.zarr.zip").unlink()
    os.truncate(run / "local.2.1.zarr.zip", 10)
    shutil.copy(run / "local.0.1.zarr.zip", run / "local.9.1.zarr.zip")
    lines = jc("ls", "runs/job").stdout.splitlines()
    notes = [line for line in lines if line.startswith("note: ")]
    assert len(lines) - len(notes) == 4
    assert (
        notes[0]
        == "note: epoch 1 cannot be loaded: node local: local.1.1.zarr.zip: No such file or directory"
    )
    assert re.fullmatch(
        r"note: epoch 2 cannot be loaded: node local: local.2.1.zarr.zip: expected [\d,]+ bytes, found 10",
        notes[1],
    )
    assert notes[2].startswith("note: the record of epoch 3 (generation 1) is damaged: expected SHA-256")
    # The database of the damaged record is no left-over.
    assert notes[3] == (
        "note: 1 database without a record, of a save that is going on or was interrupted: local.9.1.zarr.zip"
    )
    assert len(notes) == 4
    found = json.loads(jc("ls", "runs/job", "--json").stdout)
    assert [fault["epoch"] for fault in found["faults"]] == [3]
    assert found["unrecorded"] == ["local.9.1.zarr.zip"]
    assert found["epochs"][1]["nodes"]["local"]["fault"].endswith("No such file or directory")


def test_ls_of_a_run_that_was_killed_before_its_first_save(here):
    jc("run", "job.py")
    for path in Path("runs/job").glob("epoch.*"):
        path.unlink()
    result = jc("ls", "runs/job")
    assert result.stdout.startswith("no complete epoch in runs/job\nnote: 4 databases without a record")


@pytest.mark.parametrize("command", ["ls", "show", "verify"])
def test_a_path_that_is_nothing_of_ours_says_what_was_found(here, command):
    (here / "empty").mkdir()
    (here / "zarr" / "x").mkdir(parents=True)
    (here / "zarr" / "zarr.json").touch()
    os.mkfifo(here / "pipe")
    jc("run", "job.py", "--set", "epochs=1")
    for path, says in (
        ("runs/jib", "found nothing at runs/jib; did you mean runs/job?"),
        ("empty", "found an empty directory: empty"),
        ("zarr", "found a Zarr directory: zarr"),
        ("pipe", "found a pipe: pipe"),
        ("runs", "found a directory of 1 other entry (job): runs\nrun directories in it: runs/job"),
        ("job.py/x", "found nothing at job.py/x"),
        ("job.py@3", "expected a run directory before '@3', found a file: job.py"),
        ("empty@latest", "found an empty directory: empty"),
        ("runs/job@7", "expected a complete epoch 7"),
    ):
        error = jc(command, path, status=2).stderr
        assert error.startswith("error: expected a ")
        assert says in error
        assert "resume" not in error


@pytest.mark.parametrize("path", ["runs/job/local.1.1.zarr.zip", "runs/job@1"])
def test_ls_of_a_single_checkpoint_points_to_show(here, path):
    jc("run", "job.py", "--set", "epochs=1")
    assert f"hint: jobcore show {path}" in jc("ls", path, status=2).stderr


# -- show


NODES = """
import jobcore, numpy as np

def build_job(epochs: int = 2):
    with jobcore.Job() as job:
        for node in ("trainer:0", "trainer:1"):
            with jobcore.Node(node):
                @job.init_group.task
                def init(ws, node=node):
                    ws.feed("name", node)
                    ws.feed("x", np.ones(4), transient=True)
                @job.epoch_group.task
                def train(ws):
                    pass
        jobcore.epoch_limiter(job, epochs)
    return job
"""


def test_show_lists_attributes_and_blobs_of_a_database(here):
    user = {"note": "größer"}
    names = {"w": np.zeros((3, 4), np.float32), "s": "text", "e": np.empty((0, 2)), "0-d": 7}
    jobcore.save("model.zarr.zip", names, user=user)
    info = jobcore.inspect("model.zarr.zip")
    head, table = jc("show", "model.zarr.zip").stdout.split("\n\n")
    assert [re.split(r"  +", line.strip()) for line in head.splitlines()] == [
        ["model.zarr.zip"],
        ["writer", info.writer],
        ["format", "1 (zarr.zip)"],
        ["size", f"{info.size_bytes / 1000:.2f} kB ({info.size_bytes:,} bytes)"],
        ["digest", info.digest],
        ["user", json.dumps(user, ensure_ascii=False)],
    ]
    assert [re.split(r"  +", line) for line in table.splitlines()] == [
        ["name", "kind", "dtype", "shape", "bytes"],
        ["w", "tensor", "float32", "(3, 4)", "48"],
        ["s", "string", "uint8", "(4,)", "4"],
        ["e", "tensor", "float64", "(0, 2)", "0"],
        ["0-d", "tensor", "int64", "()", "8"],
        ["4 blobs, 60 B"],
    ]


def test_show_of_a_run_takes_all_nodes_of_the_newest_epoch_or_of_the_one_named(here):
    (here / "nodes.py").write_text(NODES)
    jc("run", "nodes.py")
    run = json.loads(jc("ls", "runs/nodes", "--json").stdout)
    for path, epoch in (("runs/nodes", 2), ("runs/nodes@1", 1), ("runs/nodes@latest", 2)):
        shown = jc("show", path).stdout
        files = [node["file"] for node in run["epochs"][epoch]["nodes"].values()]
        assert [line for line in shown.splitlines() if line.endswith(".zip")] == [
            f"runs/nodes/{f}" for f in files
        ]
        assert re.findall(r"^  node +(.*)$", shown, re.M) == ["trainer:0", "trainer:1"]
        assert re.findall(r"^  epoch +(.*)$", shown, re.M) == [str(epoch)] * 2
        assert re.findall(r"^  skipped +(.*)$", shown, re.M) == ["x (transient)"] * 2
        found = json.loads(jc("show", path, "--json").stdout)
        assert found["epoch"] == epoch
        assert [(d["node"], [b["name"] for b in d["blobs"]]) for d in found["databases"]] == [
            ("trainer:0", ["name"]),
            ("trainer:1", ["name"]),
        ]
    assert "stop        yes (epoch_limiter(2): yes)" in jc("show", "runs/nodes").stdout
    assert "stop        no (epoch_limiter(2): no)" in jc("show", "runs/nodes@1").stdout


def test_show_reads_no_data(here):
    jc("run", "job.py")
    before = jc("show", "runs/job").stdout
    flip_in_blob("runs/job/local.3.1.zarr.zip", "weights")
    assert jc("show", "runs/job").stdout == before


def test_show_says_that_a_newer_epoch_has_a_damaged_record(here):
    jc("run", "job.py")
    flip("runs/job/epoch.3.1.json", 90)
    result = jc("show", "runs/job")
    assert result.stderr.startswith("note: the record of epoch 3 is damaged: ")
    assert re.search(r"^  epoch +2$", result.stdout, re.M)


def test_show_of_what_cannot_be_read_says_what_it_is(here):
    result = jc("show", "job.py", status=1)
    assert "expected a jobcore database (zarr.zip), found text that begins" in result.stderr
    (here / "nodes.py").write_text(NODES)
    jc("run", "nodes.py")
    os.truncate("runs/nodes/trainer=3a0.2.1.zarr.zip", 100)
    result = jc("show", "runs/nodes", status=1)
    assert "trainer=3a0.2.1.zarr.zip: expected a jobcore database" in result.stderr
    assert re.findall(r"^  node +(.*)$", result.stdout, re.M) == ["trainer:1"]
    first, second = json.loads(jc("show", "runs/nodes", "--json", status=1).stdout)["databases"]
    assert "expected a jobcore database" in first["error"]
    assert second["error"] is None


def test_show_of_a_run_without_epochs_is_an_error(here):
    jc("run", "job.py")
    for path in Path("runs/job").glob("epoch.*"):
        path.unlink()
    assert "hint: jobcore ls runs/job" in jc("show", "runs/job", status=1).stderr


def test_names_are_shown_as_text_and_cannot_paint_the_terminal(here):
    names = ["[red]x[/red]", "two\nlines", "\x1b[31mred", "重み", "\u202eltr"]
    jobcore.save("names.zarr.zip", dict.fromkeys(names, 1))
    shown = jc("show", "names.zarr.zip").stdout
    rows = shown.split("\n\n")[1].splitlines()[1:-1]
    assert [re.split(r"  +", row)[0] for row in rows] == [
        "[red]x[/red]",
        r"two\nlines",
        r"\x1b[31mred",
        "重み",
        r"\u202eltr",
    ]
    found = json.loads(jc("show", "names.zarr.zip", "--json").stdout)
    assert [blob["name"] for blob in found["databases"][0]["blobs"]] == names


# -- verify


def test_verify_says_ok_for_every_database_of_a_run(here):
    jc("run", "job.py")
    lines = jc("verify", "runs/job").stdout.splitlines()
    assert [re.sub(r"[\d.]+ kB", "#", line) for line in lines] == [
        *(f"ok: runs/job/local.{n}.1.zarr.zip: epoch {n}, node local, 3 blobs, #" for n in range(4)),
        "4 of 4 databases ok, 0 faults, # read",
    ]
    assert len(jc("verify", "runs/job@2").stdout.splitlines()) == 2
    (line,) = jc("verify", "runs/job/local.2.1.zarr.zip").stdout.splitlines()
    assert line.startswith("ok: runs/job/local.2.1.zarr.zip: 3 blobs, ")


@pytest.mark.parametrize("path", ["runs/job", "runs/job@3", "runs/job/local.3.1.zarr.zip"])
def test_verify_names_file_place_and_blob_of_a_flipped_byte(here, path):
    jc("run", "job.py")
    flip_in_blob("runs/job/local.3.1.zarr.zip", "weights")
    lines = jc("verify", path, status=1).stdout.splitlines()
    (fault,) = [line for line in lines if line.startswith("fault: ")]
    assert fault.startswith(
        "fault: runs/job/local.3.1.zarr.zip: weights/c.0: blob 'weights', chunk 0: expected CRC-32 "
    )
    found = json.loads(jc("verify", path, "--json", status=1).stdout)
    assert found["ok"] is False
    (bad,) = [database for database in found["databases"] if not database["ok"]]
    assert bad["path"] == "runs/job/local.3.1.zarr.zip"
    assert (bad["faults"][0]["place"], bad["faults"][0]["blob"]) == ("weights/c.0", "weights")


def swap(run: Path) -> None:
    """Put another whole database in the place of one: every byte of it is right, and it is the wrong one."""
    shutil.copy(run / "local.1.1.zarr.zip", run / "local.2.1.zarr.zip")


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (lambda run: flip(run / "epoch.2.1.json", 90), "epoch.2.1.json: expected SHA-256"),
        (lambda run: flip(run / "generation.1.json", 90), "generation.1.json: expected SHA-256"),
        (lambda run: (run / "generation.1.json").unlink(), "generation.1.json: expected the claim of generation 1"),
        (lambda run: (run / "local.2.1.zarr.zip").unlink(), "local.2.1.zarr.zip: expected a database, found no file"),
        (lambda run: os.truncate(run / "local.2.1.zarr.zip", 900), "local.2.1.zarr.zip: expected a jobcore database"),
        (swap, "local.2.1.zarr.zip: index: expected the database with the digest 'sha256:"),
    ],
    ids=["record", "claim", "no claim", "no database", "truncated", "swapped"],
)  # fmt: skip
def test_verify_of_a_run_finds_whatever_is_wrong_in_it(here, harm, says):
    jc("run", "job.py")
    harm(Path("runs/job"))
    result = jc("verify", "runs/job", status=1)
    faults = [line for line in result.stdout.splitlines() if line.startswith("fault: ")]
    assert faults[0].startswith(f"fault: runs/job/{says}")
    assert str(here) not in faults[0].replace(f"{here}/runs/job/epoch", "")
    found = json.loads(jc("verify", "runs/job", "--json", status=1).stdout)
    assert len(faults) == len(found["log"]) + sum(len(d["faults"]) for d in found["databases"])


def test_verify_tells_what_it_left_out(here):
    jc("run", "job.py")
    jc("run", "job.py", "--resume", "1")
    shutil.copy("runs/job/local.0.1.zarr.zip", "runs/job/local.9.2.zarr.zip")
    assert jc("verify", "runs/job").stdout.splitlines()[-2:] == [
        "not verified: 2 superseded epochs",
        "not verified: 1 database without a record",
    ]


def test_verify_of_a_foreign_file_says_what_it_is(here):
    np.savez("x.npz", a=1)
    result = jc("verify", "x.npz", status=1)
    assert result.stdout.startswith(
        "fault: x.npz: expected a jobcore database (zarr.zip), found a NumPy .npz file"
    )


def test_verify_of_a_run_without_epochs_finds_nothing_wrong(here):
    jc("run", "job.py")
    for path in Path("runs/job").glob("epoch.*"):
        path.unlink()
    assert (
        jc("verify", "runs/job").stdout.splitlines()[0] == "no complete epoch in runs/job: nothing to verify"
    )


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
    assert process("run", "job.py", cwd=here).returncode == 0
    assert process("run", "job.py", "--set", "x=1", cwd=here).returncode == 2
    assert process("ls", "runs", cwd=here).returncode == 2
    flip_in_blob("runs/job/local.3.1.zarr.zip", "weights")
    found = process("verify", "runs/job", cwd=here)
    assert (found.returncode, found.stderr) == (1, "")


def test_looking_at_a_run_loads_nothing_heavy(here):
    jc("run", "job.py", "--set", "epochs=1")
    program = """
import sys
from jobcore.cli.main import main
status = main(sys.argv[1:])
loaded = {"zarr", "numcodecs", "sklearn", "rich", "tensorstore", "xarray"} & set(sys.modules)
print(status, sorted(loaded), file=sys.stderr)
"""
    for arguments in (["--help"], ["ls", "runs/job"], ["show", "runs/job"], ["verify", "runs/job"]):
        found = subprocess.run(
            [sys.executable, "-c", program, *arguments], env=environment(), capture_output=True, text=True
        )
        assert found.stderr == "0 []\n"


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
