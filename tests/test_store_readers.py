"""The file is what other programs take it for: a Zarr v3 group in a zip that is stored and whole."""

from __future__ import annotations

import json
import zipfile
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import tensorstore
import xarray
import zarr

from jobcore import Counter
from jobcore.store import BlobPolicy, Blosc, Zstd, save
from jobcore.store.names import escape
from store_cases import DTYPES, NATIVE, TINY, any_bits

VALUES: dict[str, Any] = {
    **{f"native {code}": any_bits(np.dtype(code), (5, 3, 3)) for code in NATIVE},
    "layer.0/weight": np.arange(60.0).reshape(12, 5),
    "odd rows": np.arange(49, dtype=">i2").reshape(7, 7),
    "0-d": np.float32(2),
    "empty": np.zeros((0, 3)),
    "half": np.array([1, -2, 3], ml_dtypes.bfloat16),
    "nibble": np.array([1, -2], ml_dtypes.int4),
    "text": np.array(["ab", "c"]),
    "fields": np.array([(1, 2.0)], [("a", "i4"), ("b", "f8")]),
    "when": np.array(["2020-01-01"], "M8[s]"),
    "A string": "größe",
    "counter": Counter(5),
    "state": {"a": [1]},
    "generator": np.random.default_rng(1),
}


def stored(value: Any) -> np.ndarray[Any, Any] | None:
    """What a Zarr reader should see of a tensor."""
    if isinstance(value, Counter):
        return np.asarray(value.retrieve())
    if isinstance(value, str):
        return np.frombuffer(value.encode(), np.uint8)
    if not isinstance(value, np.ndarray | np.generic):
        return None
    array = np.asarray(value)
    if array.dtype.kind in "mM" or array.dtype.type.__module__ == "ml_dtypes":
        return array.view(f"u{array.dtype.itemsize}")
    if array.dtype.kind in "SUV":
        return array.reshape(*array.shape, 1).view(np.uint8)
    return array


def agree(found: np.ndarray[Any, Any], value: np.ndarray[Any, Any]) -> bool:
    """Equal values and shapes; readers may swap bytes, and NaN payloads are compared as bits."""
    return found.shape == value.shape and found.astype(value.dtype).tobytes() == value.tobytes()


def options(case: str) -> dict[str, Any]:
    """What a save is told: how it cuts, and how it encodes."""
    given: dict[str, Any] = {"chunks": TINY} if "many chunks" in case else {}
    if "zstd" in case:
        given["policies"] = {"*": BlobPolicy(codec=Zstd()), "counter": BlobPolicy(codec=Zstd())}
    elif "blosc" in case:
        shuffles: list[Any] = ["bitshuffle", "shuffle", "noshuffle"]
        given["policies"] = {
            name: BlobPolicy(codec=Blosc("lz4" if at % 2 else "zstd", 5, shuffles[at % 3]))
            for at, name in enumerate(VALUES)
        }
    return given


@pytest.fixture(scope="module", params=["one chunk", "many chunks", "zstd", "blosc", "blosc in many chunks"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("readers") / "x.zarr.zip"
    save(place, VALUES, **options(request.param))
    return place


def test_zarr_python_reads_every_blob(path: Path) -> None:
    with zarr.storage.ZipStore(path, mode="r") as store:
        group = zarr.open_group(store, mode="r")
        arrays = dict(group.arrays())
        assert {array.attrs["jobcore"]["name"] for array in arrays.values()} == set(VALUES)
        for name, value in VALUES.items():
            array = arrays[escape(name)]
            expected = stored(value)
            if expected is not None:
                assert agree(np.asarray(array[...]), expected), name
        assert dict(group.attrs)["jobcore"]["blobs"]["name"] == list(VALUES)  # type: ignore[index,call-overload]


def test_tensorstore_reads_every_blob(path: Path) -> None:
    for name, value in VALUES.items():
        place = {"driver": "zip", "base": f"file://{path}", "path": escape(name) + "/"}
        array = tensorstore.open({"driver": "zarr3", "kvstore": place}, open=True, read=True).result()
        expected = stored(value)
        if expected is not None:
            assert agree(np.asarray(array.read().result()), expected), name
        assert all(array.domain.labels)


def test_xarray_reads_every_blob(path: Path) -> None:
    with zarr.storage.ZipStore(path, mode="r") as store:
        data = xarray.open_zarr(store, consolidated=False, decode_cf=False)
        assert set(data.variables) == {escape(name) for name in VALUES}
        for name, value in VALUES.items():
            expected = stored(value)
            if expected is not None:
                assert agree(data[escape(name)].values, expected), name


@pytest.mark.parametrize("suffix", ["zarr.zip", "zarr"])
def test_a_group_of_every_data_type_can_be_listed(suffix: str, tmp_path: Path) -> None:
    """One array whose data type a reader does not know would make it refuse the whole group."""
    place = tmp_path / f"x.{suffix}"
    values = {f"{number} {dtype}": any_bits(dtype, (3, 2), number) for number, dtype in enumerate(DTYPES)}
    save(place, values)
    store: Any = place if place.is_dir() else zarr.storage.ZipStore(place, mode="r")
    arrays = dict(zarr.open_group(store, mode="r").arrays())
    assert arrays.keys() == {escape(name) for name in values}
    for name, value in values.items():
        found = np.ascontiguousarray(arrays[escape(name)][...])
        assert found.shape[:2] == value.shape
        # Of numbers the reader gives those of this machine's order; without fields a copy keeps the padding.
        swapped = value.dtype.byteorder == ">" and value.dtype.kind in "iufcmM"
        expected = value.byteswap() if swapped else value.view(f"V{value.itemsize}")
        assert found.tobytes() == expected.tobytes(), name
    if store is not place:
        store.close()


def test_a_zip_reader_finds_nothing_wrong(path: Path) -> None:
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        infos = file.infolist()
    assert len({info.filename for info in infos}) == len(infos)
    for info in infos:
        assert info.compress_type == zipfile.ZIP_STORED
        assert info.flag_bits == 0
        assert info.date_time == (1980, 1, 1, 0, 0, 0)
        assert info.external_attr >> 16 == 0o100644
    assert infos[-1].filename == "zarr.json"


def test_every_payload_is_aligned_and_no_byte_lies_between_entries(path: Path) -> None:
    data = path.read_bytes()
    end = 0
    with zipfile.ZipFile(path) as file:
        for info in file.infolist():
            assert info.header_offset == end
            key_bytes, extra_bytes = (
                int.from_bytes(data[end + at : end + at + 2], "little") for at in (26, 28)
            )
            payload = end + 30 + key_bytes + extra_bytes
            assert payload % 64 == 0
            assert 5 <= extra_bytes <= 4 + 64
            end = payload + info.file_size
        assert file.start_dir == end


def test_the_documents_are_strict_json(path: Path) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    with zipfile.ZipFile(path) as file:
        for name in file.namelist():
            if name.endswith("zarr.json"):
                json.loads(file.read(name).decode(), parse_constant=refuse)
