"""The reader of the ``zarr`` container: the root in one read, chunks right into place, every byte checked.

Nothing that a file says is believed before it was checked: the root against the digest in it, every chunk against
the table and against the checksum after it, every document against the one that the table implies.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from jobcore._fast.crc32c import crc32c
from jobcore._fast.hash128 import hash128
from jobcore.errors import CheckpointNotFoundError, ChecksumError, ClosedError, FormatError
from jobcore.store import files
from jobcore.store.container import Scatter, Sink, Target, whole
from jobcore.store.dirformat import ROOT, TRAILER, is_foreign, open_root, size_of
from jobcore.store.identify import a_directory
from jobcore.store.metadata import ArrayDocuments, Table, parse_root, same_document
from jobcore.store.names import escape
from jobcore.store.records import Fault
from jobcore.store.workers import THREADS, each

__all__ = ["DirectoryReader"]

_PIECE = 1 << 20
_SMALL = 1 << 16  # chunks up to this size are read by one call and copied into place
_PORTION_BYTES = 1 << 28
_PORTION_FILES = 1 << 10
_WORTH_THREADS = 1 << 21
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK


@dataclass(slots=True)
class _Step:
    """One file to be checked: whose it is, what the table says of it, and where its bytes go.

    Attributes
    ----------
    blob, chunk
        Name of the blob, and number of the chunk or -1 for the document.
    size
        Bytes of the chunk.
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
        part = "its document" if self.chunk < 0 else f"chunk {self.chunk}"
        self.message, self.error, self.cause = f"blob {self.blob!r:.120}, {part}: {message}", error, cause


class DirectoryReader:
    """Reads one database.

    Parameters
    ----------
    path
        Absolute path of the directory.
    problems
        Where given, a root document that does not match its digest is put here and not raised.

    Raises
    ------
    CheckpointNotFoundError
        There is no such directory.
    FormatError
        It is no database, or its root is damaged.

    Notes
    -----
    Thread-safe. It goes on with the directory that it opened, also when that gets another name.
    """

    def __init__(self, path: str, problems: list[FormatError] | None = None) -> None:
        self.path = path
        self._lock = threading.Lock()  # guards _users, _closing and _size
        self._scattering = threading.Lock()  # held while the buffer of a scattered place exists
        self._users = 0
        self._closing = False
        self._size: int | None = None
        self.fd = _open(path)
        try:
            self._root = self._read_root()
            if is_foreign(self._root):
                raise a_directory(path)
            self.digest, damage = open_root(self._root, path)
            if damage is not None:
                if problems is None:
                    raise damage
                problems.append(damage)
        except BaseException:
            self.close()
            raise

    @property
    def size_bytes(self) -> int:
        """Size of all files, in bytes, as the root implies it."""
        with self._lock:
            if self._size is None:
                try:
                    self._size = size_of(*parse_root(self._root, self.path), len(self._root))
                except FormatError:
                    self._size = len(self._root)
            return self._size

    def root(self) -> bytearray:
        """Give the root document.

        Returns
        -------
        bytearray
            Its text.

        Raises
        ------
        ChecksumError
            It is damaged.
        """
        _, damage = open_root(self._root, self.path)
        if damage is not None:
            raise damage
        return bytearray(self._root)

    def read_arrays(self, table: Table, blobs: list[int], arrays: list[np.ndarray[Any, Any]]) -> None:
        """Read whole blobs, each into a contiguous array of its stored size; as :meth:`read`."""
        self.read(table, (whole(table, blob, array) for blob, array in zip(blobs, arrays, strict=True)))

    def read(self, table: Table, targets: Iterable[Target]) -> None:
        """Read blobs into memory.

        Parameters
        ----------
        table
            The table of the root document.
        targets
            What to read, in table order.

        Raises
        ------
        ChecksumError
            Bytes of one of the blobs are damaged; its memory then holds anything.
        FormatError
            A file is missing, or is not what the table says.
        """
        with self._in_use():
            for step in self._scan(self._steps(table, targets)):
                raise step.error(
                    f"{self.path}: {step.message}", path=self.path, place=step.key
                ) from step.cause

    def faults(self, table: Table | None) -> Iterator[Fault]:
        """Check every byte of every file but those of the root.

        Parameters
        ----------
        table
            The table of the root document, or ``None`` when that cannot be read; then nothing says what there
            should be.

        Yields
        ------
        Fault
            Each damage.
        """
        with self._in_use():
            if table is not None:
                yield from self._foreign(table)
                for step in self._scan(self._all_steps(table)):
                    yield Fault(step.key, step.blob, step.message)

    def close(self) -> None:
        """Close the directory; reads that are under way in other threads end first. Twice is harmless."""
        with self._lock:
            self._closing = True
            self._close_unused()

    def _close_unused(self) -> None:
        if self._closing and self._users == 0 and self.fd >= 0:
            files.close_quietly(self.fd)
            self.fd = -1

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        # A descriptor closed under a reader may be another file's by its next read.
        with self._lock:
            if self._closing:
                raise ClosedError(f"{self.path}: expected an open database, found one that was closed")
            self._users += 1
        try:
            yield
        finally:
            with self._lock:
                self._users -= 1
                self._close_unused()

    def _read_root(self) -> bytes:
        try:
            fd = os.open(ROOT, _READ, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                raise a_directory(self.path) from error
            raise self._unreadable(error) from error
        try:
            return _read_all(fd)
        except OSError as error:
            raise self._unreadable(error) from error
        finally:
            files.close_quietly(fd)

    def _unreadable(self, error: OSError) -> FormatError:
        return FormatError(
            f"{self.path}: root document: expected a file that can be read: {error.strerror}",
            path=self.path,
            place="root",
        )

    def _steps(self, table: Table, targets: Iterable[Target]) -> Iterator[_Step]:
        documents = ArrayDocuments(table.specs, "zarr")
        for target in targets:
            blob = target.blob
            name, spec = table.names[blob], table.spec_of(blob)
            key = escape(name)
            for chunk, sink in enumerate(target.sinks(), target.first):
                at = table.first[blob] + chunk
                place = spec.chunk_key(key, chunk)
                yield _Step(place, name, chunk, spec.chunk_bytes, table.crc32c[at], sink=sink)
            yield _Step(f"{key}/{ROOT}", name, -1, document=documents.document(name, table.spec[blob]))

    def _all_steps(self, table: Table) -> Iterator[_Step]:
        documents = ArrayDocuments(table.specs, "zarr")
        for key, blob, chunk in table.entries():
            name, spec = table.names[blob], table.spec_of(blob)
            if chunk < 0:
                yield _Step(key, name, -1, document=documents.document(name, table.spec[blob]))
            else:
                at = table.first[blob] + chunk
                yield _Step(key, name, chunk, spec.chunk_bytes, table.crc32c[at], table.hash[at])

    def _foreign(self, table: Table) -> Iterator[Fault]:
        """Give a fault for everything in the directory that the table knows nothing of."""
        implied: dict[str, tuple[str | None, set[str]]] = {"": (None, {ROOT})}
        for key, blob, _ in table.entries():
            node, _, name = key.partition("/")
            implied[""][1].add(node)
            implied.setdefault(node, (table.names[blob], set()))[1].add(name)
        for node, (owner, names) in implied.items():
            for name, is_folder in _listing(self.fd, node):
                key = f"{node}/{name}" if node else name
                if name not in names:
                    yield Fault(
                        key, owner, f"{key!r:.200}: expected nothing of that name, the table has none"
                    )
                elif is_folder != (not node and name != ROOT):
                    what = "a plain file" if node or name == ROOT else "a folder"
                    yield Fault(key, owner, f"{key!r:.200}: expected {what}, found something else")

    def _scan(self, steps: Iterable[_Step]) -> Iterator[_Step]:
        """Check files, a portion at a time by several threads, and give those that are faulty, in order."""
        portion: list[_Step] = []
        waiting = 0
        for step in steps:
            portion.append(step)
            waiting += step.size
            if waiting >= _PORTION_BYTES or len(portion) >= _PORTION_FILES:
                yield from self._check(portion, waiting)
                portion, waiting = [], 0
        yield from self._check(portion, waiting)

    def _check(self, portion: list[_Step], nbytes: int) -> list[_Step]:
        threads = THREADS if nbytes >= _WORTH_THREADS and len(portion) > 1 else 1
        each((partial(self._check_one, step) for step in portion), threads)
        return [step for step in portion if step.message]

    def _check_one(self, step: _Step) -> None:
        try:
            fd = os.open(step.key, _READ, dir_fd=self.fd)
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            found = "none" if missing else f"one that cannot be opened: {error.strerror}"
            step.wrong(f"expected the file {step.key!r:.200}, found {found}", cause=error)
            return
        try:
            if step.chunk < 0:
                _check_document(fd, step)
            elif isinstance(step.sink, Scatter):
                with self._scattering:
                    _check_chunk(fd, step, step.sink.open())
                    if not step.message:
                        step.sink.close()
            else:
                _check_chunk(fd, step, step.sink)
        except OSError as error:
            # A sector that cannot be read is damage like any other: an older epoch may still be whole.
            step.wrong(f"the file cannot be read: {error.strerror or error}", cause=error)
        finally:
            files.close_quietly(fd)


def _check_document(fd: int, step: _Step) -> None:
    found = _read_all(fd)
    if found != step.document and not same_document(found, step.document):
        step.wrong("it contradicts the table of the root document")


def _check_chunk(fd: int, step: _Step, sink: memoryview | None) -> None:
    size = step.size
    if size <= _SMALL:
        data = memoryview(_read_at(fd, size + TRAILER + 1, 0))
        payload, tail = data[:size], bytes(data[size:])
        if len(tail) == TRAILER and sink is not None:
            sink[:] = payload[: len(sink)]
        found = crc32c(payload)
        digest = hash128(payload).hex() if step.hash else ""
        short = len(data) < size
    else:
        whole = bytearray(size) if step.hash else None
        found, short = _fill(fd, size, sink if whole is None else memoryview(whole))
        tail = b"" if short else _read_at(fd, TRAILER + 1, size)
        digest = "" if whole is None else hash128(whole).hex()
    if short or len(tail) != TRAILER:
        length = os.fstat(fd).st_size
        step.wrong(f"expected a file of {size + TRAILER} bytes, found {length}")
    elif found != step.crc32c:
        step.wrong(f"expected CRC-32C {step.crc32c:08x}, found {found:08x}", ChecksumError)
    elif int.from_bytes(tail, "little") != found:
        step.wrong(f"expected CRC-32C {found:08x} after its bytes, found {tail[::-1].hex()}", ChecksumError)
    elif digest != step.hash:
        step.wrong(f"expected the hash {step.hash}, found {digest}", ChecksumError)


def _fill(fd: int, size: int, sink: memoryview | None) -> tuple[int, bool]:
    """Read a chunk, and give its checksum and whether the file ends before it does."""
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
        done += count
    return found, False


def _read_at(fd: int, size: int, at: int) -> bytes:
    """Read `size` bytes, fewer only where the file ends: a read may stop short for any reason."""
    data = os.pread(fd, size, at)
    while len(data) < size and (more := os.pread(fd, size - len(data), at + len(data))):
        data += more
    return data


def _read_all(fd: int) -> bytes:
    pieces = []
    at = 0
    while piece := os.pread(fd, max(_PIECE, os.fstat(fd).st_size - at), at):
        pieces.append(piece)
        at += len(piece)
    return pieces[0] if len(pieces) == 1 else b"".join(pieces)


def _listing(directory: int, folder: str) -> list[tuple[str, bool]]:
    """Give the names in a folder, and whether each is a folder; a folder that is missing has none."""
    try:
        fd = os.open(folder or ".", _READ | os.O_DIRECTORY, dir_fd=directory)
    except OSError:  # each of its files is a fault of its own
        return []
    try:
        with os.scandir(fd) as entries:
            return sorted((entry.name, entry.is_dir(follow_symlinks=False)) for entry in entries)
    finally:
        files.close_quietly(fd)


def _open(path: str) -> int:
    try:
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.exists(path):  # noqa: PTH110
            missing = CheckpointNotFoundError(f"{path}: expected a database, found no such file")
            missing.errno, missing.filename = errno.ENOENT, path
            raise missing from error
        raise FormatError(
            f"{path}: expected a directory that can be read: {error.strerror}", path=path, place="file"
        ) from error
