"""New arrays whose memory is there before they are: like those of NumPy, each free to go alone."""

from __future__ import annotations

import gc
import mmap
import threading
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slow_table
from jobcore import load, save
from jobcore._fast.fresh import Rooms
from jobcore._fast.table import RootTable
from jobcore.errors import BlobValueError

Form = tuple[tuple[int, ...], np.dtype[Any]]
DTYPES = [np.dtype(kind) for kind in ("|u1", "<f4", ">f8", "<U2", "<M8[s]", [("a", "<i4"), ("b", "|S3")])]
forms = st.lists(
    st.tuples(st.lists(st.integers(0, 9), max_size=4).map(tuple), st.sampled_from(DTYPES)),
    min_size=1,
    max_size=4,
)


def rooms(made: list[Form], spec: list[int]) -> Rooms:
    return Rooms(made, RootTable([f"n{i}" for i in range(len(spec))], spec, [], []))


@given(forms, st.data())
def test_arrays_are_as_numpy_makes_them(made: list[Form], data: st.DataObject) -> None:
    spec = data.draw(st.lists(st.integers(0, len(made) - 1), max_size=8))
    found = rooms(made, spec).arrays()
    slow = slow_table.new_arrays(made, list(found), spec)
    assert list(found) == list(slow)
    for name, array in found.items():
        assert type(array) is np.ndarray
        assert (array.shape, array.dtype, array.strides) == (
            slow[name].shape,
            slow[name].dtype,
            slow[name].strides,
        )
        assert array.flags == slow[name].flags
        assert array.base is None


@pytest.mark.parametrize("nbytes", [1, 100, 40_000, 1 << 20, 70 << 20])
def test_no_two_share_memory_and_each_goes_alone(nbytes: int) -> None:
    count = min(50_000, max(2, (3 << 20) // nbytes)) if nbytes < 1 << 20 else 3
    arrays = list(rooms([((nbytes,), np.dtype(np.uint8))], [0] * count).arrays().values())
    places = sorted(array.__array_interface__["data"][0] for array in arrays)
    assert all(high - low >= nbytes for low, high in pairwise(places))
    for number, array in enumerate(arrays):
        array[[0, -1]] = number % 251
    kept = arrays[:: max(1, count // 3)]
    numbers = [int(array[0]) for array in kept]
    del arrays, array
    gc.collect()
    assert [int(array[-1]) for array in kept] == numbers


def test_large_ones_lie_at_multiples_of_64(tmp_path: Path) -> None:
    for array in (
        rooms([((40_001,), np.dtype(np.uint8)), ((3, 5000), np.dtype("<f8"))], [0, 1, 0]).arrays().values()
    ):
        assert array.__array_interface__["data"][0] % 64 == 0


@pytest.mark.parametrize("nbytes", [100, 100_000])
def test_they_can_be_resized_and_freed_by_any_thread(nbytes: int) -> None:
    arrays = list(rooms([((nbytes,), np.dtype(np.uint8))], [0] * 64).arrays().values())
    arrays[0][:] = 7
    arrays[0].resize(3 * nbytes, refcheck=False)
    assert (arrays[0][:nbytes] == 7).all()
    assert not arrays[0][nbytes:].any()
    arrays[0].resize(10, refcheck=False)
    assert arrays[0].tolist() == [7] * 10
    parts = [arrays[i::4] for i in range(4)]
    del arrays
    threads = [threading.Thread(target=part.clear) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_memory_that_nobody_took_is_given_back() -> None:
    made = rooms([((100,), np.dtype(np.uint8)), ((1 << 20,), np.dtype(np.uint8))], [0, 1] * 10)
    del made
    gc.collect()


def test_no_page_of_large_ones_is_touched_before_they_are_filled() -> None:
    process, page = psutil.Process(), mmap.PAGESIZE
    before = process.memory_info().rss
    made = rooms([((1 << 20,), np.dtype(np.uint8))], [0] * 256)
    arrays = made.arrays()
    assert process.memory_info().rss - before < 64 << 20
    for number, array in enumerate(arrays.values()):
        array[::page] = number
        array[-1] = number
    assert all(
        (array[::page] == number).all() and array[-1] == number
        for number, array in enumerate(arrays.values())
    )


def test_sizes_on_both_sides_of_a_slab_are_whole() -> None:
    # What stands before the first part takes from the 64 MiB of a slab.
    byte = np.dtype(np.uint8)
    for nbytes in (32 << 10, (32 << 10) - 1, (64 << 20) - (32 << 10), (64 << 20) - 4096, 64 << 20, 65 << 20):
        arrays = list(rooms([((nbytes,), byte), ((40_000,), byte)], [0, 1, 0, 1]).arrays().values())
        for number, array in enumerate(arrays):
            array[0] = array[-1] = number
        assert [int(array[0]) for array in arrays] == [int(array[-1]) for array in arrays] == [0, 1, 2, 3]
        while arrays:
            arrays.pop()
            assert [int(array[-1]) for array in arrays] == list(range(len(arrays)))


def test_rooms_are_refused_where_no_array_can_be() -> None:
    byte = np.dtype(np.uint8)
    with pytest.raises(ValueError, match="axes"):
        rooms([((1,) * 65, byte)], [0])
    with pytest.raises(ValueError, match="memory"):
        rooms([((2**40, 2**40), byte)], [0])
    for spec in (1, 2**31, 2**32 - 1):  # far beyond the forms, where there is no memory to look at
        with pytest.raises(BlobValueError, match="one of 1 specs"):
            rooms([((1,), byte)], [spec])
    with pytest.raises(MemoryError):
        rooms([((2**61,), byte)], [0])
    twice = Rooms([((5,), byte)], RootTable(["a", "b", "a"], [0, 0, 0], [], []))
    with pytest.raises(BlobValueError, match="'a' again"):
        twice.arrays()
    once = rooms([((5,), byte)], [0, 0])
    assert len(once.arrays()) == 2
    with pytest.raises(BlobValueError, match="once"):
        once.arrays()


def test_a_loaded_array_outlives_the_others_and_takes_another_load(tmp_path: Path) -> None:
    blobs = {f"n{i}": np.full(30_000, i) for i in range(40)} | {f"s{i}": np.full(3, i) for i in range(400)}
    save(tmp_path / "x", blobs, durable=False)
    found = load(tmp_path / "x")
    kept = {name: found[name] for name in ("n7", "n39", "s0", "s399")}
    del found
    gc.collect()
    for name, array in kept.items():
        np.testing.assert_array_equal(array, blobs[name])
        array[:] = -1
    load(tmp_path / "x", list(kept), into=kept)
    for name, array in kept.items():
        np.testing.assert_array_equal(array, blobs[name])
