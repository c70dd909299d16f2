"""Where loaded blobs go: new values, the arrays of a mapping, or a workspace.

Each destination first tells everything that does not fit, then gives the arrays to be filled, and puts the
values in place at the very end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

import numpy as np

from jobcore._fast.counter import Counter
from jobcore._rng import RNG, rng_algorithm, rng_restore, rng_state
from jobcore.errors import BlobKindError, FormatError
from jobcore.store.container import Casting, Scatter, Sink, Target
from jobcore.store.layout import Spec, bytes_of
from jobcore.store.overlap import covers_itself, overlaps
from jobcore.store.sharing import Alias, same_place
from jobcore.workspace import Blob, Workspace

__all__ = ["Destination", "Item", "conflicts", "destination"]


@dataclass(slots=True)
class Item:
    """A blob on its way from a database to its destination.

    Attributes
    ----------
    blob, stored, name
        Number in the table, name there, and wanted name.
    spec, dtype
        Layout and true data type.
    alias
        What it is a view of, or ``None`` when it has bytes of its own.
    rows
        First row that is wanted and the one after the last, or ``None`` for all.
    place
        What the destination has for it, if anything.
    casting
        The rule by which it becomes the data type of its array, or ``None`` when that is its own.
    twin
        Whether another blob of equal content fills the same memory, so that this one is only checked.
    shared
        Whether its place lies in that of its base just as it does itself, so that it is filled with that.
    array
        What is filled.
    value
        What was made of it, for every kind but tensors.
    """

    blob: int
    stored: str
    name: str
    spec: Spec
    dtype: np.dtype[Any]
    rows: tuple[int, int] | None = None
    place: Any = None
    casting: Casting | None = None
    twin: bool = False
    alias: Alias | None = None
    shared: bool = False
    array: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty(0))
    value: Any = None

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the array that is filled."""
        if self.rows is None:
            return self.spec.shape
        return (self.rows[1] - self.rows[0], *self.spec.shape[1:])

    def label(self) -> str:
        """Name it in an error."""
        return f"{self.stored!r:.120}" + (f" (as {self.name!r:.120})" if self.name != self.stored else "")

    def chunk_range(self) -> tuple[int, int]:
        """Give the first chunk that is needed, and the one after the last."""
        if self.rows is None:
            return 0, self.spec.chunks
        low, high = self.rows
        if low == high or not self.spec.chunks:
            return 0, 0
        return low // self.spec.chunk_rows, -(-high // self.spec.chunk_rows)

    def chunk_bytes(self) -> int:
        """Give the size of one chunk."""
        return self.spec.chunk_bytes

    def bytes_in(self, first: int, stop: int) -> int:
        """Give the bytes that a range of chunks holds, without what only fills the last one."""
        whole, size = self.spec.nbytes, self.spec.chunk_bytes
        return min(stop * size, whole) - min(first * size, whole)

    def target(self, first: int, stop: int) -> Target:
        """Give what to read for a range of chunks."""
        array = self.array if self.rows is None and self.casting is None and not self.twin else None
        if array is None or stop - first != self.spec.chunks or not array.flags.c_contiguous:
            array = None
        return Target(self.blob, partial(self.sinks, first, stop), first, array)

    def sinks(self, first: int, stop: int) -> Iterator[Sink]:
        """Give the memory of each chunk of a range, in order."""
        spec, array = self.spec, np.asarray(self.array)
        if self.casting is not None and not self.shape:
            array = array.reshape(1)
        begin, end = self.rows if self.rows is not None else (0, spec.row_range(spec.chunks - 1)[1])
        straight = self.casting is None and array.flags.c_contiguous
        flat = bytes_of(array) if straight and first < stop else None
        if flat is not None and spec.chunks == 1 and self.rows is None and not self.twin:
            yield flat
            return
        for chunk in range(first, stop):
            low, high = spec.row_range(chunk)
            skip = max(0, begin - low)
            low, high = low + skip - begin, min(high, end) - begin
            if self.twin:
                yield None
            elif flat is None or skip:
                yield Scatter(array[low:high], self.dtype, self.casting or "equiv", skip)
            else:
                yield flat[low * spec.row_bytes : high * spec.row_bytes]

    def new_array(self) -> np.ndarray[Any, Any]:
        """Make memory of the shape that is filled and of the blob's data type."""
        try:
            return np.empty(self.shape, self.dtype)
        except ValueError as error:
            raise FormatError(
                f"blob {self.stored!r:.120}: no array can have the shape {self.shape}: {error}",
                place=self.stored,
            ) from error


class Destination(Protocol):
    """Where loaded blobs go, by their wanted names. The methods are called in this order.

    Attributes
    ----------
    takes_views
        Whether blobs that share storage are given as views of one array; otherwise `array` is filled for each.
    """

    takes_views: bool

    def expected(self) -> Iterable[str] | None:
        """Give the names that must come when the caller wants all; ``None`` where any will do."""

    def has(self, name: str, /) -> bool:
        """Tell whether there is a place for a blob of that name."""

    def problem(self, item: Item, cast: Casting | None, /) -> str | None:
        """Say why a blob does not fit, by what the table says of it; else note its place."""

    def check(self, items: list[Item], /) -> Iterator[str]:
        """Say which values, other than tensors, do not fit, now that they are known."""

    def array(self, item: Item, /) -> np.ndarray[Any, Any]:
        """Give the memory for a tensor."""

    def finish(self, item: Item, /) -> Any:
        """Put a blob in place, and give what the caller gets for it."""


def destination(into: Workspace | Mapping[str, Any] | None) -> Destination:
    """Make the destination of a load.

    Parameters
    ----------
    into
        As for :meth:`jobcore.store.Database.load`.

    Returns
    -------
    Destination
        For one load.

    Raises
    ------
    TypeError
        `into` is something else.
    """
    if into is None:
        return _New()
    if isinstance(into, Workspace):
        return _IntoWorkspace(into)
    if isinstance(into, Mapping):
        return _IntoMapping(into)
    raise TypeError(f"expected into as a Workspace or a mapping of arrays, found {type(into).__qualname__}")


class _New:
    takes_views = True

    def expected(self) -> None:
        return None

    def has(self, _name: str) -> bool:
        return True

    def problem(self, _item: Item, _cast: Casting | None) -> str | None:
        return None

    def check(self, _items: list[Item]) -> Iterator[str]:
        return iter(())

    def array(self, item: Item) -> np.ndarray[Any, Any]:
        return item.new_array()

    def finish(self, item: Item) -> Any:
        return item.array if item.spec.kind == "tensor" else item.value


class _IntoMapping:
    takes_views = False

    def __init__(self, into: Mapping[str, Any]) -> None:
        self._into = into

    def expected(self) -> Iterable[str]:
        return self._into

    def has(self, name: str) -> bool:
        return name in self._into

    def problem(self, item: Item, cast: Casting | None) -> str | None:
        place, kind = self._into[item.name], item.spec.kind
        item.place = place
        if kind == "tensor":
            return _misfit(place, item, cast)
        if kind == "counter":
            return (
                None
                if isinstance(place, Counter)
                else f"expected a Counter for a counter, found {_type(place)}"
            )
        if kind == "rng":
            try:
                rng_algorithm(place)
            except BlobKindError as error:
                return error.message
            return None
        return f"a {kind} cannot be loaded in place; load it without into"

    def check(self, items: list[Item]) -> Iterator[str]:
        for item in items:
            if item.spec.kind == "rng":
                expected, found = rng_algorithm(item.value), rng_algorithm(item.place)
                if expected != found:
                    yield f"{item.label()}: expected a generator of {expected}, found one of {found}"

    def array(self, item: Item) -> np.ndarray[Any, Any]:
        return item.place  # type: ignore[no-any-return]  # problem() has checked it

    def finish(self, item: Item) -> Any:
        if item.spec.kind == "counter":
            item.place.restore(item.value.retrieve())
        elif item.spec.kind == "rng":
            _copy_rng(item.value, item.place)
        return item.place


class _IntoWorkspace:
    # Each of its tensors has memory of its own.
    takes_views = False

    def __init__(self, into: Workspace) -> None:
        self._into = into

    def expected(self) -> None:
        return None

    def has(self, _name: str) -> bool:
        return True

    def problem(self, item: Item, cast: Casting | None) -> str | None:
        blob = self._find(item.name)
        if blob is None:
            return None
        if blob.bound:
            if item.spec.kind != "tensor":
                return f"the blob is bound to an array, and a {item.spec.kind} is stored"
            item.place = blob.value
            return _misfit(blob.value, item, cast)
        if cast is not None and item.spec.kind == blob.kind == "tensor" and blob.shape == item.shape:
            return _convert(blob.value.dtype, item, cast)
        return None

    def check(self, _items: list[Item]) -> Iterator[str]:
        return iter(())

    def array(self, item: Item) -> np.ndarray[Any, Any]:
        blob = self._find(item.name)
        if blob is None:
            return item.new_array()
        dtype = item.dtype if item.casting is None or blob.dtype is None else blob.dtype
        array: np.ndarray[Any, Any] = blob.take_buffer(item.shape, dtype)
        return array

    def finish(self, item: Item) -> Blob:
        kind = item.spec.kind
        blob = self._into.create_blob(item.name)
        if kind == "tensor":
            if not blob.bound:
                blob.adopt(item.array)
        elif kind == "empty":
            blob.reset()
        elif kind == "counter" and blob.kind == "counter":
            # Ops and other threads hold the handle; a new counter would leave them with the old one.
            blob.value.restore(item.value.retrieve())
        elif kind == "rng" and blob.kind == "rng" and _same_algorithm(blob.value, item.value):
            _copy_rng(item.value, blob.value)
        else:
            blob.feed(item.value)
        return blob

    def _find(self, name: str) -> Blob | None:
        return self._into.blob(name) if self._into.has_blob(name) else None


def conflicts(items: list[Item], equal: Callable[[Item, Item], bool]) -> Iterator[str]:
    """Find blobs that would overwrite each other, and mark those that may share a place as twins.

    Parameters
    ----------
    items
        Blobs whose places are known.
    equal
        Tells whether two blobs have the same content.

    Yields
    ------
    str
        What is wrong.
    """
    tensors = [item for item in items if item.spec.kind == "tensor" and item.place is not None]
    if any(item.alias is not None for item in tensors):
        tensors = list(_not_shared(tensors))
    for at, other, same in overlaps([item.place for item in tensors]):
        item, before = tensors[at], tensors[other]
        if same and equal(item, before):
            item.twin = True
        else:
            yield f"{before.label()} and {item.label()}: their destinations share memory, and they differ"
    handles: dict[int, Item] = {}
    for item in items:
        if item.spec.kind != "tensor" and item.place is not None:
            before = handles.setdefault(id(item.place), item)
            if before is not item and not equal(item, before):
                yield f"{before.label()} and {item.label()}: they have one destination, and they differ"


def _not_shared(tensors: list[Item]) -> Iterator[Item]:
    """Mark the aliases whose places share memory with those of their bases as they do, and give all others."""
    bases = {item.blob: item for item in tensors if item.alias is None}
    for item in tensors:
        base = bases.get(item.alias.base) if item.alias is not None else None
        if item.alias is not None and base is not None:
            item.shared = same_place(item.alias, item.dtype, item.place, base.dtype, base.place)
        # Whatever overlaps the place of a shared one overlaps that of its base too.
        if not item.shared:
            yield item


def _misfit(place: object, item: Item, cast: Casting | None) -> str | None:
    if not isinstance(place, np.ndarray) or isinstance(place, np.ma.MaskedArray):
        return f"expected a plain array for a tensor, found {_type(place)}"
    if place.shape != item.shape or (place.dtype != item.dtype and cast is None):
        more = ""
        if place.shape == item.shape and np.can_cast(item.dtype, place.dtype, "same_kind"):
            more = ", which cast=True would convert it to"
        return (
            f"stored is {item.dtype} of shape {item.shape}, the destination is {place.dtype} of shape "
            f"{place.shape}{more}"
        )
    refused = _convert(place.dtype, item, cast)
    if refused is not None:
        return refused
    if not place.flags.writeable:
        return "the destination is read-only"
    return "several elements of the destination share memory" if covers_itself(place) else None


def _convert(dtype: np.dtype[Any], item: Item, cast: Casting | None) -> str | None:
    if cast is None or dtype == item.dtype:
        return None
    if not np.can_cast(item.dtype, dtype, cast):
        return (
            f"stored is {item.dtype}, the destination is {dtype}, and the casting rule {cast!r} does not "
            "allow that"
        )
    if not item.shape and item.spec.chunks > 1:
        return "a single element that lies in several chunks cannot be converted"
    item.casting = cast
    return None


def _type(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _same_algorithm(one: object, other: object) -> bool:
    try:
        return rng_algorithm(one) == rng_algorithm(other)
    except BlobKindError:
        return False


def _copy_rng(source: RNG, place: RNG) -> None:
    rng_restore(place, *rng_state(source))
