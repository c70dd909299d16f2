"""The golden databases, of every version and of both containers, are what other programs take them for."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tensorstore
import xarray
import zarr

import make_golden
from jobcore.store import inspect
from jobcore.store.names import escape
from test_store_format import DIRECTORIES, GOLDEN
from test_store_readers import agree, stored


@pytest.fixture(params=[*GOLDEN, *DIRECTORIES], ids=lambda path: path.name)
def path(request: pytest.FixtureRequest) -> Path:
    return Path(request.param)


def expected(path: Path) -> dict[str, np.ndarray[Any, Any] | None]:
    """By key what each array holds, or ``None`` for a kind that only its own program can read; views are no arrays."""
    values = make_golden.values_3() if "format-3" in path.name else make_golden.values()
    views = {blob.name for blob in inspect(path).blobs if blob.alias_of is not None}
    assert bool(views) == ("format-3" in path.name)
    found = {}
    for name, value in values.items():
        if isinstance(value, float):
            value = np.float64(value)
        elif isinstance(value, bytes):
            value = np.frombuffer(value, np.uint8)
        if name not in views:
            found[escape(name)] = stored(value)
    assert sum(value is not None for value in found.values()) >= 18
    return found


@contextlib.contextmanager
def opened(path: Path) -> Iterator[Any]:
    """What zarr-python takes for a store."""
    if path.is_dir():
        yield path
    else:
        with zarr.storage.ZipStore(path, mode="r") as store:
            yield store


def test_zarr_python_reads_them(path: Path) -> None:
    with opened(path) as store:
        arrays = dict(zarr.open_group(store, mode="r").arrays())
        values = expected(path)
        assert arrays.keys() == values.keys()
        for key, value in values.items():
            assert value is None or agree(np.asarray(arrays[key][...]), value), key


def test_tensorstore_reads_them(path: Path) -> None:
    place = (
        {"driver": "file", "path": f"{path}/"}
        if path.is_dir()
        else {"driver": "zip", "base": f"file://{path}"}
    )
    for key, value in expected(path).items():
        array = tensorstore.open(
            {"driver": "zarr3", "kvstore": {**place, "path": f"{place.get('path', '')}{key}/"}},
            open=True,
            read=True,
        ).result()
        found = np.asarray(array.read().result())
        assert value is None or agree(found, value), key


def test_xarray_reads_them(path: Path) -> None:
    with opened(path) as store:
        data = xarray.open_zarr(store, consolidated=False, decode_cf=False)
        values = expected(path)
        assert set(data.variables) == set(values)
        for key, value in values.items():
            assert value is None or agree(data[key].values, value), key
