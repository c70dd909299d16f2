"""The directory container as bytes: the root that proves itself, and the files that a table implies.

The layout is section 8 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import hashlib

from jobcore.errors import ChecksumError, FormatError
from jobcore.store.metadata import Header, Table, dump_root

__all__ = ["ROOT", "TRAILER", "chunk_size", "open_root", "seal_root"]

#: Name of the root document.
ROOT = "zarr.json"
#: Bytes of the CRC-32C after a chunk.
TRAILER = 4

_DIGITS = 64
_HEAD = b'{"zarr_format":3,"node_type":"group","attributes":{"jobcore":{"sha256":"'
_AT = len(_HEAD)


def chunk_size(table: Table, blob: int) -> int:
    """Give the size of each chunk file of a blob, in bytes."""
    return table.spec_of(blob).chunk_bytes + TRAILER


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
