"""Arrays that share storage: what a save stores once, and the views that a load makes of it.

An array whose bytes all lie inside those of another is an *alias* of that one, its *base*: a row of the table and no
array of its own. The rules are section 4.3 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from jobcore._dtypes import DTypeSpec, dtype_from_spec, dtype_spec
from jobcore._fast.sharing import find_shared
from jobcore.errors import FormatError
from jobcore.store.layout import ChunkPolicy, Spec, make_spec

__all__ = ["Alias", "alias_spec", "find_aliases", "parse_aliases", "same_place", "view_of"]

_MAX_BYTES = 2**63 - 1
_MAX_AXES = 64
_POLICY = ChunkPolicy()


@dataclass(frozen=True, slots=True)
class Alias:
    """A blob that is a view of another.

    Attributes
    ----------
    name
        Its name.
    base
        Index in the table of the blob whose bytes it shows.
    dtype
        True data type, as :func:`jobcore._dtypes.dtype_spec` gives it.
    shape
        Its shape; every axis has at least one element.
    offset
        Where its first element lies among the bytes of the base, in C order.
    strides
        Bytes from one element to the next along each axis; they may be zero or negative.
    position
        Its place among all blobs, in the order in which they were given.
    """

    name: str
    base: int
    dtype: DTypeSpec
    shape: tuple[int, ...]
    offset: int
    strides: tuple[int, ...]
    position: int

    def to_json(self) -> list[Any]:
        """Give the row of the table."""
        shape, strides = list(self.shape), list(self.strides)
        return [self.name, self.base, "tensor", self.dtype, shape, self.offset, strides, self.position]

    def span(self) -> tuple[int, int]:
        """Give the places of its first and of its last element in memory, in bytes from the start of the base."""
        low = high = self.offset
        for length, stride in zip(self.shape, self.strides, strict=True):
            if stride < 0:
                low += (length - 1) * stride
            else:
                high += (length - 1) * stride
        return low, high

    def nbytes(self) -> int:
        """Give the size of its value in bytes; 0 where its data type is not known here."""
        try:
            return math.prod(self.shape) * dtype_from_spec(self.dtype).itemsize
        except FormatError:
            return 0

    def rows(self, start: int, stop: int) -> Alias:
        """Give the view of some rows of it, one at least, along its axis 0."""
        shape = (stop - start, *self.shape[1:])
        return replace(self, shape=shape, offset=self.offset + start * self.strides[0])

    def is_whole(self, spec: Spec) -> bool:
        """Tell whether it is the very same array as its base, whose spec is given."""
        return (
            self.offset == 0
            and (self.dtype, self.shape) == (spec.dtype, spec.shape)
            and self.strides == _steps(self.shape, spec.nbytes // math.prod(self.shape))
        )


def find_aliases(
    kinds: list[str],
    names: list[str],
    arrays: list[np.ndarray[Any, Any]],
    declared: Mapping[int, int] | None = None,
    *,
    share: bool = True,
) -> list[Alias]:
    """Find the tensors that are views of other tensors.

    Parameters
    ----------
    kinds, names, arrays
        Of each blob, in order.
    declared
        Blobs that are to be what others are, whatever their own arrays hold: number of each, and of a tensor of equal
        data type and shape that is not declared itself.
    share
        Whether to look for others that share memory.

    Returns
    -------
    list of Alias
        In order; `base` counts the blobs that are left when all aliases are taken out.
    """
    # What has no elements has no bytes to be shared, and is stored as any other blob.
    declared = {at: base for at, base in declared.items() if arrays[base].size} if declared else {}
    found = _find_shared(kinds, arrays, declared) if share else {}
    if not found and not declared:
        return []
    taken = found.keys() | declared.keys()
    left = {at: number for number, at in enumerate(at for at in range(len(arrays)) if at not in taken)}
    dtypes: dict[int, DTypeSpec] = {}
    aliases = []
    for at in sorted(taken):
        # What is declared may name an alias: it becomes another one of the same base.
        source = declared.get(at, at)
        base, offset = found.get(source, (source, 0))
        array = arrays[source]
        dtype = dtypes.get(id(array.dtype))
        if dtype is None:
            dtype = dtypes[id(array.dtype)] = dtype_spec(array.dtype)
        strides = _steps(array.shape, array.itemsize)
        if arrays[base].flags.c_contiguous and not array.flags.c_contiguous:
            # The stride of a single element is anything, and should not make equal databases differ.
            strides = tuple(
                own if length > 1 else step
                for own, length, step in zip(array.strides, array.shape, strides, strict=True)
            )
        aliases.append(Alias(names[at], left[base], dtype, array.shape, offset, strides, at))
    return aliases


def _find_shared(
    kinds: list[str], arrays: list[np.ndarray[Any, Any]], declared: Mapping[int, int]
) -> dict[int, tuple[int, int]]:
    # Most saves share nothing, and then nothing more needs to be looked at.
    found = find_shared(arrays)
    if found and (declared or kinds.count("tensor") < len(kinds)):
        # Bytes objects that are given twice share memory too, but nobody could tell after a load.
        tensors = [at for at, kind in enumerate(kinds) if kind == "tensor" and at not in declared]
        found = [
            (tensors[view], tensors[base], offset)
            for view, base, offset in find_shared([arrays[at] for at in tensors])
        ]
    return {view: (base, offset) for view, base, offset in found}


def parse_aliases(rows: object, names: list[str], sizes: list[int]) -> list[Alias]:
    """Read the rows of aliases, which may come from a damaged or hostile file.

    Parameters
    ----------
    rows
        The JSON value.
    names
        Names of the blobs that are no aliases.
    sizes
        Bytes of each of these, 0 for those that are no tensors.

    Returns
    -------
    list of Alias
        Each begins and ends inside its base, as far as can be told without its data type; :func:`alias_spec`
        checks the rest.

    Raises
    ------
    FormatError
        A row breaks a rule of the format.
    """
    if not isinstance(rows, list):
        raise FormatError(f"expected aliases as an array, found {rows!r:.120}")
    total = len(names) + len(rows)
    aliases: list[Alias] = []
    before = -1
    for number, row in enumerate(rows):
        where = f"alias[{number}]"
        if not isinstance(row, list) or len(row) < 8:
            raise FormatError(
                f"{where}: expected [name, base, kind, dtype, shape, offset, strides, position], found {row!r:.120}"
            )
        name, base, kind, dtype, shape, offset, strides, position = row[:8]
        if not isinstance(name, str) or kind != "tensor" or not isinstance(dtype, str | dict) or not dtype:
            raise FormatError(
                f"{where}: expected a name, the kind tensor and a data type, found {name!r:.80}, {kind!r:.80} and "
                f"{dtype!r:.80}"
            )
        if type(base) is not int or not 0 <= base < len(names) or not sizes[base]:
            raise FormatError(
                f"{where}: expected the index of a tensor with elements as base, found {base!r:.80}"
            )
        if (
            not _are_integers(shape, 1)
            or not _are_integers(strides, -_MAX_BYTES)
            or len(shape) != len(strides)
        ):
            raise FormatError(
                f"{where}: expected lengths from 1 on and as many strides for at most {_MAX_AXES} axes, found "
                f"{shape!r:.120} and {strides!r:.120}"
            )
        if math.prod(shape) > _MAX_BYTES:
            raise FormatError(f"{where}: shape {shape!r:.80} is larger than any array can be")
        if type(offset) is not int or type(position) is not int or not before < position < total:
            raise FormatError(
                f"{where}: expected an offset and a position above {before} and below {total}, found {offset!r:.80} "
                f"and {position!r:.80}"
            )
        alias = Alias(name, base, dtype, tuple(shape), offset, tuple(strides), position)
        low, high = alias.span()
        if low < 0 or high >= sizes[base]:
            raise _outside(where, low, high + 1, names[base], sizes[base])
        aliases.append(alias)
        before = position
    return aliases


def alias_spec(alias: Alias, dtype: np.dtype[Any], table_name: str, base: Spec) -> Spec:
    """Make the spec that an alias would have as a blob of its own, and check that it lies inside its base.

    Parameters
    ----------
    alias
        The alias.
    dtype
        Its true data type.
    table_name, base
        Name and spec of its base.

    Returns
    -------
    Spec
        For its kind, data type, shape and size; it has no chunks of its own.

    Raises
    ------
    FormatError
        It does not lie inside its base.
    """
    low, high = alias.span()
    if high + dtype.itemsize > base.nbytes:
        raise _outside("an alias", low, high + dtype.itemsize, table_name, base.nbytes)
    if dtype.subdtype is not None or math.prod(alias.shape) * dtype.itemsize > _MAX_BYTES:
        raise FormatError(
            f"an alias: no array can have the shape {alias.shape!r:.120} and the data type {dtype}"
        )
    return make_spec("tensor", dtype, alias.shape, _POLICY)


def view_of(
    alias: Alias, dtype: np.dtype[Any], base: np.ndarray[Any, Any], skipped: int = 0
) -> np.ndarray[Any, Any]:
    """Make the view that an alias is.

    Parameters
    ----------
    alias, dtype
        An alias that :func:`alias_spec` has checked, and its true data type.
    base
        The bytes of its base, in C order without gaps.
    skipped
        How many bytes of the base lie before those of `base`.

    Returns
    -------
    ndarray
        Writable if `base` is.

    Raises
    ------
    FormatError
        NumPy cannot make such an array.
    """
    memory = base.reshape(-1).view(np.uint8)
    try:
        return np.ndarray(alias.shape, dtype, memory, alias.offset - skipped, alias.strides)
    except (ValueError, TypeError) as error:
        raise FormatError(
            f"no array can have the shape {alias.shape!r:.120} and the strides {alias.strides!r:.120}: {error}"
        ) from error


def same_place(
    alias: Alias,
    dtype: np.dtype[Any],
    place: np.ndarray[Any, Any],
    base_dtype: np.dtype[Any],
    base: np.ndarray[Any, Any],
) -> bool:
    """Tell whether two arrays share memory in the way that an alias and its base do.

    Parameters
    ----------
    alias, dtype
        The alias, and its true data type.
    place
        An array of its shape.
    base_dtype
        True data type of the base.
    base
        An array of the shape of the base, of any layout, and of any data type if that of `place` is the same.

    Returns
    -------
    bool
        Whether what fills `base` fills `place` with the right values too.
    """
    flat = base.flags.c_contiguous
    if dtype == base_dtype and place.dtype == base.dtype:
        unit = dtype.itemsize
        shape, steps = ((base.size,), (base.itemsize,)) if flat else (base.shape, base.strides)
    elif flat and base.dtype == base_dtype and place.dtype == dtype:
        unit, shape, steps = 1, (base.nbytes,), (1,)
    else:
        return False
    # Each move along an axis of the alias is so many elements along each axis of the base, if it stays inside of them.
    begin = _digits(alias.offset, unit, shape)
    if begin is None:
        return False
    low, high = list(begin), list(begin)
    at = base.__array_interface__["data"][0] + sum(n * step for n, step in zip(begin, steps, strict=True))
    if at != place.__array_interface__["data"][0]:
        return False
    for length, stride, found in zip(alias.shape, alias.strides, place.strides, strict=True):
        if length == 1:
            continue
        moves = _digits(abs(stride), unit, shape)
        sign = -1 if stride < 0 else 1
        if moves is None or found != sign * sum(n * step for n, step in zip(moves, steps, strict=True)):
            return False
        for axis, count in enumerate(moves):
            (low if sign < 0 else high)[axis] += sign * count * (length - 1)
    return min(low, default=0) >= 0 and all(n < length for n, length in zip(high, shape, strict=True))


def _digits(nbytes: int, unit: int, shape: tuple[int, ...]) -> list[int] | None:
    """Take a distance in C order apart into elements along each axis; ``None`` where that is no whole number."""
    rest, odd = divmod(nbytes, unit)
    if odd:
        return None
    digits = []
    for step in _steps(shape, 1):
        count, rest = divmod(rest, step)
        digits.append(count)
    return digits


def _steps(shape: tuple[int, ...], unit: int) -> tuple[int, ...]:
    """Give the strides of an array in C order without gaps."""
    steps = []
    for length in reversed(shape):
        steps.append(unit)
        unit *= length
    return tuple(reversed(steps))


def _are_integers(values: object, least: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) <= _MAX_AXES
        and all(type(value) is int and least <= value <= _MAX_BYTES for value in values)
    )


def _outside(what: str, low: int, high: int, base: str, size: int) -> FormatError:
    return FormatError(
        f"{what}: expected bytes inside the {size} bytes of its base {base!r:.120}, found the bytes {low} to {high}"
    )
