"""The bytes of the ``zarr.zip`` container: headers and index, built and taken apart without any file.

A local header follows from key, place, size and checksum alone, and the index from the entries alone, so the
reader builds both with the functions that the writer uses and compares. The layout is section 7 of
``docs/reference/format.md``.
"""

from __future__ import annotations

import hashlib
import re
import struct
from dataclasses import dataclass
from typing import NamedTuple

from jobcore.errors import ChecksumError, FormatError
from jobcore.store.metadata import FORMAT, FORMAT_3, version_error

__all__ = [
    "ALIGNMENT",
    "ROOT_KEY",
    "Entry",
    "Tail",
    "build_index",
    "central_header",
    "check_digest",
    "header_bytes",
    "index_end",
    "local_header",
    "parse_directory",
    "parse_tail",
    "root_entry",
    "wide_from",
]

ALIGNMENT = 64
ROOT_KEY = "zarr.json"

# What stands in a narrow field whose value is in a wide one, and the values from which on that is so. They are
# equal; two names, so that a test can make small files with wide fields.
_MARK16 = 0xFFFF
_MARK32 = 0xFFFFFFFF
_WIDE16 = _MARK16
_WIDE32 = _MARK32
_DOS_DATE = 0x0021
_MADE_BY = 0x032D
_ATTRIBUTES = 0x81A40000
_LOCAL = struct.Struct("<4s5H3L2H")
_ZIP64 = struct.Struct("<2H2Q")
_PADDING = struct.Struct("<2H")
_CENTRAL = struct.Struct("<4s6H3L5H2L")
_END64 = struct.Struct("<4sQ2H2L4Q")
_LOCATOR = struct.Struct("<4sLQL")
_END = struct.Struct("<4s4H2LH")
_NARROW = (b"PK\x01\x02", _MADE_BY, 20, 0, 0, 0, _DOS_DATE)
_REST = (0, 0, 0, 0, _ATTRIBUTES)
_COMMENTS = {version: f"jobcore {version} sha256=".encode() for version in (FORMAT, FORMAT_3)}
_HEAD_BYTES = len(_COMMENTS[FORMAT])
_COMMENT_BYTES = _HEAD_BYTES + 64
_ANY_COMMENT = re.compile(rb"jobcore (\d{1,9}) ")

#: Bytes at the end of every file that hold the end record and its comment.
END_BYTES = _END.size + _COMMENT_BYTES
#: Bytes before the end of the file within which the end records and the last central header lie.
TAIL_BYTES = END_BYTES + _LOCATOR.size + _END64.size + _CENTRAL.size + len(ROOT_KEY) + 28


class Entry(NamedTuple):
    """One entry of the container: key, offset of its local header, size and CRC-32 of its payload."""

    key: str
    offset: int
    size: int
    crc32: int


@dataclass(frozen=True, slots=True)
class Tail:
    """Where the index lies, as the end records say.

    Attributes
    ----------
    entries
        Number of entries.
    start, size
        Offset and length of the central directory, in bytes.
    file_bytes
        Length of the file.
    version
        Version of the format, as the comment says.
    """

    entries: int
    start: int
    size: int
    file_bytes: int
    version: int = FORMAT


def header_bytes(key: str, offset: int, size: int) -> int:
    """Give the length of a local header with its padding, in bytes.

    Parameters
    ----------
    key
        Key of the entry.
    offset
        Offset of the header in the file.
    size
        Size of the payload, in bytes.

    Returns
    -------
    int
        Length, such that the payload starts at a multiple of 64.
    """
    # At least one byte of padding: tensorstore refuses extra fields of 4 bytes altogether, as an empty one has.
    bare = _LOCAL.size + len(key) + (_ZIP64.size if size >= _WIDE32 else 0) + _PADDING.size + 1
    return bare + -(offset + bare) % ALIGNMENT


def local_header(entry: Entry) -> bytes:
    """Build the local header of an entry, padding included."""
    key, offset, size, crc32 = entry
    large = size >= _WIDE32
    extra = (_ZIP64.size if large else 0) + _PADDING.size
    bare = _LOCAL.size + len(key) + extra + 1
    padding = 1 + -(offset + bare) % ALIGNMENT
    field = _MARK32 if large else size
    head = _LOCAL.pack(
        b"PK\x03\x04", 45 if large else 20, 0, 0, 0, _DOS_DATE, crc32, field, field, len(key),
        extra + padding,
    )  # fmt: skip
    zip64 = _ZIP64.pack(1, 16, size, size) if large else b""
    return b"".join((head, key.encode(), zip64, _PADDING.pack(0x434A, padding), bytes(padding)))


def _narrow(value: int) -> int:
    return _MARK32 if value >= _WIDE32 else value


def central_header(entry: Entry) -> bytes:
    """Build the central header of an entry."""
    key, offset, size, crc32 = entry
    wide = [size, size] if size >= _WIDE32 else []
    if offset >= _WIDE32:
        wide.append(offset)
    extra = struct.pack(f"<2H{len(wide)}Q", 1, 8 * len(wide), *wide) if wide else b""
    field = _narrow(size)
    head = _CENTRAL.pack(
        b"PK\x01\x02", _MADE_BY, 45 if wide else 20, 0, 0, 0, _DOS_DATE, crc32, field, field, len(key),
        len(extra), 0, 0, 0, _ATTRIBUTES, _narrow(offset),
    )  # fmt: skip
    return head + key.encode() + extra


def build_index(entries: list[Entry], start: int, version: int = FORMAT) -> tuple[bytes, str]:
    """Build the index.

    Parameters
    ----------
    entries
        All entries, in order.
    start
        Offset in the file at which the index will lie, in bytes.
    version
        Version of the format.

    Returns
    -------
    tuple of bytes and str
        The index, and its digest as ``"sha256:<hex>"``.
    """
    directory = b"".join(map(central_header, entries))
    end, digest = index_end(directory, len(entries), start, version)
    return directory + end, digest


def index_end(
    directory: bytes | memoryview, entries: int, start: int, version: int = FORMAT
) -> tuple[bytes, str]:
    """Build what follows the central directory.

    Parameters
    ----------
    directory
        The central directory.
    entries
        Number of its entries.
    start
        Offset in the file at which it lies, in bytes.
    version
        Version of the format.

    Returns
    -------
    tuple of bytes and str
        The end records, and the digest of the index as ``"sha256:<hex>"``.
    """
    records = b"".join(_end_records(Tail(entries, start, len(directory), 0)))
    hashed = hashlib.sha256(directory)
    hashed.update(records)
    digest = hashed.hexdigest()
    return records + _COMMENTS[version] + digest.encode(), f"sha256:{digest}"


def wide_from() -> int:
    """Give the value from which on a field is wide."""
    return _WIDE32


def _end_records(tail: Tail) -> list[bytes]:
    count, start, size = tail.entries, tail.start, tail.size
    parts = []
    if count >= _WIDE16 or size >= _WIDE32 or start >= _WIDE32:
        parts.append(_END64.pack(b"PK\x06\x06", 44, _MADE_BY, 45, 0, 0, count, count, size, start))
        parts.append(_LOCATOR.pack(b"PK\x06\x07", 0, start + size, 1))
    short = _MARK16 if count >= _WIDE16 else count
    parts.append(_END.pack(b"PK\x05\x06", 0, 0, short, short, _narrow(size), _narrow(start), _COMMENT_BYTES))
    return parts


def parse_tail(tail: bytes | bytearray, file_bytes: int, path: str) -> Tail | None:
    """Find the index from the end of the file.

    Parameters
    ----------
    tail
        The last bytes of the file, at least `TAIL_BYTES` of them or all.
    file_bytes
        Length of the file.
    path
        The file, for errors.

    Returns
    -------
    Tail or None
        Where the index lies; it ends with the file and lies inside it. ``None`` if the file does not end as a
        database does.

    Raises
    ------
    VersionError
        The file is a database of another format version.
    FormatError
        The end records contradict each other or the file.
    """
    end = tail[-END_BYTES:]
    said = bytes(end[_END.size :][:_HEAD_BYTES])
    version = next((version for version, text in _COMMENTS.items() if text == said), None)
    if len(end) < END_BYTES or end[:4] != b"PK\x05\x06" or version is None:
        _refuse_other_version(tail, path)
        return None
    count, size, start = _END.unpack_from(end)[4:7]
    rest = len(tail) - END_BYTES
    if count == _MARK16 or _MARK32 in (size, start):
        at = rest - _LOCATOR.size - _END64.size
        if at >= 0 and tail[at : at + 4] == b"PK\x06\x06":
            count, size, start = _END64.unpack_from(tail, at)[7:10]
    found = Tail(count, start, size, file_bytes, version)
    # The records must be the very ones that a writer would have made of these numbers, and end the file. Their
    # sum is looked at first: it may be more than a field of the records can hold.
    records = b"".join(_end_records(found)) if start + size < file_bytes else b""
    whole = start + size + len(records) + _COMMENT_BYTES == file_bytes
    if not records or not whole or not tail.endswith(records + end[_END.size :]):
        raise FormatError(
            f"{path}: index: expected end records of an index that ends with the file at {file_bytes}, found "
            f"{count} entries in {size} bytes at {start}",
            path=path,
            place="index",
            hint="the file is damaged, or bytes were added or removed",
        )
    return found


def _refuse_other_version(tail: bytes | bytearray, path: str) -> None:
    at = tail.rfind(b"PK\x05\x06")
    match = _ANY_COMMENT.match(tail, at + _END.size) if at >= 0 else None
    if match is not None and int(match[1]) not in _COMMENTS:
        raise version_error(path, int(match[1]))


def root_entry(tail: bytes | bytearray, place: Tail, path: str) -> Entry:
    """Read the last central header, which is the one of the root, without those before it.

    Parameters
    ----------
    tail
        The last bytes of the file.
    place
        Where the index lies.
    path
        The file, for errors.

    Returns
    -------
    Entry
        The root, which ends where the index starts.

    Raises
    ------
    FormatError
        The last header is not that of a root.
    """
    end = len(tail) - (place.file_bytes - place.start - place.size)
    for extra in (0, 12, 20, 28):
        at = end - _CENTRAL.size - len(ROOT_KEY) - extra
        if at < 0:
            break
        try:
            entry, next_at = _parse_central(tail, at, end)
        except ValueError:
            continue
        if next_at == end and entry.key == ROOT_KEY and _ends_at(entry, place.start):
            return entry
    raise FormatError(
        f"{path}: index: expected the root zarr.json as the last entry, found another",
        path=path,
        place="index",
    )


def _ends_at(entry: Entry, end: int) -> bool:
    return entry.offset + header_bytes(entry.key, entry.offset, entry.size) + entry.size == end


def check_digest(index: memoryview, path: str) -> tuple[str, ChecksumError | None]:
    """Hold the index against the digest at its end.

    Parameters
    ----------
    index
        The whole index, to the end of the file.
    path
        The file, for errors.

    Returns
    -------
    tuple of str and (ChecksumError or None)
        ``"sha256:<hex>"`` of the bytes that are there, and the error if the file ends with another digest.
    """
    found = hashlib.sha256(index[:-_COMMENT_BYTES]).hexdigest()
    stored = str(index[-64:], "latin-1")
    if stored == found:
        return f"sha256:{found}", None
    error = ChecksumError(
        f"{path}: index: expected the digest {stored!r} that the file ends with, found {found!r}",
        path=path,
        place="index",
        hint="the index is damaged",
    )
    return f"sha256:{found}", error


def parse_directory(index: bytes | memoryview, place: Tail, path: str) -> list[Entry]:
    """Read the whole central directory.

    Parameters
    ----------
    index
        Its bytes, from the start of the index on.
    place
        Where it lies.
    path
        The file, for errors.

    Returns
    -------
    list of Entry
        All entries; they lie back to back from offset 0 to the index.

    Raises
    ------
    FormatError
        It breaks a rule of the format.
    """
    entries: list[Entry] = []
    at, end = 0, 0
    try:
        while at < place.size:
            entry, next_at = _parse_central(index, at, place.size)
            if entry.offset != end or not _is_canonical(index, at, next_at, entry):
                raise ValueError(f"header of {entry.key!r:.120} at offset {entry.offset}, expected {end}")
            end += header_bytes(entry.key, end, entry.size) + entry.size
            entries.append(entry)
            at = next_at
        if end != place.start or len(entries) != place.entries:
            expected = f"expected {place.entries} that end at {place.start}"
            raise ValueError(f"{len(entries)} entries that end at {end}, {expected}")
    except (ValueError, struct.error) as error:
        raise FormatError(
            f"{path}: index: expected the central directory of a database, found {error}",
            path=path,
            place="index",
        ) from error
    return entries


def _is_canonical(data: bytes | bytearray | memoryview, at: int, end: int, entry: Entry) -> bool:
    # Building a header costs more than all else here, so the usual one, without zip64, is told by its fields.
    fields = _CENTRAL.unpack_from(data, at)
    if fields[:7] == _NARROW and fields[8] == fields[9] and fields[11:16] == _REST and entry.key.isascii():
        return entry.size < _WIDE32 and entry.offset < _WIDE32
    return bytes(data[at:end]) == central_header(entry)


def _parse_central(data: bytes | bytearray | memoryview, at: int, end: int) -> tuple[Entry, int]:
    if at + _CENTRAL.size > end:
        raise ValueError("a header that is cut short")
    fields = _CENTRAL.unpack_from(data, at)
    crc32, _, size, key_bytes, extra_bytes = fields[7:12]
    offset = fields[16]
    key_end = at + _CENTRAL.size + key_bytes
    next_at = key_end + extra_bytes
    if fields[0] != b"PK\x01\x02" or next_at > end:
        raise ValueError(f"no header at byte {at} of it")
    if extra_bytes:
        wide = (
            list(struct.unpack_from(f"<{(extra_bytes - 4) // 8}Q", data, key_end + 4))
            if extra_bytes >= 4
            else []
        )
        if size == _MARK32 and len(wide) >= 2:
            size = wide[1]
            del wide[:2]
        if offset == _MARK32 and wide:
            offset = wide[0]
    return Entry(str(data[at + _CENTRAL.size : key_end], "latin-1"), offset, size, crc32), next_at
