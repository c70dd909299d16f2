"""Arrays of other libraries by their buffers, against what NumPy makes of them."""

from __future__ import annotations

import array
import ctypes
import gc
import mmap
import weakref

import numpy as np
import pytest

import slow_exported
from jobcore._fast.exported import exported_array
from jobcore.errors import UnsupportedBlobError
from jobcore.store.values import collect
from store_cases import same_bits

NUMBERS = "?bBhHiIlLqQefd"


@pytest.mark.parametrize("letter", NUMBERS)
@pytest.mark.parametrize("shape", [(), (3,), (2, 3, 4), (0, 3)])
def test_is_what_numpy_makes_of_it(letter: str, shape: tuple[int, ...]) -> None:
    source = np.arange(24, dtype="u1").astype(letter)[: int(np.prod(shape))].reshape(shape)
    for value in (source, memoryview(source).toreadonly(), source.T):
        found = exported_array(value)
        assert found is not None
        expected = slow_exported.exported_array(value)
        assert expected is not None
        assert type(found) is np.ndarray
        assert same_bits(found, expected)
        assert found.dtype is np.dtype(found.dtype.char)
        assert found.strides == expected.strides or not found.size
        assert found.flags.writeable == expected.flags.writeable
        assert found.flags.aligned
        assert np.shares_memory(found, source) or not found.size


@pytest.mark.parametrize(
    "value",
    [
        3,
        [1.0],
        np.zeros(3, ">f4"),
        np.zeros(3, "c8"),
        np.zeros(3, "i4,f4"),
        np.zeros(3, "S4"),
        (ctypes.c_int * 3).from_buffer(bytearray(12))[:],
    ],
)
def test_what_is_left_to_numpy(value: object) -> None:
    assert exported_array(value) is None
    assert slow_exported.exported_array(value) is None


def test_other_exporters() -> None:
    assert exported_array(array.array("d", [1, 2])).tolist() == [1, 2]  # type: ignore[union-attr]  # it is an array
    assert exported_array(b"ab").tolist() == [97, 98]  # type: ignore[union-attr]  # as above
    with mmap.mmap(-1, 8) as area:
        found = exported_array(area)
        with pytest.raises(BufferError):
            area.close()
        del found


class Foreign:
    """An array of another library: its memory is exported for as long as somebody has it."""

    def __init__(self, data: np.ndarray | None) -> None:
        self.data = data

    def __array__(self, dtype: object = None, copy: object = None) -> np.ndarray:
        if self.data is None:
            raise RuntimeError("it has been deleted")
        return self.data


def test_a_value_lives_as_long_as_its_array() -> None:
    source = np.arange(5)
    found = exported_array(memoryview(source).toreadonly())
    alive = weakref.ref(source)
    del source
    gc.collect()
    assert alive() is not None
    assert found is not None
    assert found.tolist() == [0, 1, 2, 3, 4]
    del found
    gc.collect()
    assert alive() is None


def test_arrays_that_export_nothing_go_by_what_they_say() -> None:
    collected = collect({"a": Foreign(np.arange(3)), "b": np.arange(2)})
    assert collected.kinds == ["tensor", "tensor"]
    assert collected.arrays[0].tolist() == [0, 1, 2]
    with pytest.raises(UnsupportedBlobError, match="it has been deleted"):
        collect({"a": Foreign(None)})
