"""How arrays are cut and stored, and that a table from anywhere is checked before it is used."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcore._dtypes import dtype_from_spec, dtype_spec, refusal, spec_text
from jobcore.errors import FormatError
from jobcore.store import ChunkPolicy
from jobcore.store.layout import DATA_TYPES, make_spec, parse_spec
from store_cases import DTYPES

MiB = 1 << 20
DEFAULT = ChunkPolicy()


@pytest.mark.parametrize(
    ("shape", "width", "rows"),
    [
        ((), 8, 1),
        ((0, 5), 8, 1),
        ((5, 0), 8, 5),
        ((8 * MiB,), 8, 8 * MiB),
        ((16 * MiB,), 8, 4 * MiB),
        ((3, 40 * MiB), 1, 1),
        ((2, 5 << 30), 1, 1),
        ((5, 20 * MiB), 1, 1),
    ],
)
def test_small_arrays_are_one_chunk_and_large_ones_are_cut(
    shape: tuple[int, ...], width: int, rows: int
) -> None:
    assert DEFAULT.rows(shape, width) == rows


@given(st.integers(1, 10**7), st.integers(1, 200_000))
def test_chunks_are_of_16_to_64_mib_and_waste_little(rows: int, row_bytes: int) -> None:
    size = DEFAULT.rows((rows, row_bytes), 1)
    if rows * row_bytes <= 64 * MiB:
        assert size == rows
    else:
        assert 16 * MiB <= size * row_bytes <= 64 * MiB
        waste = -(-rows // size) * size - rows
        assert waste * 100 < rows or waste == min(
            -(-rows // n) * n - rows for n in range(1, rows + 1) if 16 * MiB <= n * row_bytes <= 64 * MiB
        )


@given(st.integers(1, 60), st.integers(1, 40 * MiB))
def test_few_large_rows_waste_no_more_than_they_must(rows: int, row_bytes: int) -> None:
    size = DEFAULT.rows((rows, row_bytes), 1)
    assert size == 1 or rows * row_bytes <= 64 * MiB or size * row_bytes <= 64 * MiB
    waste = -(-rows // size) * size - rows
    assert waste * row_bytes < 64 * MiB


@pytest.mark.parametrize(("target", "most"), [(0, 1), (5, 4), (-1, 3)])
def test_a_policy_that_makes_no_sense_is_refused(target: int, most: int) -> None:
    with pytest.raises(ValueError, match="target_bytes"):
        ChunkPolicy(target, most)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_data_type_has_a_text_that_gives_it_back(dtype: np.dtype[Any]) -> None:
    assert refusal(dtype) is None
    found = dtype_from_spec(dtype_spec(dtype))
    assert found == dtype
    assert found.itemsize == dtype.itemsize
    spec = make_spec("tensor", dtype, (3, 2), DEFAULT)
    assert DATA_TYPES[spec.data_type] * max(1, spec.item_bytes) == dtype.itemsize
    assert parse_spec(spec.to_json(), "here") == spec
    assert dtype.isalignedstruct or spec_text(spec.dtype) == str(dtype)


@pytest.mark.parametrize(
    "dtype",
    [
        "O",
        "S0",
        "U0",
        "V0",
        [],
        [("a", "O")],
        [("a", [("b", "S0")])],
        [(("title", "a"), "f4")],
        np.dtypes.StringDType(),
    ],
    ids=str,
)
def test_data_types_that_cannot_be_stored_are_told(dtype: Any) -> None:
    assert refusal(np.dtype(dtype)) is not None


def test_a_data_type_of_a_missing_package_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "ml_dtypes", None)
    with pytest.raises(FormatError, match="pip install ml_dtypes"):
        dtype_from_spec({"names": ["a"], "formats": ["bfloat16"], "offsets": [0], "itemsize": 2})
    assert spec_text("bfloat16") == "bfloat16"


@pytest.mark.parametrize(
    "spec",
    [
        "O",
        "|O",
        "<f3",
        "f4",
        "<f4,<f4",
        "<M8[x]",
        "|S0",
        "",
        "float32x",
        "float99",
        "finfo",
        None,
        3,
        [],
        {},
        {"base": "<f4"},
        {"base": "<f4", "shape": [-1]},
        {"base": "<f4", "shape": [2**40, 2**40]},
        {"base": "<f4", "shape": 3},
        {"base": "|O", "shape": [1]},
        {"names": ["a"], "formats": ["<f4"], "offsets": [0], "itemsize": 3},
        {"names": ["a", "a"], "formats": ["<f4", "<f4"], "offsets": [0, 4], "itemsize": 8},
        {"names": ["a"], "formats": ["<f4"], "offsets": [-4], "itemsize": 8},
        {"names": [1], "formats": ["<f4"], "offsets": [0], "itemsize": 4},
        {"names": "ab", "formats": ["<f4"], "offsets": [0], "itemsize": 4},
        {"names": ["a"], "formats": ["<f4"], "offsets": [0], "itemsize": 2**70},
    ],
)
def test_text_that_is_no_data_type_is_refused(spec: object) -> None:
    with pytest.raises(FormatError, match="data type"):
        dtype_from_spec(spec)


def test_a_data_type_nested_without_end_is_refused() -> None:
    spec: Any = "<f4"
    for _ in range(100):
        spec = {"base": spec, "shape": [1]}
    with pytest.raises(FormatError):
        dtype_from_spec(spec)


GOOD = ["tensor", "<f4", [4, 3], "float32", 0, 2]


@pytest.mark.parametrize(
    ("at", "value"),
    [
        (0, 1),
        (1, 1),
        (1, ""),
        (2, None),
        (2, [4, -1]),
        (2, [4, 1.0]),
        (2, [True]),
        (2, [2**63]),
        (2, [2**31, 2**31, 2**31]),
        (2, [0, 2**62]),
        (2, [1] * 65),
        (3, "float128"),
        (3, None),
        (4, -1),
        (4, 2),
        (4, None),
        (5, 0),
        (5, 5),
        (5, "2"),
        (5, None),
    ],
)
def test_a_row_of_specs_out_of_range_is_refused(at: int, value: object) -> None:
    row: list[Any] = list(GOOD)
    row[at] = value
    with pytest.raises(FormatError, match=r"specs\[7\]"):
        parse_spec(row, "specs[7]")


@pytest.mark.parametrize("row", [None, {}, [], GOOD[:5]])
def test_what_is_no_row_of_specs_is_refused(row: object) -> None:
    with pytest.raises(FormatError):
        parse_spec(row, "specs[0]")


def test_a_longer_row_of_a_later_version_is_read() -> None:
    assert parse_spec([*GOOD, "more"], "here").chunks == 2


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(1, 60), st.sampled_from(DTYPES))
def test_chunks_cover_an_array_exactly(shape: list[int], target: int, dtype: np.dtype[Any]) -> None:
    spec = make_spec("tensor", dtype, tuple(shape), ChunkPolicy(target, 2 * target))
    assert spec.nbytes == math.prod(shape) * dtype.itemsize
    if spec.nbytes == 0:
        assert spec.chunks == 0
        return
    rows = [spec.row_range(chunk) for chunk in range(spec.chunks)]
    assert [low for low, _ in rows] == [0, *(high for _, high in rows[:-1])]
    assert sum(high - low for low, high in rows) * spec.row_bytes == spec.nbytes
    assert math.prod(spec.chunk_shape) * DATA_TYPES[spec.data_type] == spec.chunk_bytes
