"""Arrays of a mapping that are just those of a table, apart from each other, are told from all others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import jobcore
import slow_sharing
from jobcore._fast.sharing import fitting_arrays
from jobcore.errors import MismatchError
from jobcore.store import destinations

Array = np.ndarray[Any, Any]
FORMS = [((3,), np.dtype("<f4")), ((), np.dtype("i8")), ((0, 2), np.dtype("u1")), ((2, 3), np.dtype("<f4"))]


@st.composite
def mappings(draw: st.DrawFn) -> tuple[dict[str, Any], list[str], list[int]]:
    """Arrays that mostly fit, pieces of one memory at any places, and in few of them something that does not fit."""
    memory = np.zeros(200, "u1")
    into: dict[str, Any] = {}
    spec = draw(st.lists(st.integers(0, 3), max_size=6))
    names = [f"b{i}" for i in range(len(spec))]
    for at, (name, index) in enumerate(zip(names, spec, strict=True)):
        shape, dtype = FORMS[index]
        size = dtype.itemsize * int(np.prod(shape))
        start = draw(st.sampled_from([32 * at, 32 * at, 32 * at, draw(st.integers(0, 20)) * 8]))
        array = memory[start : start + size].view(dtype).reshape(shape)
        match draw(st.integers(0, 25)):
            case 0:
                array = array.astype(">f4")
            case 1:
                array = array.reshape(*shape, 1)
            case 2:
                array.flags.writeable = False
            case 3:
                array = np.asfortranarray(array)
            case 4:
                array = array.view(np.ma.MaskedArray)
            case 5:
                array = array.tolist()
            case 6:
                array = (
                    np.zeros([2 * n for n in shape], dtype)[tuple(slice(n) for n in shape)]
                    if shape
                    else array
                )
            case 7 | 8 | 9:
                array = array.copy()
        into[name] = array
    if into and draw(st.integers(0, 9)) == 0:
        into["more"] = into.pop(draw(st.sampled_from(names)))
    order = draw(st.permutations(range(len(spec))))
    return into, [names[i] for i in order], [spec[i] for i in order]


@given(mappings())
def test_the_plain_way_says_the_same(drawn: tuple[dict[str, Any], list[str], list[int]]) -> None:
    found, expected = fitting_arrays(*drawn, FORMS), slow_sharing.fitting_arrays(*drawn, FORMS)
    assert (found is None) == (expected is None)
    for one, other in zip(found or (), expected or (), strict=True):
        assert one is other


@pytest.mark.parametrize(
    "dtype", [ml_dtypes.bfloat16, "S3", "<U2", [("a", "i2"), ("b", "f8")], "M8[s]"], ids=str
)
def test_data_types_are_compared_by_what_they_mean(dtype: Any) -> None:
    array, other = np.zeros(4, dtype), np.dtype(dtype).newbyteorder()
    assert fitting_arrays({"a": array}, ["a"], [0], [((4,), np.dtype(dtype))]) is not None
    if other != array.dtype:
        assert fitting_arrays({"a": array}, ["a"], [0], [((4,), other)]) is None


def test_a_table_without_its_form_is_an_error() -> None:
    with pytest.raises(IndexError):
        fitting_arrays({"a": np.zeros(3)}, ["a"], [1], [((3,), np.dtype("f8"))])
    assert fitting_arrays({}, [], [], []) == []
    assert fitting_arrays({"a": np.zeros(3)}, ["a"], [], []) is None


def test_pieces_of_one_memory_are_filled_without_a_plan(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    values = {f"{i}": np.full((2, 3), i, "f4") for i in range(9000)}
    jobcore.save(tmp_path / "x", values, durable=False)
    memory = np.zeros((9001, 2, 3), "f4")
    into = {name: memory[8999 - i] for i, name in enumerate(values)}

    def planned(*_: object) -> None:
        raise AssertionError("a plan was made")

    with monkeypatch.context() as patched:
        patched.setattr(destinations, "_misfit", planned)
        assert jobcore.load(tmp_path / "x", into=into)["7"] is into["7"]
    assert (memory[:-1, 0, 0] == np.arange(9000)[::-1]).all()
    assert not memory[-1].any()
    into["8"] = memory[8999 - 7]
    with pytest.raises(MismatchError, match=r"'[78]' and '[78]': their destinations share memory"):
        jobcore.load(tmp_path / "x", into=into)
