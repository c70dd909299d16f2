"""The reader of the ``zarr.zip`` container: the index in one or two reads, payloads right into place.

Nothing that a file says is believed before it was checked: the end records against the length of the file, the
index against its digest, the root against its checksum, and every entry against the one that the table
implies. A read of a blob checks each byte of it: local headers, payloads and its document.
"""

from __future__ import annotations

import errno
import os
import stat
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np

from jobcore._fast.chunk import read_chunks
from jobcore._fast.crc import crc32 as crc32_of
from jobcore._fast.reader import ZipLayout
from jobcore.errors import CheckpointNotFoundError, ChecksumError, ClosedError, FormatError
from jobcore.store import files
from jobcore.store.agreement import blob_of_key, disagreements
from jobcore.store.container import Scatter, Sink, Target, whole
from jobcore.store.identify import a_directory, not_a_database
from jobcore.store.metadata import ArrayDocuments, Table, native_specs, same_document
from jobcore.store.names import escape
from jobcore.store.records import Fault
from jobcore.store.zipformat import (
    Entry,
    central_header,
    check_digest,
    header_bytes,
    local_header,
    parse_directory,
    parse_tail,
    root_entry,
    wide_from,
)

__all__ = ["ZipReader"]

_TAIL = 1 << 16
_WINDOW = 1 << 20
_LARGE = 1 << 18
_PORTION = 1 << 28
_THREADS = min(4, os.cpu_count() or 1)
_MOST = 1 << 30  # macOS refuses to read 2 GiB at once


@dataclass(slots=True)
class _Step:
    """One entry to be checked: whose it is, where its payload goes, and what a document should say."""

    entry: Entry
    blob: str | None
    chunk: int
    sink: Sink = None
    document: bytes | None = None

    def label(self) -> str:
        if self.blob is None:
            return f"entry {self.entry.key!r:.120}"
        return f"blob {self.blob!r:.120}, " + ("its document" if self.chunk < 0 else f"chunk {self.chunk}")


_OnFault = Callable[[_Step, str, type[FormatError]], None]


class ZipReader:
    """Reads one database.

    Parameters
    ----------
    path
        Absolute path of the file.
    problems
        Where given, an index that does not match its digest is put here and not raised.

    Raises
    ------
    CheckpointNotFoundError
        There is no such file.
    FormatError
        It is no database, or its index is damaged.

    Notes
    -----
    Thread-safe: it reads by position, and after :meth:`close` the last reader under way closes the file.
    """

    def __init__(self, path: str, problems: list[FormatError] | None = None) -> None:
        self.path = path
        self._lock = (
            threading.Lock()
        )  # guards _users and _closing; and _entries and _layout while they are made
        self._users = 0
        self._closing = False
        self._entries: list[Entry] | None = None
        self._layout: ZipLayout | None = None
        self._exact = False
        self._fd, self.size_bytes = _open(path)
        try:
            self._open_index(problems)
        except BaseException:
            self.close()
            raise

    def _open_index(self, problems: list[FormatError] | None) -> None:
        size = self.size_bytes
        tail = self._pread(max(0, size - _TAIL), min(size, _TAIL))
        place = parse_tail(tail, size, self.path)
        if place is None:
            raise not_a_database(self.path, self._pread(0, min(size, 512)), tail, size)
        self._place = place
        start, self._root, no_root = place.start, None, None
        try:
            self._root = root_entry(tail, place, self.path)
            start = self._root.offset
        except FormatError as error:
            no_root = error
        held = size - len(tail)
        if start < held:
            # A large table: the rest of it and of the index in one further read.
            tail = self._pread(start, held - start) + tail
            held = start
        self._index = memoryview(tail)[place.start - held :]
        self.digest, damage = check_digest(self._index, self.path)
        for problem in (damage, no_root):
            if problem is not None:
                if problems is None:
                    raise problem
                problems.append(problem)
        self._root_bytes = tail[start - held : place.start - held]

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
        entry = self._root
        if entry is None:
            raise FormatError(f"{self.path}: root document: there is none", path=self.path, place="root")
        head = header_bytes(entry.key, entry.offset, entry.size)
        payload = self._root_bytes[head:]
        if crc32_of(payload) != entry.crc32 or self._root_bytes[:head] != local_header(entry):
            raise ChecksumError(
                f"{self.path}: root document: expected CRC-32 {entry.crc32:08x} and the header that goes "
                f"with it, found {crc32_of(payload):08x}",
                path=self.path,
                place="root",
            )
        return payload

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
            The index and the table contradict each other, or the file cannot be read.
        """
        with self._in_use():
            layout = self._layout_of(table)
            if layout is None:
                self._scan(self._steps(table, self._checked_entries(table), targets), self._raise)
                return
            straight: list[Target] = []
            others: list[Target] = []
            for target in targets:
                (others if target.array is None else straight).append(target)
            blobs = [target.blob for target in straight]
            if straight and not self._read_whole(layout, blobs, [target.array for target in straight]):
                # Something is not as it should be: the slower way finds out what it is.
                others = sorted(others + straight, key=lambda target: (target.blob, target.first))
            self._scan(self._implied_steps(table, layout, others), self._raise)

    def read_arrays(self, table: Table, blobs: list[int], arrays: list[np.ndarray[Any, Any]]) -> None:
        """Read whole blobs.

        Parameters
        ----------
        table
            The table of the root document.
        blobs
            Their indices, increasing.
        arrays
            The C-contiguous array that each fills.

        Raises
        ------
        ChecksumError, FormatError
            As for :meth:`read`.
        """
        with self._in_use():
            layout = self._layout_of(table)
            if layout is not None and self._read_whole(layout, blobs, arrays):
                return
        self.read(table, (whole(table, blob, array) for blob, array in zip(blobs, arrays, strict=True)))

    def faults(self, table: Table | None) -> Iterator[Fault]:
        """Check every byte of the file but those of the root and of the end records.

        Parameters
        ----------
        table
            The table of the root document, or ``None`` when that cannot be read; then each entry is checked
            by itself.

        Yields
        ------
        Fault
            Each damage.
        """
        with self._in_use():
            try:
                entries = parse_directory(self._index, self._place, self.path)
            except FormatError as error:
                yield Fault("index", None, _without(self.path, error.message))
                return
            found: list[tuple[int, Fault]] = []

            def note(step: _Step, message: str, _: type[FormatError]) -> None:
                found.append((step.entry.offset, Fault(step.entry.key, step.blob, message)))

            if table is not None:
                yield from disagreements(entries, table)
            try:
                self._scan(self._all_steps(table, entries), note)
            except FormatError as error:
                found.append((self.size_bytes, Fault("file", None, _without(self.path, error.message))))
            yield from (fault for _, fault in sorted(found, key=lambda pair: pair[0]))

    def close(self) -> None:
        """Close the file; reads that are under way in other threads end first. Twice is harmless."""
        with self._lock:
            self._closing = True
            if self._users == 0 and self._fd >= 0:
                files.close_quietly(self._fd)
                self._fd = -1

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
                if self._closing and self._users == 0 and self._fd >= 0:
                    files.close_quietly(self._fd)
                    self._fd = -1

    def _checked_entries(self, table: Table) -> list[Entry]:
        with self._lock:
            if self._entries is None:
                entries = parse_directory(self._index, self._place, self.path)
                for fault in disagreements(entries, table):
                    raise FormatError(f"{self.path}: {fault.message}", path=self.path, place=fault.place)
                self._entries = entries
            return self._entries

    def _layout_of(self, table: Table) -> ZipLayout | None:
        """Give the layout that the table implies, if the index is exactly the one of that layout."""
        with self._lock:
            if self._layout is None:
                self._layout = layout = ZipLayout(
                    native_specs(table),
                    table.names,
                    table.spec,
                    table.place,
                    table.crc32,
                    escape,
                    wide_from(),
                )
                root = self._root
                at = (
                    layout.same_index(self._index) if root is not None and root.offset == layout.end else None
                )
                if at is not None and root is not None:
                    self._exact = self._index[at : self._place.size] == central_header(root)
            return self._layout if self._exact else None

    def _read_whole(
        self, layout: ZipLayout, blobs: list[int], arrays: Sequence[np.ndarray[Any, Any] | None]
    ) -> bool:
        try:
            return layout.read(self._fd, blobs, list(arrays), _THREADS)
        except (OSError, EOFError):
            return False

    def _implied_steps(self, table: Table, layout: ZipLayout, targets: Iterable[Target]) -> Iterator[_Step]:
        documents = ArrayDocuments(table.specs)
        for target in targets:
            blob = target.blob
            name, spec, key = table.names[blob], table.spec_of(blob), escape(table.names[blob])
            first, size = table.first[blob], spec.chunk_bytes

            def start(chunk: int, blob: int = blob, first: int = first, size: int = size) -> int:
                return table.place[first + chunk - 1] + size if chunk else layout.offset(blob)

            for chunk, sink in enumerate(target.sinks(), target.first):
                crc32 = table.crc32[first + chunk]
                yield _Step(Entry(spec.chunk_key(key, chunk), start(chunk), size, crc32), name, chunk, sink)
            document = documents.document(name, table.spec[blob])
            entry = Entry(f"{key}/zarr.json", start(spec.chunks), len(document), crc32_of(document))
            yield _Step(entry, name, -1, None, document)

    def _steps(self, table: Table, entries: list[Entry], targets: Iterable[Target]) -> Iterator[_Step]:
        documents = ArrayDocuments(table.specs)
        for target in targets:
            name, spec = table.names[target.blob], table.spec[target.blob]
            # Before a blob's first entry lie all chunks of the blobs before it, and a document for each.
            at = table.first[target.blob] + target.blob
            for chunk, sink in enumerate(target.sinks(), target.first):
                yield _Step(entries[at + chunk], name, chunk, sink)
            at = table.first[target.blob + 1] + target.blob
            yield _Step(entries[at], name, -1, None, documents.document(name, spec))

    def _all_steps(self, table: Table | None, entries: list[Entry]) -> Iterator[_Step]:
        documents = ArrayDocuments(table.specs) if table is not None else None
        implied = {key: (blob, chunk) for key, blob, chunk in table.entries()} if table is not None else {}
        for entry in entries[:-1]:
            blob, chunk = implied.get(entry.key, (-1, 0))
            if table is None or documents is None or blob < 0:
                yield _Step(entry, *blob_of_key(entry.key))
                continue
            name = table.names[blob]
            document = documents.document(name, table.spec[blob]) if chunk < 0 else None
            yield _Step(entry, name, chunk, None, document)

    def _scan(self, steps: Iterable[_Step], fault: _OnFault) -> None:
        # Neighbouring small entries come in one read; the payloads of large ones in parallel, into their places.
        batch: list[tuple[_Step, int]] = []
        large: list[tuple[_Step, int]] = []
        start = end = waiting = 0
        for step in steps:
            key, offset, size, _ = step.entry
            payload = offset + header_bytes(key, offset, size)
            stop = payload + size if size < _LARGE else payload
            if batch and (offset != end or stop - start > _WINDOW):
                self._check_batch(batch, start, end, fault)
                batch = []
            if not batch:
                start = offset
            batch.append((step, payload))
            end = stop
            if size >= _LARGE and isinstance(step.sink, Scatter) and not step.sink.fits():
                self._check_pieces(step, step.sink, payload, fault)
            elif size >= _LARGE:
                large.append((step, payload))
                waiting += size
                # The buffer of a scattered place exists for one chunk at a time.
                if waiting >= _PORTION or isinstance(step.sink, Scatter):
                    self._check_large(large, fault)
                    large, waiting = [], 0
        if batch:
            self._check_batch(batch, start, end, fault)
        self._check_large(large, fault)

    def _check_batch(self, batch: list[tuple[_Step, int]], start: int, end: int, fault: _OnFault) -> None:
        data = memoryview(self._pread(start, end - start))
        for step, payload in batch:
            entry = step.entry
            if data[entry.offset - start : payload - start] != local_header(entry):
                fault(step, f"{step.label()}: its local header is not the one of the index", ChecksumError)
            if entry.size >= _LARGE:
                continue
            part = data[payload - start : payload - start + entry.size]
            crc32 = crc32_of(part)
            if crc32 != entry.crc32:
                fault(step, _wrong_checksum(step, crc32), ChecksumError)
            elif (
                step.document is not None and part != step.document and not same_document(part, step.document)
            ):
                fault(step, f"{step.label()}: it contradicts the table of the root document", FormatError)
            if isinstance(step.sink, Scatter):
                buffer = step.sink.open()
                buffer[:] = part[: len(buffer)]
                step.sink.close()
            elif step.sink is not None:
                step.sink[:] = part[: len(step.sink)]

    def _check_large(self, large: list[tuple[_Step, int]], fault: _OnFault) -> None:
        jobs = [
            (payload, step.entry.size, step.sink.open() if isinstance(step.sink, Scatter) else step.sink)
            for step, payload in large
        ]
        try:
            sums = read_chunks(self._fd, jobs, _THREADS)
        except EOFError as error:
            raise self._unreadable(error.args[0], 1, "the file ends before") from error
        except OSError as error:
            # A sector that cannot be read is damage like any other: an older epoch may still be whole.
            raise self._unreadable(error.filename, 1, error.strerror or str(error)) from error
        for (step, _), crc32 in zip(large, sums, strict=True):
            if crc32 != step.entry.crc32:
                fault(step, _wrong_checksum(step, crc32), ChecksumError)
            if isinstance(step.sink, Scatter):
                step.sink.close()

    def _check_pieces(self, step: _Step, sink: Scatter, payload: int, fault: _OnFault) -> None:
        crc32, end = 0, payload + step.entry.size
        for piece in sink.pieces():
            self._pread_into(piece, payload)
            crc32 = crc32_of(piece, crc32)
            payload += len(piece)
        while payload < end:
            rest = self._pread(payload, min(end - payload, _WINDOW))
            crc32 = crc32_of(rest, crc32)
            payload += len(rest)
        if crc32 != step.entry.crc32:
            fault(step, _wrong_checksum(step, crc32), ChecksumError)

    def _raise(self, step: _Step, message: str, kind: type[FormatError]) -> None:
        raise kind(f"{self.path}: {message}", path=self.path, place=step.entry.key)

    def _pread(self, offset: int, size: int) -> bytearray:
        try:
            buffer = bytearray(size)
        except (MemoryError, OverflowError) as error:
            raise self._unreadable(offset, size, "it does not fit into memory") from error
        self._pread_into(memoryview(buffer), offset)
        return buffer

    def _pread_into(self, buffer: memoryview, offset: int) -> None:
        done = 0
        while done < len(buffer):
            try:
                count = os.preadv(self._fd, [buffer[done : done + _MOST]], offset + done)
            except OSError as error:
                # A sector that cannot be read is damage like any other: an older epoch may still be whole.
                text = error.strerror or str(error)
                raise self._unreadable(offset + done, len(buffer) - done, text) from error
            if count == 0:
                raise self._unreadable(offset + done, len(buffer) - done, "the file ends before")
            done += count

    def _unreadable(self, offset: int, size: int, reason: str) -> FormatError:
        return FormatError(
            f"{self.path}: expected {size} bytes at {offset}, which could not be read: {reason}",
            path=self.path,
            place="file",
        )


def _open(path: str) -> tuple[int, int]:
    fd = -1
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        found = os.fstat(fd)
    except FileNotFoundError as error:
        raise _not_found(path) from error
    except OSError as error:
        if fd >= 0:
            files.close_quietly(fd)
        if error.errno == errno.ENOTDIR:
            raise _not_found(path) from error
        raise FormatError(
            f"{path}: expected a file that can be read: {error.strerror}", path=path, place="file"
        ) from error
    if stat.S_ISREG(found.st_mode):
        return fd, found.st_size
    files.close_quietly(fd)
    if stat.S_ISDIR(found.st_mode):
        raise a_directory(path)
    raise FormatError(f"{path}: expected a file, found a device, pipe or socket", path=path, place="file")


def _not_found(path: str) -> CheckpointNotFoundError:
    error = CheckpointNotFoundError(f"{path}: expected a database, found no such file")
    error.errno, error.filename = errno.ENOENT, path
    return error


def _wrong_checksum(step: _Step, found: int) -> str:
    return f"{step.label()}: expected CRC-32 {step.entry.crc32:08x}, found {found:08x}"


def _without(path: str, message: str) -> str:
    return message.removeprefix(f"{path}: ")
