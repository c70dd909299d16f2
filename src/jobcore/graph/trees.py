"""Rows kept in columns: which column belongs to which level of nesting, and which of its items to which rows.

The names of columns tell: ``a:lengths`` has one item for each item of the level around it, and what else begins with
``a:`` has as many items as the lengths add up to. Level 0 is that of the rows.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

__all__ = ["ColumnTree", "Columns", "column_tree"]

Columns = Sequence[NDArray[Any]]


@dataclass(frozen=True, slots=True)
class ColumnTree:
    """The levels of a list of columns.

    Attributes
    ----------
    fields
        The names.
    level_of
        For each column the number of its level.
    parents
        For each level but the first its parent level and the number of the column of lengths that makes it; a level
        comes behind its parent.
    """

    fields: tuple[str, ...]
    level_of: tuple[int, ...]
    parents: tuple[tuple[int, int], ...]

    @property
    def levels(self) -> int:
        """How many levels there are."""
        return 1 + len(self.parents)

    def sizes(self, columns: Columns) -> list[int]:
        """Return how many items each level has.

        Raises
        ------
        ValueError
            Columns of one level differ in length, a length is negative, or the lengths do not add up.
        """
        sizes = [-1] * self.levels
        sizes[0] = len(columns[0]) if columns else 0
        for level, (_, lengths) in enumerate(self.parents, 1):
            column = self._lengths(lengths, columns)
            if column.size and column.min() < 0:
                raise ValueError(f"column {self.fields[lengths]!r}: a length is negative")
            sizes[level] = int(column.sum())
        for name, level, column in zip(self.fields, self.level_of, columns, strict=True):
            if column.ndim == 0 or len(column) != sizes[level]:
                above = self.fields[self.parents[level - 1][1]] if level else self.fields[0]
                raise ValueError(
                    f"column {name!r}: expected {sizes[level]} items, as {above!r} says, "
                    f"found {'none' if column.ndim == 0 else len(column)}"
                )
        return sizes

    def advance(self, columns: Columns, start: Sequence[int], count: int) -> list[int]:
        """Return where each level stands `count` rows behind `start`.

        Raises
        ------
        ValueError
            Lengths on the way are no lengths, or a column ends before.
        """
        ends = list(start)
        ends[0] += count
        for level, (parent, lengths) in enumerate(self.parents, 1):
            passed = self._lengths(lengths, columns)[start[parent] : ends[parent]]
            if passed.size and passed.min() < 0:
                raise ValueError(f"column {self.fields[lengths]!r}: a length is negative")
            ends[level] += int(passed.sum())
        for name, level, column in zip(self.fields, self.level_of, columns, strict=True):
            # To cut it would give fewer items than the lengths say, and nobody would know.
            if len(column) < ends[level] > start[level]:
                raise ValueError(
                    f"column {name!r}: expected {ends[level]} items at least, found {len(column)}"
                )
        return ends

    def _lengths(self, number: int, columns: Columns) -> NDArray[Any]:
        column = columns[number]
        if column.ndim != 1 or column.dtype.kind not in "iu":
            raise ValueError(
                f"column {self.fields[number]!r}: expected lengths, 1-D integers, found {column.dtype} {column.shape}"
            )
        return column

    def cut(self, columns: Columns, start: Sequence[int], end: Sequence[int]) -> list[NDArray[Any]]:
        """Return the part of each column between two places, as views."""
        return [c[start[v] : end[v]] for c, v in zip(columns, self.level_of, strict=True)]

    def offsets(self, columns: Columns) -> NDArray[np.int64]:
        """Return where each level stands before each row, and behind the last: shape (rows + 1, levels)."""
        rows = len(columns[0]) if columns else 0
        result = np.zeros((rows + 1, self.levels), np.int64)
        result[:, 0] = np.arange(rows + 1)
        for level, (parent, lengths) in enumerate(self.parents, 1):
            ends = np.concatenate(([0], np.cumsum(columns[lengths], dtype=np.int64)))
            result[:, level] = ends[result[:, parent]]
        return result

    def gather(
        self, columns: Columns, offsets: NDArray[np.int64], rows: NDArray[np.int64]
    ) -> list[NDArray[Any]]:
        """Return the items of `rows`, in this order; each row's items stay together."""
        picked: list[NDArray[np.int64]] = [rows]
        for level in range(1, self.levels):
            starts, counts = offsets[rows, level], offsets[rows + 1, level] - offsets[rows, level]
            before = np.cumsum(counts) - counts
            picked.append(np.arange(counts.sum()) + np.repeat(starts - before, counts))
        return [c[picked[v]] for c, v in zip(columns, self.level_of, strict=True)]


@lru_cache(maxsize=256)
def column_tree(fields: tuple[str, ...]) -> ColumnTree:
    """Return the levels of columns of these names.

    Raises
    ------
    ValueError
        A name is there twice.
    """
    if len(set(fields)) != len(fields):
        raise ValueError("a column is named twice")
    makers = {name[: -len("lengths")]: i for i, name in enumerate(fields) if _is_lengths(name)}
    # A prefix is shorter than those inside it: sorted by length, each level comes behind its parent.
    prefixes = sorted(makers, key=len)
    number = {prefix: level for level, prefix in enumerate(prefixes, 1)}

    def level(name: str) -> int:
        own = name[: -len("lengths")] if _is_lengths(name) else None
        around = [p for p in prefixes if name.startswith(p) and p != own]
        return number[around[-1]] if around else 0

    level_of = tuple(level(name) for name in fields)
    parents = tuple((level_of[makers[prefix]], makers[prefix]) for prefix in prefixes)
    return ColumnTree(fields, level_of, parents)


def _is_lengths(name: str) -> bool:
    return name == "lengths" or name.endswith(":lengths")
