"""The reader of the ``zarr`` container: the root in one read, chunks right into place, every byte checked.

Nothing that a file says is believed before it was checked: the root against the digest in it, every chunk against
the table and against the checksum after it, every document against the one that the table implies.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np

from jobcore._fast.descriptor import Descriptor
from jobcore.errors import CheckpointNotFoundError, ClosedError, FormatError
from jobcore.store.codecs import HEAD_BYTES
from jobcore.store.container import (
    WORTH_CHECKING,
    Encoded,
    Scatter,
    Target,
    as_stored,
    check_claims,
    whole,
)
from jobcore.store.dirfiles import (
    READ,
    Step,
    check_chunk,
    check_document,
    gone_error,
    listing_of,
    read_all,
    read_at,
)
from jobcore.store.dirformat import ROOT, TRAILER, is_foreign, open_root, size_of
from jobcore.store.documents import ArrayDocuments
from jobcore.store.forking import renew_in_child
from jobcore.store.identify import a_directory
from jobcore.store.metadata import Table
from jobcore.store.names import escape
from jobcore.store.parsing import parse_root
from jobcore.store.records import Fault
from jobcore.store.workers import THREADS, each

__all__ = ["DirectoryReader"]

_LARGE = 8 << 20  # chunks above this size are decoded beside their place one at a time
_PORTION_BYTES = 1 << 28
_PORTION_FILES = 1 << 10
_WORTH_THREADS = 1 << 21


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
    ReadError
        It was replaced or removed meanwhile.

    Notes
    -----
    Thread-safe. It goes on with the directory that it opened, also when that gets another name; but who replaces or
    removes it takes its files away.
    """

    def __init__(self, path: str, problems: list[FormatError] | None = None) -> None:
        self.path = path
        self.version: int | None = None
        # A signal handler or finalizer may load or close in the middle of a load, in the same thread.
        self._lock = threading.RLock()  # guards _users, _closing and _size
        self._scattering = threading.RLock()  # held while the buffer of a scattered place exists
        renew_in_child(self, "_lock", "_scattering")
        self._users = 0
        self._closing = False
        self._size: int | None = None
        # Of a database that nobody closed it is closed when that goes.
        self._directory = _open(path)
        try:
            self._root = self._read_root()
            if is_foreign(self._root):
                raise a_directory(path)
            self.digest, damage = open_root(self._root, path)
            if damage is not None:
                if problems is None:
                    raise damage
                problems.append(damage)
        except BaseException as error:
            gone = gone_error(self.fd, path) if isinstance(error, FormatError) else None
            self.close()
            if gone is not None:
                raise gone from error
            raise

    @property
    def fd(self) -> int:
        """Descriptor of the directory; -1 once it is closed."""
        return self._directory.number

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
        ReadError
            The directory was replaced or removed.
        """
        with self._in_use():
            for step in self._scan(self._steps(table, targets)):
                raise step.error(
                    f"{self.path}: {step.message}", path=self.path, place=step.key
                ) from step.cause

    def check_sizes(self, table: Table, blobs: Iterable[int]) -> None:
        """Refuse blobs for which the table claims more than their files hold, before there is memory for them.

        Parameters
        ----------
        table
            The table of the root document.
        blobs
            Their indices. Those that claim little are not looked at.

        Raises
        ------
        FormatError
            A chunk is missing, or is not as large as the table says.
        ReadError
            The directory was replaced or removed.
        """
        with self._in_use():
            for blob in blobs:
                spec = table.spec_of(blob)
                if spec.nbytes < WORTH_CHECKING:
                    continue
                name = table.names[blob]
                for chunk in range(spec.chunks):
                    place = spec.chunk_key(escape(name), chunk)
                    expected = table.stored_bytes(blob, chunk) + TRAILER
                    try:
                        length = os.stat(place, dir_fd=self.fd).st_size
                    except OSError:
                        length = 0
                    if length != expected:
                        raise FormatError(
                            f"{self.path}: blob {name!r:.120}, chunk {chunk}: expected a file of {expected} bytes, "
                            f"found {length}",
                            path=self.path,
                            place=place,
                        )
                check_claims(self.path, table, blob, partial(self._head_of, table, blob))

    def _head_of(self, table: Table, blob: int, chunk: int) -> bytes:
        place = table.spec_of(blob).chunk_key(escape(table.names[blob]), chunk)
        try:
            with Descriptor(place, READ, dir_fd=self.fd) as fd:
                return read_at(fd, min(HEAD_BYTES, table.stored_bytes(blob, chunk)), 0)
        except OSError:
            return b""

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

        Raises
        ------
        ReadError
            The directory was replaced or removed, so that nothing can be said of it.
        """
        with self._in_use():
            if table is not None:
                for fault in self._faults(table):
                    gone = gone_error(self.fd, self.path)
                    if gone is not None:
                        raise gone
                    yield fault

    def _faults(self, table: Table) -> Iterator[Fault]:
        yield from self._foreign(table)
        for step in self._scan(self._all_steps(table)):
            yield Fault(step.key, step.blob, step.message)

    def close(self) -> None:
        """Close the directory; reads that are under way in other threads end first. Twice is harmless."""
        with self._lock:
            self._closing = True
            self._close_unused()

    def _close_unused(self) -> None:
        if self._closing and self._users == 0:
            self._directory.close_quietly()

    @contextmanager
    def _in_use(self) -> Iterator[None]:
        # A descriptor closed under a reader may be another file's by its next read.
        with self._lock:
            # Counted before it is looked at: from then on nobody closes it, also in the middle of this.
            self._users += 1
        try:
            if self._closing:
                raise ClosedError(f"{self.path}: expected an open database, found one that was closed")
            yield
        except FormatError as error:
            gone = gone_error(self.fd, self.path)
            if gone is not None:
                raise gone from error
            raise
        finally:
            with self._lock:
                self._users -= 1
                self._close_unused()

    def _read_root(self) -> bytes:
        try:
            file = Descriptor(ROOT, READ, dir_fd=self.fd)
        except OSError as error:
            if error.errno in (errno.ENOENT, errno.ELOOP):
                raise a_directory(self.path) from error
            raise self._unreadable(error) from error
        try:
            with file as fd:
                return read_all(fd)
        except OSError as error:
            raise self._unreadable(error) from error

    def _unreadable(self, error: OSError) -> FormatError:
        return FormatError(
            f"{self.path}: root document: expected a file that can be read: {error.strerror}",
            path=self.path,
            place="root",
        )

    def _steps(self, table: Table, targets: Iterable[Target]) -> Iterator[Step]:
        documents = ArrayDocuments(table.specs, "zarr")
        for target in targets:
            blob = target.blob
            name, spec = table.names[blob], table.spec_of(blob)
            key = escape(name)
            for chunk, sink in enumerate(target.sinks(), target.first):
                at = table.first[blob] + chunk
                place, size = spec.chunk_key(key, chunk), table.stored_bytes(blob, chunk)
                yield Step(place, name, chunk, size, table.crc32c[at], sink=as_stored(table, blob, sink))
            yield Step(f"{key}/{ROOT}", name, -1, document=documents.document(name, table.spec[blob]))

    def _all_steps(self, table: Table) -> Iterator[Step]:
        documents = ArrayDocuments(table.specs, "zarr")
        for key, blob, chunk in table.entries():
            name = table.names[blob]
            if chunk < 0:
                yield Step(key, name, -1, document=documents.document(name, table.spec[blob]))
            else:
                at, size = table.first[blob] + chunk, table.stored_bytes(blob, chunk)
                sink = as_stored(table, blob, None)
                yield Step(key, name, chunk, size, table.crc32c[at], table.hash[at], sink)

    def _foreign(self, table: Table) -> Iterator[Fault]:
        """Give a fault for everything in the directory that the table knows nothing of."""
        implied: dict[str, tuple[str | None, set[str]]] = {"": (None, {ROOT})}
        for key, blob, _ in table.entries():
            node, _, name = key.partition("/")
            implied[""][1].add(node)
            implied.setdefault(node, (table.names[blob], set()))[1].add(name)
        for node, (owner, names) in implied.items():
            try:
                listing = listing_of(self.fd, node)
            except OSError as error:
                what = f"the folder {node!r:.200}" if node else "the directory"
                yield Fault(node or ROOT, owner, f"{what} cannot be listed: {error.strerror}")
                continue
            for name, is_folder in listing:
                key = f"{node}/{name}" if node else name
                if name not in names:
                    yield Fault(
                        key, owner, f"{key!r:.200}: expected nothing of that name, the table has none"
                    )
                elif is_folder != (not node and name != ROOT):
                    what = "a plain file" if node or name == ROOT else "a folder"
                    yield Fault(key, owner, f"{key!r:.200}: expected {what}, found something else")

    def _scan(self, steps: Iterable[Step]) -> Iterator[Step]:
        """Check files, a portion at a time by several threads, and give those that are faulty, in order."""
        portion: list[Step] = []
        waiting = 0
        for step in steps:
            portion.append(step)
            waiting += step.sink.chunk_bytes if isinstance(step.sink, Encoded) else step.size
            if waiting >= _PORTION_BYTES or len(portion) >= _PORTION_FILES:
                yield from self._check(portion, waiting)
                portion, waiting = [], 0
        yield from self._check(portion, waiting)

    def _check(self, portion: list[Step], nbytes: int) -> list[Step]:
        threads = THREADS if nbytes >= _WORTH_THREADS and len(portion) > 1 else 1
        each((partial(self._check_one, step) for step in portion), threads)
        return [step for step in portion if step.message]

    def _check_one(self, step: Step) -> None:
        try:
            file = Descriptor(step.key, READ, dir_fd=self.fd)
        except OSError as error:
            missing = error.errno in (errno.ENOENT, errno.ENOTDIR)
            found = "none" if missing else f"one that cannot be opened: {error.strerror}"
            step.wrong(f"expected the file {step.key!r:.200}, found {found}", cause=error)
            return
        try:
            with file as fd:
                self._check_open(fd, step)
        except OSError as error:
            # A sector that cannot be read is damage like any other: an older epoch may still be whole.
            step.wrong(f"the file cannot be read: {error.strerror or error}", cause=error)

    def _check_open(self, fd: int, step: Step) -> None:
        if step.chunk < 0:
            check_document(fd, step)
        elif isinstance(step.sink, Encoded):
            self._check_encoded(fd, step, step.sink)
        elif isinstance(step.sink, Scatter):
            with self._scattering:
                check_chunk(fd, step, step.sink.open())
                if not step.message:
                    step.sink.close()
        else:
            check_chunk(fd, step, step.sink)

    def _check_encoded(self, fd: int, step: Step, sink: Encoded) -> None:
        # Before there is memory for what the table claims.
        length = os.fstat(fd).st_size
        if length != step.size + TRAILER:
            step.wrong(f"expected a file of {step.size + TRAILER} bytes, found {length}")
            return
        data = memoryview(bytearray(step.size))
        check_chunk(fd, step, data)
        if step.message:
            return
        large = sink.scattered and sink.chunk_bytes > _LARGE
        try:
            with self._scattering if large else nullcontext():
                sink.decode(data)
        except ValueError as error:
            step.wrong(str(error))


def _open(path: str) -> Descriptor:
    try:
        return Descriptor(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        if error.errno in (errno.ENOENT, errno.ENOTDIR) and not os.path.exists(path):  # noqa: PTH110
            missing = CheckpointNotFoundError(f"{path}: expected a database, found no such file")
            missing.errno, missing.filename = errno.ENOENT, path
            raise missing from error
        raise FormatError(
            f"{path}: expected a directory that can be read: {error.strerror}", path=path, place="file"
        ) from error
