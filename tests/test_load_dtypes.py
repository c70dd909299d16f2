"""Loading into another data type, converted on the way."""

from __future__ import annotations

import tracemalloc
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest

from jobcore import Workspace
from jobcore.errors import ChecksumError, MismatchError
from jobcore.store import ChunkPolicy, container, containers, load, open_database, save
from load_tools import MODEL, damage, save_model
from store_cases import TINY


@pytest.fixture(params=containers.known_types())
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / f"m.{request.param}"


@pytest.fixture
def path(place: Path) -> Path:
    return save_model(place)


def test_arrays_of_another_dtype_are_filled_by_conversion(path: Path) -> None:
    into = {
        "net/enc/w": np.zeros((4, 3), "f4").T,
        "net/enc/b": np.zeros(8, ml_dtypes.bfloat16)[::-2],
        "net/dec/w": np.zeros((4, 2), ">f8"),
    }
    load(path, list(into), into, cast=True)
    for name, array in into.items():
        assert array.tolist() == MODEL[name].tolist()
    ints = {"net/enc/b": np.zeros(4, "i2")}
    with pytest.raises(MismatchError, match="int16, and the casting rule 'same_kind' does not allow that"):
        load(path, list(ints), ints, cast=True)
    with pytest.raises(MismatchError, match="'equiv' does not allow"):
        load(path, list(into), into, cast="equiv")
    load(path, list(ints), ints, cast="unsafe")
    assert ints["net/enc/b"].tolist() == [0, 1, 2, 3]
    with pytest.raises(MismatchError, match="read-only"):
        load(path, ["net/enc/b"], {"net/enc/b": np.broadcast_to(np.float32(0), 4)}, cast=True)


def test_single_elements_are_converted_too(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save(path, {"n": np.float32(1.5), "s": np.array("größe", "U9")}, durable=False)
    into = {"n": np.zeros(()), "s": np.zeros((), "U12")}
    load(path, into=into, cast="safe")
    assert (into["n"], into["s"]) == (1.5, "größe")
    save(path, {"s": np.array("größe", "U12")}, durable=False, overwrite=True, chunks=TINY)
    with pytest.raises(MismatchError, match="in several chunks cannot be converted"):
        load(path, into={"s": np.zeros((), "U14")}, cast=True)


def test_the_dtype_of_a_blob_stays_when_conversion_was_asked_for(path: Path) -> None:
    ws, bound = Workspace(), np.zeros((6, 4), "f4")[::2]
    ws.feed("net/enc/b", np.zeros(4, "f4"))
    ws.bind("net/enc/w", bound)
    ws.feed("net/dec/w", np.zeros(3))
    load(path, into=ws, cast=True)
    assert ws.fetch("net/enc/b").dtype == np.float32
    assert ws.fetch("net/enc/b").tolist() == [0, 1, 2, 3]
    assert bound.tolist() == MODEL["net/enc/w"].tolist()
    assert ws.fetch("net/dec/w").shape == (4, 2)
    load(path, ["net/enc/b"], ws)
    assert ws.fetch("net/enc/b").dtype == np.float64


def test_a_conversion_needs_no_second_copy(place: Path) -> None:
    array = np.arange(4 << 20, dtype="f8")
    save(place, {"x": array}, durable=False, chunks=ChunkPolicy(1 << 20, 1 << 20))
    into = {"x": np.zeros(array.shape, "f4")}
    tracemalloc.start()
    load(place, into=into, cast=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert np.array_equal(into["x"], array.astype("f4"))


@pytest.mark.parametrize("shape", [(1, 3, 40_000), (120_000,), (40_000, 3), (6, 20_000)])
@pytest.mark.parametrize("limit", [1000, 70_000])
def test_a_chunk_too_large_for_one_buffer_is_spread_in_pieces(
    shape: tuple[int, ...], limit: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_BUFFER", limit)
    array = np.arange(120_000.0).reshape(shape)
    save(place, {"x": array}, durable=False, chunks=ChunkPolicy(1 << 20, 1 << 20))
    for into in (np.zeros(shape, "f4"), np.zeros((*shape, 2), ">f8")[..., 1]):
        load(place, into={"x": into}, cast=True)
        assert np.array_equal(into, array)
    with open_database(place) as database:
        assert np.array_equal(
            database.read("x", slice(shape[0] // 3, shape[0] // 2)), array[shape[0] // 3 : shape[0] // 2]
        )
    damage(place, "x/c." + ".".join("0" * len(shape)))
    with pytest.raises(ChecksumError, match="'x', chunk 0"):
        load(place, into={"x": into}, cast=True)


def test_bytes_that_are_damaged_are_not_converted(path: Path) -> None:
    damage(path, "net=2fenc=2fb/c.0")
    into = {"net/enc/b": np.full(4, 5, "f4")}
    with pytest.raises(ChecksumError, match="'net/enc/b', chunk 0"):
        load(path, list(into), into, cast=True)
    assert into["net/enc/b"].tolist() == [5] * 4
