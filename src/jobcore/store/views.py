"""Handing out blobs that are views of others: where their bytes come from, and what a destination gets.

New arrays that a load makes share memory as the saved ones did. A destination of the caller's own gets values: none are
copied where it shares memory in the same way, all where it does not.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from jobcore._dtypes import dtype_from_spec
from jobcore.errors import FormatError
from jobcore.store.destinations import Item
from jobcore.store.layout import Spec, without_fields
from jobcore.store.metadata import Table
from jobcore.store.plan import LoadPlan
from jobcore.store.records import Fault
from jobcore.store.sharing import alias_spec

__all__ = ["Views", "alias_faults", "copy_into"]


class Views:
    """The aliases of one load.

    Parameters
    ----------
    plan
        What plans loads from the database.
    items
        What is loaded; places and twins are known.

    Attributes
    ----------
    extra
        Blobs that must be read for the sake of their aliases only, in table order, or the rows of them that are needed.
        They have arrays of their own.
    aliases
        Those that have to be made from what was read. All others are in place when their bases are.
    """

    def __init__(self, plan: LoadPlan, items: list[Item]) -> None:
        self._plan = plan
        self.extra: list[Item] = []
        self.aliases = [item for item in items if item.alias is not None and not (item.shared or item.twin)]
        self._sources: dict[int, Item] = {}
        if not self.aliases:
            return
        direct = {item.blob: item for item in items if item.alias is None}
        wanted: dict[int, list[Item]] = {}
        for item in self.aliases:
            assert item.alias is not None
            wanted.setdefault(item.alias.base, []).append(item)
        for base, group in sorted(wanted.items()):
            source = direct.get(base)
            if source is None or not _shows_its_bytes(source):
                source = plan.base(base)
                source.rows = _rows(source.spec, group)
                self.extra.append(source)
            self._sources[base] = source

    def view(self, item: Item) -> np.ndarray[Any, Any]:
        """Give an alias as a view of the array of its base, which need not be filled yet."""
        alias = item.alias
        assert alias is not None
        source = self._sources[alias.base]
        skipped = source.rows[0] * source.spec.row_bytes if source.rows is not None else 0
        return self._plan.view(alias, item.dtype, source.array, skipped)


def copy_into(item: Item, view: np.ndarray[Any, Any]) -> None:
    """Fill the array of an alias with its values."""
    if item.casting is not None:
        np.copyto(item.array, view, casting=item.casting)
    else:
        np.copyto(without_fields(item.array), without_fields(view))


def alias_faults(table: Table) -> Iterator[Fault]:
    """Give a fault for each alias that does not lie inside its base."""
    for alias in table.aliases:
        try:
            dtype = dtype_from_spec(alias.dtype)
        except FormatError:
            continue  # of a package that is not here, say: a load of it tells
        try:
            alias_spec(alias, dtype, table.names[alias.base], table.spec_of(alias.base))
        except FormatError as error:
            yield Fault("root", alias.name, f"blob {alias.name!r:.120}: {error.message}")


def _shows_its_bytes(item: Item) -> bool:
    """Tell whether the array of a blob will have its bytes as they are stored, and when the read is over."""
    if item.casting is not None or item.twin:
        return False
    # What has no place yet gets an array in C order.
    return item.place is None or item.place.flags.c_contiguous


def _rows(spec: Spec, group: list[Item]) -> tuple[int, int] | None:
    """Give the rows of a base that its aliases show, from the beginning of a chunk on; ``None`` for all."""
    if not spec.shape:
        return None
    spans = [(*item.alias.span(), item.dtype.itemsize) for item in group if item.alias is not None]
    low = min(first for first, _, _ in spans) // spec.row_bytes // spec.chunk_rows * spec.chunk_rows
    high = -(-max(last + size for _, last, size in spans) // spec.row_bytes)
    return None if (low, high) == (0, spec.shape[0]) else (low, high)
