"""The workspace: named blobs, with those of a parent behind them, for people and for the layers above.

The table itself is native (`jobcore._fast.workspace`); this module adds the kinds that need Python code: small Python
state, random generators, and tensors made from what other libraries call arrays.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from jobcore._fast.blob import Blob, refuse
from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore._fast.workspace import BlobTable
from jobcore._rng import RNG, rng_algorithm
from jobcore._state import copy_state
from jobcore.errors import BlobKindError, BlobValueError

__all__ = ["Blob", "Workspace", "classify"]

_SCALARS = (bool, int, float, complex, np.generic)
_ALSO = ", a random generator, a state (None, list, tuple or dict)"


class Workspace(BlobTable):
    """Named blobs: tensors, counters, timers, text, bytes, small Python state and random generators.

    A name is looked up among the workspace's own blobs, then in its parent, and so on. A name that is visible is
    never created again: to feed it writes into the blob of the ancestor.

    Parameters
    ----------
    parent
        The workspace whose blobs are visible here too.
    name
        What to call the workspace in errors.

    Raises
    ------
    BlobKindError
        `parent` is no workspace, or `name` no str.

    Notes
    -----
    Thread safety: every method may be called from any thread at any time; see `jobcore.lowlevel.Blob` for what that
    means for one blob.

    Examples
    --------
    >>> import numpy as np
    >>> from jobcore import Workspace
    >>> ws = Workspace()
    >>> ws.feed("weights", np.zeros(3))
    >>> ws["config"] = {"rate": 0.1}
    >>> ws.fetch("weights")
    array([0., 0., 0.])
    """

    __slots__ = ()

    @staticmethod
    def _classify(name: str, value: object) -> tuple[str, Any]:
        return _by_rule(name, value)

    @property
    def parent(self) -> Workspace | None:
        """The workspace whose blobs are visible here too, or None."""
        found = super().parent
        assert found is None or isinstance(found, Workspace)
        return found


def classify(name: str, value: object) -> tuple[str, Any]:
    """Tell which kind of blob a value makes, and what the blob would keep.

    Parameters
    ----------
    name
        The blob, for errors.
    value
        Any value, or a `Blob`.

    Returns
    -------
    tuple of str and object
        The kind; and the value: an ndarray for a tensor, which is `value` itself if it is one, or a copied state.

    Raises
    ------
    BlobKindError
        No blob that can be stored takes it; the text gives the path of a bad leaf of a state.
    BlobValueError
        An int of more than 64 bits, text that is not Unicode, a state nested too deeply.
    """
    if isinstance(value, Blob):
        return value.kind, value.value
    if isinstance(value, np.ndarray):
        return "tensor", _plain(name, value)
    if isinstance(value, _SCALARS):
        return "tensor", _plain(name, _scalar(name, value))
    if isinstance(value, Counter):
        return "counter", value
    if isinstance(value, Timer):
        return "timer", value
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            refuse(name, value)
        return "string", str(value)
    return _by_rule(name, value)


def _by_rule(name: str, value: object) -> tuple[str, Any]:
    """Classify what a blob does not take by itself; also called to copy a state."""
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if value is None or isinstance(value, list | tuple | dict):
        return "state", copy_state(value, name)
    if isinstance(value, RNG):
        rng_algorithm(value, name)
        return "rng", value
    if isinstance(value, np.ndarray):
        return "tensor", _plain(name, value)
    if isinstance(value, int | str):
        refuse(name, value)
    if hasattr(type(value), "__array__"):
        return "tensor", _plain(name, np.asarray(value))
    if hasattr(type(value), "__dlpack__"):
        return "tensor", _plain(name, np.from_dlpack(value))  # type: ignore[arg-type]  # found by its method
    refuse(name, value, _ALSO)
    raise AssertionError("refuse returned")


def _scalar(name: str, value: object) -> np.ndarray[Any, Any]:
    array = np.asarray(value)
    if array.dtype.hasobject:
        refuse(name, value)
    return array


def _plain(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise BlobValueError(
                f"blob {name!r}: expected an array without masked items, found a masked array with a mask",
                hint="feed array.filled(value), and array.mask as a blob of its own",
            )
        array = array.data
    if array.dtype.hasobject and array.dtype.kind != "T":
        raise BlobKindError(
            f"blob {name!r}: expected a dtype without Python objects, found {array.dtype} {array.shape}",
            hint="convert it, for text by astype('U') or astype('S')",
        )
    return array if type(array) is np.ndarray else np.asarray(array).view(np.ndarray)
