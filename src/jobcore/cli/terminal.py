"""What the commands need to know of a terminal: whether it can move its cursor, and whether it takes styles."""

from __future__ import annotations

import os
from typing import Literal, TextIO

__all__ = ["is_live_terminal", "styled"]

_STYLES = {"bold": "1", "red": "31", "green": "32", "yellow": "33"}


def is_live_terminal(stream: TextIO) -> bool:
    """Tell whether `stream` is a terminal that can move its cursor."""
    return stream.isatty() and os.environ.get("TERM", "") not in ("", "dumb", "unknown")


def styled(text: str, style: Literal["bold", "red", "green", "yellow"], stream: TextIO) -> str:
    """Return `text` in a style when `stream` is a terminal and ``NO_COLOR`` is not set, else as it is."""
    if os.environ.get("NO_COLOR") or not is_live_terminal(stream):
        return text
    return f"\x1b[{_STYLES[style]}m{text}\x1b[0m"
