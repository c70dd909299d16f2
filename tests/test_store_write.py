"""A save is whole or has not happened: whatever call fails, the directory is as it was."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore.errors import CheckpointNotFoundError, SaveError
from jobcore.store import files, load, save, verify, write_database
from store_cases import TINY

CALLS = ["open", "lstat", "pwrite", "fsync", "close", "replace", "link", "unlink"]
STATE = {"a": np.arange(2000.0), "b": np.arange(60, dtype="i2").reshape(4, 15).T, "c": "text"}


@pytest.fixture(autouse=True)
def small_batches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make a small file take every path of the writer."""
    monkeypatch.setattr(files, "_warned", set())


class Recorder:
    """Calls of the operating system in order, the given one of which fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.trace: list[str] = []
        self.fail_at = -1
        self.error: Callable[[str], BaseException] = lambda name: OSError(errno.EIO, "Input/output error")
        for name in CALLS:
            monkeypatch.setattr(os, name, self._wrap(name, getattr(os, name)))
        monkeypatch.setattr(files, "sync_file", self._wrap("sync_file", files.sync_file))
        rename = files._exclusive_rename()
        if rename is not None:
            wrapped = self._wrap("rename", rename)
            monkeypatch.setattr(files, "_exclusive_rename", lambda: wrapped)

    def _wrap(self, name: str, call: Any) -> Any:
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            number = len(self.trace)
            self.trace.append(name)
            if number != self.fail_at:
                return call(*args, **kwargs)
            if name == "close":
                call(*args)  # a close that fails has closed all the same
            error = self.error(name)
            if name == "rename" and isinstance(error, OSError):
                return error.errno
            raise error

        return wrapped


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def calls_of_a_save(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, **options: Any) -> list[str]:
    with monkeypatch.context() as patch:
        recorder = Recorder(patch)
        save(tmp_path / "count", STATE, chunks=TINY, **options)
    (tmp_path / "count").unlink()
    return recorder.trace


def equal(found: dict[str, Any]) -> bool:
    return found["c"] == "text" and all(np.array_equal(found[name], STATE[name]) for name in "ab")


@pytest.mark.parametrize("overwrite", [False, True])
def test_whatever_call_fails_the_directory_stays_as_it_was(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy: dict[str, Any] = {"overwrite": overwrite}
    trace = calls_of_a_save(tmp_path, monkeypatch, **policy)
    assert trace.count("pwrite") > 10
    if overwrite:
        save(tmp_path / "x", {"old": 1})
    before = contents(tmp_path)
    harmless = []
    for number, name in enumerate(trace):
        with monkeypatch.context() as patch:
            recorder = Recorder(patch)
            recorder.fail_at = number
            try:
                save(tmp_path / "x", STATE, chunks=TINY, **policy)
            except SaveError as error:
                failure: SaveError | None = error
            else:
                failure = None
        if failure is None:
            harmless.append((number, name))
            assert equal(load(tmp_path / "x"))
            (tmp_path / "x").unlink()
            if overwrite:
                (tmp_path / "x").write_bytes(before["x"])
        elif overwrite and number > trace.index("replace"):
            # The new file had its name already; only whether that survives a power cut is not known.
            assert name == "fsync"
            assert equal(load(tmp_path / "x"))
            (tmp_path / "x").write_bytes(before["x"])
        else:
            assert failure.errno == errno.EIO
            assert failure.filename == str(tmp_path / "x")
            assert isinstance(failure.__cause__, OSError)
            assert str(tmp_path / "x") in str(failure)
        assert contents(tmp_path) == before, (number, name)
    # Closing the directory, from which nothing was written, is the only call whose failure loses nothing.
    assert harmless == [(len(trace) - 1, "close")]


def test_data_is_synced_before_publishing_and_the_directory_after(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for overwrite, publish in ((False, "rename"), (True, "replace")):
        trace = calls_of_a_save(tmp_path, monkeypatch, overwrite=overwrite)
        steps = [name for name in trace if name in ("sync_file", publish, "fsync")]
        assert steps == ["sync_file", publish, "fsync"]
        last = len(trace) - trace[::-1].index("pwrite")
        assert last <= trace.index("sync_file")
    assert "sync" not in "".join(calls_of_a_save(tmp_path, monkeypatch, durable=False))


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
def test_an_interrupt_removes_the_unfinished_file_and_passes(
    error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = calls_of_a_save(tmp_path, monkeypatch)
    for number in (trace.index("pwrite"), trace.index("sync_file"), trace.index("rename")):
        with monkeypatch.context() as patch:
            recorder = Recorder(patch)
            recorder.fail_at, recorder.error = number, lambda _: error()
            with pytest.raises(error):
                save(tmp_path / "x", STATE, chunks=TINY)
        assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_told_with_both_numbers(
    code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    recorder = Recorder(monkeypatch)
    recorder.fail_at = 5
    recorder.error = lambda _: OSError(code, os.strerror(code))
    with pytest.raises(
        SaveError, match=r"its data takes 16,1\d\d bytes, and [\d,]+ bytes are free.*quota"
    ) as caught:
        save(tmp_path / "x", STATE)
    assert caught.value.errno == code
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_replaced_only_on_demand(tmp_path: Path) -> None:
    save(tmp_path / "x", {"v": 1})
    with pytest.raises(SaveError, match="overwrite=True") as caught:
        save(tmp_path / "x", {"v": 2})
    assert caught.value.errno == errno.EEXIST
    assert load(tmp_path / "x")["v"] == 1
    save(tmp_path / "x", {"v": 2}, overwrite=True)
    assert load(tmp_path / "x")["v"] == 2
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


def test_a_loser_of_a_race_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = files.publish

    def late(temporary: str, final: str) -> None:
        Path(final).write_text("the other was first")
        publish(temporary, final)

    monkeypatch.setattr(files, "publish", late)
    with pytest.raises(SaveError):
        save(tmp_path / "x", STATE)
    assert contents(tmp_path) == {"x": b"the other was first"}


@pytest.mark.parametrize("overwrite", [False, True])
def test_places_that_cannot_be_written_are_told_at_once(
    overwrite: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "folder").mkdir()
    before = sorted(path.name for path in tmp_path.iterdir())
    places = {
        tmp_path / "no" / "x": errno.ENOENT,
        tmp_path / "file" / "x": errno.ENOTDIR,
        tmp_path / "folder": errno.EISDIR if overwrite else errno.EEXIST,
        tmp_path / ("x" * 300): errno.ENAMETOOLONG,
    }
    monkeypatch.setattr(os, "pwrite", None)  # nothing is written before it is told
    for place, code in places.items():
        with pytest.raises(SaveError) as caught:
            save(place, STATE, overwrite=overwrite)
        assert caught.value.errno == code
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_directory_that_may_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recorder = Recorder(monkeypatch)
    recorder.fail_at, recorder.error = 2, lambda _: PermissionError(errno.EACCES, "Permission denied")
    with pytest.raises(SaveError, match="Permission denied") as caught:
        save(tmp_path / "x", STATE)
    assert recorder.trace == ["open", "lstat", "open", "close"]
    assert caught.value.errno == errno.EACCES


def test_a_save_that_verifies_notices_what_the_disk_did_not_keep(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sizes: list[int] = []
    pwrite = os.pwrite

    def corrupt(fd: int, data: Any, offset: int) -> int:
        data = bytearray(data)
        sizes.append(len(data))
        if len(sizes) == 7:
            data[len(data) // 2] ^= 1
        return pwrite(fd, data, offset)

    monkeypatch.setattr(os, "pwrite", corrupt)
    with pytest.raises(SaveError, match=r"could not be read back: blob '.', "):
        save(tmp_path / "x", STATE, verify=True, chunks=TINY)
    assert list(tmp_path.iterdir()) == []
    assert len(sizes) > 7
    save(tmp_path / "x", STATE, verify=True, chunks=TINY)
    assert verify(tmp_path / "x").ok


def test_a_killed_save_leaves_a_hidden_file_that_harms_nobody(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "import numpy as np\n"
        "from jobcore.store import files, save\n"
        "files.sync_file = lambda fd: os.kill(os.getpid(), signal.SIGKILL)\n"
        "save(sys.argv[1], {'a': np.zeros(100_000)})\n"
    )
    place = tmp_path / "x.zarr.zip"
    done = subprocess.run([sys.executable, "-c", code, str(place)], check=False)
    assert done.returncode < 0
    (left,) = tmp_path.iterdir()
    assert left.name.startswith(".x.zarr.zip.")
    assert left.name.endswith(".tmp")
    with pytest.raises(CheckpointNotFoundError):
        load(place)
    save(place, {"a": 1})
    assert load(place)["a"] == 1


def test_many_threads_save_at_once(tmp_path: Path, together: Any) -> None:
    results = together(6, lambda number: write_database(tmp_path / str(number % 3), STATE, epoch=number))
    assert sum(isinstance(result, SaveError) for result in results) == 3
    assert all(equal(load(tmp_path / str(number))) for number in range(3))
    assert len(list(tmp_path.iterdir())) == 3
