"""The plain twins of the native block writer and chunk reader."""

from __future__ import annotations

import os
import zlib


class SlowBlockWriter:
    """Keeps everything in memory, and writes it at the end."""

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self.data = bytearray()

    @property
    def end(self) -> int:
        return len(self.data)

    def append(self, data: bytes, crc32: int = 0) -> int:
        self.data += data
        return zlib.crc32(data, crc32)

    def append_zeros(self, count: int, crc32: int = 0) -> int:
        return self.append(bytes(count), crc32)

    def reserve(self, count: int) -> int:
        self.data += bytes(count)
        return len(self.data) - count

    def fill(self, offset: int, data: bytes) -> None:
        self.data[offset : offset + len(data)] = data

    def finish(self) -> None:
        os.pwrite(self.fd, self.data, 0)


def slow_read_chunks(fd: int, chunks: list[tuple[int, int, bytearray | None]]) -> list[int]:
    sums = []
    for offset, size, target in chunks:
        data = os.pread(fd, size, offset)
        if target is not None:
            target[:] = data[: len(target)]
        sums.append(zlib.crc32(data))
    return sums
