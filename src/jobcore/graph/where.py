"""Where the user's program built something: ``file:line`` of the statement outside this package."""

from __future__ import annotations

import os
import sys
from pathlib import Path

__all__ = ["built_at"]


def built_at() -> str:
    """Return ``file:line`` of the innermost frame outside the package, or ``""`` when there is none.

    It walks raw frames and formats one of them: reading source lines, as a traceback does, would cost
    more than building the op does.
    """
    frame = sys._getframe(1)
    while frame.f_code.co_filename.startswith(_PACKAGE):
        if frame.f_back is None:
            return ""
        frame = frame.f_back
    return f"{frame.f_code.co_filename}:{frame.f_lineno}"


# Taken from a code object and not from __file__: the two differ when the package is imported through a
# symbolic link or from a relative path, and then every frame would look like the user's.
_PACKAGE = str(Path(built_at.__code__.co_filename).parents[1]) + os.sep
