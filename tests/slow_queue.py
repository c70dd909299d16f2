"""The queues in plain Python, one lock each: what `BlobQueue` and `RebatchingQueue` must do."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from jobcore import Workspace
from jobcore.errors import BlobKindError, BlobValueError, ClosedError, ContextError, WaitTimeoutError


class SlowQueue:
    def __init__(self, capacity: int = 1, num_blobs: int = 1) -> None:
        self.capacity = capacity
        self.num_blobs = num_blobs
        self.records: deque[list[Any]] = deque()
        self.closed = False
        self.writers = 0
        self.enqueued = self.dequeued = 0
        self.bytes = [0] * num_blobs
        self.changed = threading.Condition()

    def __len__(self) -> int:
        return len(self.records)

    def put(self, values: Sequence[object], timeout: float | None = None) -> None:
        if len(values) != self.num_blobs:
            raise BlobValueError("count")
        record = [copied(value) for value in values]
        with self.changed:
            self.wait(lambda: self.closed or len(self.records) < self.capacity, timeout)
            if self.closed:
                raise ClosedError("closed")
            self.records.append(record)
            self.enqueued += 1
            self.changed.notify_all()

    def get(self, timeout: float | None = None, num_records: int = 1) -> list[Any]:
        end = None if timeout is None else time.monotonic() + timeout
        taken: list[list[Any]] = []
        with self.changed:
            try:
                while len(taken) < num_records:
                    left = None if end is None else max(0.0, end - time.monotonic())
                    self.wait(lambda: self.closed or len(self.records) > 0, left)
                    if not self.records:
                        break
                    taken.append(self.records.popleft())
                    self.changed.notify_all()
                if not taken:
                    raise ClosedError("ended")
                values = taken[0] if num_records == 1 else joined(taken)
            except BaseException:
                self.records.extendleft(reversed(taken))
                raise
            self.dequeued += len(taken)
            for record in taken:
                self.bytes = [n + size(value) for n, value in zip(self.bytes, record, strict=True)]
        return values

    def try_get(self) -> list[Any] | None:
        try:
            return self.get(0)
        except WaitTimeoutError:
            return None

    def close(self) -> None:
        with self.changed:
            self.closed = True
            self.changed.notify_all()

    def register_writer(self, count: int = 1) -> None:
        with self.changed:
            if self.closed:
                raise ClosedError("closed")
            self.writers += count

    def writer_done(self) -> int:
        with self.changed:
            if not self.writers:
                raise ContextError("none")
            self.writers -= 1
            left = self.writers
        if not left:
            self.close()
        return left

    def wait(self, ready: Callable[[], bool], timeout: float | None) -> None:
        if not self.changed.wait_for(ready, timeout):
            raise WaitTimeoutError("late")


class SlowRebatchingQueue:
    def __init__(self, capacity: int = 1, num_blobs: int = 1) -> None:
        self.rows = SlowQueue(capacity, num_blobs)
        self.spec: list[tuple[Any, Any]] = []

    def __len__(self) -> int:
        return len(self.rows)

    def enqueue(self, values: Sequence[Any], batch: bool = False, timeout: float | None = None) -> None:
        arrays = [np.asarray(value) for value in values]
        if len(arrays) != self.rows.num_blobs or (batch and len({len(array) for array in arrays}) > 1):
            raise BlobValueError("uneven")
        if self.rows.closed:
            raise ClosedError("closed")
        batches = arrays if batch else [array[None] for array in arrays]
        if len(batches[0]) == 0:
            return
        spec = [(array.dtype, array.shape[1:]) for array in batches]
        self.spec = self.spec or spec
        if self.spec != spec:
            raise BlobValueError("unlike")
        for row in zip(*batches, strict=True):
            self.rows.put([np.array(value) for value in row], timeout)

    def dequeue(self, num_elements: int = 1, timeout: float | None = None) -> list[Any]:
        if num_elements == 1:
            return [value[None] for value in self.rows.get(timeout)]
        stacked = SlowQueue(1, self.rows.num_blobs)
        stacked.__dict__ = self.rows.__dict__
        with self.rows.changed:
            self.rows.records = deque([[value[None] for value in row] for row in self.rows.records])
            try:
                return stacked.get(timeout, num_elements)
            finally:
                self.rows.records = deque([[value[0] for value in row] for row in self.rows.records])


def copied(value: object) -> object:
    kept = Workspace()
    kept.feed("value", value, transient=True)
    return kept.fetch("value")


def size(value: object) -> int:
    if isinstance(value, str):
        return len(value.encode())
    return len(value) if isinstance(value, bytes) else getattr(value, "nbytes", 0)


def joined(records: list[list[Any]]) -> list[Any]:
    columns = list(zip(*records, strict=True))
    for column in columns:
        for value in column:
            if not isinstance(value, np.ndarray):
                raise BlobKindError("no tensor")
            if value.ndim == 0 or (value.dtype, value.shape[1:]) != (column[0].dtype, column[0].shape[1:]):
                raise BlobValueError("unlike")
    return [np.concatenate(column) for column in columns]
