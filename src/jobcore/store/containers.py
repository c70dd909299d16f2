"""The containers there are, by name and by what lies at a path.

Whoever adds one writes the classes that `jobcore.store.container` describes, and a line here.
"""

from __future__ import annotations

import os

from jobcore.errors import FormatError
from jobcore.store.container import ContainerReader, Output
from jobcore.store.dirreader import DirectoryReader
from jobcore.store.dirwriter import DirectoryOutput
from jobcore.store.zipreader import ZipReader
from jobcore.store.zipwriter import ZipOutput

__all__ = ["check_type", "create", "known_types", "reader", "type_of"]


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
    if os.path.isdir(path):  # noqa: PTH112 - paths are plain text here
        return DirectoryReader(path, problems)
    return ZipReader(path, problems)
