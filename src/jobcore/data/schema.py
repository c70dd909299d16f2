"""Records: trees of named columns, with the dtype of each column and, in use, the blob it stands in.

A record of rows is kept column by column. A column is named by its path, joined by ``:``; a `List` adds the column
``lengths``, with the number of values of each row, and puts its values below ``values``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, overload

import numpy as np

from jobcore.data.fields import Field, Scalar
from jobcore.errors import BuildError
from jobcore.graph import BlobReference

__all__ = ["Field", "List", "Map", "NamedTuple", "Scalar", "Struct", "Tuple", "check_same_columns"]


class Struct(Field):
    """Named fields side by side: ``Struct(("uid", Scalar(np.int64)), ("tags", List(Scalar(str))))``.

    ``record.uid``, ``record["uid"]``, ``record["a:b"]`` and ``record[0]`` are fields; ``record[["uid", "tags"]]`` is a
    struct of those. ``a + b`` has the fields of both, ``a - b`` those of `a` whose columns are not in `b`.

    Parameters
    ----------
    *fields
        Pairs of a name and a `Field`, or what `as_record` makes one of. A name ``a:b`` makes a struct ``a`` with a
        field ``b``; structs of one name become one.

    Raises
    ------
    BuildError
        A name is used twice, is ``lengths``, or has an empty part; or it is no pair.
    """

    def __init__(self, *fields: tuple[str, object]) -> None:
        self._fields: dict[str, Field] = {}
        for pair in fields:
            if not isinstance(pair, tuple) or len(pair) != 2 or not isinstance(pair[0], str):
                raise BuildError(f"expected a pair of name and field in a Struct, found {pair!r}")
            self._add(pair[0], as_field(pair[1]))

    def _add(self, path: str, field: Field) -> None:
        name, colon, rest = path.partition(":")
        if not name or (colon and not rest):
            raise BuildError(f"expected a name for a field, found an empty one in {path!r}")
        if name == "lengths":
            raise BuildError(
                "the name 'lengths' is that of a List's own column, and cannot be a field of a Struct"
            )
        if colon:
            field = Struct((rest, field))
        known = self._fields.get(name)
        if known is None:
            self._fields[name] = field
        elif isinstance(known, Struct) and isinstance(field, Struct):
            self._fields[name] = known + field
        else:
            raise BuildError(f"expected each name once in a Struct, found {name!r} twice")

    def get_children(self) -> list[tuple[str, Field]]:
        """Return pairs of name and field, in order."""
        return list(self._fields.items())

    def all_scalars(self) -> list[Scalar]:
        """Return the columns, in order."""
        return [scalar for field in self._fields.values() for scalar in field.all_scalars()]

    def field_names(self) -> list[str]:
        """Return the names of the columns: paths joined by ``:``."""
        return [_join(name, below) for name, field in self._fields.items() for below in field.field_names()]

    def _rebuilt(self, make: Callable[[Scalar], Scalar]) -> Struct:
        return Struct(*((name, field._rebuilt(make)) for name, field in self._fields.items()))

    def __getattr__(self, name: str) -> Any:
        fields: dict[str, Field] = self.__dict__.get("_fields", {})
        if name not in fields:
            raise AttributeError(f"a record has no field {name!r}; it has {', '.join(fields) or 'none'}")
        return fields[name]

    @overload
    def __getitem__(self, key: list[str] | tuple[str, ...]) -> Struct: ...
    @overload
    def __getitem__(self, key: str | int) -> Any: ...
    def __getitem__(self, key: str | int | list[str] | tuple[str, ...]) -> Any:
        if isinstance(key, (list, tuple)):
            return Struct(*((name, self[name]) for name in key))
        if isinstance(key, int):
            return list(self._fields.values())[key]
        name, colon, rest = key.partition(":")
        field = self._fields.get(name)
        if field is None:
            raise KeyError(f"a record has no field {name!r}; it has {', '.join(self._fields) or 'none'}")
        return field[rest] if colon and isinstance(field, (Struct, List)) else _whole(field, rest)

    def __contains__(self, key: object) -> bool:
        try:
            self[key]  # type: ignore[call-overload]  # anything may be asked for
        except (KeyError, AttributeError):
            return False
        return True

    def __len__(self) -> int:
        return len(self._fields)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __add__(self, other: Field) -> Struct:
        if not isinstance(other, Struct):
            return NotImplemented
        return Struct(*self._fields.items(), *other._fields.items())

    def __sub__(self, other: Field) -> Struct:
        if not isinstance(other, Struct):
            return NotImplemented
        kept: list[tuple[str, object]] = []
        for name, field in self._fields.items():
            taken = other._fields.get(name)
            if isinstance(taken, Struct) and isinstance(field, Struct):
                rest = field - taken
                if len(rest):
                    kept.append((name, rest))
            elif taken is None:
                kept.append((name, field))
        return Struct(*kept)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={f!r}' for n, f in self._fields.items())})"


class List(Field):
    """Rows of several values each: a column of how many, and the values of all rows one after another.

    Parameters
    ----------
    values
        The field of one value, or what `as_record` makes one of.
    lengths
        The blob of the lengths, int32; or a `Scalar`.
    """

    def __init__(self, values: object, lengths: object = None) -> None:
        self.lengths = lengths if isinstance(lengths, Scalar) else Scalar(np.int32, lengths)
        self.values = as_field(values)

    def all_scalars(self) -> list[Scalar]:
        """Return the columns: the lengths, then those of the values."""
        return [self.lengths, *self.values.all_scalars()]

    def field_names(self) -> list[str]:
        """Return ``lengths``, and the names of the values' columns below ``values``."""
        return ["lengths", *(_join("values", below) for below in self.values.field_names())]

    def _rebuilt(self, make: Callable[[Scalar], Scalar]) -> List:
        lengths = make(self.lengths)
        return List(self.values._rebuilt(make), lengths)

    def __getitem__(self, key: str) -> Any:
        name, colon, rest = key.partition(":")
        if name not in ("lengths", "values"):
            raise KeyError(f"a List has the fields lengths and values, found {name!r}")
        field: Field = self.lengths if name == "lengths" else self.values
        return field[rest] if colon and isinstance(field, (Struct, List)) else _whole(field, rest)

    def __repr__(self) -> str:
        return f"List({self.values!r})"


class Map(List):
    """Rows of several pairs each: a `List` of a struct of ``keys`` and ``values``."""

    def __init__(self, keys: object, values: object, lengths: object = None) -> None:
        super().__init__(Struct(("keys", keys), ("values", values)), lengths)

    def _rebuilt(self, make: Callable[[Scalar], Scalar]) -> Map:
        lengths = make(self.lengths)
        pair: Any = self.values._rebuilt(make)
        return Map(pair["keys"], pair["values"], lengths)

    @property
    def keys(self) -> Field:
        """The field of one key."""
        keys: Field = self.values["keys"]  # type: ignore[index]  # a Struct here
        return keys


class NamedTuple(Struct):
    """A struct whose fields are called `name_prefix`, ``_`` and their number."""

    def __init__(self, name_prefix: str, *fields: object) -> None:
        super().__init__(*((f"{name_prefix}_{i}", field) for i, field in enumerate(fields)))


class Tuple(NamedTuple):
    """A struct whose fields are called ``field_0``, ``field_1`` and so on."""

    def __init__(self, *fields: object) -> None:
        super().__init__("field", *fields)


def _join(name: str, below: str) -> str:
    return f"{name}:{below}" if below else name


def _whole(field: Field, rest: str) -> Field:
    if rest:
        raise KeyError(f"a single column has no field {rest!r}")
    return field


def as_field(value: Any) -> Field:
    """Return a field as it is, a blob or an array as a column in it, a dtype as a column, a collection as a struct."""
    if isinstance(value, Field):
        return value
    if isinstance(value, (BlobReference, np.ndarray)):
        dtype = value.dtype if isinstance(value, np.ndarray) else None
        return Scalar(dtype, value)
    if isinstance(value, Mapping):
        return Struct(*value.items())
    if isinstance(value, (list, tuple)) and not _is_dtype_pair(value):
        pairs = all(isinstance(v, tuple) and len(v) == 2 and isinstance(v[0], str) for v in value)
        return Struct(*value) if pairs and value else Tuple(*value)
    return Scalar(value)


def _is_dtype_pair(value: Sequence[Any]) -> bool:
    """Tell whether it is ``(dtype, shape)``."""
    if not isinstance(value, tuple) or len(value) != 2 or isinstance(value[0], (BlobReference, Field)):
        return False
    shape = value[1]
    sizes: Iterable[object] = shape if isinstance(shape, tuple) else (shape,)
    return all(isinstance(size, (int, np.integer)) for size in sizes)


def check_same_columns(expected: Field, found: Field, what: str) -> None:
    """Check that two records have the same columns, with the same dtypes where both are known.

    Raises
    ------
    BuildError
        They differ; the text names the first difference.
    """
    names, others = expected.field_names(), found.field_names()
    if names != others:
        raise BuildError(f"{what}: expected the columns {names}, found {others}")
    for name, dtype, other in zip(names, expected.field_types(), found.field_types(), strict=True):
        if dtype is None or other is None or dtype == other:
            continue
        # Text columns of different widths are of one dtype as far as anybody cares.
        if dtype.base.kind == other.base.kind and dtype.base.kind in "SU" and dtype.shape == other.shape:
            continue
        raise BuildError(f"{what}: expected {dtype} in column {name!r}, found {other}")
