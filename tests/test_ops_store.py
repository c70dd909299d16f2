"""The kernels that save, load and look for databases."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore.errors import (
    BlobValueError,
    BuildError,
    CheckpointNotFoundError,
    ChecksumError,
    MismatchError,
    SaveError,
    UnsupportedBlobError,
)
from jobcore.graph import BlobReference, NameScope, Net
from jobcore.store import inspect, write_database
from jobcore.workspace import Workspace
from op_tools import result, run, same


@pytest.fixture
def db(tmp_path: Path) -> Path:
    return tmp_path / "model.zarr.zip"


def test_save_and_load_every_kind(db: Path) -> None:
    ws = Workspace()
    rng = np.random.default_rng(3)
    values = {
        "t": np.arange(3.0),
        "c": Counter(4),
        "s": "text",
        "b": b"bytes",
        "d": {"k": [1, None]},
        "r": rng,
    }
    for name, value in values.items():
        ws.feed(name, value)
    net = Net("save")
    net.Save(list(values), db=db)
    run(net, ws)
    assert [blob.name for blob in inspect(db).blobs] == list(values)
    held = values["c"]
    assert isinstance(held, Counter)
    held.count_up()
    expected = np.random.default_rng(3).random()
    rng.random()
    ws.feed("t", np.zeros(3))
    ws.remove_blob("s")
    load = Net("load")
    load.Load([], list(values), db=str(db))
    run(load, ws)
    assert ws.fetch("t").tolist() == [0, 1, 2]
    assert ws.fetch("c") is held
    assert held.retrieve() == 4
    assert (ws.fetch("s"), ws.fetch("b"), ws.fetch("d")) == ("text", b"bytes", {"k": [1, None]})
    assert ws.fetch("r") is rng
    assert rng.random() == expected


def saved(path: Path, **blobs: Any) -> str:
    write_database(path, blobs)
    return str(path)


def load_op(ws: Workspace, outputs: list[str] | None = None, **args: Any) -> None:
    net = Net("load")
    net.Load([], [] if outputs is None else outputs, **args)
    run(net, ws)


def test_names_in_the_database_can_be_chosen(db: Path) -> None:
    ws = Workspace()
    for name, value in (("n/x", 1), ("n/n/y", 2), ("z", 3)):
        ws.feed(name, value)
    for options, names in (
        ({"strip_prefix": "n/"}, ["x", "n/y", "z"]),
        ({"blob_name_overrides": ["1", BlobReference("2"), "3"]}, ["1", "2", "3"]),
        ({}, ["n/x", "n/n/y", "z"]),
    ):
        net = Net("s")
        with NameScope("n"):
            net.Save(["x", "n/y", BlobReference("z")], db=db, overwrite=True, **options)
        run(net, ws)
        assert [blob.name for blob in inspect(db).blobs] == names


def test_names_of_the_blobs_can_be_chosen(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", **{"n/x": 1, "y": 2})
    for outputs, options, expected in (
        (["x"], {"strip_prefix": "n/"}, {"x": 1}),
        (["m/n/x", "m/y"], {"add_prefix": "m/"}, {"m/n/x": 1, "m/y": 2}),
        (["m/x"], {"add_prefix": "m/", "strip_prefix": "n/"}, {"m/x": 1}),
        (["p", "q"], {"source_blob_names": ["y", "n/x"]}, {"p": 2, "q": 1}),
        (None, {"load_all": True}, {"n/x": 1, "y": 2}),
        (None, {"load_all": True, "strip_prefix": "n/", "add_prefix": "m/"}, {"m/x": 1, "m/y": 2}),
        (["y"], {"load_all": True}, {"n/x": 1, "y": 2}),
    ):
        ws = Workspace()
        load_op(ws, outputs, db=path, **options)
        assert {name: int(ws.fetch(name)) for name in ws} == expected


def test_scopes_go_into_outputs_and_not_into_names_of_the_database(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", y=2)
    ws = Workspace()
    with NameScope("s"):
        load_op(ws, ["x"], db=path, source_blob_names=["y"])
    assert int(ws.fetch("s/x")) == 2


def test_several_databases_at_once(tmp_path: Path) -> None:
    paths = [saved(tmp_path / f"{i}.zarr.zip", **{f"x{i}": i, f"y{i}": -i}) for i in range(3)]
    ws = Workspace()
    load_op(ws, ["x2", "y0"], dbs=paths)
    assert sorted(ws) == ["x2", "y0"]
    load_op(ws, dbs=paths, load_all=True)
    assert len(ws) == 6
    clash = saved(tmp_path / "clash.zarr.zip", x1=1)
    with pytest.raises(MismatchError, match=r"'x1' is in .*1.zarr.zip and in .*clash.zarr.zip"):
        load_op(ws, ["x1"], dbs=[*paths, clash])


def test_a_load_that_is_incomplete(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", x=1)
    ws = Workspace()
    ws.feed("y", 7)
    with pytest.raises(MismatchError, match="2 outputs are not stored: 'y', 'z'"):
        load_op(ws, ["x", "y", "z"], db=path)
    assert ws.blob("x").kind == "empty", "nothing is loaded when something is missing"
    load_op(ws, ["x", "y", "z"], db=path, allow_incomplete=True)
    assert (int(ws.fetch("x")), int(ws.fetch("y")), ws.blob("z").kind) == (1, 7, "empty")
    with pytest.raises(MismatchError, match="not stored: 'w'"):
        load_op(ws, ["w"], db=path, load_all=True)


def test_bound_arrays_are_filled_in_place_or_nothing_is(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", x=np.arange(3.0), y=np.arange(2.0), s="text")
    ws = Workspace()
    x, y = np.zeros(6)[::2], np.zeros(3)
    ws.bind("x", x)
    ws.bind("y", y)
    with pytest.raises(
        MismatchError, match=r"'y' is bound to an array of float64 \(3,\), float64 \(2,\) is stored"
    ):
        load_op(ws, ["x", "y"], db=path)
    assert not x.any()
    load_op(ws, ["x"], db=path)
    assert x.tolist() == [0, 1, 2]
    with pytest.raises(MismatchError, match="a value of type str is stored"):
        load_op(ws, ["x"], db=path, source_blob_names=["s"])


def test_nothing_is_loaded_from_a_damaged_database(tmp_path: Path) -> None:
    path = tmp_path / "a.zarr.zip"
    saved(path, x=np.arange(100.0), y=np.full(100, 7.0))
    data = bytearray(path.read_bytes())
    data[data.index(np.float64(7.0).tobytes() * 50)] ^= 1
    path.write_bytes(data)
    ws = Workspace()
    ws.feed("x", 0)
    with pytest.raises(ChecksumError, match="'y'"):
        load_op(ws, ["x", "y"], db=path)
    assert int(ws.fetch("x")) == 0
    assert ws.blob("y").kind == "empty"


def test_what_cannot_be_saved_is_an_error(db: Path) -> None:
    ws = Workspace()
    ws.feed("timer", Timer("t"))
    ws.feed("x", 1)
    ws.create_blob("empty")
    for name, error, message in (
        ("timer", UnsupportedBlobError, "timer"),
        ("empty", BlobValueError, "a value to save in 'empty', but the blob is empty"),
    ):
        net = Net("s")
        net.Save(["x", name], db=db)
        with pytest.raises(error, match=message):
            run(net, ws)
        assert not db.exists()


def test_a_transient_blob_that_is_named_is_saved(db: Path) -> None:
    ws = Workspace()
    ws.feed("x", 1, transient=True)
    net = Net("s")
    net.Save("x", db=db)
    run(net, ws)
    assert [blob.name for blob in inspect(db).blobs] == ["x"]


def test_a_file_is_only_replaced_on_demand(db: Path) -> None:
    ws = Workspace()
    ws.feed("x", 1)
    net = Net("s")
    net.Save("x", db=db)
    run(net, ws)
    ws.feed("x", 2)
    with pytest.raises(SaveError):
        run(net, ws)
    load_op(ws, ["x"], db=db)
    assert int(ws.fetch("x")) == 1


def test_loading_from_nowhere(db: Path) -> None:
    with pytest.raises(CheckpointNotFoundError):
        load_op(Workspace(), ["x"], db=db)


WRONG_STORE_OPS: list[tuple[Callable[[Net], object], str]] = [
    (lambda n: n.Save("x"), "'db' is missing"),
    (lambda n: n.Save("x", db=""), "'db': expected a path.*it is empty"),
    (lambda n: n.Save("x", db=3), "'db': expected a path"),
    (lambda n: n.Save("x", db="d", db_type="leveldb"), "none of zarr"),
    (
        lambda n: n.Save("x", db="d", strip_prefix="a", blob_name_overrides=["b"]),
        "or strip_prefix, found both",
    ),
    (lambda n: n.Save(["x", "y"], db="d", blob_name_overrides=["b"]), "each of the 2 inputs .* found 1"),
    (lambda n: n.Save(["x", "y"], db="d", blob_name_overrides=["b", "b"]), "would be saved as 'b'"),
    (lambda n: n.Save("x", db="d", blob_name_overrides="x"), "one item and no list"),
    (lambda n: n.Save(["x", "x"], db="d"), "two inputs would be saved as 'x'"),
    (lambda n: n.Save(["a/x", "b/x"], db="d", strip_prefix="/"), "two inputs would be saved as 'x'"),
    (lambda n: n.Save("a/", db="d", strip_prefix="a/"), "nothing is left of the name 'a/'"),
    (lambda n: n.Load([], "x"), "expected db or dbs, found neither"),
    (lambda n: n.Load([], "x", db="d", dbs=["e"]), "expected db or dbs, found both"),
    (lambda n: n.Load([], "x", dbs=["e", "e"]), "dbs names twice the database 'e'"),
    (lambda n: n.Load(db="d"), "outputs or load_all, found neither"),
    (lambda n: n.Load([], ["x", "x"], db="d"), "an output is named twice"),
    (lambda n: n.Load([], ["x", "y"], db="d", source_blob_names=["a"]), "each of the 2 outputs .* found 1"),
    (lambda n: n.Load([], ["x", "y"], db="d", source_blob_names=["a", "a"]), "would be loaded from 'a'"),
    (
        lambda n: n.Load([], "x", db="d", source_blob_names=["a"], strip_prefix="p"),
        "or strip_prefix, found both",
    ),
    (lambda n: n.Load([], "x", db="d", source_blob_names=["a"], add_prefix="p"), "or add_prefix, found both"),
    (lambda n: n.Load([], "x", db="d", source_blob_names=["a"], load_all=True), "or load_all, found both"),
    (lambda n: n.Load([], "x", db="d", db_type="minidb"), "none of zarr"),
    (lambda n: n.DBExists(db_name="d", db_type="minidb"), "none of zarr"),
]


@pytest.mark.parametrize(("build", "message"), WRONG_STORE_OPS)
def test_arguments_that_clash_fail_when_the_op_is_built(build: Any, message: str) -> None:
    with pytest.raises(BuildError, match=message):
        build(Net("n"))


def test_two_blobs_cannot_become_one(tmp_path: Path) -> None:
    path = saved(tmp_path / "a.zarr.zip", **{"a/x": 1, "b/x": 2, "c/": 3})
    with pytest.raises(MismatchError, match="'a/x' and 'b/x' of the database would both become 'x'"):
        load_op(Workspace(), ["x"], db=path, strip_prefix="/")
    with pytest.raises(MismatchError, match="nothing is left of the name 'c/'"):
        load_op(Workspace(), db=path, strip_prefix="c/", load_all=True)


@pytest.mark.parametrize("content", ["good", "missing", "cut", "text", "folder"])
def test_a_database_exists_only_when_it_is_whole(tmp_path: Path, content: str) -> None:
    path = tmp_path / "a.zarr.zip"
    if content in ("good", "cut"):
        saved(path, x=np.arange(9))
    if content == "cut":
        path.write_bytes(path.read_bytes()[:-1])
    elif content == "text":
        path.write_text("not a database")
    elif content == "folder":
        path.mkdir()
    same(result("DBExists", db_name=path), np.bool_(content == "good"))
