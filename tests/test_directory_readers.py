"""The directory is what other programs take it for: a Zarr v3 group whose chunks carry a checksum."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import tensorstore
import xarray
import zarr

from jobcore.store import save
from jobcore.store.names import escape
from test_store_readers import VALUES, agree, options, stored


@pytest.fixture(scope="module", params=["one chunk", "many chunks", "zstd", "blosc", "blosc in many chunks"])
def path(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("readers") / "x.zarr"
    save(place, VALUES, **options(request.param))
    return place


def test_zarr_python_reads_every_blob(path: Path) -> None:
    group = zarr.open_group(path, mode="r")
    arrays = dict(group.arrays())
    assert {array.attrs["jobcore"]["name"] for array in arrays.values()} == set(VALUES)
    for name, value in VALUES.items():
        expected = stored(value)
        if expected is not None:
            assert agree(np.asarray(arrays[escape(name)][...]), expected), name


def test_tensorstore_reads_every_blob(path: Path) -> None:
    for name, value in VALUES.items():
        place = {"driver": "file", "path": f"{path}/{escape(name)}/"}
        array = tensorstore.open({"driver": "zarr3", "kvstore": place}, open=True, read=True).result()
        expected = stored(value)
        if expected is not None:
            assert agree(np.asarray(array.read().result()), expected), name
        assert all(array.domain.labels)


def test_xarray_reads_every_blob(path: Path) -> None:
    data = xarray.open_zarr(path, consolidated=False, decode_cf=False)
    assert set(data.variables) == {escape(name) for name in VALUES}
    for name, value in VALUES.items():
        expected = stored(value)
        if expected is not None:
            assert agree(data[escape(name)].values, expected), name


def test_others_find_a_damaged_chunk_by_its_checksum(path: Path) -> None:
    chunk = path / "layer.0=2fweight" / "c.0.0"
    whole = chunk.read_bytes()
    chunk.unlink()
    chunk.write_bytes(bytes([whole[0] ^ 1]) + whole[1:])
    try:
        with pytest.raises(ValueError, match="checksum"):
            zarr.open_group(path, mode="r")["layer.0=2fweight"][...]  # type: ignore[index]  # it is an array
        place = {"driver": "file", "path": f"{path}/layer.0=2fweight/"}
        array = tensorstore.open({"driver": "zarr3", "kvstore": place}, open=True, read=True).result()
        with pytest.raises(ValueError, match=r"(?i)digest mismatch|invalid|decod|zstd"):
            array.read().result()
    finally:
        chunk.unlink()
        chunk.write_bytes(whole)


def test_the_documents_are_strict_json_and_nothing_else_is_there(path: Path) -> None:
    def refuse(text: str) -> None:
        raise AssertionError(text)

    for file in path.rglob("*"):
        if file.name == "zarr.json":
            json.loads(file.read_text(), parse_constant=refuse)
        else:
            assert file.is_dir() or file.name == "c" or file.name.startswith("c.")
