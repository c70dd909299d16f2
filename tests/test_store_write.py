"""A save is whole or has not happened. What comes of each system call that fails is in ``test_fault_save.py``."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore.errors import CheckpointNotFoundError, FormatError, SaveError
from jobcore.store import (
    VerifyReport,
    files,
    load,
    publishing,
    save,
    saving,
    syncing,
    verify,
    write_database,
)
from store_cases import TINY

STATE = {"a": np.arange(2000.0), "b": np.arange(60, dtype="i2").reshape(4, 15).T, "c": "text"}


def contents(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def equal(found: dict[str, Any]) -> bool:
    return found["c"] == "text" and all(np.array_equal(found[name], STATE[name]) for name in "ab")


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, MemoryError])
@pytest.mark.parametrize("call", [(syncing, "sync_file"), (publishing, "publish")], ids=["sync", "publish"])
def test_an_interrupt_removes_the_unfinished_file_and_passes(
    call: tuple[Any, str], error: type[BaseException], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object) -> None:
        raise error

    monkeypatch.setattr(*call, interrupted)
    with pytest.raises(error):
        save(tmp_path / "x", STATE, chunks=TINY)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("suffix", ["zarr.zip", "zarr"])
def test_what_cannot_be_read_back_is_an_error_to_act_on(
    suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    final = tmp_path / f"x.{suffix}"
    verify = saving.verify_file

    def spoil(temporary: str, digest: str) -> VerifyReport:
        place = Path(temporary)
        file = next(place.rglob("c.*")) if place.is_dir() else place
        file.chmod(0o644)
        file.write_bytes(b"\xa5" + file.read_bytes()[1:])
        return verify(temporary, digest=digest)

    monkeypatch.setattr(saving, "verify_file", spoil)
    with pytest.raises(SaveError, match="could not be read back") as caught:
        save(final, STATE, chunks=TINY, verify=True)
    error = caught.value
    assert (error.errno, error.filename) == (errno.EIO, str(final))
    assert error.hint is not None
    cause = error.__cause__
    assert isinstance(cause, FormatError)
    assert cause.place
    assert cause.path.startswith(str(tmp_path))
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


@pytest.mark.parametrize("suffix", ["zarr.zip", "zarr"])
@pytest.mark.parametrize("left", [0.0, 0.3, 0.9])
def test_a_damaged_database_is_replaced_whole(suffix: str, left: float, tmp_path: Path) -> None:
    """Nothing of it is read or kept, so that what one save left behind cannot spoil each later one."""
    path = tmp_path / f"x.{suffix}"
    save(path, STATE, chunks=TINY)
    parts = [path] if path.is_file() else [part for part in path.rglob("*") if part.name.startswith("c.")]
    for part in parts:
        part.chmod(0o644)
        os.truncate(part, int(part.stat().st_size * left))
    with pytest.raises(FormatError):
        load(path)
    save(path, STATE, chunks=TINY, overwrite=True)
    assert equal(load(path))
    assert verify(path).ok
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


def test_a_loser_of_a_race_replaces_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    publish = publishing.publish

    def late(temporary: str, final: str) -> None:
        Path(final).write_text("the other was first")
        publish(temporary, final)

    monkeypatch.setattr(publishing, "publish", late)
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
    monkeypatch.setattr(files, "create_temporary", None)  # nothing is written before it is told
    for place, code in places.items():
        with pytest.raises(SaveError) as caught:
            save(place, STATE, overwrite=overwrite)
        assert caught.value.errno == code
    assert sorted(path.name for path in tmp_path.iterdir()) == before


def test_a_directory_that_may_not_be_written_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(path: str) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), path)

    monkeypatch.setattr(files, "create_temporary", refused)
    with pytest.raises(SaveError, match="Permission denied") as caught:
        save(tmp_path / "x", STATE)
    assert caught.value.errno == errno.EACCES
    assert list(tmp_path.iterdir()) == []


def test_a_killed_save_leaves_a_hidden_file_that_harms_nobody(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys\n"
        "import numpy as np\n"
        "from jobcore.store import save, syncing\n"
        "syncing.sync_file = lambda fd: os.kill(os.getpid(), signal.SIGKILL)\n"
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
