"""The file of a chunk, made in plain Python."""

from __future__ import annotations

from pathlib import Path

import slow_directory
import slow_hash128


def chunk(path: Path, data: bytes, zeros: int) -> tuple[int, bytes]:
    """Write the file, and give checksum and hash."""
    whole = data + bytes(zeros)
    found = slow_directory.crc32c(whole)
    path.write_bytes(whole + found.to_bytes(4, "little"))
    return found, slow_hash128.hash128(whole)
