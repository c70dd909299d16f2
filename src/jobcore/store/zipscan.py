"""Checking entries of a zip container: local headers, payloads and documents, each byte against what is known of it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial

from jobcore._fast.chunk import read_chunks
from jobcore._fast.crc import crc32 as crc32_of
from jobcore.errors import ChecksumError, FormatError
from jobcore.store.container import Encoded, Scatter, Sink
from jobcore.store.documents import same_document
from jobcore.store.forking import renew_in_child
from jobcore.store.openfile import OpenFile
from jobcore.store.workers import THREADS, each
from jobcore.store.zipformat import Entry, header_bytes, local_header

__all__ = ["OnFault", "Scan", "Step"]

_WINDOW = 1 << 20
_LARGE = 1 << 18
_ALONE = 8 << 20
_MANY = 1 << 10
_WORTH_THREADS = 1 << 20
_PORTION = 1 << 28


@dataclass(slots=True)
class Step:
    """One entry to be checked: whose it is, where its payload goes, and what a document should say."""

    entry: Entry
    blob: str | None
    chunk: int
    sink: Sink = None
    document: bytes | None = None

    def label(self) -> str:
        """Name it in an error."""
        if self.blob is None:
            return f"entry {self.entry.key!r:.120}"
        return f"blob {self.blob!r:.120}, " + ("its document" if self.chunk < 0 else f"chunk {self.chunk}")


#: What is called with a step that is faulty, with what is wrong and with the kind of error that it is.
OnFault = Callable[[Step, str, type[FormatError]], None]


class Scan:
    """Checks entries of one file.

    Parameters
    ----------
    file
        The file; it is in use for as long as a scan lasts.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, file: OpenFile) -> None:
        self._file = file
        self._decoding = threading.RLock()  # held while a large chunk is decoded beside its place
        renew_in_child(self, "_decoding")

    def scan(self, steps: Iterable[Step], fault: OnFault) -> None:
        """Check entries and put their payloads where they go.

        Parameters
        ----------
        steps
            The entries, in the order of the file.
        fault
            Called with each fault; unless it raises, the scan goes on.

        Raises
        ------
        FormatError
            The file cannot be read.
        """
        # Neighbouring small entries come in one read; the payloads of large ones in parallel, into their places.
        batch: list[tuple[Step, int]] = []
        large: list[tuple[Step, int]] = []
        encoded: list[tuple[Step, int]] = []
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
            if size >= _LARGE and isinstance(step.sink, Encoded):
                encoded.append((step, payload))
                if len(encoded) == _MANY:
                    self._check_encoded(encoded, fault)
                    encoded = []
            elif size >= _LARGE and step.document is not None:
                self._check_document(step, self._file.pread(payload, size), fault)
            elif size >= _LARGE and isinstance(step.sink, Scatter) and not step.sink.fits():
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
        self._check_encoded(encoded, fault)
        self._check_large(large, fault)

    def _check_batch(self, batch: list[tuple[Step, int]], start: int, end: int, fault: OnFault) -> None:
        data = memoryview(self._file.pread(start, end - start))
        encoded: list[tuple[Step, Encoded, memoryview]] = []
        for step, payload in batch:
            entry = step.entry
            if data[entry.offset - start : payload - start] != local_header(entry):
                fault(step, f"{step.label()}: its local header is not the one of the index", ChecksumError)
            if entry.size >= _LARGE:
                continue
            part = data[payload - start : payload - start + entry.size]
            if step.document is not None:
                self._check_document(step, part, fault)
                continue
            crc32 = crc32_of(part)
            if crc32 != entry.crc32:
                fault(step, _wrong_checksum(step, crc32), ChecksumError)
            if isinstance(step.sink, Encoded):
                if crc32 == entry.crc32:
                    encoded.append((step, step.sink, part))
            elif isinstance(step.sink, Scatter):
                buffer = step.sink.open()
                buffer[:] = part[: len(buffer)]
                step.sink.close()
            elif step.sink is not None:
                step.sink[:] = part[: len(step.sink)]

        total = sum(sink.chunk_bytes for _, sink, _ in encoded)
        works = (partial(self._decode, step, sink, part, fault) for step, sink, part in encoded)
        each(works, THREADS if total >= _WORTH_THREADS and len(encoded) > 1 else 1)

    def _check_document(self, step: Step, data: bytearray | memoryview, fault: OnFault) -> None:
        crc32, implied = crc32_of(data), step.document
        if crc32 != step.entry.crc32:
            fault(step, _wrong_checksum(step, crc32), ChecksumError)
        elif implied is not None and not same_document(memoryview(data), implied):
            fault(step, f"{step.label()}: it contradicts the table of the root document", FormatError)

    def _check_encoded(self, encoded: list[tuple[Step, int]], fault: OnFault) -> None:
        each((partial(self._check_one_encoded, step, payload, fault) for step, payload in encoded), THREADS)

    def _check_one_encoded(self, step: Step, payload: int, fault: OnFault) -> None:
        data = self._file.pread(payload, step.entry.size)
        crc32 = crc32_of(data)
        if crc32 != step.entry.crc32:
            fault(step, _wrong_checksum(step, crc32), ChecksumError)
        elif isinstance(step.sink, Encoded):
            self._decode(step, step.sink, memoryview(data), fault)

    def _decode(self, step: Step, sink: Encoded, data: memoryview, fault: OnFault) -> None:
        # One at a time where it takes much memory beside the place that it goes to.
        large = sink.scattered and sink.chunk_bytes > _ALONE
        try:
            with self._decoding if large else nullcontext():
                sink.decode(data)
        except ValueError as error:
            fault(step, f"{step.label()}: {error}", FormatError)

    def _check_large(self, large: list[tuple[Step, int]], fault: OnFault) -> None:
        jobs = [(payload, step.entry.size, _memory(step.sink)) for step, payload in large]
        try:
            sums = read_chunks(self._file.fd, jobs, THREADS)
        except EOFError as error:
            raise self._file.unreadable(error.args[0], 1, "the file ends before") from error
        except OSError as error:
            # A sector that cannot be read is damage like any other: an older epoch may still be whole.
            raise self._file.unreadable(error.filename, 1, error.strerror or str(error)) from error
        for (step, _), crc32 in zip(large, sums, strict=True):
            if crc32 != step.entry.crc32:
                fault(step, _wrong_checksum(step, crc32), ChecksumError)
            if isinstance(step.sink, Scatter):
                step.sink.close()

    def _check_pieces(self, step: Step, sink: Scatter, payload: int, fault: OnFault) -> None:
        crc32, end = 0, payload + step.entry.size
        for piece in sink.pieces():
            self._file.pread_into(piece, payload)
            crc32 = crc32_of(piece, crc32)
            payload += len(piece)
        while payload < end:
            rest = self._file.pread(payload, min(end - payload, _WINDOW))
            crc32 = crc32_of(rest, crc32)
            payload += len(rest)
        if crc32 != step.entry.crc32:
            fault(step, _wrong_checksum(step, crc32), ChecksumError)


def _memory(sink: Sink) -> memoryview | None:
    if isinstance(sink, Scatter):
        return sink.open()
    return sink if isinstance(sink, memoryview) else None


def _wrong_checksum(step: Step, found: int) -> str:
    return f"{step.label()}: expected CRC-32 {step.entry.crc32:08x}, found {found:08x}"
