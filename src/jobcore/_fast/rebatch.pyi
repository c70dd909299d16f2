from collections.abc import Iterable
from typing import Any, SupportsIndex, final

import numpy.typing as npt

from jobcore._fast.blob import Blob
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.queue_core import QueueCore

__all__ = ["RebatchingQueue"]

@final
class RebatchingQueue(QueueCore):
    def __init__(
        self, capacity: SupportsIndex = 1, num_blobs: SupportsIndex = 1, name: str = "rebatching queue"
    ) -> None: ...
    def enqueue(
        self,
        values: Iterable[object],
        *,
        batch: bool = False,
        timeout: float | None = None,
        flag: CancelFlag | None = None,
    ) -> None: ...
    def dequeue(
        self,
        num_elements: SupportsIndex = 1,
        *,
        timeout: float | None = None,
        flag: CancelFlag | None = None,
    ) -> list[npt.NDArray[Any]]: ...
    def dequeue_into(
        self,
        blobs: Iterable[Blob],
        num_elements: SupportsIndex = 1,
        *,
        timeout: float | None = None,
        flag: CancelFlag | None = None,
    ) -> bool: ...
    @property
    def enqueued_rows(self) -> int: ...
    @property
    def dequeued_rows(self) -> int: ...
