from collections.abc import Callable, Iterable
from typing import Any, Literal, SupportsIndex, final

from jobcore._fast.blob import Blob
from jobcore._fast.cancel import CancelFlag
from jobcore._fast.queue_core import QueueCore

__all__ = ["BlobQueue"]

@final
class BlobQueue(QueueCore):
    def __init__(
        self,
        capacity: SupportsIndex = 1,
        num_blobs: SupportsIndex = 1,
        field_names: Iterable[str] | None = None,
        name: str = "queue",
        classify: Callable[[str, object], tuple[str, Any]] | None = None,
    ) -> None: ...
    def put(
        self,
        values: Iterable[object],
        timeout: float | None = None,
        *,
        move: bool | Literal["large"] = False,
        flag: CancelFlag | None = None,
    ) -> None: ...
    def get(
        self,
        timeout: float | None = None,
        *,
        num_records: SupportsIndex = 1,
        flag: CancelFlag | None = None,
    ) -> list[Any]: ...
    def try_get(self) -> list[Any] | None: ...
    def get_into(
        self,
        blobs: Iterable[Blob],
        timeout: float | None = None,
        *,
        num_records: SupportsIndex = 1,
        flag: CancelFlag | None = None,
    ) -> bool: ...
