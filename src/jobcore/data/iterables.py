"""Readers of plain Python: lists, data loaders, generators, and whatever else can be iterated over."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Callable, Iterator, Mapping
from itertools import chain
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from jobcore._fast.blob import Blob
from jobcore._fast.cancel import current_flag
from jobcore._fast.counter import Counter
from jobcore.data.converting import converted
from jobcore.data.reader import Reader
from jobcore.data.schema import Field, List, Scalar, Struct, as_field
from jobcore.errors import BlobKindError, BlobValueError, BuildError
from jobcore.graph import BlobReference, Net, scoped

__all__ = ["IterableReader", "reader_from"]


@runtime_checkable
class _Sequence(Protocol):
    def __len__(self) -> int: ...
    def __getitem__(self, index: int, /) -> Any: ...


class _Source:
    """What items come from: opened at a position, or told to be open only once."""

    def __init__(self, source: Any) -> None:
        self._kept: tuple[Any, Iterator[Any]] | None = None
        self._source = source
        self.name = getattr(source, "__name__", None) or type(source).__name__
        self.once = False
        self._open: Callable[[int], Iterator[Any]]
        if isinstance(source, (str, bytes, bytearray, Mapping)):
            raise BuildError(
                f"expected an iterable of records, found {type(source).__name__}",
                hint="for columns in a mapping use Dataset.init_from_columns",
            )
        if isinstance(source, Iterator):
            self.once = True
            self._open = lambda _position: source
        elif _indexed(source):
            self._open = self._from_sequence
        elif hasattr(source, "__iter__"):
            self._open = lambda position: self._skipped(iter(source), position)
        elif callable(source):
            self._open = self._from_factory(source)
        else:
            raise BuildError(
                f"expected an iterable, or a function that returns one, found {type(source).__name__}: {source!r:.200}"
            )

    def _from_sequence(self, position: int) -> Iterator[Any]:
        # By index, so that nothing is made that was read already. It may grow meanwhile.
        if position > len(self._source):
            raise self._shorter(position, len(self._source))
        while position < len(self._source):
            yield self._source[position]
            position += 1

    def _from_factory(self, function: Callable[..., Any]) -> Callable[[int], Iterator[Any]]:
        takes_position = _required_arguments(function)
        if takes_position > 1:
            raise BuildError(
                f"expected a function without arguments, or of a position, found {self.name}"
                f"{inspect.signature(function)}"
            )
        if takes_position:
            return lambda position: iter(function(position))
        return lambda position: self._skipped(iter(function()), position)

    def _skipped(self, items: Iterator[Any], position: int) -> Iterator[Any]:
        return self._behind(items, position) if position else items

    def _behind(self, items: Iterator[Any], position: int) -> Iterator[Any]:
        flag = current_flag()
        for number in range(position):
            if flag is not None:
                flag.check()
            if next(items, self) is self:
                raise self._shorter(position, number)
        yield from items

    def _shorter(self, position: int, found: int) -> BlobValueError:
        # As the end of the data it would end a job that goes on after a resume, without a word.
        return BlobValueError(
            f"expected at least {position} items of {self.name}, as many as were read before, found {found}",
            hint="go on with the source that was read, or put the position back to 0",
        )

    def first(self) -> Any:
        """Return the first item, and keep what it came from for the first reading.

        Raises
        ------
        BuildError
            There is none.
        """
        if self._kept is None:
            items = self._open(0)
            for item in items:
                self._kept = (item, items)
                return item
            raise BuildError(
                f"expected at least one item of {self.name}, to see what its records are like, found none",
                hint="pass a schema",
            )
        return self._kept[0]

    def open(self, position: int, taken: int) -> Iterator[Any]:
        """Return the items from a position on; `taken`: how many this reader has taken so far."""
        if position < 0:
            raise BlobValueError(f"expected a position of at least 0 in {self.name}, found {position}")
        kept, self._kept = self._kept, None
        if kept is not None and position == 0 and taken == 0:
            return chain([kept[0]], kept[1])
        if self.once and (position or taken):
            raise BlobValueError(
                f"expected to begin at item {position} of {self.name}, found an iterator that cannot be begun again"
                + (f", after {taken} items" if taken else ""),
                hint="give reader_from a function that returns it, or a sequence: those can be opened at any position",
            )
        return self._open(position)


def _indexed(source: object) -> bool:
    # A data loader has a length, and a data set that is only iterable may have one: those are iterated over.
    return isinstance(source, _Sequence) and not callable(source)


def _required_arguments(function: Callable[..., Any]) -> int:
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return 0
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return sum(p.kind in positional and p.default is p.empty for p in parameters)


class _Handle:
    """An open source in a run, shared by the instances of a task."""

    def __init__(self, source: _Source, schema: Field) -> None:
        self.lock = threading.Lock()
        self._source = source
        self._columns = _flattener(schema)
        self._items: Iterator[Any] | None = None
        self._at = -1
        self._taken = 0
        self._next: list[NDArray[Any]] | None = None
        self._over = False

    def forget(self) -> None:
        """Open the source anew when it is needed."""
        self._items = None

    def look(self, position: Counter) -> list[NDArray[Any]] | None:
        """Return the item at the position, without going on; None at the end."""
        at = position.retrieve()
        if self._items is None or self._at != at:
            # A new run, or the position came out of a checkpoint.
            self._items = None
            self._next, self._over = None, False
            self._items = self._source.open(at, self._taken)
            self._at = at
        if self._next is None and not self._over:
            try:
                item = next(self._items)
            except StopIteration:
                self._over = True
                # A loader at its end has no more use for its workers.
                self._items = iter(())
                return None
            except BaseException:
                # A generator that raised has ended: the next run opens the source at this item again.
                self._items = None
                raise
            try:
                # Apart from the above: a StopIteration of an item is no end of the source.
                self._next = self._columns(item)
            except BaseException:
                self._items = None
                raise
        return self._next

    def take(self, position: Counter) -> list[NDArray[Any]] | None:
        """Return the item at the position and go on; None at the end."""
        found = self.look(position)
        if found is not None:
            self._next = None
            position.count_up()
            self._at += 1
            self._taken += 1
        return found


class IterableReader(Reader):
    """Reads what a Python iterable gives; made by `reader_from`."""

    def __init__(
        self, source: Any, schema: Any, position_blob: str | None, init_net: Net | None, name: str | None
    ) -> None:
        self._source = _Source(source)
        super().__init__(
            _schema_of(self._source.first()) if schema is None else as_field(schema).clone_schema()
        )
        if not self.schema().field_names():
            raise BuildError(
                f"expected at least one column in the records of {self._source.name}, found {self._schema!r}"
            )
        self.name = self._source.name if name is None else name
        self._handle = _Handle(self._source, self.schema())
        self.position = None if position_blob is None else BlobReference(scoped(position_blob))
        self._persistent = False
        if init_net is not None:
            self.setup_ex(init_net, init_net)
            self._persistent = True

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:  # noqa: ARG002 - nothing is to be done at the end
        """Add the making of the position, unless that was done where the reader was made."""
        if self._persistent:
            return
        if self.position is None:
            self.position = init_net.next_blob("position")
        init_net.CreateCounter([], self.position, init_count=0)
        init_net.Python(self._anew)([], [])

    def _anew(self, inputs: list[Blob], outputs: list[Blob]) -> None:  # noqa: ARG002 - the protocol of Python ops
        self._locked(self._handle.forget)

    def _needs_position(self) -> BlobReference:
        if self.position is None:
            raise BuildError(
                f"expected {self!r} to be set up, found that it is not",
                hint="call setup_ex first, as pipe does",
            )
        return self.position

    def _locked(self, function: Callable[..., Any], *arguments: Any) -> Any:
        lock, flag = self._handle.lock, current_flag()
        # Who holds it may wait for the source: an order to stop is not to wait with it.
        while not lock.acquire(timeout=0.05):
            if flag is not None:
                flag.check()
        try:
            return function(*arguments)
        finally:
            lock.release()

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the op that takes the next item."""
        fields = [net.next_blob(name or "column") for name in self.schema().field_names()]
        stop = net.next_blob("should_stop")

        def read(inputs: list[Blob], outputs: list[Blob]) -> None:
            columns = self._locked(self._handle.take, _position(inputs[0]))
            for blob, column in zip(outputs, columns or (), strict=False):
                blob.feed(column)
            outputs[-1].feed(columns is None)

        net.Python(read)([self._needs_position()], [*fields, stop], name=self.name)
        return stop, fields

    def peek_end(self, net: Net) -> BlobReference:
        """Add an op that tells whether no item is left; it may have to wait for the next one, which is kept."""

        def peek(inputs: list[Blob], outputs: list[Blob]) -> None:
            outputs[0].feed(np.bool_(self._locked(self._handle.look, _position(inputs[0])) is None))

        at_end: BlobReference = net.Python(peek)(
            [self._needs_position()], [net.next_blob("at_end")], name=self.name
        )
        return at_end

    def reset(self, net: Net) -> None:
        """Add ops that go back to the first item."""
        net.ResetCounter(self._needs_position(), [])
        net.Python(self._anew)([], [])

    def __repr__(self) -> str:
        return f"IterableReader({self.name})"


def _position(blob: Blob) -> Counter:
    value = blob.value
    if not isinstance(value, Counter):
        raise BlobKindError(f"expected a counter as the position in {blob.name!r}, found {blob.kind}")
    return value


def reader_from(
    source: Any,
    schema: Any = None,
    position_blob: str | None = None,
    *,
    init_net: Net | None = None,
    name: str | None = None,
) -> IterableReader:
    """Make a reader of any Python iterable: each of its items is a record.

    Parameters
    ----------
    source
        A sequence; an iterable that can be begun again, such as a ``torch.utils.data.DataLoader``; a function that
        returns an iterable, such as a generator function, without arguments or with one, the position to begin at; or
        an iterator, which can be read once. An item is an array or what becomes one; or a tuple, list or mapping of
        those, nested as the schema is.
    schema
        Form of the records; by default that of the first item, which is made for that when the reader is, and kept.
        With a schema nothing is read before the first run.
    position_blob
        Name of the blob that counts the items that were read; automatic by default.
    init_net
        Makes the position here, and nowhere else: in a job's init group, it goes on from epoch to epoch, is part of
        each checkpoint, and after a resume the source is opened there: a sequence at that index, a function of a
        position with it; from others as many items as were read are taken and dropped. Without it each run of a task
        begins at the first item.
    name
        For errors; by default that of the source.

    Raises
    ------
    BuildError
        It can be no iterable of records: text, a mapping, or something else; or there is no first item to tell the
        form of the records.

    Notes
    -----
    Items are taken by one thread at a time, and in one session at a time. A source that waits ends a cancelled run only
    when it has given its item. An iterator that is asked to begin anywhere but where it is, in a second
    run or after a resume, fails the task with a text that says so. An order that is random must come from a seed, or
    a resume takes others for those that were read.
    """
    return IterableReader(source, schema, position_blob, init_net, name)


# ------------------------------------------------------------------------------------------------- items to columns


def _schema_of(item: Any) -> Field:
    if isinstance(item, Mapping):
        return Struct(*((str(name), _schema_of(value)) for name, value in item.items()))
    if isinstance(item, tuple) and hasattr(item, "_fields"):
        return Struct(*((name, _schema_of(value)) for name, value in zip(item._fields, item, strict=True)))
    if isinstance(item, tuple) or (isinstance(item, list) and any(map(_is_column, item))):
        return Struct(*((f"field_{i}", _schema_of(value)) for i, value in enumerate(item)))
    array = _array(item, None, "")
    if array.dtype.kind in "US":
        # Other items may be longer.
        return Scalar(np.dtype(array.dtype.kind))
    return Scalar((array.dtype, array.shape[1:]) if array.ndim > 1 else array.dtype)


def _is_column(value: Any) -> bool:
    """Tell whether a part of a list is a column: a list of numbers or texts is one itself."""
    if isinstance(value, (Mapping, tuple)):
        return True
    return hasattr(value, "__array__") and not isinstance(value, np.generic)


def _flattener(schema: Field) -> Callable[[Any], list[NDArray[Any]]]:
    names, types = schema.field_names(), schema.field_types()

    def columns(item: Any) -> list[NDArray[Any]]:
        values: list[Any] = []
        _flatten(schema, item, "", values)
        return [_array(v, t, n) for v, t, n in zip(values, types, names, strict=True)]

    return columns


def _flatten(field: Field, item: Any, path: str, into: list[Any]) -> None:
    children = _children(field)
    if children is None:
        into.append(item)
        return
    names = [name for name, _ in children]
    parts: list[Any]
    if isinstance(item, Mapping):
        if any(name not in item for name in names):
            item = _by_path(item)
        if any(name not in item for name in names):
            raise BlobValueError(
                f"record{path}: expected the fields {names}, found {[str(key) for key in item]}"
            )
        parts = [item[name] for name in names]
    elif isinstance(item, (tuple, list)) and len(item) == len(names):
        parts = list(item)
    elif len(names) == 1 and not isinstance(item, (tuple, list)):
        parts = [item]
    else:
        found = (
            f"{type(item).__name__} of {len(item)}"
            if isinstance(item, (tuple, list))
            else type(item).__name__
        )
        raise BlobValueError(
            f"record{path}: expected a mapping, or a tuple of the fields {names}, found {found}"
        )
    for (name, child), part in zip(children, parts, strict=True):
        _flatten(child, part, f"{path}:{name}" if path else f" {name}", into)


def _by_path(item: Mapping[Any, Any]) -> dict[str, Any]:
    """Return a mapping as a schema sees it: its keys as text, and fields of fields for those with a colon."""
    found: dict[str, Any] = {}
    for key, value in item.items():
        name, colon, rest = str(key).partition(":")
        inner = found.get(name)
        found[name] = value if not colon else {**(inner if isinstance(inner, Mapping) else {}), rest: value}
    return found


def _children(field: Field) -> list[tuple[str, Field]] | None:
    if isinstance(field, Struct):
        return field.get_children()
    if isinstance(field, List):
        return [("lengths", field.lengths), ("values", field.values)]
    return None


def _array(value: Any, dtype: np.dtype[Any] | None, name: str) -> NDArray[Any]:
    try:
        array = converted(value, dtype)
    except (TypeError, ValueError, OverflowError, RuntimeError) as error:
        what = f"column {name!r}" if name else "a record"
        raise BlobValueError(
            f"{what}: expected {'an array' if dtype is None else dtype}, found {type(value).__name__}: {error}"
        ) from error
    if array.dtype.hasobject:
        raise BlobValueError(
            f"{f'column {name!r}' if name else 'a record'}: expected numbers or text, found {type(value).__name__}"
        )
    if dtype is not None and dtype.shape and array.shape[1:] != dtype.shape:
        raise BlobValueError(
            f"column {name!r}: expected rows of shape {dtype.shape}, found an array of shape {array.shape}"
        )
    return array
