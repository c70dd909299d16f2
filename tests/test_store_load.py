"""Where loaded blobs go, and that nothing is touched when something does not fit."""

from __future__ import annotations

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore import Counter, Workspace
from jobcore.errors import CheckpointNotFoundError, ChecksumError, ClosedError, FormatError, MismatchError
from jobcore.store import inspect, load, open_database, save, verify
from store_cases import TINY


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "x.zarr.zip"
    save(
        place,
        {
            "a": np.arange(12.0).reshape(3, 4),
            "b": np.arange(5, dtype="i2"),
            "steps": Counter(7),
            "rng": np.random.default_rng(3),
            "note": "text",
            "cfg": {"k": [1]},
        },
        chunks=TINY,
    )
    return place


def test_named_blobs_come_in_the_order_of_the_names(path: Path) -> None:
    assert list(load(path, ["steps", "a", "steps"])) == ["steps", "a"]
    assert load(path, iter(["note"])) == {"note": "text"}
    assert load(path, []) == {}


def test_missing_names_are_all_told_with_the_closest(path: Path) -> None:
    with pytest.raises(MismatchError) as caught:
        load(path, ["a", "aa", "notes", 3])  # type: ignore[list-item]  # that is the point
    text = str(caught.value)
    assert "in 3 places" in text
    assert "'notes': no such blob is stored (there is note" in text
    with pytest.raises(TypeError, match="single text"):
        load(path, "a")


def test_a_mapping_is_filled_in_place(path: Path) -> None:
    places: dict[str, Any] = {
        "b": np.zeros(10, "i2")[::2],
        "a": np.zeros((3, 4), order="F"),
        "steps": Counter(),
        "rng": np.random.default_rng(0),
    }
    found = load(path, list(places), places)
    assert list(found) == list(places)
    assert all(found[name] is places[name] for name in places)
    assert places["a"].tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert places["b"].tolist() == list(range(5))
    assert places["steps"].retrieve() == 7
    assert places["rng"].random() == np.random.default_rng(3).random()


def test_everything_that_does_not_fit_a_mapping_is_told_before_anything_is_touched(path: Path) -> None:
    frozen = np.zeros(5, "i2")
    frozen.flags.writeable = False
    good = np.zeros((3, 4))
    for names, places, expected in [
        (
            None,
            {"a": good, "zz": good},
            ["'zz': no such", "'b': stored, but not in", "'note': stored, but not in"],
        ),
        (["a", "b"], {"a": good}, ["'b': asked for, but not in the mapping"]),
        (["a", "b"], {"a": good, "b": frozen}, ["'b': the destination is read-only"]),
        (
            ["a", "b"],
            {"a": good, "b": np.zeros(5, ">i2")},
            ["stored is int16 of shape (5,)", ">i2 of shape (5,)"],
        ),
        (["a", "b"], {"a": good, "b": np.zeros((5, 1), "i2")}, ["of shape (5, 1)"]),
        (["a", "b"], {"a": good, "b": [0] * 5}, ["found builtins.list"]),
        (["a", "b"], {"a": good, "b": np.ma.zeros(5, "i2")}, ["found numpy.ma"]),
        (["a", "steps"], {"a": good, "steps": np.zeros(())}, ["'steps': expected a Counter"]),
        (["a", "rng"], {"a": good, "rng": object()}, ["'rng': rng: expected numpy.random.Generator"]),
        (
            ["a", "rng"],
            {"a": good, "rng": random.Random()},
            ["'rng': expected a generator of numpy.Generator/PCG64"],
        ),
        (
            ["a", "cfg", "note"],
            {"a": good, "cfg": {}, "note": ""},
            ["'cfg': a state cannot", "'note': a string"],
        ),
    ]:
        with pytest.raises(MismatchError) as caught:
            load(path, names, places)  # type: ignore[arg-type]  # some are no arrays
        for text in expected:
            assert text in str(caught.value)
        assert not good.any()
    with pytest.raises(TypeError, match="Workspace or a mapping"):
        load(path, into=[good])  # type: ignore[arg-type]


def test_a_workspace_is_filled_in_place_where_it_can_be(path: Path) -> None:
    outer = Workspace()
    ws = Workspace(outer)
    ws.feed("a", np.zeros((3, 4)))
    outer.feed("b", np.zeros(2))
    steps, generator = ws.counter("steps"), np.random.default_rng(0)
    ws.feed("rng", generator)
    ws.feed("note", b"old")
    memory = ws.blob("a").value.ctypes.data
    found = load(path, into=ws)
    assert found == {name: ws.blob(name) for name in ("a", "b", "steps", "rng", "note", "cfg")}
    assert ws.blob("a").value.ctypes.data == memory
    assert ws.fetch("a").tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert ws.fetch("b").tolist() == list(range(5))
    assert [blob.name for blob in outer.local_blobs()] == ["b"]
    assert ws.counter("steps") is steps
    assert steps.retrieve() == 7
    assert ws.fetch("rng") is generator
    assert generator.random() == np.random.default_rng(3).random()
    assert (ws.fetch("note"), ws.fetch("cfg")) == ("text", {"k": [1]})


def test_a_view_taken_before_a_load_does_not_change(path: Path) -> None:
    ws = Workspace()
    ws.feed("a", np.zeros((3, 4)))
    view = ws.view("a")
    load(path, ["a"], ws)
    assert not view.any()
    assert ws.fetch("a")[2, 3] == 11


def test_a_bound_array_is_filled_and_stays_bound(path: Path) -> None:
    ws, array = Workspace(), np.zeros((6, 4))[::2]
    ws.bind("a", array)
    load(path, ["a"], ws)
    assert array.tolist() == np.arange(12.0).reshape(3, 4).tolist()
    assert ws.blob("a").bound


def test_a_generator_of_another_algorithm_is_replaced_in_a_workspace(path: Path) -> None:
    ws = Workspace()
    ws.feed("rng", np.random.Generator(np.random.Philox(1)))
    load(path, ["rng"], ws)
    assert ws.fetch("rng").random() == np.random.default_rng(3).random()


def test_what_does_not_fit_a_bound_array_is_told_before_anything_is_touched(path: Path) -> None:
    ws = Workspace()
    ws.feed("a", np.zeros((3, 4)))
    ws.bind("b", np.zeros(5))
    ws.bind("note", np.zeros(4, "u1"))
    with pytest.raises(MismatchError) as caught:
        load(path, into=ws)
    assert "'b': stored is int16" in str(caught.value)
    assert "'note': the blob is bound to an array, and a string is stored" in str(caught.value)
    assert ws.blob_names() == ["a", "b", "note"]
    assert not ws.fetch("a").any()


def damage(path: Path, blob: str) -> None:
    """Flip a bit in the last chunk of a blob."""
    import zipfile

    with zipfile.ZipFile(path) as file:
        info = [info for info in file.infolist() if info.filename.startswith(f"{blob}/c")][-1]
    data = bytearray(path.read_bytes())
    start = info.header_offset + 30 + int.from_bytes(data[info.header_offset + 28 :][:2], "little")
    data[start + len(info.filename)] ^= 4
    path.write_bytes(data)


@pytest.mark.parametrize("suffix", ["zarr.zip", "zarr"])
def test_what_was_loaded_does_not_hang_on_the_file(suffix: str, tmp_path: Path) -> None:
    """A mapped file would show in the arrays what becomes of it, or end the process when it is cut."""
    place = tmp_path / f"x.{suffix}"
    values = {"large": np.arange(3 << 19), "small": np.arange(5), "text": "abc"}
    save(place, values, durable=False)
    ws = Workspace()
    load(place, into=ws)
    found = load(place)
    for file in [place] if place.is_file() else [part for part in place.rglob("*") if part.is_file()]:
        file.chmod(0o644)
        os.truncate(file, 0)
    for name in ("large", "small"):
        assert np.array_equal(found[name], values[name])
        assert np.array_equal(ws.fetch(name), values[name])
    assert found["text"] == ws.fetch("text") == "abc"


def test_a_failed_load_leaves_no_false_value_in_a_workspace(path: Path) -> None:
    damage(path, "b")
    ws = Workspace()
    ws.feed("a", np.zeros((3, 4)))
    steps = ws.counter("steps")
    with pytest.raises(ChecksumError, match=r"x\.zarr\.zip: blob 'b', chunk 0: expected CRC-32 \w{8}, found"):
        load(path, into=ws)
    assert ws.blob("a").kind == "empty"
    assert steps.retrieve() == 0
    assert ws.blob_names() == ["a", "steps"]
    assert load(path, ["a", "note"])["a"][2, 3] == 11


def test_damage_in_small_blobs_is_found_before_any_array_is_touched(path: Path) -> None:
    damage(path, "note")
    ws = Workspace()
    ws.feed("a", np.ones((3, 4)))
    with pytest.raises(ChecksumError, match="'note'"):
        load(path, into=ws)
    assert ws.fetch("a").all()


def test_a_database_with_another_digest_is_refused(path: Path) -> None:
    digest = inspect(path).digest
    with open_database(path, digest=digest) as database:
        assert database.info.digest == digest
        assert database.verify().ok
    with pytest.raises(ChecksumError, match="digest"):
        open_database(path, digest="sha256:" + "0" * 64)
    (fault,) = verify(path, digest="sha256:0").faults
    assert fault.place == "index"


def test_a_closed_database_says_so_and_keeps_its_info(path: Path) -> None:
    with open_database(path) as database:
        assert database.read("note") == "text"
        with pytest.raises(MismatchError):
            database.read("notes")
    database.close()
    assert next(iter(database.info.blobs)).name == "a"
    assert "6 blobs" in repr(database)
    with pytest.raises(ClosedError, match="closed"):
        database.read("note")


def test_many_threads_load_from_one_database(path: Path, together: Any) -> None:
    with open_database(path) as database:
        results = together(6, lambda _: [database.load()["a"][2, 3] for _ in range(5)])
    assert results == [[11.0] * 5] * 6


def test_loads_under_way_end_before_a_database_is_closed(path: Path, together: Any) -> None:
    def work(number: int) -> Any:
        if number == 0:
            return database.close()
        return database.read("a")[2, 3]

    for _ in range(20):
        database = open_database(path)
        _, *results = together(4, work)
        assert all(result == 11.0 or isinstance(result, ClosedError) for result in results)


def test_paths_may_be_relative_and_in_the_home_directory(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(path.parent))
    monkeypatch.chdir(path.parent)
    for name in ("x.zarr.zip", "~/x.zarr.zip", "./../" + path.parent.name + "/x.zarr.zip"):
        assert inspect(name).path == str(path)
        assert save(name, {}, overwrite=True).path == str(path)
    for wrong in (b"x", 3, None):
        with pytest.raises(TypeError):
            inspect(wrong)  # type: ignore[arg-type]  # that is the point
    with pytest.raises(ValueError, match="empty"):
        inspect("")


@pytest.mark.parametrize("act", [load, inspect, verify, open_database])
def test_a_missing_file_is_told(act: Any, tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    for place in (tmp_path / "none", tmp_path / "no" / "folder", tmp_path / "file" / "below"):
        with pytest.raises(CheckpointNotFoundError, match="no such file") as caught:
            act(place)
        assert isinstance(caught.value, FileNotFoundError)


def foreign_files(folder: Path) -> dict[str, str]:
    """Files of many kinds, and what the error should call each."""
    import zipfile

    np.savez(folder / "npz", a=np.zeros(3))
    (folder / "npz.npz").rename(folder / "npz")
    np.save(folder / "npy.npy", np.zeros(3))
    with zipfile.ZipFile(folder / "torch", "w") as file:
        file.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
    with zipfile.ZipFile(folder / "zip", "w") as file:
        file.writestr("hello.txt", "hello")
    with zipfile.ZipFile(folder / "nozip", "w"):
        pass
    contents = {
        "empty": b"",
        "safetensors": (22).to_bytes(8, "little") + b'{"__metadata__":{}}   ' + bytes(100),
        "pickle": b"\x80\x04\x95abc",
        "hdf5": b"\x89HDF\r\n\x1a\n" + bytes(500),
        "gzip": b"\x1f\x8b\x08" + bytes(50),
        "text": "größe: 1\n".encode() * 100,
        "binary": bytes(range(128, 256)) * 9,
        "zeros": bytes(200_000),
    }
    for name, data in contents.items():
        (folder / name).write_bytes(data)
    (folder / "folder").mkdir()
    (folder / "store").mkdir()
    (folder / "store" / "zarr.json").write_text("{}")
    return {
        "npz": "a NumPy .npz file of",
        "npy.npy": "a NumPy .npy file",
        "torch": "a file of torch.save",
        "zip": "another zip file (its first entry is 'hello.txt')",
        "nozip": "an empty zip file",
        "empty": "an empty file of 0 bytes",
        "safetensors": "a safetensors file",
        "pickle": "a pickle",
        "hdf5": "an HDF5 file",
        "gzip": "a gzip file",
        "text": "text that begins 'größe",
        "binary": "data that begins with the bytes 80 81 82",
        "zeros": "data that begins with the bytes 00 00",
        "folder": "an empty directory",
        "store": "a directory with a Zarr group",
    }


def test_what_is_no_database_is_called_by_its_name(tmp_path: Path) -> None:
    for name, found in foreign_files(tmp_path).items():
        for act in (load, inspect):
            with pytest.raises(FormatError) as caught:
                act(tmp_path / name)
            assert "expected a jobcore database" in str(caught.value)
            assert found in str(caught.value)
        report = verify(tmp_path / name)
        assert not report.ok
        assert [(fault.place, fault.blob) for fault in report.faults] == [("file", None)]
        assert found.partition(" (")[0] in report.faults[0].message
    with pytest.raises(FormatError, match="device, pipe or socket"):
        load("/dev/null")
