"""Proving that a database is whole: every byte is read and held against what it should be."""

from __future__ import annotations

import os

from jobcore.errors import CheckpointNotFoundError, ChecksumError, FormatError
from jobcore.store import containers, files
from jobcore.store.metadata import Table
from jobcore.store.records import Fault, VerifyReport
from jobcore.store.views import alias_faults

__all__ = ["verify"]


def verify(path: str | os.PathLike[str], *, digest: str | None = None) -> VerifyReport:
    """Check every byte of a database, and tell each damage.

    Parameters
    ----------
    path
        The file.
    digest
        The digest that it should have, as :class:`WriteResult` gave it, or ``None`` when it is not known.

    Returns
    -------
    VerifyReport
        ``ok``, and the faults with the blobs that they hurt. A file that is no database at all is one fault.

    Raises
    ------
    CheckpointNotFoundError
        There is no such file.
    ReadError
        Others replaced the directory again and again while it was read.

    Notes
    -----
    Thread-safe. It reads the whole file and needs about 1 MiB of memory beside the index; chunks that are encoded are
    decoded too, in memory for a few of them.
    """
    place = files.absolute(path)
    return containers.again(lambda: _verify(place, digest))


def _verify(place: str, digest: str | None) -> VerifyReport:
    problems: list[FormatError] = []
    try:
        reader = containers.reader(place, problems)
    except CheckpointNotFoundError:
        raise
    except FormatError as error:
        return VerifyReport(place, False, (_fault(place, error),), 0, _size(place))
    try:
        table: Table | None = None
        if digest is not None and digest != reader.digest:
            problems.append(wrong_digest(place, digest, reader.digest))
        try:
            table = containers.root_of(reader).table
        except FormatError as error:
            problems.append(error)
        # Each once; of a large database that is lost as a whole there are as many as it has entries.
        faults = dict.fromkeys(_fault(place, problem) for problem in problems)
        faults.update(dict.fromkeys(reader.faults(table)))
        if table is not None:
            faults.update(dict.fromkeys(alias_faults(table)))
        return VerifyReport(
            place, not faults, tuple(faults), table.count if table is not None else 0, reader.size_bytes
        )
    finally:
        reader.close()


def wrong_digest(path: str, expected: str, found: str) -> FormatError:
    """Make the error for a database that is not the one that was asked for."""
    return ChecksumError(
        f"{path}: expected the database with the digest {expected!r:.80}, found {found!r}",
        path=path,
        place="index",
        hint="the file is damaged, or it was exchanged for another",
    )


def _fault(path: str, error: FormatError) -> Fault:
    return Fault(error.place or "file", None, error.message.removeprefix(f"{path}: "))


def _size(path: str) -> int:
    try:
        return os.stat(path).st_size  # noqa: PTH116 - paths are plain text here
    except OSError:
        return 0
