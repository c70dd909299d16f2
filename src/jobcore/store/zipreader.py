"""The reader of the ``zarr.zip`` container: the index in one or two reads, payloads right into place.

Nothing that a file says is believed before it was checked: the end records against the length of the file, the
index against its digest, the root against its checksum, and every entry against the one that the table
implies. A read of a blob checks each byte of it: local headers, payloads and its document.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from jobcore._fast.crc import crc32 as crc32_of
from jobcore._fast.fresh import Rooms
from jobcore._fast.reader import ZipLayout
from jobcore._fast.table import RootTable
from jobcore.errors import ChecksumError, FormatError
from jobcore.store.agreement import disagreements
from jobcore.store.codecs import HEAD_BYTES
from jobcore.store.container import Target, as_stored, check_claims, nowhere, whole
from jobcore.store.documents import ArrayDocuments, native_specs
from jobcore.store.forking import renew_in_child
from jobcore.store.identify import not_a_database
from jobcore.store.layout import Spec
from jobcore.store.metadata import Table
from jobcore.store.names import escape
from jobcore.store.openfile import OpenFile
from jobcore.store.records import Fault
from jobcore.store.root import columns_of
from jobcore.store.workers import THREADS, start
from jobcore.store.zipfaults import zip_faults
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
from jobcore.store.zipscan import Scan, Step

__all__ = ["ZipReader"]

_TAIL = 1 << 16
_LARGE = 1 << 18
_WORTHTHREADS = 1 << 20


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
        # Guards _entries and _layout while they are made. A signal handler may load meanwhile, in the same thread: it
        # makes them anew, and either will do.
        self._lock = threading.RLock()
        renew_in_child(self, "_lock")
        self._entries: list[Entry] | None = None
        self._layout: ZipLayout | None = None
        self._exact = False
        #: The table of the root document in native memory, unchecked; ``None`` where it has another form.
        self.columns: RootTable | None = None
        self._file = OpenFile(path)
        self.path, self.size_bytes = path, self._file.size_bytes
        self._scan = Scan(self._file)
        try:
            self._open_index(problems)
        except BaseException:
            self.close()
            raise

    def _open_index(self, problems: list[FormatError] | None) -> None:
        size = self.size_bytes
        tail = self._file.pread(max(0, size - _TAIL), min(size, _TAIL))
        place = parse_tail(tail, size, self.path)
        if place is None:
            raise not_a_database(self.path, self._file.pread(0, min(size, 512)), tail, size)
        self._place = place
        self.version: int | None = place.version
        start, self._root, no_root = place.start, None, None
        try:
            self._root = root_entry(tail, place, self.path)
            start = self._root.offset
        except FormatError as error:
            no_root = error
        held = size - len(tail)
        if start < held:
            # A large table: the rest of it and of the index in one further read.
            tail = self._pread_before(start, tail)
            held = start
        self._index = memoryview(tail)[place.start - held :]
        self._root_bytes = memoryview(tail)[start - held : place.start - held]
        self.digest, damage = self._checked_digest()
        for problem in (damage, no_root):
            if problem is not None:
                if problems is None:
                    raise problem
                problems.append(problem)

    def _checked_digest(self) -> tuple[str, ChecksumError | None]:
        # Hashing and parsing are most of what it takes to open a database of many blobs.
        found: list[tuple[str, ChecksumError | None]] = []

        def check() -> None:
            found.append(check_digest(self._index, self.path))

        checking = _started(check) if len(self._index) >= _LARGE else None
        try:
            if self._root is not None:
                self.columns = columns_of(self._root_bytes[self._root_head(self._root) :])
        finally:
            if checking is not None:
                checking.join()
        return found[0] if found else check_digest(self._index, self.path)

    @staticmethod
    def _root_head(entry: Entry) -> int:
        return header_bytes(entry.key, entry.offset, entry.size)

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
        return bytearray(self.root_view())

    def root_view(self) -> memoryview:
        """Give the root document without a copy; as :meth:`root`."""
        entry = self._root
        if entry is None:
            raise FormatError(f"{self.path}: root document: there is none", path=self.path, place="root")
        head = self._root_head(entry)
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
        with self._file.in_use():
            layout = self._layout_of(table)
            if layout is None:
                self._scan.scan(self._steps(table, self._checked_entries(table), targets), self._raise)
                return
            straight: list[Target] = []
            others: list[Target] = []
            for target in targets:
                slow = target.array is None or table.spec_of(target.blob).codecs
                (others if slow else straight).append(target)
            blobs = [target.blob for target in straight]
            if straight and not self._read_whole(layout, blobs, [target.array for target in straight]):
                # Something is not as it should be: the slower way finds out what it is.
                others = sorted(others + straight, key=lambda target: (target.blob, target.first))
            self._scan.scan(self._implied_steps(table, layout, others), self._raise)

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
        with self._file.in_use():
            layout = self._layout_of(table)
            if layout is not None and not table.has_codecs and self._read_whole(layout, blobs, arrays):
                return
        self.read(table, (whole(table, blob, array) for blob, array in zip(blobs, arrays, strict=True)))

    def read_all(
        self, specs: list[Spec], columns: RootTable, dtypes: list[np.dtype[Any]]
    ) -> dict[str, np.ndarray[Any, Any]] | None:
        """Read every blob into a new array.

        Parameters
        ----------
        specs, columns
            The table of the root document.
        dtypes
            The true data type of each spec.

        Returns
        -------
        dict of str to ndarray, or None
            ``None`` when something is not as it should be.

        Raises
        ------
        ValueError
            No array can have the shape of one of the blobs.
        """
        with self._file.in_use():
            rooms = Rooms([(spec.shape, dtype) for spec, dtype in zip(specs, dtypes, strict=True)], columns)
            arrays: dict[str, np.ndarray[Any, Any]] = {}
            layout, small = self._layout_by(specs, columns, rooms, arrays)
            if layout is None or small is False:
                return None
            # They were made meanwhile, unless an earlier load has worked out the layout.
            arrays = arrays or rooms.arrays()
            values = list(arrays.values())
            blobs = list(range(len(values)))
            if small:
                large = {i for i, spec in enumerate(specs) if spec.chunk_bytes >= _LARGE}
                blobs = [i for i, spec in enumerate(columns.columns()[0]) if spec in large] if large else []
            found = self._read_whole(layout, blobs, [values[blob] for blob in blobs], fresh=True)
            return arrays if found else None

    def check_sizes(self, table: Table, blobs: Iterable[int]) -> None:
        """Hold the table against the index, and against encoded chunks, before there is memory for what it claims.

        Parameters
        ----------
        table
            The table of the root document.
        blobs
            Indices of the blobs that will be read.

        Raises
        ------
        FormatError
            The index and the table contradict each other, or a chunk decodes to another size.
        """
        with self._file.in_use():
            if self._layout_of(table) is None:
                self._checked_entries(table)
            for blob in blobs if table.has_codecs else ():

                def head_of(chunk: int, blob: int = blob) -> bytearray:
                    place = table.place[table.first[blob] + chunk]
                    return self._file.pread(place, min(HEAD_BYTES, table.stored_bytes(blob, chunk)))

                check_claims(self.path, table, blob, head_of)

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
        with self._file.in_use():
            layout = self._layout_of(table) if table is not None else None
            if table is None or layout is None or not self._is_whole(table, layout):
                yield from zip_faults(self.path, self._index, self._place, self._scan, table)

    def _is_whole(self, table: Table, layout: ZipLayout) -> bool:
        """Tell whether every byte is as it should be; where it is not, other means find out what is wrong."""
        encoded = [bool(spec.codecs) for spec in table.specs]
        plain = [blob for blob, index in enumerate(table.spec) if not encoded[index]]
        if not self._read_whole(layout, plain, [None] * len(plain)):
            return False
        others = (nowhere(table, blob) for blob, index in enumerate(table.spec) if encoded[index])
        try:
            self._scan.scan(self._implied_steps(table, layout, others), self._raise)
        except FormatError:
            return False
        return True

    def close(self) -> None:
        """Close the file; reads that are under way in other threads end first. Twice is harmless."""
        self._file.close()

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
        columns = self.columns
        if columns is None or columns.names is not table.names:
            columns = RootTable(table.names, table.spec, table.place, table.crc32)
        return self._layout_by(table.specs, columns, sizes=table.size)[0]

    def _layout_by(
        self,
        specs: list[Spec],
        columns: RootTable,
        rooms: Rooms | None = None,
        arrays: dict[str, np.ndarray[Any, Any]] | None = None,
        sizes: list[int] | None = None,
    ) -> tuple[ZipLayout | None, bool | None]:
        # While it is worked out, the arrays are made and the small ones of them filled, where there are rooms.
        with self._lock:
            small = None
            if self._layout is None:
                encoded = [bool(spec.codecs) for spec in specs] if sizes else None
                layout = ZipLayout(native_specs(specs), columns, escape, wide_from(), encoded, sizes)
                layout.begin(self._index, self._file.fd, rooms)
                try:
                    if rooms is not None and arrays is not None:
                        arrays.update(rooms.arrays())
                finally:
                    at, small = layout.finish()
                root = self._root
                if at is not None and root is not None and root.offset == layout.end:
                    self._exact = self._index[at : self._place.size] == central_header(root)
                self._layout = layout
            return (self._layout if self._exact else None), small

    def _read_whole(
        self,
        layout: ZipLayout,
        blobs: list[int],
        arrays: Sequence[np.ndarray[Any, Any] | None],
        *,
        fresh: bool = False,
    ) -> bool:
        try:
            return layout.read(self._file.fd, blobs, list(arrays), THREADS, fresh)
        except (OSError, EOFError):
            return False

    def _implied_steps(self, table: Table, layout: ZipLayout, targets: Iterable[Target]) -> Iterator[Step]:
        documents = ArrayDocuments(table.specs)
        for target in targets:
            blob = target.blob
            name, spec, key = table.names[blob], table.spec_of(blob), escape(table.names[blob])
            first = table.first[blob]

            def start(chunk: int, blob: int = blob, first: int = first) -> int:
                if chunk == 0:
                    return layout.offset(blob)
                return table.place[first + chunk - 1] + table.stored_bytes(blob, chunk - 1)

            for chunk, sink in enumerate(target.sinks(), target.first):
                size, crc32 = table.stored_bytes(blob, chunk), table.crc32[first + chunk]
                entry = Entry(spec.chunk_key(key, chunk), start(chunk), size, crc32)
                yield Step(entry, name, chunk, as_stored(table, blob, sink))
            document = documents.document(name, table.spec[blob])
            entry = Entry(f"{key}/zarr.json", start(spec.chunks), len(document), crc32_of(document))
            yield Step(entry, name, -1, None, document)

    def _steps(self, table: Table, entries: list[Entry], targets: Iterable[Target]) -> Iterator[Step]:
        documents = ArrayDocuments(table.specs)
        for target in targets:
            name, spec = table.names[target.blob], table.spec[target.blob]
            # Before a blob's first entry lie all chunks of the blobs before it, and a document for each.
            at = table.first[target.blob] + target.blob
            for chunk, sink in enumerate(target.sinks(), target.first):
                yield Step(entries[at + chunk], name, chunk, as_stored(table, target.blob, sink))
            at = table.first[target.blob + 1] + target.blob
            yield Step(entries[at], name, -1, None, documents.document(name, spec))

    def _raise(self, step: Step, message: str, kind: type[FormatError]) -> None:
        raise kind(f"{self.path}: {message}", path=self.path, place=step.entry.key)

    def _pread_before(self, start: int, tail: bytearray) -> bytearray:
        size = self.size_bytes - start - len(tail)
        whole = self._file.room(start, size + len(tail))
        self._file.pread_into(memoryview(whole)[:size], start)
        whole[size:] = tail
        return whole


def _started(call: Callable[[], None]) -> threading.Thread | None:
    thread = threading.Thread(target=call, name="jobcore-store", daemon=True)
    return thread if start(thread) else None
