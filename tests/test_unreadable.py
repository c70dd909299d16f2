"""A file that cannot be read now may be whole: it is tried again, told, and never passed over like a damaged one."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from cli_tools import jc
from jobcore import CheckpointWarning, JobRunner, LocalSession, MultiNodeCheckpointManager, Task, TaskGroup
from jobcore.checkpoint import CommitLog, RunDirectory, RunResult, reading
from jobcore.checkpoint.damage import is_damage, mishap_of
from jobcore.checkpoint.reading import patiently
from jobcore.errors import (
    CheckpointNotFoundError,
    FormatError,
    ReadError,
    SaveError,
    TaskGroupError,
    VersionError,
)
from jobs import counting_job

EPOCHS = 3
RECORD, CLAIM = f"epoch.{EPOCHS}.1.json", "generation.1.json"
DATABASES = {"zarr.zip": f"local.{EPOCHS}.1.zarr.zip", "zarr": f"local.{EPOCHS}.1.zarr"}


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "PAUSES_S", (0, 0, 0))


def train(run: Path, epochs: int, resume: Any = "latest", db_type: str = "zarr.zip") -> RunResult:
    runner = JobRunner(counting_job(epochs), MultiNodeCheckpointManager(run, db_type), resume)
    with LocalSession() as session:
        runner.train(session)
    return runner.result


def log(run: Path) -> CommitLog:
    return CommitLog(RunDirectory.at(run, "zarr.zip"))


@pytest.fixture
def run(tmp_path: Path) -> Path:
    train(tmp_path / "run", EPOCHS)
    return tmp_path / "run"


class Failing:
    """Makes the opening or reading of files fail by name, so many times; `seen` counts the attempts."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, name: str, code: int, times: int = 10**9) -> None:
        self.name, self.code, self.left, self.seen = name, code, times, 0
        monkeypatch.setattr(os, "open", self.wrap(os.open))
        monkeypatch.setattr(Path, "read_bytes", self.wrap(Path.read_bytes))

    def wrap(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(path: Any, *args: Any, **kwargs: Any) -> Any:
            if os.fspath(path).rpartition(os.sep)[2] == self.name:
                self.seen += 1
                if self.left > 0:
                    self.left -= 1
                    raise OSError(self.code, os.strerror(self.code), os.fspath(path))
            return real(path, *args, **kwargs)

        return call


def read_error(error: BaseException) -> ReadError:
    if isinstance(error, TaskGroupError):
        (failure,) = error.failures
        error = failure.error
    assert isinstance(error, ReadError)
    return error


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EAGAIN, errno.EMFILE])
@pytest.mark.parametrize("name", [DATABASES["zarr.zip"], RECORD, CLAIM])
def test_what_passes_is_waited_for(run: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int) -> None:
    failing = Failing(monkeypatch, name, code, times=2)
    result = train(run, EPOCHS + 1)
    assert (result.resumed_from, result.damaged, failing.left) == (EPOCHS, [], 0)


@pytest.mark.parametrize("code", [errno.EIO, errno.ESTALE, errno.EMFILE, errno.EACCES, errno.ENOMEM])
@pytest.mark.parametrize("name", [DATABASES["zarr.zip"], RECORD, CLAIM])
def test_what_does_not_pass_ends_the_resume_and_changes_nothing(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    before = {path.name for path in run.iterdir()}
    failing = Failing(monkeypatch, name, code)
    with pytest.raises((TaskGroupError, ReadError), match=os.strerror(code)) as caught:
        train(run, EPOCHS + 1)
    error = read_error(caught.value)
    assert (error.errno, error.strerror, error.filename) == (code, os.strerror(code), str(run / name))
    assert name in str(error)
    assert error.hint is not None
    assert "start again" in error.hint
    system = error.__cause__.__cause__ if isinstance(error.__cause__, FormatError) else error.__cause__
    assert isinstance(system, OSError)
    assert system.errno == code
    # Rights do not come back by themselves.
    assert failing.seen == (1 if code == errno.EACCES else 4)
    assert {path.name for path in run.iterdir()} == before


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
@pytest.mark.parametrize("times", [1, 10**9])
def test_a_read_that_fails_within_a_database(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, db_type: str, times: int
) -> None:
    train(tmp_path, EPOCHS, db_type=db_type)
    left = [times]

    def failing(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*args: Any) -> Any:
            if left[0]:
                left[0] -= 1
                raise OSError(errno.EIO, os.strerror(errno.EIO))
            return real(*args)

        return call

    monkeypatch.setattr(os, "preadv", failing(os.preadv))
    monkeypatch.setattr(os, "pread", failing(os.pread))
    if times == 1:
        assert train(tmp_path, EPOCHS + 1, db_type=db_type).resumed_from == EPOCHS
        return
    with pytest.raises(TaskGroupError, match=r"could not be read|can be read") as caught:
        train(tmp_path, EPOCHS + 1, db_type=db_type)
    error = read_error(caught.value)
    assert error.errno == errno.EIO
    assert DATABASES[db_type] in str(error)
    assert log(tmp_path).read().newest == 1


@pytest.mark.parametrize("code", [errno.EBADMSG, getattr(errno, "EUCLEAN", errno.EBADMSG), errno.ENOENT])
@pytest.mark.parametrize("name", [DATABASES["zarr.zip"], RECORD])
def test_what_the_file_system_calls_damaged_or_gone_is_so_at_once(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str, code: int
) -> None:
    failing = Failing(monkeypatch, name, code)
    with pytest.warns(CheckpointWarning, match="is damaged and passed over"):
        assert train(run, EPOCHS + 1).resumed_from == EPOCHS - 1
    assert failing.seen == 1


@pytest.mark.parametrize("name", [DATABASES["zarr.zip"], RECORD])
def test_an_epoch_asked_for_by_number_needs_only_its_own_files(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Failing(monkeypatch, name, errno.EIO)
    with pytest.raises((TaskGroupError, ReadError)):
        train(run, EPOCHS + 1, EPOCHS)
    assert train(run, EPOCHS - 1, EPOCHS - 2).resumed_from == EPOCHS - 2


@pytest.mark.parametrize("resume", ["latest", EPOCHS - 1])
def test_a_claim_is_needed_by_whoever_resumes(
    run: Path, monkeypatch: pytest.MonkeyPatch, resume: Any
) -> None:
    Failing(monkeypatch, CLAIM, errno.EIO)
    with pytest.raises(ReadError, match="generation") as caught:
        train(run, EPOCHS + 1, resume)
    assert "resume_from_epoch" not in str(caught.value)


@pytest.mark.parametrize("name", [RECORD, CLAIM])
def test_a_start_from_scratch_needs_no_earlier_file(
    run: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    Failing(monkeypatch, name, errno.EIO)
    with pytest.warns(CheckpointWarning, match="starting from scratch"):
        assert train(run, 1, None).resumed_from is None


def test_a_resume_reads_each_record_once(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    records = [Failing(monkeypatch, name, errno.EIO, times=0) for name in (RECORD, CLAIM)]
    assert train(run, EPOCHS + 1).resumed_from == EPOCHS
    # A claim is looked at again before a save, to see whether it is still the run's own; this is another's.
    assert [record.seen for record in records] == [1, 1]


def test_a_directory_that_cannot_be_listed_is_told(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: object) -> list[str]:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(os, "listdir", refuse)
    manager = MultiNodeCheckpointManager(run)
    for look in (manager.history, lambda: manager.epoch_state(9), lambda: train(run, EPOCHS + 1)):
        with pytest.raises(ReadError, match="Permission denied") as caught:
            look()
        assert caught.value.filename == str(run)
    with pytest.raises(SaveError, match="Permission denied"):
        log(run).claim("run", None)


def test_the_state_of_an_epoch_that_cannot_be_read_is_not_guessed(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = MultiNodeCheckpointManager(run)
    manager.set_params(["local"])
    Failing(monkeypatch, DATABASES["zarr.zip"], errno.EIO)
    assert manager.epoch_state(EPOCHS - 1) == "complete"
    with pytest.raises(ReadError):
        manager.epoch_state(EPOCHS)
    with LocalSession() as session, pytest.raises(TaskGroupError) as caught:
        session.run(manager.check_db_exists(EPOCHS))
    read_error(caught.value)


def test_a_database_that_may_not_be_looked_at_is_not_missing(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stat = os.stat

    def refuse(path: Any, **kwargs: Any) -> os.stat_result:
        if str(path).endswith(DATABASES["zarr.zip"]):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return stat(path, **kwargs)

    manager = MultiNodeCheckpointManager(run)
    with LocalSession() as session:
        monkeypatch.setattr(os, "stat", refuse)
        with pytest.raises(ReadError, match="Permission denied"):
            manager.load_blobs_locally(["local"], ["count"], EPOCHS, session)
        monkeypatch.undo()
        (run / DATABASES["zarr.zip"]).unlink()
        assert not manager.load_blobs_locally(["local"], ["count"], EPOCHS, session)


def test_whoever_only_looks_is_told_of_what_cannot_be_read(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Failing(monkeypatch, RECORD, errno.EIO)
    (fault,) = log(run).read(tolerant=True).faults
    assert (fault.epoch, fault.unread) == (EPOCHS, True)
    assert log(run).read(EPOCHS - 1).get(EPOCHS - 1).epoch == EPOCHS - 1
    told = f"the record of epoch {EPOCHS} (generation 1) cannot be read"
    assert told in jc("ls", str(run)).stdout
    assert f"the record of epoch {EPOCHS} cannot be read" in jc("show", str(run)).stderr
    assert RECORD in jc("verify", str(run), status=1).stdout


def test_a_process_that_may_not_look_into_its_own_directory_does_not_save(
    run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    claim = log(run).claim("run", None)

    def refuse(*_: object, **__: object) -> bool:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(os, "stat", refuse)
    with pytest.raises(SaveError, match="Permission denied") as caught:
        log(run).check_current(claim)
    assert caught.value.errno == errno.EACCES


def caused(error: Exception, cause: BaseException | None) -> Exception:
    error.__cause__ = cause
    return error


@pytest.mark.parametrize(
    ("error", "damage", "mishap"),
    [
        (FormatError("wrong"), True, None),
        (VersionError("new"), False, None),
        (ReadError("now"), False, None),
        (CheckpointNotFoundError("none"), False, None),
        (OSError(errno.EIO, "?"), False, errno.EIO),
        (OSError(errno.ENOENT, "?"), True, None),
        (caused(FormatError("?"), OSError(errno.EIO, "?")), False, errno.EIO),
        (caused(FormatError("?"), OSError(errno.EBADMSG, "?")), True, None),
        (caused(FormatError("?"), EOFError()), True, None),
        (caused(FormatError("?"), MemoryError()), False, errno.ENOMEM),
        (ValueError(), False, None),
    ],
)
def test_damage_and_mishaps_are_told_apart(error: Exception, damage: bool, mishap: int | None) -> None:
    found = mishap_of(error)
    assert (is_damage(error), None if found is None else found.errno) == (damage, mishap)


def test_a_pause_ends_when_the_task_is_cancelled(tmp_path: Path) -> None:
    def never(ws: Any) -> None:
        def read() -> None:
            started.append(1)
            raise OSError(errno.EIO, "Input/output error")

        patiently(tmp_path, read, [3600])

    def fail(ws: Any) -> None:
        while not started:
            pass
        raise ValueError("another task failed")

    started: list[int] = []
    with TaskGroup() as group:
        Task(step=never, name="never")
        Task(step=fail, name="fail")
    with LocalSession() as session, pytest.raises(TaskGroupError, match="another task failed"):
        session.run(group)


def test_blobs_that_a_failed_attempt_has_made_are_filled_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manager = MultiNodeCheckpointManager(tmp_path)
    with LocalSession() as session:
        for name in ("a", "b"):
            session.workspace().feed(name, np.arange(1 << 17) + ord(name))
        session.run(manager.init(["local"]))
        session.run(manager.save(0))
        manager.commit(0)
    calls = [0]
    preadv = os.preadv

    def failing(fd: int, buffers: Any, offset: int) -> int:
        calls[0] += 1
        if calls[0] == 5:
            raise OSError(errno.EIO, "Input/output error")
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    with LocalSession() as session:
        session.run(manager.load(0))
        for name in ("a", "b"):
            assert session.workspace().fetch(name)[0] == ord(name)
