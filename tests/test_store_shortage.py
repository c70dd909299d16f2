"""Too few open files, too little memory, too much damage: told as what it is, and in a time that goes with the size."""

from __future__ import annotations

import errno
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jobcore
from jobcore.errors import SaveError
from jobcore.store import BlobPolicy, Zstd, codecs, dirformat, dirreader
from jobcore.store.records import Fault

FEW_FILES = """
import resource, sys
import numpy as np
import jobcore
jobcore.save(sys.argv[1] + "/first.zarr", {"a": np.ones(3)})
resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
jobcore.save(sys.argv[1] + "/x.zarr", {f"b{i}": np.full(9, i) for i in range(100)})
"""


def test_a_durable_directory_keeps_few_files_open_where_few_are_allowed(tmp_path: Path) -> None:
    script = [sys.executable, "-c", FEW_FILES, str(tmp_path)]
    done = subprocess.run(script, timeout=60, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert jobcore.verify(tmp_path / "x.zarr").ok
    assert jobcore.load(tmp_path / "x.zarr")["b99"][0] == 99


@pytest.mark.parametrize(
    ("refused", "place", "what"), [("b", "b", "the folder 'b'"), ("", "zarr.json", "the directory")]
)
def test_verify_tells_of_folders_that_it_cannot_look_into(
    refused: str, place: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.zarr"
    jobcore.save(path, {"a": np.ones(3), "b": np.ones(3)})
    listing_of = dirreader.listing_of

    def short(directory: int, folder: str) -> list[tuple[str, bool]]:
        if folder == refused:
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))
        return listing_of(directory, folder)

    monkeypatch.setattr(dirreader, "listing_of", short)
    (fault,) = jobcore.verify(path).faults
    assert fault.place == place
    assert fault.message == f"{what} cannot be listed: {os.strerror(errno.EMFILE)}"


def test_a_database_that_cannot_be_looked_at_is_not_taken_for_something_else(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "x.zarr"
    jobcore.save(path, {"a": np.ones(3)})

    def refuse(*_: Any) -> Any:
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    monkeypatch.setattr(dirformat, "open", refuse, raising=False)
    with pytest.raises(SaveError, match=os.strerror(errno.EMFILE)):
        jobcore.save(path, {"a": np.zeros(3)}, overwrite=True)
    assert jobcore.load(path)["a"][0] == 1


class Poor:
    """A codec library that gets no memory."""

    def compress(self, *_: Any) -> bytes:
        raise RuntimeError("Zstd compression error: b'Allocation error : not enough memory'")

    decompress = compress


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
def test_too_little_memory_for_a_codec_is_no_damage(
    db_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, policies = tmp_path / f"x.{db_type}", {"*": BlobPolicy(codec=Zstd())}
    jobcore.save(path, {"a": np.ones(3)}, policies=policies)
    monkeypatch.setattr(codecs, "_zstd", Poor)
    for call in (jobcore.load, jobcore.verify):
        with pytest.raises(MemoryError, match="not enough memory"):
            call(path)
    with pytest.raises(MemoryError, match="not enough memory"):
        jobcore.save(path, {"a": np.ones(3)}, policies=policies, overwrite=True)
    monkeypatch.undo()
    assert jobcore.verify(path).ok
    assert [found.name for found in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
def test_faults_are_not_compared_each_with_each(
    db_type: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / f"x.{db_type}"
    jobcore.save(path, {f"b{i}": np.full(40, i) for i in range(300)})
    if path.is_dir():
        for folder in path.glob("b*"):
            shutil.rmtree(folder)
    else:
        with path.open("r+b") as file:
            file.write(bytes(path.stat().st_size // 2))
    compared, equal = 0, Fault.__eq__

    def counting(self: Fault, other: object) -> bool:
        nonlocal compared
        compared += 1
        return equal(self, other)

    monkeypatch.setattr(Fault, "__eq__", counting)
    faults = jobcore.verify(path).faults
    assert len(set(faults)) == len(faults) > 500
    assert compared < len(faults)
