"""The descriptor that closes itself, in plain Python: it does the same, as long as nothing interrupts it."""

from __future__ import annotations

import contextlib
import os


class Descriptor:
    """As `jobcore._fast.descriptor.Descriptor`."""

    def __init__(
        self, path: str | os.PathLike[str], flags: int, mode: int = 0o777, *, dir_fd: int | None = None
    ) -> None:
        self.number = -1
        self.number = os.open(path, flags, mode, dir_fd=dir_fd)

    def close(self) -> None:
        number, self.number = self.number, -1
        if number >= 0:
            os.close(number)

    def close_quietly(self) -> None:
        with contextlib.suppress(OSError):
            self.close()

    def __enter__(self) -> int:
        return self.number

    def __exit__(self, *error: object) -> None:
        self.close_quietly()

    def __del__(self) -> None:
        self.close_quietly()
