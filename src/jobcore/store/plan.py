"""What a load will do, decided from the table alone: nothing is read and nothing is touched."""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jobcore._dtypes import dtype_from_spec
from jobcore.errors import FormatError, MismatchError
from jobcore.store.container import Casting
from jobcore.store.destinations import Destination, Item, conflicts
from jobcore.store.layout import KINDS, Spec, storage_of
from jobcore.store.metadata import Table
from jobcore.store.records import LoadReport
from jobcore.store.selection import Names, Rename, closest, select
from jobcore.store.sharing import Alias, alias_spec, view_of

__all__ = ["LoadPlan", "Request"]

_log = logging.getLogger("jobcore.store")

_LISTED = 200
_COMPARED = 10


@dataclass(frozen=True, slots=True)
class Request:
    """What a caller wants; the members are the arguments of :meth:`jobcore.store.Database.load`."""

    names: Names = None
    prefix: str | None = None
    rename: Rename = None
    strict: bool = True
    cast: Casting | None = None
    report: Callable[[LoadReport], object] | None = None


class LoadPlan:
    """Plans loads from one database.

    Parameters
    ----------
    path
        Its path, for errors.
    table
        Its table.
    """

    def __init__(self, path: str, table: Table) -> None:
        self._path = path
        self._table = table
        self._blobs = table.listing()

    def items(self, target: Destination, request: Request) -> list[Item]:
        """Decide what is loaded.

        Parameters
        ----------
        target
            Where to.
        request
            What.

        Returns
        -------
        list of Item
            The blobs, in the order in which the caller gets them; nothing is read yet.

        Raises
        ------
        MismatchError
            What is stored and what is wanted differ; all differences are listed.
        FormatError
            One of the blobs does not follow the format, or its dtype needs a package that is missing.
        TypeError
            An argument is of a wrong type.
        """
        selection = select(self._blobs, request.names, request.prefix, request.rename)
        expected = target.expected()
        items: list[Item] = []
        misfits: list[str] = []
        unexpected: list[tuple[str, str]] = []
        make = self._maker()
        for stored, name in selection.chosen:
            if not target.has(name):
                unexpected.append((stored, name))
                continue
            item = make(stored, name)
            problem = target.problem(item, request.cast)
            if problem is not None:
                misfits.append(f"{item.label()}: {problem}")
            items.append(item)
        missing = [(name, self._blobs) for name in selection.missing]
        if request.names is None and expected is not None:
            by_name = {item.name: item for item in items}
            chosen = {name: 0 for _, name in selection.chosen}
            missing += [(name, chosen) for name in expected if name not in by_name]
            if not selection.problems:
                items = [by_name[name] for name in expected if name in by_name]
        problems = selection.problems
        if request.strict:
            problems += [
                f"{name!r:.120}: no such blob is stored" + (closest(name, known) if at < _COMPARED else "")
                for at, (name, known) in enumerate(missing)
            ]
            found = "stored" if request.names is None else "asked for"
            problems += [f"{_as(*pair)}: {found}, but not in the mapping" for pair in unexpected]
        self.refuse(problems + misfits)
        self.refuse(list(conflicts(items, self._equal)))
        self._tell(items, [name for name, _ in missing], [stored for stored, _ in unexpected], request.report)
        return items

    def base(self, blob: int) -> Item:
        """Make the item of a blob that nobody asked for, but of which an alias is a view."""
        name = self._table.names[blob]
        return self._maker()(name, name)

    def aliases(self) -> list[tuple[Alias, np.dtype[Any]]] | None:
        """Give all aliases with their true data types, every one checked; ``None`` as for :meth:`dtypes`."""
        try:
            return [(alias, self._of_alias(alias)[1]) for alias in self._table.aliases]
        except FormatError:
            return None

    def view(
        self, alias: Alias, dtype: np.dtype[Any], base: np.ndarray[Any, Any], skipped: int = 0
    ) -> np.ndarray[Any, Any]:
        """Make the view that an alias is, as :func:`~jobcore.store.sharing.view_of` does."""
        try:
            return view_of(alias, dtype, base, skipped)
        except FormatError as error:
            raise self._wrong(alias.name, error.message, error.hint) from error

    def _maker(self) -> Callable[[str, str], Item]:
        table = self._table
        dtypes: dict[int, np.dtype[Any]] = {}
        own = len(table.names)

        def make(stored: str, name: str) -> Item:
            blob = self._blobs[stored]
            if blob >= own:
                alias = table.aliases[blob - own]
                return Item(blob, stored, name, *self._of_alias(alias), alias=alias)
            index = table.spec[blob]
            if index not in dtypes:
                dtypes[index] = self._dtype(stored, table.specs[index])
            return Item(blob, stored, name, table.specs[index], dtypes[index])

        return make

    def _of_alias(self, alias: Alias) -> tuple[Spec, np.dtype[Any]]:
        try:
            dtype = dtype_from_spec(alias.dtype)
            base = self._table.names[alias.base]
            return alias_spec(alias, dtype, base, self._table.spec_of(alias.base)), dtype
        except FormatError as error:
            raise self._wrong(alias.name, error.message, error.hint) from error

    def dtypes(self) -> list[np.dtype[Any]] | None:
        """Give the true data type of each spec, every one checked; ``None`` where one is not as it should be."""
        try:
            return [self._dtype("", spec) for spec in self._table.specs]
        except FormatError:
            return None  # whether it matters, and to which blob, a plan tells

    def refuse(self, problems: list[str]) -> None:
        """Raise one error for all problems, if there are any.

        Parameters
        ----------
        problems
            What is wrong, as text.

        Raises
        ------
        MismatchError
            There is one at least.
        """
        if problems:
            places = f"{len(problems)} place{'s' if len(problems) > 1 else ''}"
            more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
            raise MismatchError(
                f"{self._path}: what is stored and what was asked for differ in {places}: "
                + "; ".join(problems[:_LISTED])
                + more,
                hint="name the blobs you want with names=, map their names with rename= or prefix=, or correct "
                "the destination; nothing was loaded",
            )

    def _tell(
        self,
        items: list[Item],
        missing: list[str],
        unexpected: list[str],
        report: Callable[[LoadReport], object] | None,
    ) -> None:
        if report is not None:
            loaded = tuple((item.stored, item.name) for item in items)
            report(LoadReport(self._path, loaded, tuple(missing), tuple(unexpected)))
        elif missing or unexpected:
            _log.warning(
                "%s: %d names are missing: %s; %d blobs have no place: %s",
                self._path,
                len(missing),
                _some(missing),
                len(unexpected),
                _some(unexpected),
            )

    def _equal(self, one: Item, other: Item) -> bool:
        # By what the table says of the chunks; both blobs are read and checked all the same.
        table = self._table
        if one.alias is not None or other.alias is not None:
            return self._equal_views(one, other)
        column: list[Any] = table.hash or table.crc32
        sums = [column[table.first[item.blob] : table.first[item.blob + 1]] for item in (one, other)]
        known = len(sums[0]) == one.spec.chunks
        return known and table.spec[one.blob] == table.spec[other.blob] and sums[0] == sums[1]

    def _equal_views(self, one: Item, other: Item) -> bool:
        views = [item.alias and replace(item.alias, name="", position=0) for item in (one, other)]
        if views[0] == views[1]:
            return True
        bases = []
        for item in (one, other):
            if item.alias is None:
                bases.append(item)
            elif item.alias.is_whole(self._table.spec_of(item.alias.base)):
                bases.append(self.base(item.alias.base))
            else:
                return False
        return bases[0].blob == bases[1].blob or self._equal(*bases)

    def _dtype(self, name: str, spec: Spec) -> np.dtype[Any]:
        try:
            dtype = dtype_from_spec(spec.dtype)
        except FormatError as error:
            raise self._wrong(name, error.message, error.hint) from error
        if spec.kind not in KINDS:
            raise FormatError(
                f"{self._path}: blob {name!r:.120}: expected a kind of {', '.join(KINDS)}, found {spec.kind!r:.80}",
                path=self._path,
                place=name,
                hint="a newer jobcore wrote it: pip install -U jobcore, or name the other blobs with names=",
            )
        good = storage_of(dtype) == (spec.data_type, spec.item_bytes)
        if spec.kind == "counter":
            good = good and spec.data_type == "int64" and spec.shape == ()
        elif spec.kind != "tensor":
            good = good and spec.data_type == "uint8" and len(spec.shape) == 1 and not spec.item_bytes
            good = good and (spec.kind != "empty" or spec.shape == (0,))
        if not good:
            raise FormatError(
                f"{self._path}: blob {name!r:.120}: a {spec.kind} of dtype {spec.dtype!r:.80} and shape "
                f"{spec.shape} does not go with {spec.data_type} and item_bytes {spec.item_bytes}",
                path=self._path,
                place=name,
            )
        return dtype

    def _wrong(self, name: str, message: str, hint: str | None) -> FormatError:
        return FormatError(
            f"{self._path}: blob {name!r:.120}: {message}", path=self._path, place=name, hint=hint
        )


def _as(stored: str, name: str) -> str:
    return f"{stored!r:.120}" + (f" (as {name!r:.120})" if name != stored else "")


def _some(names: list[str]) -> str:
    more = f" and {len(names) - 10} more" if len(names) > 10 else ""
    return (", ".join(f"{name!r:.120}" for name in names[:10]) or "none") + more
