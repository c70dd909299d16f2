from typing import Any, final

from jobcore._fast.workspace import BlobTable

__all__ = ["SMALL_BYTES", "Program", "native_kernel"]

SMALL_BYTES: int

@final
class Program:
    def __init__(self, names: tuple[str, ...], registers: int, code: list[tuple[Any, ...]]) -> None: ...
    def run(self, workspace: BlobTable, context: Any, spans: Any = None) -> bool: ...

def native_kernel(type: str) -> object | None: ...
