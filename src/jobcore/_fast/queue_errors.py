"""The errors of queues."""

from __future__ import annotations

from collections.abc import Sequence

from jobcore.errors import BlobValueError, ClosedError, ContextError, WaitTimeoutError

__all__ = [
    "closed_to_writers",
    "no_writer",
    "nothing_left",
    "too_small",
    "took_too_long",
    "uneven_batch",
    "unlike_before",
    "wrong_count",
    "wrong_names",
]

FOREIGN = "a process that was forked finds the queues of its parent closed and empty; make a new one"


def closed_to_writers(name: str, foreign: bool, before: str = "") -> ClosedError:
    """Say that a queue takes nothing any more; `before` tells what it has taken of the same call."""
    return ClosedError(
        f"queue {name!r} is closed: expected it to take a record, and it takes none any more{before}",
        hint=FOREIGN if foreign else "it was closed by hand, or its last registered writer is done",
    )


def nothing_left(name: str, foreign: bool) -> ClosedError:
    """Say that no record will come."""
    return ClosedError(
        f"queue {name!r} is closed and empty: expected a record, and none will come",
        hint=FOREIGN if foreign else None,
    )


def took_too_long(name: str, what: str, before: str = "") -> WaitTimeoutError:
    """Say that a wait ended too early; `before` tells what had been done by then."""
    return WaitTimeoutError(f"queue {name!r}: expected {what} in time, found none{before}")


def too_small(argument: str, number: int) -> BlobValueError:
    """Say that a number is below 1, or does not fit 64 bits."""
    # The number itself may have more digits than Python prints.
    found = number if number.bit_length() <= 64 else f"an integer of {number.bit_length()} bits"
    return BlobValueError(f"expected {argument} of at least 1 and below 2**63, found {found}")


def wrong_names(width: int, names: Sequence[str]) -> BlobValueError:
    """Say that the names of the fields are of another number, or not all different."""
    return BlobValueError(
        f"expected {width} different field_names for num_blobs={width}, found {list(names)}"
    )


def no_writer(name: str) -> ContextError:
    """Say that more writers are done than were registered."""
    return ContextError(
        f"queue {name!r}: expected a registered writer that is not done, found none",
        hint="register_writer comes first, once for each writer_done",
    )


def wrong_count(
    name: str, what: str, expected: int, found: int, fields: Sequence[str] | None
) -> BlobValueError:
    """Say that a record has another number of values."""
    named = "" if fields is None else f": {', '.join(fields)}"
    return BlobValueError(f"queue {name!r}: expected {expected} {what}{named}; found {found}")


def uneven_batch(name: str, expected: str, found: str) -> BlobValueError:
    """Say that a batch cannot be cut into rows."""
    return BlobValueError(
        f"queue {name!r}: expected a batch of {expected}, found {found}; nothing was put in"
    )


def unlike_before(label: str, known: tuple[object, object], found: tuple[object, object]) -> BlobValueError:
    """Say that a row is not like the first one: dtype and shape of both."""
    return BlobValueError(
        f"{label}: expected rows of {known[0]} {known[1]}, like the first one, found {found[0]} {found[1]}; "
        "nothing was put in"
    )
