"""``jobcore run`` when things go wrong: failing tasks, damaged epochs, a disk that refuses, Ctrl-C."""

from __future__ import annotations

import re
import shlex
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

import jobcore
from cli_tools import COMMAND, DEAF, JOB, environment, flip_in_blob, jc, start, weights


@pytest.fixture
def here(tmp_path, monkeypatch):
    """Be in a directory with the job file ``job.py``."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "job.py").write_text(JOB)
    return tmp_path


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


def test_a_directory_that_cannot_be_is_found_before_an_epoch_is_trained(here):
    result = jc("run", "job.py", "--dir", "job.py/run", status=1)
    assert result.stderr.startswith("error: expected a ")
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr
    assert "epoch" not in result.stdout


@pytest.fixture
def read_only(monkeypatch):
    """Refuse every file, as a directory without write permission does (which a superuser would not notice)."""

    def refuse(path, *_arguments, **_options):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("jobcore.store.publishing.write_new_file", refuse)


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


HEARD = "interrupted: stopping the running tasks; once more does not wait for them"


def wait_for(process: subprocess.Popen[str], words: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if words in line:
            return
    raise AssertionError(f"the process ended first: {process.communicate()}")


def test_ctrl_c_says_what_is_safe_and_the_command_it_gives_goes_on(here):
    options = [
        "--dir",
        "my run",
        "--db-type",
        "zarr",
        "--set",
        "epochs=3",
        "--set",
        "pause=0.3",
        "--set",
        "words=a b",
    ]
    process = start("run", "job.py", *options, "--resume", "none", "--set", "seed=4", cwd=here)
    wait_for(process, "epoch 1/3:")
    process.send_signal(signal.SIGINT)
    _, error = process.communicate()
    assert process.returncode == 130
    heard, where, safe, how = error.splitlines()
    assert heard == HEARD
    assert where in ("interrupted in epoch 2/3", "interrupted after epoch 1/3")
    assert safe == "epoch 1 is complete and safe in my run"
    # Without --resume none, which would start from scratch again.
    assert how == f"to go on from it: jobcore run job.py {shlex.join(options)} --set seed=4"
    result = jc(*shlex.split(how.partition("jobcore ")[2]))
    assert "resumed from epoch 1/3" in result.stdout
    jc("run", "job.py", "--dir", "straight", "--set", "seed=4")
    assert weights("my run/local.3.2.zarr") == weights("straight/local.3.1.zarr.zip")


@pytest.mark.parametrize(("number", "status"), [(signal.SIGTERM, 143), (signal.SIGHUP, 129)])
def test_a_signal_that_ends_the_run_says_what_is_safe(here, number, status):
    process = start("run", "job.py", "--set", "epochs=3", "--set", "pause=0.3", cwd=here)
    wait_for(process, "epoch 1/3:")
    process.send_signal(number)
    _, error = process.communicate()
    assert process.returncode == status
    where, safe, how = error.splitlines()
    assert where.startswith(f"ended by {number.name} ")
    assert safe == "epoch 1 is complete and safe in runs/job"
    assert how == "to go on from it: jobcore run job.py --set epochs=3 --set pause=0.3"
    assert "resumed from epoch 1/3" in jc("run", "job.py", "--set", "epochs=3").stdout


def test_ctrl_c_is_heard_while_tasks_take_their_time(here):
    (here / "deaf.py").write_text(DEAF)
    process = start("run", "deaf.py", cwd=here)
    wait_for(process, "deaf task runs")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == f"{HEARD}\n"
    assert process.poll() is None
    (here / "go").touch()
    _, error = process.communicate()
    assert process.returncode == 130
    assert "to go on from it: jobcore run deaf.py" in error


def test_a_second_ctrl_c_does_not_wait_for_tasks_that_hear_nothing(here):
    (here / "deaf.py").write_text(DEAF)
    process = start("run", "deaf.py", cwd=here)
    wait_for(process, "deaf task runs")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert process.stderr.readline() == f"{HEARD}\n"
    # Impatiently: two signals within microseconds count as one, as everywhere.
    while process.poll() is None:
        process.send_signal(signal.SIGINT)
        time.sleep(0.2)
    _, error = process.communicate()
    assert process.returncode == 130
    assert error.splitlines()[-1] == "to go on from it: jobcore run deaf.py"
    assert "Traceback" not in error


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
