"""The containers there are, by name and by what lies at a path.

Whoever adds one writes the classes that `jobcore.store.container` describes, and a line here.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from typing import TypeVar

from jobcore.errors import FormatError, ReadError
from jobcore.store.container import ContainerReader, Output
from jobcore.store.dirreader import DirectoryReader
from jobcore.store.dirwriter import DirectoryOutput
from jobcore.store.root import Root, read_root
from jobcore.store.zipreader import ZipReader
from jobcore.store.zipwriter import ZipOutput

__all__ = ["again", "check_type", "create", "known_types", "reader", "root_of", "type_of"]

_ATTEMPTS = 10
_Result = TypeVar("_Result")


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


def again(read: Callable[[], _Result]) -> _Result:
    """Read a database, and once more from the start whenever it was replaced by another meanwhile.

    Parameters
    ----------
    read
        Opens it by its path, and reads.

    Returns
    -------
    object
        What `read` returned.

    Raises
    ------
    ReadError
        It was replaced each time.
    """
    for left in reversed(range(_ATTEMPTS)):
        try:
            return read()
        except ReadError as error:
            if error.errno != errno.ESTALE or not left:
                raise
    raise AssertionError  # the last attempt has ended by now


def root_of(found: ContainerReader) -> Root:
    """Read the root document of a database that is open.

    Parameters
    ----------
    found
        Its reader.

    Returns
    -------
    Root
        What it says.

    Raises
    ------
    FormatError
        It is damaged, or no root document.
    """
    if isinstance(found, ZipReader):
        return read_root(found.root_view(), found.path, found.version, found.columns)
    return read_root(found.root(), found.path, found.version)
