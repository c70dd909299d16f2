"""The blobs by which control flow decides, and those that it writes."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BlobKindError, BlobNotFoundError, BlobValueError
from jobcore.workspace import Blob, Workspace

__all__ = ["read_condition", "read_count", "read_stop_blob", "set_flag", "set_index"]


def read_condition(name: str, workspace: Workspace) -> bool:
    """Return the boolean in a blob.

    Raises
    ------
    BlobNotFoundError, BlobValueError, BlobKindError
        It does not exist, is empty, or is not a single boolean.
    """
    return bool(_scalar(workspace.blob(name), "b", "a single boolean in the condition"))


def read_count(name: str, workspace: Workspace) -> int:
    """Return the integer in a blob; errors as for `read_condition`."""
    return int(_scalar(workspace.blob(name), "iu", "a single integer in the loop count"))


def read_stop_blob(name: str, workspace: Workspace) -> bool:
    """Return whether the stop blob says to stop; missing and empty count as no.

    Raises
    ------
    BlobKindError
        It is not a single boolean.
    """
    if not workspace.has_blob(name):
        return False
    try:
        blob = workspace.blob(name)
    except BlobNotFoundError:
        # Removed by another thread in between.
        return False
    if blob.kind == "empty":
        return False
    return bool(_scalar(blob, "b", "a single boolean in the stop blob"))


def set_flag(name: str, workspace: Workspace, value: bool) -> None:
    """Write a boolean that control flow made."""
    _set(name, workspace, np.bool_(value))


def set_index(name: str, workspace: Workspace, value: int) -> None:
    """Write the number of rounds of a loop."""
    _set(name, workspace, np.int64(value))


def _set(name: str, workspace: Workspace, value: object) -> None:
    # A blob that exists for this alone says nothing about the state of the node: it belongs in no checkpoint.
    workspace.feed(name, value, None if workspace.has_blob(name) else True)


def _scalar(blob: Blob, kinds: str, expected: str) -> Any:
    if blob.kind == "empty":
        raise BlobValueError(
            f"expected {expected} {blob.name!r}, found an empty blob", hint="write it before it is looked at"
        )
    found = f"a blob of kind {blob.kind!r}"
    if blob.kind == "tensor":
        array: NDArray[Any] = blob.view()
        if array.dtype.kind in kinds and array.size == 1:
            return array.reshape(())[()]
        found = f"a tensor of dtype {array.dtype} and shape {array.shape}"
    raise BlobKindError(
        f"expected {expected} {blob.name!r}, found {found}",
        hint="write it with a comparison or logic op, or feed a bool" if kinds == "b" else None,
    )
