"""Files forced to the disk one after the other, in plain Python."""

from __future__ import annotations

import os


def sync_files(descriptors: list[int]) -> list[int]:
    """Return the error code of each, 0 for none."""
    codes = []
    for fd in descriptors:
        try:
            os.fsync(fd)
        except OSError as error:
            codes.append(error.errno or 0)
        else:
            codes.append(0)
    return codes
