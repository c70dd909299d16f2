"""What a container is: the thing that holds keys and bytes.

The engine that lays out, writes, loads and verifies blobs knows containers by these protocols only. A further
container, or a faster writer or reader of one, is a class with these methods and a line in the table.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from jobcore.errors import FormatError
from jobcore.store.layout import bytes_of
from jobcore.store.metadata import Header, Table
from jobcore.store.records import Fault

__all__ = [
    "Casting",
    "ContainerReader",
    "Content",
    "Output",
    "Scatter",
    "Sink",
    "Target",
    "Written",
    "check_type",
    "create",
    "known_types",
    "reader",
    "type_of",
    "whole",
]


#: Most bytes of a buffer for a scattered place.
_BUFFER = 64 << 20

#: The names of NumPy's casting rules, from the strictest to none at all.
Casting = Literal["no", "equiv", "safe", "same_kind", "unsafe"]


@dataclass(slots=True)
class Content:
    """What goes into a new database.

    Attributes
    ----------
    names, arrays
        The blobs, in order, and what is stored of each.
    table
        The table of all blobs; the writer fills in places and checksums.
    header
        The database as a whole.
    """

    names: list[str]
    arrays: list[np.ndarray[Any, Any]]
    table: Table
    header: Header


@dataclass(frozen=True, slots=True)
class Written:
    """What a writer made: digest, and the size of it all in bytes."""

    digest: str
    size_bytes: int


class Output(Protocol):
    """A new database under a temporary name, in the directory of its final one.

    Attributes
    ----------
    temporary
        Path of the file or directory.
    """

    temporary: str

    def stage(self, content: Content) -> None:
        """Copy what may change; the `write` of this content may then come later, in another thread."""

    def write(self, content: Content) -> Written:
        """Write everything; called once."""

    def sync(self) -> None:
        """Force data, and names inside a directory, to the disk."""

    def close(self) -> None:
        """Close it, finished or not. More than once is harmless."""


class Scatter:
    """A place that the bytes of a chunk cannot go to as they are: read into a buffer, then spread out.

    It serves rows that are not contiguous in memory, rows of another data type, and chunks that begin with
    rows which nobody wants.

    Parameters
    ----------
    rows
        View of the destination, of at least one axis.
    dtype
        Data type of what is stored; that of `rows` by default.
    casting
        NumPy's name of the rule by which it may become that of `rows`.
    skip
        Number of rows at the beginning of the chunk that are not kept.
    """

    __slots__ = ("_buffer", "_casting", "_dtype", "_rows", "_skip")

    def __init__(
        self,
        rows: np.ndarray[Any, Any],
        dtype: np.dtype[Any] | None = None,
        casting: Casting = "equiv",
        skip: int = 0,
    ) -> None:
        self._rows = rows
        self._dtype = rows.dtype if dtype is None else dtype
        self._casting = casting
        self._skip = skip
        self._buffer: np.ndarray[Any, Any] | None = None

    def fits(self) -> bool:
        """Tell whether one buffer for the whole chunk is small enough."""
        rows, *rest = self._rows.shape
        nbytes: int = (self._skip + rows) * math.prod(rest) * self._dtype.itemsize
        return nbytes <= _BUFFER

    def open(self) -> memoryview:
        """Make the buffer; no sooner than its bytes are there, so that only one exists at a time."""
        rows, *rest = self._rows.shape
        self._buffer = np.empty((self._skip + rows, *rest), self._dtype)
        return bytes_of(self._buffer)

    def close(self) -> None:
        """Spread the rows and free the buffer; called once the checksum of the chunk was found right."""
        buffer, self._buffer = self._buffer, None
        if buffer is not None:
            np.copyto(self._rows, buffer[self._skip :], casting=self._casting)

    def pieces(self) -> Iterator[memoryview]:
        """Give buffers to be filled one after the other, where one for the whole chunk would be too large.

        Each is spread when the next is asked for, which is before the checksum is known: a chunk that is
        damaged has then been spread, as it would have been read into contiguous rows.

        Yields
        ------
        memoryview
            The next bytes of the chunk go here.
        """
        skipped = self._skip * math.prod(self._rows.shape[1:]) * self._dtype.itemsize
        while skipped:
            size = min(skipped, _BUFFER)
            yield memoryview(bytearray(size))
            skipped -= size
        for block in _blocks(self._rows, max(1, _BUFFER // self._dtype.itemsize)):
            buffer = np.empty(block.shape, self._dtype)
            yield bytes_of(buffer)
            np.copyto(block, buffer, casting=self._casting)


def _blocks(rows: np.ndarray[Any, Any], most: int) -> Iterator[np.ndarray[Any, Any]]:
    # Views of at most that many elements each, in the order of memory.
    if rows.size <= most:
        yield rows
        return
    each = rows.size // len(rows)
    if each > most:
        for row in rows:
            yield from _blocks(row, most)
        return
    step = most // each
    for low in range(0, len(rows), step):
        yield rows[low : low + step]


#: Where the payload of one chunk goes: memory, a scattered place, or nowhere (it is only checked).
Sink = memoryview | Scatter | None


@dataclass(frozen=True, slots=True)
class Target:
    """A blob, or some of its chunks, to be read.

    Attributes
    ----------
    blob
        Its index in the table.
    sinks
        Gives the place of each of the wanted chunks in order; a place may be shorter than the chunk, whose
        rest is read and checked only. Chunks after the last place are not read.
    first
        Number of the chunk that the first place is for; those before it are not read.
    array
        The whole blob's memory, where all of it is wanted and it lies in one contiguous array of its own; the
        places are then parts of it.
    """

    blob: int
    sinks: Callable[[], Iterator[Sink]]
    first: int = 0
    array: np.ndarray[Any, Any] | None = None


def whole(table: Table, blob: int, array: np.ndarray[Any, Any]) -> Target:
    """Make the target of a whole blob that goes into one contiguous array."""

    def sinks() -> Iterator[Sink]:
        spec = table.spec_of(blob)
        if spec.chunks:
            flat = bytes_of(array)
            for chunk in range(spec.chunks):
                low, high = spec.row_range(chunk)
                yield flat[low * spec.row_bytes : high * spec.row_bytes]

    return Target(blob, sinks, 0, array)


class ContainerReader(Protocol):
    """Gives the bytes of one database. All methods may be called from several threads at once."""

    path: str
    digest: str

    @property
    def size_bytes(self) -> int:
        """Size of all files, in bytes."""

    def root(self) -> bytearray:
        """Give the root document, its checksum and that of the index checked."""

    def read(self, table: Table, targets: Iterable[Target]) -> None:
        """Read targets, in table order, every byte of theirs checked; raise the first fault found."""

    def read_arrays(self, table: Table, blobs: list[int], arrays: list[np.ndarray[Any, Any]]) -> None:
        """Read whole blobs, in table order, each into a contiguous array of its stored size; as `read`."""

    def faults(self, table: Table | None) -> Iterator[Fault]:
        """Check every byte, and give each fault."""

    def close(self) -> None:
        """Close the file. More than once is harmless."""


def known_types() -> tuple[str, ...]:
    """Give the names that `db_type` may have."""
    return ("zarr", "zarr.zip")


def create(db_type: str, final: str, *, durable: bool, base: str | None = None) -> Output:
    """Begin a new database.

    Parameters
    ----------
    db_type
        Name of the container.
    final
        Absolute path that it will have.
    durable
        Whether it will be synced, so that the page cache is of no use.
    base
        Path of an earlier database, whose unchanged chunks may be shared where the container can.

    Returns
    -------
    Output
        Under a temporary name, which the caller removes when something fails.

    Raises
    ------
    ValueError
        There is no such container.
    OSError
        The directory may not be written.
    """
    from jobcore.store.dirwriter import DirectoryOutput
    from jobcore.store.zipwriter import ZipOutput

    check_type(db_type)
    if db_type == "zarr":
        return DirectoryOutput(final, durable=durable, base=base)
    return ZipOutput(final, durable=durable)


def type_of(final: str) -> str:
    """Choose the container for an absolute path by its end."""
    return "zarr" if final.endswith(".zarr") else "zarr.zip"


def check_type(db_type: str) -> str:
    """Refuse the name of a container that does not exist, and give it back otherwise."""
    if db_type not in known_types():
        raise ValueError(f"expected a db_type of {', '.join(known_types())}, found {db_type!r:.80}")
    return db_type


def reader(path: str, problems: list[FormatError] | None = None) -> ContainerReader:
    """Open a database, a file or a directory.

    Parameters
    ----------
    path
        Absolute path.
    problems
        Where given, damage that does not keep the file from being looked at further is put here, not raised.

    Returns
    -------
    ContainerReader
        The reader.

    Raises
    ------
    CheckpointNotFoundError
        There is no such file.
    FormatError
        It is no database, or damaged.
    """
    from jobcore.store.dirreader import DirectoryReader
    from jobcore.store.zipreader import ZipReader

    if os.path.isdir(path):  # noqa: PTH112 - paths are plain text here
        return DirectoryReader(path, problems)
    return ZipReader(path, problems)
