"""The errors of blobs. A value is described by its type and never by its repr, which may be long or fail."""

from __future__ import annotations

from typing import Any, NoReturn

import numpy as np

from jobcore.errors import BlobKindError, BlobValueError

__all__ = [
    "describe",
    "holds_objects",
    "is_empty",
    "misfit",
    "no_int64",
    "not_transient",
    "refuse",
    "torn_by_fork",
    "used_by_writer",
]


def describe(value: object) -> str:
    """Return the type of a value, with dtype and shape if it is an array."""
    kind = type(value)
    if isinstance(value, np.ndarray):
        return f"{kind.__name__} {value.dtype} {value.shape}"
    return kind.__name__ if kind.__module__ == "builtins" else f"{kind.__module__}.{kind.__qualname__}"


def is_empty(name: str) -> BlobValueError:
    """Say that there is nothing to read."""
    return BlobValueError(f"blob {name!r} is empty: expected a value, found none", hint="feed it first")


def no_int64(blob: object) -> BlobKindError:
    """Say that something is no single integer of 64 bits."""
    return BlobKindError(f"expected a 0-d tensor of int64 to add to, found {blob!r}")


def not_transient(name: str, value: object, is_queue: bool) -> BlobKindError:
    """Say that an object, or a queue, would get into checkpoints."""
    if is_queue:
        return BlobKindError(
            f"blob {name!r}: a queue cannot be in a checkpoint, so expected its blob to be transient, "
            f"found {describe(value)} with transient=False",
            hint="leave transient out; a queue is made anew at each start, and what is to survive goes into tensors",
        )
    return BlobKindError(
        f"blob {name!r}: only a transient blob may hold any Python object, and this one holds {describe(value)}",
        hint="pass transient=True to keep it in the workspace but out of checkpoints",
    )


def holds_objects(name: str, array: object) -> BlobKindError:
    """Say that the bytes of an array are pointers."""
    return BlobKindError(f"blob {name!r}: expected a dtype without Python objects, found {describe(array)}")


def misfit(name: str, bound: Any, found: str) -> BlobValueError:
    """Say that the bound array has no place for a value."""
    return BlobValueError(
        f"blob {name!r} is bound: expected {bound.dtype} {bound.shape}, found {found}",
        hint="a bound blob takes equal shape and dtype only; convert the value, or reset the blob",
    )


def torn_by_fork(name: str) -> BlobValueError:
    """Say that the value was half written when the process began."""
    return BlobValueError(
        f"blob {name!r}: another thread was writing into it when this process was forked, so its content is lost here",
        hint="feed it again, or fork while nobody feeds",
    )


def used_by_writer(name: str) -> BlobValueError:
    """Say that a thread would wait for itself."""
    return BlobValueError(
        f"blob {name!r} was used by the thread that is writing into it, which would wait for ever"
    )


def refuse(name: str, value: object, also: str = "") -> NoReturn:
    """Raise the error for a value that no blob takes; the rule of a blob that was given none.

    Parameters
    ----------
    name
        The blob.
    value
        What was fed.
    also
        What the rule of the caller takes beyond what every blob takes, for the text.

    Raises
    ------
    BlobKindError
        Unless the type is right.
    BlobValueError
        An int or a str that is out of range.
    """
    if isinstance(value, int):
        raise BlobValueError(
            f"blob {name!r}: expected an int of 64 bits, found one of {int(value).bit_length()} bits",
            hint="put it into a list or a dict: a state holds ints of any size",
        )
    if isinstance(value, str):
        raise BlobValueError(
            f"blob {name!r}: expected valid Unicode text, found a lone surrogate",
            hint="feed it encoded, as bytes",
        )
    raise BlobKindError(
        f"blob {name!r}: expected an ndarray without Python objects, a NumPy scalar, a bool, int, float or complex, "
        f"a str, bytes, a Counter{also} or a Timer, found {describe(value)}",
        hint="pass transient=True to keep it in the workspace but out of checkpoints",
    )
