from typing import NoReturn, final

__all__ = ["QueueTotals"]

@final
class QueueTotals:
    def __init__(self, *args: object, **kwargs: object) -> NoReturn: ...
    @property
    def ended(self) -> bool: ...
    def read(self) -> dict[str, int]: ...
