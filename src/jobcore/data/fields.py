"""What every part of a record has, and the single column."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BuildError
from jobcore.graph import BlobReference

__all__ = ["Field", "Scalar"]

_Self = TypeVar("_Self", bound="Field")
Leaf: TypeAlias = "BlobReference | NDArray[Any]"
"""What a column stands in: a blob at build time; an array, once its values were fetched."""


class Field:
    """A part of a record: a `Scalar`, a `Struct` or a `List`.

    Notes
    -----
    Two fields are equal when they have the same columns with the same dtypes; blobs do not count. Thread safety:
    none while it is changed with `Scalar.set`; a record that nobody changes may be read by many threads.
    """

    def all_scalars(self) -> list[Scalar]:
        """Return the columns, in order."""
        raise NotImplementedError(f"{type(self).__name__} does not say which columns it has")

    def field_names(self) -> list[str]:
        """Return the names of the columns: paths joined by ``:``; ``""`` for a single `Scalar`."""
        raise NotImplementedError(f"{type(self).__name__} does not name its columns")

    def _rebuilt(self: _Self, make: Callable[[Scalar], Scalar]) -> _Self:
        """Return a field of the same form with `make` of each column in its place, called in order."""
        raise NotImplementedError(f"{type(self).__name__} cannot be copied")

    def field_types(self) -> list[np.dtype[Any] | None]:
        """Return the dtypes of the columns; a dtype with a shape is that of one row, None is unknown."""
        return [scalar.dtype for scalar in self.all_scalars()]

    def field_blobs(self) -> list[Any]:
        """Return what the columns stand in: references, or arrays in a record that was fetched.

        Raises
        ------
        BuildError
            A column has none.
        """
        missing = [
            name
            for name, scalar in zip(self.field_names(), self.all_scalars(), strict=True)
            if not scalar.bound
        ]
        if missing:
            raise BuildError(
                f"expected a blob for each column, found none for {', '.join(map(repr, missing))}",
                hint="make them with new_record(net, schema), or name them with from_blob_list(schema, blobs)",
            )
        return [scalar.leaf() for scalar in self.all_scalars()]

    def has_blobs(self) -> bool:
        """Return whether every column has a blob."""
        return all(scalar.bound for scalar in self.all_scalars())

    def clone(self: _Self, keep_blobs: bool = True) -> _Self:
        """Return a copy that can be changed by itself; it names the same blobs, or with `keep_blobs` False none."""
        return self._rebuilt(lambda s: Scalar(s.dtype, s.leaf() if keep_blobs and s.bound else None))

    def clone_schema(self: _Self) -> _Self:
        """Return a copy without blobs."""
        return self.clone(keep_blobs=False)

    def with_blobs(self: _Self, blobs: Sequence[object]) -> _Self:
        """Return a copy whose columns stand in `blobs`, in order.

        Raises
        ------
        BuildError
            There are more or fewer of them than columns.
        """
        count = len(self.all_scalars())
        if len(blobs) != count:
            raise BuildError(
                f"expected {count} blobs, one for each of {self.field_names()}, found {len(blobs)}"
            )
        given = iter(blobs)
        return self._rebuilt(lambda s: Scalar(s.dtype, next(given)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Field):
            return NotImplemented
        return self.field_names() == other.field_names() and self.field_types() == other.field_types()

    __hash__ = None  # type: ignore[assignment]  # a record can change


class Scalar(Field):
    """One column.

    Parameters
    ----------
    dtype
        A NumPy dtype, ``(dtype, shape)`` for rows that are arrays of that shape, or None for unknown.
    blob
        Where it stands: a blob's name or reference, or an array.

    Raises
    ------
    BuildError
        It is no dtype that a tensor can have, or no blob.
    """

    def __init__(self, dtype: Any = None, blob: object = None) -> None:
        self.dtype: np.dtype[Any] | None = None if dtype is None else _row_dtype(dtype)
        self._blob: Leaf | None = None
        if blob is not None:
            self.set(blob=blob)

    @property
    def bound(self) -> bool:
        """Whether the column has a blob."""
        return self._blob is not None

    def leaf(self) -> Any:
        """Return the blob reference, or in a record that was fetched the array.

        Raises
        ------
        BuildError
            There is none.
        """
        if self._blob is None:
            raise BuildError("expected a blob in this column, found none", hint="set it with .set(blob=...)")
        return self._blob

    def set(self, blob: object) -> None:
        """Say which blob, or array, the column stands in.

        Raises
        ------
        BuildError
            It is neither.
        """
        if isinstance(blob, (BlobReference, np.ndarray)):
            self._blob = blob
        elif isinstance(blob, str):
            self._blob = BlobReference(blob)
        else:
            raise BuildError(
                f"expected a blob or an array for a column, found {type(blob).__name__}: {blob!r}",
                hint="make a constant a blob with ops.Const",
            )

    def all_scalars(self) -> list[Scalar]:
        """Return the column itself, as a list."""
        return [self]

    def field_names(self) -> list[str]:
        """Return ``[""]``: a column is named by what it is in."""
        return [""]

    def _rebuilt(self, make: Callable[[Scalar], Scalar]) -> Scalar:
        return make(self)

    def __repr__(self) -> str:
        blob = self._blob
        where = "" if blob is None else f", blob={str(blob)!r}" if isinstance(blob, str) else ", array"
        return f"Scalar({self.dtype}{where})"


def _row_dtype(dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError) as error:
        raise BuildError(f"expected a NumPy dtype for a column, found {dtype!r}: {error}") from error
    if found.hasobject:
        raise BuildError(
            f"expected a dtype of plain items for a column, found {found}",
            hint="use str or bytes for text, and List for rows of different lengths",
        )
    return found
