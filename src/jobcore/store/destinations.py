"""Where loaded blobs go: new values, the arrays of a mapping, or a workspace.

Each destination first tells everything that does not fit, then gives the arrays to be filled, and puts the
values in place at the very end.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from jobcore._fast.counter import Counter
from jobcore._rng import RNG, rng_algorithm, rng_restore, rng_state
from jobcore.errors import BlobKindError, FormatError, MismatchError
from jobcore.store.container import Scatter, Sink
from jobcore.store.layout import Spec, bytes_of
from jobcore.workspace import Blob, Workspace

__all__ = ["Destination", "Item", "destination"]


@dataclass(slots=True)
class Item:
    """A blob on its way from a database to its destination.

    Attributes
    ----------
    blob, name, spec, dtype
        Index in the table, name, layout and true data type.
    array
        What is filled.
    value
        What was made of it, for every kind but tensors.
    """

    blob: int
    name: str
    spec: Spec
    dtype: np.dtype[Any]
    array: np.ndarray[Any, Any] = field(default_factory=lambda: np.empty(0))
    value: Any = None

    def sinks(self) -> Iterator[Sink]:
        """Give the memory of each chunk, in order."""
        spec, array = self.spec, np.asarray(self.array)
        flat = bytes_of(array) if spec.chunks and array.flags.c_contiguous else None
        for chunk in range(spec.chunks):
            low, high = spec.row_range(chunk)
            if flat is None:
                yield Scatter(array[low:high])
            else:
                yield flat[low * spec.row_bytes : high * spec.row_bytes]

    def new_array(self) -> np.ndarray[Any, Any]:
        """Make memory of the blob's shape and data type."""
        try:
            return np.empty(self.spec.shape, self.dtype)
        except ValueError as error:
            raise FormatError(
                f"blob {self.name!r:.120}: no array can have the shape {self.spec.shape}: {error}",
                place=self.name,
            ) from error


class Destination(Protocol):
    """Where loaded blobs go. The methods are called in this order."""

    def names(self, stored: list[str], /) -> list[str]:
        """Give the names to load when the caller named none."""

    def surplus(self, stored: list[str], /) -> list[str]:
        """Tell which of the stored blobs have no place here."""

    def problem(self, item: Item, /) -> str | None:
        """Say why a blob does not fit, by what the table says of it."""

    def check(self, items: list[Item], /) -> None:
        """Refuse values, other than tensors, that do not fit, now that they are known."""

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
    def names(self, stored: list[str]) -> list[str]:
        return stored

    def surplus(self, _stored: list[str]) -> list[str]:
        return []

    def problem(self, _item: Item) -> str | None:
        return None

    def check(self, _items: list[Item]) -> None:
        return

    def array(self, item: Item) -> np.ndarray[Any, Any]:
        return item.new_array()

    def finish(self, item: Item) -> Any:
        return item.array if item.spec.kind == "tensor" else item.value


class _IntoMapping:
    def __init__(self, into: Mapping[str, Any]) -> None:
        self._into = into

    def names(self, _stored: list[str]) -> list[str]:
        return list(self._into)

    def surplus(self, stored: list[str]) -> list[str]:
        return [f"{name!r:.120}: stored, but not in the mapping" for name in stored if name not in self._into]

    def problem(self, item: Item) -> str | None:
        if item.name not in self._into:
            return "asked for, but not in the mapping"
        place, kind = self._into[item.name], item.spec.kind
        if kind == "tensor":
            return _misfit(place, item)
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

    def check(self, items: list[Item]) -> None:
        for item in items:
            if item.spec.kind == "rng":
                expected, found = rng_algorithm(item.value), rng_algorithm(self._into[item.name])
                if expected != found:
                    raise MismatchError(
                        f"{item.name!r:.120}: expected a generator of {expected}, found one of {found}",
                        hint="nothing was loaded",
                    )

    def array(self, item: Item) -> np.ndarray[Any, Any]:
        return self._into[item.name]  # type: ignore[no-any-return]  # problem() has checked it

    def finish(self, item: Item) -> Any:
        place = self._into[item.name]
        if item.spec.kind == "counter":
            place.restore(item.value.retrieve())
        elif item.spec.kind == "rng":
            _copy_rng(item.value, place)
        return place


class _IntoWorkspace:
    def __init__(self, into: Workspace) -> None:
        self._into = into

    def names(self, stored: list[str]) -> list[str]:
        return stored

    def surplus(self, _stored: list[str]) -> list[str]:
        return []

    def problem(self, item: Item) -> str | None:
        blob = self._find(item.name)
        if blob is None or not blob.bound:
            return None
        if item.spec.kind != "tensor":
            return f"the blob is bound to an array, and a {item.spec.kind} is stored"
        return _misfit(blob.value, item)

    def check(self, _items: list[Item]) -> None:
        return

    def array(self, item: Item) -> np.ndarray[Any, Any]:
        blob = self._find(item.name)
        if blob is None:
            return item.new_array()
        array: np.ndarray[Any, Any] = blob.take_buffer(item.spec.shape, item.dtype)
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


def _misfit(place: object, item: Item) -> str | None:
    if not isinstance(place, np.ndarray) or isinstance(place, np.ma.MaskedArray):
        return f"expected a plain array for a tensor, found {_type(place)}"
    if place.dtype != item.dtype or place.shape != item.spec.shape:
        return (
            f"stored is {item.dtype} of shape {item.spec.shape}, the destination is {place.dtype} of shape "
            f"{place.shape}"
        )
    return None if place.flags.writeable else "the destination is read-only"


def _type(value: object) -> str:
    return f"{type(value).__module__}.{type(value).__qualname__}"


def _same_algorithm(one: object, other: object) -> bool:
    try:
        return rng_algorithm(one) == rng_algorithm(other)
    except BlobKindError:
        return False


def _copy_rng(source: RNG, place: RNG) -> None:
    rng_restore(place, *rng_state(source))
