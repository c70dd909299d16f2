"""Telling how far a load is: it is cut into portions, and after each one somebody may look."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Iterator
from typing import Protocol

from jobcore.store.container import Target

__all__ = ["Meter", "Part", "Progress"]

_log = logging.getLogger("jobcore.store")

#: Called with the bytes that are done and the bytes of the whole load.
Progress = Callable[[int, int], object]

_MOST = 256 << 20
_FIRST = 32 << 20
#: What a blob costs beside its bytes; without it, very many small ones would be one portion.
_EACH = 16 << 10
_SECONDS = 0.5
_LOG_SECONDS = 10.0


class Part(Protocol):
    """A blob to be read, of which some chunks can be asked for at a time."""

    def chunk_range(self) -> tuple[int, int]:
        """Give the first chunk that is needed, and the one after the last."""

    def chunk_bytes(self) -> int:
        """Give the size of one chunk."""

    def bytes_in(self, first: int, stop: int) -> int:
        """Give the bytes that a range of chunks holds, without what only fills the last one."""

    def target(self, first: int, stop: int) -> Target:
        """Give what to read for a range of chunks."""


class Meter:
    """Reads in portions and reports after each one.

    Parameters
    ----------
    path
        Path of the database, for the log.
    total
        Bytes of the whole load.
    progress
        Is called after each portion, in the thread that loads.
    clock
        Gives seconds.
    """

    def __init__(
        self, path: str, total: int, progress: Progress | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._path = path
        self._total = total
        self._progress = progress
        self._clock = clock
        self._done = 0
        self._limit = _FIRST
        self._logged = clock()
        self._told = False

    def read(self, parts: Iterable[Part], read: Callable[[Iterable[Target]], None]) -> None:
        """Read parts.

        Parameters
        ----------
        parts
            The blobs, in table order.
        read
            Reads targets.
        """
        if self._progress is None and not _log.isEnabledFor(logging.INFO):
            # Nobody looks, so nothing needs to be cut.
            read(part.target(*part.chunk_range()) for part in parts)
            return
        for targets, size, cost in self._portions(parts):
            begin = self._clock()
            read(targets)
            # Portions of a fixed size would be seconds apart on a slow disk.
            seconds = max(self._clock() - begin, 1e-6)
            self._limit = max(1, min(_MOST, int(cost / seconds * _SECONDS)))
            self._done += size
            self._report()

    def end(self) -> None:
        """Report once more where nothing was there to be read."""
        if self._progress is not None and not self._told:
            self._report()

    def _report(self) -> None:
        self._told = True
        now = self._clock()
        if now - self._logged >= _LOG_SECONDS:
            self._logged = now
            _log.info("%s: loaded %d of %d bytes", self._path, self._done, self._total)
        if self._progress is not None:
            self._progress(self._done, self._total)

    def _portions(self, parts: Iterable[Part]) -> Iterator[tuple[list[Target], int, int]]:
        targets: list[Target] = []
        size = cost = 0
        for part in parts:
            first, stop = part.chunk_range()
            chunk = max(1, part.chunk_bytes())
            while True:
                if targets and cost + _EACH + (chunk if first < stop else 0) > self._limit:
                    yield targets, size, cost
                    targets, size, cost = [], 0, 0
                upto = min(stop, first + max(1, (self._limit - cost - _EACH) // chunk))
                targets.append(part.target(first, upto))
                size += part.bytes_in(first, upto)
                cost += _EACH + (upto - first) * chunk
                first = upto
                if first >= stop:
                    break
        if targets:
            yield targets, size, cost
