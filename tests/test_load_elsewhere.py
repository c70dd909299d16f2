"""What was saved in one way is loaded in every other: other calls, other processes, a plain dict."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jobcore.store
import slow_reader
from jobcore import Counter, Job, JobRunner, LocalSession, MultiNodeCheckpointManager, Node, Workspace
from jobcore.errors import MismatchError
from jobcore.store import containers, load, open_database, save
from load_tools import MODEL
from store_cases import TINY


@pytest.mark.parametrize(
    "name", [name for name in jobcore.store.__all__ if name.startswith(("save", "write"))]
)
def test_what_every_way_of_saving_makes_is_loaded(name: str, tmp_path: Path) -> None:
    done = getattr(jobcore.store, name)(tmp_path / "x.zarr.zip", MODEL)
    if hasattr(done, "wait"):
        done.wait()
    into = {"net/enc/w": np.zeros((3, 4)), "steps": Counter()}
    load(tmp_path / "x.zarr.zip", list(into), into)
    assert into["net/enc/w"].tolist() == MODEL["net/enc/w"].tolist()
    assert into["steps"].retrieve() == 7
    assert load(tmp_path / "x.zarr.zip", ["note"]) == {"note": "text"}


ELSEWHERE = """
import sys

for name in ("torch", "jax", "tensorflow", "ml_dtypes", "zarr", "numcodecs", "my_training_code"):
    sys.modules[name] = None
import numpy as np
import jobcore

found = jobcore.load(sys.argv[1])
assert type(found["w"]) is np.ndarray and found["w"].dtype == np.float32, found
assert found["steps"].retrieve() == 3 and found["cfg"] == {"lr": 0.1}
assert found["rng"].random() == np.random.default_rng(5).random()
assert [blob.name for blob in jobcore.inspect(sys.argv[1]).blobs] == ["w", "steps", "cfg", "rng"]
assert jobcore.verify(sys.argv[1]).ok
"""


def test_a_file_is_read_where_nothing_of_the_training_is_installed(tmp_path: Path) -> None:
    class Device:
        """Stands for an array of another library, on a device."""

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.ones((2, 2), "f4")

    path = tmp_path / "x.zarr.zip"
    save(path, {"w": Device(), "steps": Counter(3), "cfg": {"lr": 0.1}, "rng": np.random.default_rng(5)})
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_workspace_without_blobs_is_saved_and_loaded(tmp_path: Path) -> None:
    ws = Workspace()
    save(tmp_path / "x", {blob.name: blob for blob in ws.local_blobs()})
    assert load(tmp_path / "x", into=ws) == load(tmp_path / "x", into={}) == {}
    with pytest.raises(MismatchError, match="the prefix 'a/'"):
        load(tmp_path / "x", prefix="a/")


@pytest.mark.parametrize("db_type", containers.known_types())
def test_a_run_without_blobs_is_saved_and_resumed(db_type: str, tmp_path: Path) -> None:
    done: list[int] = []

    def train(resume: str | None) -> JobRunner:
        with Job() as job, Node("n"):

            @job.epoch_group.task(outputs=["finished"])
            def work(ws: Workspace) -> None:
                done.append(len(done))
                ws.feed("finished", len(done) >= 3, transient=True)

            job.add_stop_condition(work.outputs()[0])
        runner = JobRunner(job, MultiNodeCheckpointManager(tmp_path, db_type=db_type), resume)
        runner.train(LocalSession())
        return runner

    train(None)
    assert done == [0, 1, 2]
    names = [path for path in tmp_path.iterdir() if path.name.endswith(f".{db_type}")]
    assert len(names) == 4
    assert all(load(path) == {} for path in names)
    assert train("latest").result.resumed_from == 3


LETTERS = st.text("ab/", min_size=1, max_size=4)


DTYPES = ["u1", "i2", ">i4", "f4", "f8", ml_dtypes.bfloat16]


SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)


def plainly(
    blobs: dict[str, np.ndarray[Any, Any]], pick: Any, prefix: str, rename: dict[str, str | None]
) -> dict[str, np.ndarray[Any, Any]] | None:
    """The blobs of the file under the names wanted, or None where that is an error."""
    result: dict[str, np.ndarray[Any, Any]] = {}
    short = {name[len(prefix) :]: name for name in blobs if name.startswith(prefix)}
    if not rename.keys() <= short.keys() or (prefix and not short):
        return None
    for cut, name in short.items():
        if not pick(name):
            continue
        if not cut:
            return None
        wanted = rename.get(cut, cut)
        if wanted is None:
            continue
        if wanted in result or not wanted:
            return None
        result[wanted] = blobs[name]
    return result


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_loads_are_those_of_a_plain_dict(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "plain.zarr.zip"
    names = data.draw(st.lists(LETTERS, unique=True, max_size=5))
    stored = {name: array(data) for name in names}
    save(path, stored, chunks=TINY, durable=False, overwrite=True)
    _, found, _ = slow_reader.read(path.read_bytes())
    blobs = {name: value for name, (_, value) in found.items()}
    prefix = data.draw(st.sampled_from(["", "", "a", "b/"]))
    rename = data.draw(st.dictionaries(st.sampled_from([*names, "a"]), st.none() | LETTERS, max_size=3))
    part = data.draw(st.none() | st.sets(st.sampled_from(names)) if names else st.none())
    expected = plainly(blobs, lambda name: part is None or name in part, prefix, rename)
    if expected is None:
        with pytest.raises(MismatchError):
            load(path, part and part.__contains__, rename=rename, prefix=prefix)
        return
    with open_database(path) as database:
        alike(
            database.load(part if part is None else part.__contains__, rename=rename, prefix=prefix), expected
        )
        into = {name: other(data, value) for name, value in expected.items()}
        with np.errstate(all="ignore"):
            database.load(
                None if part is None else part.__contains__, into, rename=rename, prefix=prefix, cast="unsafe"
            )
            alike(into, {name: value.astype(into[name].dtype) for name, value in expected.items()})
        for name, value in stored.items():
            if value.ndim:
                rows = slice(*data.draw(st.tuples(*[st.none() | st.integers(-9, 9)] * 2)))
                alike({name: database.read(name, rows)}, {name: value[rows]})


def array(data: st.DataObject) -> np.ndarray[Any, Any]:
    shape = data.draw(SHAPES)
    numbers = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 100, shape)
    return np.asarray(numbers).astype(data.draw(st.sampled_from(DTYPES)))


def other(data: st.DataObject, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of the same shape, of any dtype and layout."""
    dtype = data.draw(st.sampled_from(DTYPES))
    if value.ndim and data.draw(st.booleans()):
        return np.zeros((2 * value.shape[0], *value.shape[1:]), dtype)[::2]
    return np.zeros(value.shape, dtype, order=data.draw(st.sampled_from("CF")))


def alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for one, two in zip(found.values(), expected.values(), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
