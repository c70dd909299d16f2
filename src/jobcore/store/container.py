"""What a container is: the thing that holds keys and bytes.

The engine that lays out, writes, loads and verifies blobs knows containers by these protocols only. A further
container, or a faster writer or reader of one, is a class with these methods and a line in the table.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from jobcore.errors import FormatError
from jobcore.store.layout import bytes_of
from jobcore.store.metadata import Table
from jobcore.store.records import Fault

__all__ = [
    "ContainerReader",
    "ContainerWriter",
    "Scatter",
    "Sink",
    "Target",
    "known_types",
    "reader",
    "writer",
]


class ContainerWriter(Protocol):
    """Takes the entries of one new database, in the order of the format."""

    def add_chunk(self, key: str, size: int, pieces: Iterable[memoryview]) -> tuple[int, int]:
        """Write a chunk of `size` bytes, given as contiguous pieces; return its place and its CRC-32."""

    def add_document(self, key: str, data: bytes) -> None:
        """Write a metadata document."""

    def finish(self, root: bytes) -> tuple[str, int]:
        """Write the root document and the index; return the digest and the size of it all in bytes."""

    def sync(self) -> None:
        """Force everything to the disk."""

    def close(self) -> None:
        """Close the file, finished or not. More than once is harmless."""


class Scatter:
    """A place for rows that are not contiguous in memory: read into a buffer, then spread out.

    Parameters
    ----------
    rows
        View of the destination.
    """

    __slots__ = ("_buffer", "_rows")

    def __init__(self, rows: np.ndarray[Any, Any]) -> None:
        self._rows = rows
        self._buffer: np.ndarray[Any, Any] | None = None

    def open(self) -> memoryview:
        """Make the buffer; no sooner than its bytes are there, so that only one exists at a time."""
        self._buffer = np.empty(self._rows.shape, self._rows.dtype)
        return bytes_of(self._buffer)

    def close(self) -> None:
        """Spread the rows and free the buffer."""
        self._rows[...] = self._buffer
        self._buffer = None


#: Where the payload of one chunk goes: memory, a scattered place, or nowhere (it is only checked).
Sink = memoryview | Scatter | None


@dataclass(frozen=True, slots=True)
class Target:
    """A blob to be read.

    Attributes
    ----------
    blob
        Its index in the table.
    sinks
        Gives the place of each of its chunks in order; a place may be shorter than the chunk, whose rest
        only fills it.
    """

    blob: int
    sinks: Callable[[], Iterator[Sink]]


class ContainerReader(Protocol):
    """Gives the bytes of one database. All methods may be called from several threads at once."""

    path: str
    size_bytes: int
    digest: str

    def root(self) -> bytearray:
        """Give the root document, its checksum and that of the index checked."""

    def read(self, table: Table, targets: Iterable[Target]) -> None:
        """Read blobs, in table order, every byte of theirs checked; raise the first fault found."""

    def faults(self, table: Table | None) -> Iterator[Fault]:
        """Check every byte, and give each fault."""

    def close(self) -> None:
        """Close the file. More than once is harmless."""


def known_types() -> tuple[str, ...]:
    """Give the names that `db_type` may have."""
    return ("zarr.zip",)


def writer(db_type: str, fd: int) -> ContainerWriter:
    """Make the writer of a container over a new file.

    Parameters
    ----------
    db_type
        Name of the container.
    fd
        Descriptor of an empty file, which the writer closes.

    Returns
    -------
    ContainerWriter
        The writer.

    Raises
    ------
    ValueError
        There is no such container.
    """
    from jobcore.store.zipwriter import ZipWriter

    check_type(db_type)
    return ZipWriter(fd)


def check_type(db_type: str) -> None:
    """Refuse the name of a container that does not exist."""
    if db_type not in known_types():
        raise ValueError(f"expected a db_type of {', '.join(known_types())}, found {db_type!r:.80}")


def reader(path: str, problems: list[FormatError] | None = None) -> ContainerReader:
    """Open a database; its container is told from the file itself.

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
    from jobcore.store.zipreader import ZipReader

    return ZipReader(path, problems)
