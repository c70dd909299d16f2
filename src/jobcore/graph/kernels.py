"""What the kernels share: typed access to inputs, and errors that name the op and what it found."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from numpy.typing import NDArray

from jobcore._fast.counter import Counter
from jobcore._fast.timer import Timer
from jobcore.errors import BlobKindError, BlobValueError
from jobcore.graph.op import OpContext

if TYPE_CHECKING:
    from jobcore.workspace import Blob

__all__ = ["counter", "describe_blob", "tensor", "timer", "wrong_kind"]


def tensor(ctx: OpContext, index: int) -> NDArray[Any]:
    """Return input `index` as a read-only array that no other thread changes under the kernel.

    Raises
    ------
    BlobKindError
        It is no tensor.
    BlobValueError
        It is empty.
    """
    blob = ctx.inputs[index]
    if blob.kind != "tensor":
        raise wrong_kind(ctx, blob, "a tensor")
    view: NDArray[Any] = blob.view()
    return view


def counter(ctx: OpContext, index: int) -> Counter:
    """Return input `index` as the live counter; errors as for `tensor`."""
    value = ctx.inputs[index].value
    if not isinstance(value, Counter):
        raise wrong_kind(ctx, ctx.inputs[index], "a counter")
    return value


def timer(ctx: OpContext, index: int) -> Timer:
    """Return input `index` as the live timer; errors as for `tensor`."""
    value = ctx.inputs[index].value
    if not isinstance(value, Timer):
        raise wrong_kind(ctx, ctx.inputs[index], "a timer")
    return value


def wrong_kind(ctx: OpContext, blob: Blob, expected: str) -> BlobKindError | BlobValueError:
    """Return the error for an input that is something else than `expected`, or nothing yet."""
    if blob.kind == "empty":
        return BlobValueError(
            f"{ctx.op.call()}: expected {expected} in {blob.name!r}, but the blob is empty",
            hint="feed it, or run the op that makes it first",
        )
    return BlobKindError(f"{ctx.op.call()}: expected {expected}, found {describe_blob(blob)}")


def describe_blob(blob: Blob) -> str:
    """Return name and kind of a blob, and dtype and shape of a tensor."""
    if blob.kind == "tensor":
        return f"{blob.name!r}: {blob.dtype} {blob.shape}"
    return f"{blob.name!r}: {blob.kind}"
