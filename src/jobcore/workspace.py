"""The workspace: named blobs, with those of a parent behind them, for people and for the layers above.

The table itself is native (`jobcore._fast.workspace`); this module adds the kinds that need Python code: small Python
state, random generators, and tensors made from what other libraries call arrays.
"""

from __future__ import annotations

from typing import Any, cast

import numpy as np

from jobcore._fast.blob import Blob
from jobcore._fast.blob_errors import refuse
from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore._fast.workspace import BlobTable
from jobcore._rng import RNG, rng_algorithm
from jobcore._state import copy_state
from jobcore.errors import BlobKindError, BlobValueError

__all__ = ["Blob", "Workspace", "classify"]

_ALSO = ", a random generator, a state (None, list, tuple or dict)"


def classify(name: str, value: object) -> tuple[str, Any]:
    """Tell which kind of blob a value makes, and what the blob would keep.

    ================================================================  ===========================================
    value                                                             kind, and what is kept
    ================================================================  ===========================================
    `Blob`                                                            its kind and its live value
    ndarray of any dtype but object, also of a subclass               ``tensor``: itself as a plain ndarray
    NumPy scalar, bool, int of 64 bits, float, complex                ``tensor`` of shape ``()``
    `Counter`, `Timer`                                                ``counter``, ``timer``: itself
    str                                                               ``string``
    bytes, bytearray, memoryview                                      ``bytes``: a copy, unless it is bytes
    None, list, tuple, dict                                           ``state``: a deep copy
    numpy.random.Generator, numpy.random.RandomState, random.Random   ``rng``: itself
    whatever has ``__array__`` or else ``__dlpack__``                 ``tensor``: what NumPy makes of it
    ================================================================  ===========================================

    Parameters
    ----------
    name
        The blob, for errors.
    value
        Any value, or a `Blob`.

    Returns
    -------
    tuple of str and object
        The kind and the value. An array may share its memory with `value`.

    Raises
    ------
    BlobKindError
        No blob that can be stored takes it; the text gives the path of a bad leaf of a state.
    BlobValueError
        An int of more than 64 bits, text that is not Unicode, a masked item, a state nested too deeply.

    Notes
    -----
    Thread safety: safe, as long as nobody changes `value` meanwhile.

    Examples
    --------
    >>> from jobcore.lowlevel import classify
    >>> classify("rate", 0.5)
    ('tensor', array(0.5))
    """
    if isinstance(value, Blob):
        return value.kind, value.value
    # NumPy's scalars before Python's: numpy.float64 is a float, and numpy.str_ a str.
    if isinstance(value, np.ndarray | np.generic):
        return "tensor", _plain(name, np.asanyarray(value))
    if isinstance(value, bool | int | float | complex):
        number = np.asarray(value)
        # What NumPy has no integer for, it makes an object.
        return ("tensor", number) if not number.dtype.hasobject else refuse(name, value)
    if isinstance(value, str):
        return "string", _text(name, value)
    if isinstance(value, bytes | bytearray | memoryview):
        return "bytes", bytes(value)
    if value is None or isinstance(value, list | tuple | dict):
        return "state", copy_state(value, name)
    if isinstance(value, Counter):
        return "counter", value
    if isinstance(value, Timer):
        return "timer", value
    if isinstance(value, RNG):
        rng_algorithm(value, name)
        return "rng", value
    return "tensor", _plain(name, _foreign(name, value))


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

    # The hook of the native table for what it does not take by itself; everything else never gets here.
    _classify = staticmethod(classify)

    def __init__(self, parent: Workspace | None = None, name: str = "") -> None:
        if parent is not None and not isinstance(parent, Workspace):
            raise BlobKindError(f"expected a Workspace as parent, found {type(parent).__name__}")
        super().__init__(parent, name)

    @property
    def parent(self) -> Workspace | None:
        """The workspace whose blobs are visible here too, or None."""
        return cast("Workspace | None", super().parent)


def _text(name: str, value: str) -> str:
    # Not str(value): that is the member's name for an Enum that is also a str.
    text = str.__str__(value)
    try:
        text.encode()
    except UnicodeEncodeError:
        refuse(name, value)
    return text


def _foreign(name: str, value: object) -> np.ndarray[Any, Any]:
    """Return the array of another library, as NumPy sees it."""
    # Asked of the type, as for every special method: an object that answers to any name is no array.
    kind = type(value)
    if hasattr(kind, "__array__"):
        convert: Any = np.asanyarray
    elif hasattr(kind, "__dlpack__"):
        convert = np.from_dlpack
    else:
        refuse(name, value, _ALSO)
    try:
        array: np.ndarray[Any, Any] = convert(value)
    except Exception as error:
        raise BlobKindError(
            f"blob {name!r}: expected an array that NumPy can read, "
            f"found {kind.__module__}.{kind.__qualname__}, which answers {type(error).__name__}: {error}",
            hint="convert it to an ndarray; a tensor of PyTorch by .detach().cpu() first",
        ) from error
    return array


def _plain(name: str, array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if isinstance(array, np.ma.MaskedArray):
        if np.ma.is_masked(array):
            raise BlobValueError(
                f"blob {name!r}: expected an array without masked items, found a masked array with a mask",
                hint="feed array.filled(value), and array.mask as a blob of its own",
            )
        array = array.data
    # Strings of variable width are no Python objects, though NumPy counts them so.
    if array.dtype.hasobject and array.dtype.kind != "T":
        raise BlobKindError(
            f"blob {name!r}: expected a dtype without Python objects, found {array.dtype} {array.shape}",
            hint="convert it, for text by astype('U') or astype('S'); or pass transient=True",
        )
    return np.asarray(array)
