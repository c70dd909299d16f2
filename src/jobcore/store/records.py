"""What the store tells about databases: plain values, read-only."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["BlobInfo", "DatabaseInfo", "Fault", "LoadReport", "VerifyReport", "WriteResult"]


@dataclass(frozen=True, slots=True)
class WriteResult:
    """A database that was written.

    Attributes
    ----------
    path
        Absolute path of the file.
    size_bytes
        Its size, in bytes.
    digest
        ``"sha256:<hex>"`` of its index; :func:`jobcore.store.open_database` compares it.
    blobs
        Number of blobs in it.
    skipped
        Name and reason of each blob that was left out.
    """

    path: str
    size_bytes: int
    digest: str
    blobs: int
    skipped: tuple[tuple[str, str], ...] = ()


@dataclass(frozen=True, slots=True)
class BlobInfo:
    """One blob as the table of a database describes it.

    Attributes
    ----------
    name
        Name of the blob.
    kind
        ``"tensor"``, ``"counter"``, ``"string"``, ``"bytes"``, ``"state"``, ``"rng"`` or ``"empty"``.
    dtype
        Data type for people to read, such as ``"float32"`` or ``"bfloat16"``.
    shape
        Shape; text, bytes, states and generators show the number of bytes stored.
    nbytes
        Size of the value, in bytes.
    chunks
        Number of chunks in the file, 0 for an alias.
    alias_of
        Name of the blob that it is a view of, so that it takes no bytes of its own; ``None`` for all others.
    codecs
        What encodes its chunks, such as ``"zstd(3)"`` or ``"blosc(zstd, 5, bitshuffle)"``.
    stored_bytes
        What its chunks take in the file, in bytes: encoded, and filled up to whole chunks.
    """

    name: str
    kind: str
    dtype: str
    shape: tuple[int, ...]
    nbytes: int
    chunks: int
    alias_of: str | None = None
    codecs: tuple[str, ...] = ()
    stored_bytes: int = 0


@dataclass(frozen=True, slots=True)
class DatabaseInfo:
    """What a database says about itself.

    Attributes
    ----------
    path
        Absolute path of the file.
    format
        Version of the format.
    writer
        Program and version that wrote it.
    container
        ``"zarr.zip"``.
    run, node
        Names, or empty text.
    epoch, generation
        Numbers, or ``None``.
    stop, user
        Any JSON value, or ``None``.
    blobs
        The blobs, in the order in which they were given.
    skipped
        Name and reason of each blob that was left out.
    size_bytes
        Size of the file, in bytes.
    digest
        ``"sha256:<hex>"`` of the index.
    """

    path: str
    format: int
    writer: str
    container: str
    run: str
    node: str
    epoch: int | None
    generation: int | None
    stop: Any
    user: Any
    blobs: tuple[BlobInfo, ...]
    skipped: tuple[tuple[str, str], ...]
    size_bytes: int
    digest: str


@dataclass(frozen=True, slots=True)
class LoadReport:
    """What a load takes and what it leaves out, told before anything is read.

    Attributes
    ----------
    path
        Absolute path of the file.
    loaded
        Stored name and wanted name of each blob that is loaded.
    missing
        Names that were asked for, or that the destination has, and for which nothing is stored.
    unexpected
        Stored names of the blobs for which the destination has no place.
    """

    path: str
    loaded: tuple[tuple[str, str], ...]
    missing: tuple[str, ...]
    unexpected: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Fault:
    """One damage of a database.

    Attributes
    ----------
    place
        The part at fault: ``"file"``, ``"index"``, ``"root"``, or the key of an entry.
    blob
        Name of the blob that is hurt, or ``None`` when it is none in particular.
    message
        What was expected and what was found.
    """

    place: str
    blob: str | None
    message: str

    def __str__(self) -> str:
        return self.message


@dataclass(frozen=True, slots=True)
class VerifyReport:
    """The outcome of a verification.

    Attributes
    ----------
    path
        Absolute path of the file.
    ok
        Whether the file is whole and follows the format.
    faults
        Every damage found, in the order of the file.
    blobs
        Number of blobs in the table, 0 when it cannot be read.
    size_bytes
        Size of the file, in bytes.
    """

    path: str
    ok: bool
    faults: tuple[Fault, ...]
    blobs: int
    size_bytes: int
