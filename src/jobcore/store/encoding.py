"""Encoding chunks in several threads, ahead of whoever writes them, in memory that stays bounded."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any

import numpy as np

from jobcore.store.codecs import encode
from jobcore.store.layout import Spec
from jobcore.store.metadata import Table
from jobcore.store.workers import THREADS, start

__all__ = ["Budget", "EncodedChunks", "cost_of", "encoded_chunk"]

_MiB = 1 << 20


def encoded_chunk(spec: Spec, array: np.ndarray[Any, Any], chunk: int) -> bytes:
    """Encode one chunk of an array.

    Parameters
    ----------
    spec
        Its layout, which has a codec.
    array
        The array, of any layout in memory.
    chunk
        Number of the chunk.

    Returns
    -------
    bytes
        What is stored.
    """
    (codec,) = spec.codecs
    low, high = spec.row_range(chunk)
    if not array.flags.c_contiguous:
        array = np.ascontiguousarray(array[low:high])
        low, high = 0, high - low
    rows = array.reshape(-1).view(np.uint8)[low * spec.row_bytes : high * spec.row_bytes]
    if rows.nbytes < spec.chunk_bytes:
        filled = np.zeros(spec.chunk_bytes, np.uint8)
        filled[: rows.nbytes] = rows
        rows = filled
    return encode(codec, rows)


def cost_of(spec: Spec, array: np.ndarray[Any, Any]) -> int:
    """Give the most memory that the encoding of one chunk takes, in bytes, without what the codec itself needs."""
    # The libraries need room for the worst case, and what they give is copied to its true size.
    whole = array.flags.c_contiguous and spec.nbytes % max(1, spec.chunk_bytes) == 0
    return 2 * spec.stored_bound + (0 if whole else spec.chunk_bytes)


class Budget:
    """Memory that may be in use at once; whatever is larger than all of it has it for itself.

    Parameters
    ----------
    nbytes
        How much, in bytes.

    Notes
    -----
    Thread-safe.
    """

    def __init__(self, nbytes: int) -> None:
        self._limit = nbytes
        self._used = 0
        self._changed = threading.Condition()  # guards _used

    @contextmanager
    def taken(self, nbytes: int) -> Iterator[None]:
        """Wait until so much is free, and have it for as long as the context lasts."""
        with self._changed:
            while self._used and self._used + nbytes > self._limit:
                self._changed.wait()
            self._used += nbytes
        try:
            yield
        finally:
            with self._changed:
                self._used -= nbytes
                self._changed.notify_all()


class _Slot:
    __slots__ = ("cost", "data", "error")

    def __init__(self, cost: int) -> None:
        self.cost = cost
        self.data: bytes | None = None
        self.error: BaseException | None = None


class EncodedChunks:
    """Gives the encoded chunks of a database in order, and encodes those that follow in the meantime.

    Parameters
    ----------
    table, arrays
        The table, and the array of each blob.
    budget_bytes
        Memory for chunks that are being encoded or wait to be taken; at least one chunk is at work in any case.
    threads
        Threads that encode.

    Notes
    -----
    One thread takes; it encodes too when what it waits for has not been begun. Leaving the context ends the threads.
    """

    def __init__(
        self,
        table: Table,
        arrays: list[np.ndarray[Any, Any]],
        budget_bytes: int = 32 * _MiB,
        threads: int = THREADS,
    ) -> None:
        self._table, self._arrays = table, arrays
        self._limit = budget_bytes
        self._works = self._all()
        self._changed = threading.Condition()  # guards everything below, and _works
        self._slots: deque[_Slot] = deque()
        self._used = 0
        self._waiting: tuple[int, int, int] | None = None  # the next work, taken from _works and not begun
        self._stopped = False
        self._threads = threads
        self._helpers: list[threading.Thread] = []

    def __enter__(self) -> EncodedChunks:
        if self._table.has_codecs and self._threads > 1:
            for _ in range(self._threads):
                helper = threading.Thread(target=self._run, name="jobcore-encode", daemon=True)
                if not start(helper):
                    break  # whoever takes encodes
                self._helpers.append(helper)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for helper in self._helpers:
            helper.join()  # the arrays may be gone after this

    def of(self, blob: int) -> Iterable[bytes]:
        """Give the chunks of a blob; blobs come in order, and all chunks of each are taken."""
        for _ in range(self._table.spec_of(blob).chunks):
            yield self._take()

    def _all(self) -> Iterator[tuple[int, int, int]]:
        for blob in range(len(self._table.names)):
            spec = self._table.spec_of(blob)
            if spec.codecs:
                cost = cost_of(spec, self._arrays[blob])
                for chunk in range(spec.chunks):
                    yield blob, chunk, cost

    def _next(self, forced: bool) -> tuple[_Slot, int, int] | None:
        """Begin the next work, if the memory for it is there or it must be done now; under the lock."""
        if self._waiting is None:
            self._waiting = next(self._works, None)
        if self._waiting is None:
            return None
        blob, chunk, cost = self._waiting
        if self._used and self._used + cost > self._limit and not forced:
            return None
        self._waiting = None
        self._used += cost
        slot = _Slot(cost)
        self._slots.append(slot)
        return slot, blob, chunk

    def _run(self) -> None:
        while True:
            with self._changed:
                while not self._stopped and (begun := self._next(forced=False)) is None:
                    if self._waiting is None:
                        return  # there is nothing more to be done
                    self._changed.wait()
                if self._stopped:
                    return
            assert begun is not None
            self._encode(*begun)

    def _encode(self, slot: _Slot, blob: int, chunk: int) -> None:
        try:
            data = encoded_chunk(self._table.spec_of(blob), self._arrays[blob], chunk)
            error = None
        except BaseException as failure:  # noqa: BLE001 - raised by whoever takes, whatever it is
            data, error = None, failure
        with self._changed:
            slot.data, slot.error = data, error
            # What is done takes only what it has become.
            if data is not None:
                self._used -= slot.cost - len(data)
                slot.cost = len(data)
            self._changed.notify_all()

    def _take(self) -> bytes:
        with self._changed:
            begun = None if self._slots else self._next(forced=True)
        if begun is not None:
            self._encode(*begun)
        with self._changed:
            slot = self._slots[0]
            while slot.data is None and slot.error is None:
                self._changed.wait()
            self._slots.popleft()
            # The one that is being written goes on taking memory, but the next one may begin.
            self._used -= slot.cost
            self._changed.notify_all()
        if slot.error is not None:
            raise slot.error
        assert slot.data is not None
        return slot.data
