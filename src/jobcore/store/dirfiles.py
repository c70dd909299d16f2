"""Checking single files of a directory container: chunks and documents, each byte against what is known of it."""

from __future__ import annotations

import errno
import os
from dataclasses import dataclass

from jobcore._fast.crc32c import crc32c
from jobcore._fast.descriptor import Descriptor
from jobcore._fast.hash128 import Hash128, hash128
from jobcore.errors import ChecksumError, FormatError, ReadError
from jobcore.store.container import Sink
from jobcore.store.dirformat import TRAILER
from jobcore.store.documents import same_document

__all__ = [
    "READ",
    "Step",
    "check_chunk",
    "check_document",
    "gone_error",
    "listing_of",
    "read_all",
    "read_at",
]

#: How the files are opened: nothing that stands in the place of one is followed or waited for.
READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
_PIECE = 1 << 20
_SMALL = 1 << 16  # chunks up to this size are read by one call and copied into place
_SPACING = 1 << 24


@dataclass(slots=True)
class Step:
    """One file to be checked: whose it is, what the table says of it, and where its bytes go.

    Attributes
    ----------
    blob, chunk
        Name of the blob, and number of the chunk or -1 for the document.
    size
        Bytes of the chunk as it is stored.
    crc32c, hash
        Checksum; hash, or empty text when it is not checked.
    sink
        Where the chunk goes.
    document
        What a document should say.
    message, error
        What was found wrong.
    """

    key: str
    blob: str
    chunk: int
    size: int = 0
    crc32c: int = 0
    hash: str = ""
    sink: Sink = None
    document: bytes = b""
    message: str = ""
    error: type[FormatError] = FormatError
    cause: OSError | None = None

    def wrong(
        self, message: str, error: type[FormatError] = FormatError, cause: OSError | None = None
    ) -> None:
        """Note what is wrong."""
        part = "its document" if self.chunk < 0 else f"chunk {self.chunk}"
        self.message, self.error, self.cause = f"blob {self.blob!r:.120}, {part}: {message}", error, cause


def check_document(fd: int, step: Step) -> None:
    """Check the file of a document, and note in the step what is wrong with it."""
    # A writer of another's may space its text otherwise, but not by megabytes.
    most = len(step.document) + _SPACING
    length = os.fstat(fd).st_size
    if length > most:
        step.wrong(f"expected a document of at most {most} bytes, found {length}")
        return
    found = read_all(fd)
    if found != step.document and not same_document(found, step.document):
        step.wrong("it contradicts the table of the root document")


def check_chunk(fd: int, step: Step, sink: memoryview | None) -> None:
    """Check the file of a chunk, put its first bytes into `sink`, and note in the step what is wrong with it."""
    size = step.size
    if size <= _SMALL:
        data = memoryview(read_at(fd, size + TRAILER + 1, 0))
        payload, tail = data[:size], bytes(data[size:])
        if len(tail) == TRAILER and sink is not None:
            sink[:] = payload[: len(sink)]
        found = crc32c(payload)
        digest = hash128(payload).hex() if step.hash else ""
        short = len(data) < size
    else:
        length = os.fstat(fd).st_size
        if length != size + TRAILER:
            # Before there is memory for what the table claims.
            step.wrong(f"expected a file of {size + TRAILER} bytes, found {length}")
            return
        whole = Hash128(size) if step.hash else None
        found, short = _fill(fd, size, sink, whole)
        tail = b"" if short else read_at(fd, TRAILER + 1, size)
        digest = whole.digest().hex() if whole is not None and not short else ""
    if short or len(tail) != TRAILER:
        length = os.fstat(fd).st_size
        step.wrong(f"expected a file of {size + TRAILER} bytes, found {length}")
    elif found != step.crc32c:
        step.wrong(f"expected CRC-32C {step.crc32c:08x}, found {found:08x}", ChecksumError)
    elif int.from_bytes(tail, "little") != found:
        step.wrong(f"expected CRC-32C {found:08x} after its bytes, found {tail[::-1].hex()}", ChecksumError)
    elif digest != step.hash:
        step.wrong(f"expected the hash {step.hash}, found {digest}", ChecksumError)


def _fill(fd: int, size: int, sink: memoryview | None, whole: Hash128 | None) -> tuple[int, bool]:
    """Read a chunk, hash it, and give its checksum and whether the file ends before it does."""
    wanted = 0 if sink is None else len(sink)
    rest = memoryview(bytearray(min(_PIECE, size - wanted))) if wanted < size else None
    done = found = 0
    while done < size:
        if sink is not None and done < wanted:
            part = sink[done : done + _PIECE]
        elif rest is not None:
            part = rest[: size - done]
        count = os.preadv(fd, [part], done)
        if count == 0:
            return found, True
        found = crc32c(part[:count], found)
        if whole is not None:
            whole.update(part[:count])
        done += count
    return found, False


def read_at(fd: int, size: int, at: int) -> bytes:
    """Read `size` bytes, fewer only where the file ends: a read may stop short for any reason."""
    data = os.pread(fd, size, at)
    while len(data) < size and (more := os.pread(fd, size - len(data), at + len(data))):
        data += more
    return data


def read_all(fd: int) -> bytes:
    """Read a whole file."""
    pieces = []
    at = 0
    try:
        while piece := os.pread(fd, max(_PIECE, os.fstat(fd).st_size - at), at):
            pieces.append(piece)
            at += len(piece)
        return pieces[0] if len(pieces) == 1 else b"".join(pieces)
    except (MemoryError, OverflowError) as error:
        raise OSError(errno.ENOMEM, "it does not fit into memory") from error


def listing_of(directory: int, folder: str) -> list[tuple[str, bool]]:
    """Give the names in a folder, and whether each is a folder; a folder that is missing has none."""
    try:
        file = Descriptor(folder or ".", READ | os.O_DIRECTORY, dir_fd=directory)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR, errno.ELOOP):
            return []  # each of its files is a fault of its own
        raise
    with file as fd, os.scandir(fd) as entries:
        return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)


def gone_error(directory: int, path: str) -> ReadError | None:
    """Give the error for a directory that others have replaced or removed: what is missing in it is no damage.

    Parameters
    ----------
    directory
        Descriptor of it.
    path
        The path that it had.

    Returns
    -------
    ReadError or None
        ``None`` where the path is still that of the directory.
    """
    try:
        if os.path.samestat(os.fstat(directory), os.stat(path)):  # noqa: PTH116 - paths are plain text here
            return None
    except FileNotFoundError:
        pass
    except OSError:
        return None
    gone = ReadError(
        f"{path}: the directory was replaced or removed while it was read",
        hint="open it again; what was being read is no more",
    )
    gone.errno, gone.strerror, gone.filename = errno.ESTALE, os.strerror(errno.ESTALE), path
    return gone
