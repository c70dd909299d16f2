"""The directory container as bytes: the root that proves itself, and the files that a table implies.

The layout is section 8 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os

from jobcore.errors import ChecksumError, FormatError
from jobcore.store.documents import ArrayDocuments
from jobcore.store.metadata import Header, Table, dump_root

__all__ = ["ROOT", "TRAILER", "is_database", "is_foreign", "open_root", "seal_root", "size_of"]

#: Name of the root document.
ROOT = "zarr.json"
#: Bytes of the CRC-32C after a chunk.
TRAILER = 4

_DIGITS = 64
_HEAD = b'{"zarr_format":3,"node_type":"group","attributes":{"jobcore":{"sha256":"'
_AT = len(_HEAD)


def size_of(header: Header, table: Table, root_bytes: int) -> int:
    """Give the size of all files of a database, in bytes."""
    documents = ArrayDocuments(table.specs, header.container)
    total = root_bytes
    for blob, name in enumerate(table.names):
        trailers = table.spec_of(blob).chunks * TRAILER
        total += len(documents.document(name, table.spec[blob])) + table.stored_total(blob) + trailers
    return total


def is_database(path: str) -> bool:
    """Tell whether a directory seems to be a database, whole or damaged, by how its root document begins."""
    try:
        with open(os.path.join(path, ROOT), "rb") as file:  # noqa: PTH118, PTH123 - paths are plain text here
            return file.read(_AT) == _HEAD
    except OSError as error:
        if error.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM):
            raise  # it says nothing of the directory
        return False


def is_foreign(data: bytes) -> bool:
    """Tell whether a root document is a whole one, but of another program."""
    if data.startswith(_HEAD):
        return False
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        return False
    attributes = document.get("attributes") if isinstance(document, dict) else None
    return not isinstance(attributes, dict) or "jobcore" not in attributes


def seal_root(header: Header, table: Table) -> tuple[bytes, str]:
    """Write the root document with its own digest in it.

    Parameters
    ----------
    header
        The database as a whole.
    table
        All blobs, checksums and hashes filled in.

    Returns
    -------
    tuple of bytes and str
        The document, and the digest of the database as ``"sha256:<hex>"``.
    """
    text = dump_root(header, table)
    digest = hashlib.sha256(text).hexdigest()
    return text[:_AT] + digest.encode() + text[_AT + _DIGITS :], f"sha256:{digest}"


def open_root(data: bytes, path: str) -> tuple[str, FormatError | None]:
    """Check the root document against the digest in it.

    Parameters
    ----------
    data
        The document.
    path
        The directory, for errors.

    Returns
    -------
    tuple of str and (FormatError or None)
        The true digest, and the damage, if the document says another.

    Raises
    ------
    FormatError
        It is no root document of ours.
    """
    if not data.startswith(_HEAD) or data[_AT + _DIGITS : _AT + _DIGITS + 1] != b'"':
        raise FormatError(
            f"{path}: root document: expected one that begins with its own SHA-256, found {data[:60]!r}",
            path=path,
            place="root",
        )
    said = data[_AT : _AT + _DIGITS]
    hashed = hashlib.sha256(data[:_AT])
    hashed.update(b"0" * _DIGITS)
    hashed.update(memoryview(data)[_AT + _DIGITS :])
    digest = hashed.hexdigest()
    damage = None
    if digest.encode() != said:
        damage = ChecksumError(
            f"{path}: root document: expected SHA-256 {said.decode('latin-1')}, found {digest}",
            path=path,
            place="root",
        )
    return f"sha256:{digest}", damage
