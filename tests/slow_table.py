"""The table of a root document by means of a general parser, and new arrays by NumPy: the twins of native code."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

Columns = tuple[list[str], list[int], list[Any], list[int], list[int]]


def dump(columns: Columns) -> bytes:
    """Write a table as the library does."""
    table = dict(zip(("name", "spec", "specs", "place", "crc32"), columns, strict=True))
    return json.dumps(table, ensure_ascii=False, separators=(",", ":")).encode()


def parse(text: bytes) -> Columns | None:
    """Read a table; None where it is none, or its members are not what the format says."""
    try:
        table = json.loads(text)
        columns: Columns = tuple(table[key] for key in ("name", "spec", "specs", "place", "crc32"))
    except (ValueError, KeyError, TypeError):
        return None
    names, spec, _, places, sums = columns
    if not all(isinstance(column, list) for column in columns):
        return None
    try:
        good = all(isinstance(name, str) and name.encode() for name in names)
    except UnicodeEncodeError:
        return None
    for column, stop in ((spec, 2**32 - 1), (places, 2**63), (sums, 2**32)):
        good = good and all(type(value) is int and 0 <= value < stop for value in column)
    return columns if good and len(names) == len(spec) and len(places) == len(sums) else None


def fits(spec: list[int], places: list[int], chunks: list[int], sizes: list[int]) -> bool:
    """Tell whether each chunk has a place behind the chunk before it, and there are no others."""
    if any(index >= len(chunks) for index in spec):
        return False
    wanted = [sizes[index] for index in spec for _ in range(chunks[index])]
    end, good = 0, len(wanted) == len(places)
    for place, size in zip(places, wanted, strict=False):
        good, end = good and place >= end, place + size
    return good


def new_arrays(
    forms: list[tuple[tuple[int, ...], np.dtype[Any]]], names: list[str], spec: list[int]
) -> dict[str, np.ndarray[Any, Any]]:
    """Make an array for each name."""
    return {name: np.empty(*forms[index]) for name, index in zip(names, spec, strict=True)}
