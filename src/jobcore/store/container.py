"""What a container is: the thing that holds keys and bytes.

The engine that lays out, writes, loads and verifies blobs knows containers by these protocols only. A further
container, or a faster writer or reader of one, is a class with these methods and a line in the table.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any, Literal, Protocol

import numpy as np

from jobcore.errors import FormatError
from jobcore.store.codecs import check_claim, decode
from jobcore.store.layout import bytes_of, without_fields
from jobcore.store.metadata import Header, Table, root_frame
from jobcore.store.names import escape
from jobcore.store.records import Fault

__all__ = [
    "WORTH_CHECKING",
    "Casting",
    "ContainerReader",
    "Content",
    "Encoded",
    "Output",
    "Scatter",
    "Sink",
    "Target",
    "Written",
    "as_stored",
    "check_claims",
    "nowhere",
    "whole",
]


#: From which size on it is found out, before there is memory for a blob, whether all of it is there.
WORTH_CHECKING = 1 << 24
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
    _root: tuple[bytes, bytes] | None = field(default=None, init=False, repr=False)

    @property
    def root(self) -> tuple[bytes, bytes]:
        """The root document before and after its table."""
        if self._root is None:
            self._root = root_frame(self.header)
        return self._root


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

    @property
    def descriptor(self) -> int:
        """Descriptor of the file that is all of it; -1 where there are several."""

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
        if dtype is None or dtype == rows.dtype:
            rows, dtype = without_fields(rows), None
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


class Encoded:
    """A place for a chunk that is stored encoded: its bytes are checked first, then decoded to where they go.

    Parameters
    ----------
    table, blob
        The table, and the index of a blob that has codecs.
    sink
        Where the decoded chunk goes: memory for its first bytes, a scattered place, or ``None`` to decode it only.
    """

    __slots__ = ("_codec", "_sink", "chunk_bytes")

    def __init__(self, table: Table, blob: int, sink: memoryview | Scatter | None) -> None:
        spec = table.spec_of(blob)
        (self._codec,) = spec.codecs
        self._sink = sink
        self.chunk_bytes = spec.chunk_bytes

    @property
    def scattered(self) -> bool:
        """Whether decoding takes memory beside that of the destination."""
        return not isinstance(self._sink, memoryview) or len(self._sink) != self.chunk_bytes

    def decode(self, data: memoryview) -> None:
        """Decode the chunk and put it in place.

        Parameters
        ----------
        data
            What is stored; its checksum was found right.

        Raises
        ------
        ValueError
            It does not decode to the bytes of a chunk.
        """
        sink = self._sink
        if isinstance(sink, memoryview) and len(sink) == self.chunk_bytes:
            decode(self._codec, data, sink)
            return
        check_claim(self._codec, data, len(data), self.chunk_bytes)
        chunk = bytes_of(np.empty(self.chunk_bytes, np.uint8))
        decode(self._codec, data, chunk)
        if isinstance(sink, memoryview):
            sink[:] = chunk[: len(sink)]
        elif sink is not None:
            done = 0
            for piece in sink.pieces():
                piece[:] = chunk[done : done + len(piece)]
                done += len(piece)


#: Where the payload of one chunk goes: memory, a scattered place, or nowhere (it is only checked).
Sink = memoryview | Scatter | Encoded | None


def check_claims(path: str, table: Table, blob: int, head_of: Callable[[int], bytes | bytearray]) -> None:
    """Hold what the encoded chunks of a blob claim against the table, before there is memory for them.

    Parameters
    ----------
    path
        The database, for errors.
    table, blob
        The table, and the index of a blob. One that has no codecs, or is small, is not looked at.
    head_of
        Gives the first ``codecs.HEAD_BYTES`` bytes of a chunk, or all, by its number.

    Raises
    ------
    FormatError
        A chunk decodes to another size, or not at all.
    """
    spec = table.spec_of(blob)
    if not spec.codecs or spec.nbytes < WORTH_CHECKING:
        return
    (codec,) = spec.codecs
    name = table.names[blob]
    for chunk in range(spec.chunks):
        try:
            check_claim(codec, head_of(chunk), table.stored_bytes(blob, chunk), spec.chunk_bytes)
        except ValueError as error:
            raise FormatError(
                f"{path}: blob {name!r:.120}, chunk {chunk}: {error}",
                path=path,
                place=spec.chunk_key(escape(name), chunk),
            ) from error


def as_stored(table: Table, blob: int, sink: Sink) -> Sink:
    """Give the place for a chunk as it is stored, given the one for its bytes."""
    if table.spec_of(blob).codecs and not isinstance(sink, Encoded):
        return Encoded(table, blob, sink)
    return sink


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


def nowhere(table: Table, blob: int) -> Target:
    """Make the target of a whole blob that is only checked."""
    return Target(blob, lambda: repeat(None, table.spec_of(blob).chunks))


class ContainerReader(Protocol):
    """Gives the bytes of one database. All methods may be called from several threads at once.

    Attributes
    ----------
    path
        Path of the file or directory.
    digest
        Digest of the database.
    version
        Version of the format, where the container tells it beside the root document; else ``None``.
    """

    path: str
    digest: str
    version: int | None

    @property
    def size_bytes(self) -> int:
        """Size of all files, in bytes."""

    def root(self) -> bytearray:
        """Give the root document, its checksum and that of the index checked."""

    def check_sizes(self, table: Table, blobs: Iterable[int], /) -> None:
        """Refuse a table that claims more of these blobs than is there, before memory is made for it."""

    def read(self, table: Table, targets: Iterable[Target]) -> None:
        """Read targets, in table order, every byte of theirs checked; raise the first fault found."""

    def read_arrays(self, table: Table, blobs: list[int], arrays: list[np.ndarray[Any, Any]]) -> None:
        """Read whole blobs, in table order, each into a contiguous array of its stored size; as `read`."""

    def faults(self, table: Table | None) -> Iterator[Fault]:
        """Check every byte, and give each fault."""

    def close(self) -> None:
        """Close the file. More than once is harmless."""
