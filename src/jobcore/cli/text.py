"""How the commands write numbers, names and tables: pure functions from values to text.

Everything is plain text of one line; nothing here knows a terminal.
"""

from __future__ import annotations

import datetime
import math
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

__all__ = ["clean", "count", "local_time", "rate", "seconds", "shape", "size", "table", "value"]

_UNITS = ("kB", "MB", "GB", "TB", "PB", "EB")
_MOST_ELEMENTS = 4
_LONGEST_TEXT = 60


def clean(text: str) -> str:
    r"""Return `text` with everything that could move a cursor or break a line written as an escape.

    Names of blobs are free text: a newline in one must not make two lines of a table, nor an escape sequence paint the
    terminal.
    """
    if text.isprintable():
        return text
    return "".join(
        c if c.isprintable() else c.encode("unicode_escape", "surrogatepass").decode("ascii") for c in text
    )


def size(size_bytes: int) -> str:
    """Return bytes in decimal units with three digits: ``512 B``, ``52.1 kB``, ``1.07 GB``."""
    if abs(size_bytes) < 1000:
        return f"{size_bytes} B"
    scaled, power = size_bytes / 1000, 0
    # 999.6 would be written as 1000 kB: it is 1.00 MB.
    while abs(scaled) >= 999.5 and power < len(_UNITS) - 1:
        scaled, power = scaled / 1000, power + 1
    digits = 2 if abs(scaled) < 9.995 else 1 if abs(scaled) < 99.95 else 0
    return f"{scaled:.{digits}f} {_UNITS[power]}"


def rate(size_bytes: int, duration_s: float) -> str:
    """Return bytes per second, or an empty string when no time has passed."""
    return f"{size(round(size_bytes / duration_s))}/s" if duration_s > 0 else ""


def seconds(duration_s: float) -> str:
    """Return a duration in seconds, always in seconds so that lines can be compared: ``0.012 s``, ``12.3 s``."""
    digits = 3 if duration_s < 0.9995 else 2 if duration_s < 9.995 else 1 if duration_s < 99.95 else 0
    return f"{duration_s:.{digits}f} s"


def count(number: int, noun: str, several: str = "") -> str:
    """Return a number with its noun: ``1 epoch``, ``2 epochs``; `several` is a plural that takes more than an s."""
    return f"{number:,} {noun if number == 1 else several or noun + 's'}"


def shape(dimensions: Sequence[int] | None) -> str:
    """Return a shape as Python writes it."""
    return "-" if dimensions is None else str(tuple(int(n) for n in dimensions))


def local_time(stamp: str) -> str:
    """Return an ISO 8601 time in local time to the second; what is no such time comes back as it is."""
    try:
        when = datetime.datetime.fromisoformat(stamp)
    except ValueError:
        return clean(stamp)
    return when.astimezone().strftime("%Y-%m-%d %H:%M:%S")


def value(found: object) -> str:
    """Return the value of a task's output in a few characters: floats with four digits, large arrays as a shape."""
    if found is None:
        return "-"
    if isinstance(found, str):
        return _cut(clean(found))
    if isinstance(found, bytes):
        return f"{len(found)} bytes"
    if isinstance(found, (list, tuple)):
        return _several([value(one) for one in found[: _MOST_ELEMENTS + 1]])
    if isinstance(found, (np.ndarray, np.generic)):
        return _array(np.asarray(found))
    if isinstance(found, (bool, int, float, complex)):
        return _scalar(found)
    return _cut(
        clean(f"<{type(found).__name__}>" if type(found).__repr__ is object.__repr__ else repr(found))
    )


def table(head: Sequence[str], rows: Iterable[Sequence[str]], *, right: Iterable[int] = ()) -> list[str]:
    """Return the lines of a table, the head first: columns two blanks apart, without rules, easy to cut and grep.

    Parameters
    ----------
    head
        Titles of the columns.
    rows
        Cells of one line each.
    right
        Numbers of the columns that are aligned at their right edge.
    """
    lines = [list(head), *map(list, rows)]
    widths = [max(_width(line[column]) for line in lines) for column in range(len(head))]
    right = frozenset(right)

    def padded(cell: str, column: int) -> str:
        blanks = " " * (widths[column] - _width(cell))
        return blanks + cell if column in right else cell + blanks

    return ["  ".join(padded(cell, column) for column, cell in enumerate(line)).rstrip() for line in lines]


def _array(array: np.ndarray) -> str:
    if array.ndim == 0:
        return (
            value(array.item()) if array.dtype.kind != "V" or array.dtype.names is None else _cut(str(array))
        )
    if array.ndim == 1 and array.size <= _MOST_ELEMENTS:
        return _several([value(one.item() if isinstance(one, np.generic) else one) for one in array])
    return f"{array.dtype} {shape(array.shape)}"


def _several(texts: list[str]) -> str:
    kept = texts[:_MOST_ELEMENTS]
    return f"[{', '.join(kept)}{', ...' if len(texts) > len(kept) else ''}]"


def _scalar(number: complex) -> str:
    if isinstance(number, bool):
        return "true" if number else "false"
    if isinstance(number, int):
        return str(number) if abs(number) < 10**_LONGEST_TEXT else "an integer of many digits"
    if isinstance(number, complex):
        return f"{number:.4g}"
    if not math.isfinite(number) or number == 0:
        return f"{number:g}"
    magnitude = abs(number)
    if 1e4 <= magnitude < 1e9:
        return f"{number:.0f}"
    return f"{number:.4g}"


def _cut(text: str) -> str:
    return text if len(text) <= _LONGEST_TEXT else text[: _LONGEST_TEXT - 3] + "..."


def _width(text: str) -> int:
    """Return the number of terminal cells that `text` fills."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in text
    )
