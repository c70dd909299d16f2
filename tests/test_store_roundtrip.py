"""What is saved comes back: equal bits, dtype and shape, whatever the memory looked like; and every kind of blob."""

from __future__ import annotations

import itertools
import random
import sys
import tracemalloc
import weakref
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jobcore
from jobcore import Counter, Timer, Workspace
from jobcore.errors import BlobValueError, FormatError, UnsupportedBlobError
from jobcore.store import ChunkPolicy, check_blobs, inspect, load, save, verify, write_database
from store_cases import DTYPES, TINY, any_bits, same_bits

SHAPES = [(), (1,), (7,), (0,), (3, 4), (5, 0, 2), (2, 3, 4), (1,) * 12]


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_data_type_comes_back_in_every_shape(dtype: np.dtype[Any], tmp_path: Path) -> None:
    arrays = {f"a{i}": any_bits(dtype, shape, i) for i, shape in enumerate(SHAPES)}
    for name, chunks in itertools.product(("x.zarr.zip", "x.zarr"), (ChunkPolicy(), TINY)):
        path = tmp_path / name
        save(path, arrays, chunks=chunks, durable=False, overwrite=True)
        loaded = load(path)
        assert list(loaded) == list(arrays)
        assert all(same_bits(loaded[key], array) for key, array in arrays.items())
        assert all(value.flags.writeable and value.flags.c_contiguous for value in loaded.values())
        assert verify(path).ok


def reordered(array: np.ndarray[Any, Any], how: str) -> np.ndarray[Any, Any]:
    """The same values in other memory."""
    if how == "F":
        return np.asfortranarray(array)
    if how == "read-only":
        array = array.copy()
        array.flags.writeable = False
        return array
    if how == "strided" and array.ndim:
        wide = np.repeat(array, 2, axis=-1)
        return wide[..., ::2]
    if how == "backwards" and array.ndim:
        return array[::-1].copy()[::-1]
    if how == "broadcast" and array.ndim:
        return np.broadcast_to(array[:1], array.shape)
    return array


@given(
    st.lists(st.integers(0, 5), max_size=4),
    st.sampled_from(DTYPES),
    st.sampled_from(["C", "F", "read-only", "strided", "backwards", "broadcast"]),
    st.integers(1, 80),
    st.integers(0, 99),
)
def test_memory_of_any_order_comes_back(
    shape: list[int], dtype: np.dtype[Any], how: str, target: int, seed: int
) -> None:
    array = reordered(any_bits(dtype, tuple(shape), seed), how)
    places = {
        "C": np.zeros(array.shape, dtype),
        "F": np.zeros(array.shape, dtype, order="F"),
        "holes": np.zeros((*array.shape, 2), dtype)[..., 1],
    }
    with tempdir() as folder:
        path = folder / "x.zarr.zip"
        save(path, {"x": array}, durable=False, chunks=ChunkPolicy(target, 2 * target))
        assert_values(load(path)["x"], array)
        for place in places.values():
            assert load(path, into={"x": place})["x"] is place
            assert_values(place, array)


def assert_values(found: np.ndarray[Any, Any], array: np.ndarray[Any, Any]) -> None:
    assert found.dtype == array.dtype
    assert found.shape == array.shape
    if array.dtype.names is None:
        assert found.tobytes() == array.tobytes()
    else:
        # NumPy itself copies only the fields of a structured element, not the padding between them.
        for name in array.dtype.names:
            assert_values(found[name], array[name])


def tempdir() -> Any:
    import contextlib
    import tempfile

    @contextlib.contextmanager
    def folder() -> Any:
        with tempfile.TemporaryDirectory() as name:
            yield Path(name)

    return folder()


def test_every_kind_of_blob_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "kinds.zarr.zip"
    counter = Counter(3)
    counter.count_down()
    generator, legacy, python = np.random.default_rng(1), np.random.RandomState(2), random.Random(3)
    values = {
        "scalar": np.float32(2.5),
        "flag": True,
        "int": 7,
        "float": 0.1,
        "complex": 1j,
        "counter": counter,
        "text": "größe\n\0",
        "no text": "",
        "bytes": b"\0\xff",
        "no bytes": b"",
        "none": None,
        "list": [1, (2.5, None), {"a": b"x"}],
        "generator": generator,
        "legacy": legacy,
        "python": python,
    }
    save(path, values)
    kinds = {blob.name: blob.kind for blob in inspect(path).blobs}
    assert list(kinds.values()) == [
        *["tensor"] * 5,
        "counter",
        *["string"] * 2,
        *["bytes"] * 2,
        *["state"] * 2,
        *["rng"] * 3,
    ]
    found = load(path)
    for name in ("text", "no text", "bytes", "no bytes", "none", "list"):
        assert type(found[name]) is type(values[name])
        assert found[name] == values[name]
    assert found["counter"].retrieve() == 2
    assert [found[name].shape for name in ("scalar", "flag", "int")] == [(), (), ()]
    assert [found[name].dtype for name in ("scalar", "flag", "int")] == [np.float32, np.bool_, np.int64]
    assert found["complex"] == 1j
    assert found["generator"].random() == generator.random()
    assert found["legacy"].rand() == legacy.rand()
    assert found["python"].random() == python.random()


@pytest.mark.parametrize("count", [-(2**63), -1, 0, 2**63 - 1])
def test_a_counter_of_any_value_comes_back(count: int, tmp_path: Path) -> None:
    counter = Counter()
    counter.restore(count)
    save(tmp_path / "c", {"c": counter})
    assert load(tmp_path / "c")["c"].retrieve() == count


def test_a_workspace_comes_back(tmp_path: Path) -> None:
    ws = Workspace()
    ws.feed("w", np.arange(3.0))
    ws.feed("scratch", object(), transient=True)
    ws.feed("cache", np.zeros(9), transient=True)
    ws.feed("clock", Timer())
    ws.create_blob("nothing")
    ws.counter("steps").count_up()
    result = write_database(
        tmp_path / "ws", {blob.name: blob for blob in ws.local_blobs()}, skipped=[("x", "why")]
    )
    skipped = (
        ("x", "why"),
        ("scratch", "transient"),
        ("cache", "transient"),
        ("clock", "a timer is not stored"),
    )
    assert result.skipped == skipped
    assert inspect(tmp_path / "ws").skipped == skipped
    other = Workspace()
    load(tmp_path / "ws", into=other)
    assert other.blob_names() == ["w", "nothing", "steps"]
    assert other.blob("nothing").kind == "empty"
    assert other.counter("steps").retrieve() == 1


def test_the_info_of_a_database_is_what_was_given(tmp_path: Path) -> None:
    user = {"lr": [0.1, None, True], "note": "größe", "big": 2**64 - 1, "small": -(2**63)}
    path = tmp_path / "node.3.1.zarr.zip"
    result = write_database(
        path,
        {"w": np.zeros((4, 5), "f4"), "β": np.zeros(3, ml_dtypes.bfloat16), "s": "abc"},
        run="r",
        node="n:0",
        epoch=3,
        generation=1,
        stop={"after": 5},
        user=user,
        chunks=TINY,
    )
    info = inspect(path)
    assert (info.run, info.node, info.epoch, info.generation) == ("r", "n:0", 3, 1)
    assert (info.stop, info.user) == ({"after": 5}, user)
    assert (info.format, info.container, info.writer) == (1, "zarr.zip", f"jobcore {jobcore.__version__}")
    assert (info.path, info.size_bytes, info.digest) == (str(path), path.stat().st_size, result.digest)
    assert (result.path, result.size_bytes, result.blobs) == (str(path), info.size_bytes, 3)
    assert [(b.name, b.kind, b.dtype, b.shape, b.nbytes) for b in info.blobs] == [
        ("w", "tensor", "float32", (4, 5), 80),
        ("β", "tensor", "bfloat16", (3,), 6),
        ("s", "string", "uint8", (3,), 3),
    ]
    assert [b.chunks for b in info.blobs] == [2, 1, 1]


def test_a_database_without_blobs_is_one(tmp_path: Path) -> None:
    save(tmp_path / "empty", {}, user="only this")
    assert load(tmp_path / "empty") == {}
    assert inspect(tmp_path / "empty").user == "only this"
    assert verify(tmp_path / "empty").ok


@given(st.lists(st.text(st.characters(exclude_categories=["Cs"]), min_size=1), unique=True, max_size=6))
def test_blobs_of_any_name_come_back_in_order(names: list[str]) -> None:
    with tempdir() as folder:
        save(folder / "x", {name: i for i, name in enumerate([*names, "A" * 500])}, durable=False)
        found = load(folder / "x")
        assert list(found) == [*names, "A" * 500]
        assert list(found.values()) == list(range(len(names) + 1))
        assert verify(folder / "x").ok


class Thing:
    pass


def test_everything_that_cannot_be_stored_is_named_at_once(tmp_path: Path) -> None:
    blobs = {
        "good": 1,
        "thing": Thing(),
        "objects": np.array([None]),
        "strings": np.array(["a"], np.dtypes.StringDType()),
        "fields": np.zeros(2, [("a", "O")]),
        "nothing": np.zeros(2, "V0"),
        "state": {"a": [Thing()]},
        "huge": 2**64,
        "text": "\ud800",
        "timer": Timer(),
        "masked": np.ma.masked_array([1.0], [True]),
        "": 1,
        "bad\udc00": 1,
        3: 1,
    }
    for act in (lambda: save(tmp_path / "x", blobs), lambda: check_blobs(blobs)):  # type: ignore[arg-type]
        with pytest.raises(UnsupportedBlobError) as caught:
            act()
        text = str(caught.value)
        assert "13 of 14" in text
        for name in blobs:
            assert name == "good" or repr(name) in text
        assert "['a'][0]" in text
    assert list(tmp_path.iterdir()) == []
    check_blobs({"good": 1})


@pytest.mark.parametrize(
    ("value", "where"),
    [
        ({"a": [1, (2,)]}, r"user\['a'\]\[1\]"),
        ({"a": float("nan")}, r"user\['a'\]"),
        ({1: 2}, "user"),
        ([2**64], r"user\[0\]"),
        (["\ud800"], r"user\[0\]"),
        ({"\ud800": 1}, "user"),
        (np.float32(1), "user"),
        (b"x", "user"),
    ],
)
def test_metadata_that_json_cannot_hold_is_refused_with_its_path(
    value: Any, where: str, tmp_path: Path
) -> None:
    with pytest.raises(BlobValueError, match=where):
        save(tmp_path / "x", {}, user=value)
    endless: list[Any] = []
    endless.append(endless)
    with pytest.raises(BlobValueError, match="deeper"):
        save(tmp_path / "x", {}, user=endless)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("argument", "value", "error"),
    [
        ("run", 1, TypeError),
        ("node", None, TypeError),
        ("node", "\ud800", BlobValueError),
        ("epoch", "1", TypeError),
        ("epoch", True, TypeError),
        ("generation", 1.0, TypeError),
        ("skipped", [("\ud800", "x")], BlobValueError),
        ("db_type", "minidb", ValueError),
    ],
)
def test_wrong_arguments_are_refused(
    argument: str, value: Any, error: type[Exception], tmp_path: Path
) -> None:
    with pytest.raises(error, match=argument):
        write_database(tmp_path / "x", {}, **{argument: value})
    assert list(tmp_path.iterdir()) == []


def test_equal_input_gives_equal_bytes(tmp_path: Path) -> None:
    blobs = {"b": np.arange(100.0), "a": {"x": (1,)}, "Ω": "text"}
    for name in ("one", "two"):
        save(tmp_path / name, blobs, user=[1], chunks=TINY)
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes()


def test_a_blob_of_a_missing_package_does_not_hide_the_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path / "x", {"half": np.ones(3, ml_dtypes.bfloat16), "full": np.ones(3)})
    monkeypatch.setitem(sys.modules, "ml_dtypes", None)
    assert [blob.dtype for blob in inspect(tmp_path / "x").blobs] == ["bfloat16", "float64"]
    assert verify(tmp_path / "x").ok
    assert list(load(tmp_path / "x", ["full"])["full"]) == [1, 1, 1]
    with pytest.raises(FormatError, match=r"half.*pip install ml_dtypes"):
        load(tmp_path / "x")


def peak_of(function: Any) -> int:
    tracemalloc.start()
    try:
        function()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("order", ["C", "F"])
def test_saving_and_loading_in_place_need_little_memory(order: Any, tmp_path: Path) -> None:
    state = {f"w{i}": np.ones((512, 2048), order=order) for i in range(4)}  # 32 MiB
    policy = ChunkPolicy(2 << 20, 4 << 20)
    path = tmp_path / "x"
    assert peak_of(lambda: save(path, state, durable=False, chunks=policy)) < 12 << 20
    assert peak_of(lambda: load(path, into=state)) < 12 << 20
    assert peak_of(lambda: verify(path)) < 4 << 20


def test_nothing_is_held_after_a_save(tmp_path: Path) -> None:
    array = np.ones(1 << 20)
    gone = weakref.ref(array)
    save(tmp_path / "x", {"a": array, "b": array.reshape(1024, -1).T}, durable=False)
    del array
    assert gone() is None
