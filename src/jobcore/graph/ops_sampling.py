"""Uniform samples of tensors and of rows that go by, in one pass (algorithm R; Vitter, 1985)."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobcore.errors import BlobKindError, BlobValueError, BuildError
from jobcore.graph.args import integer, optional
from jobcore.graph.blob_locks import lock_of, locked
from jobcore.graph.kernels import describe_blob, tensor, wrong_kind
from jobcore.graph.op import Op, OpContext
from jobcore.graph.ops_sync import check_mutex
from jobcore.graph.registry import register_op
from jobcore.workspace import Blob

__all__: list[str] = []

_SEED = optional(integer(minimum=0, doc="Of the choice; by default each run chooses anew."))
_COUNT = integer(minimum=1, doc="How large the sample is at most.")


def _chosen(seed: int | None, seen: int, count: int, size: int) -> NDArray[np.int64]:
    """Return for items `seen` to ``seen + count - 1`` their place in a sample of `size`; of `size` or more: none."""
    generator = np.random.default_rng(None if seed is None else [seed, seen])
    places = generator.integers(0, np.arange(seen + 1, seen + count + 1), dtype=np.int64)
    filling = np.arange(seen, min(seen + count, size))
    places[: len(filling)] = filling
    return places


@register_op("CreateTensorVector", num_inputs=0, num_outputs=1)
def create_tensor_vector(ctx: OpContext) -> None:
    """Make an empty list of tensors.

    No input; output: the list, a state, which also knows how many tensors it was offered.
    """
    ctx.outputs[0].feed({"tensors": [], "seen": 0})


def _vector(ctx: OpContext, blob: Blob) -> dict[str, Any]:
    value = blob.value
    if blob.kind != "state" or not isinstance(value, dict) or set(value) != {"tensors", "seen"}:
        raise wrong_kind(ctx, blob, "a list of tensors")
    return value


def _check_collect(op: Op) -> None:
    count, odd = divmod(len(op.inputs), 2)
    if odd:
        raise BuildError(f"expected lists, and a tensor for each, found {len(op.inputs)} inputs")
    if op.outputs and op.outputs != op.inputs[:count]:
        raise BuildError(f"expected the lists as outputs, or none, found {', '.join(op.outputs)}")


@register_op(
    "CollectTensor",
    num_inputs=(2, None),
    num_outputs=(0, None),
    args={"num_to_collect": _COUNT, "seed": _SEED},
    default_outputs=0,
    inplace=True,
    check=_check_collect,
)
def collect_tensor(ctx: OpContext) -> None:
    """Offer tensors to lists, which keep a uniform sample of what they were offered.

    Inputs: the lists, then a tensor for each; outputs: the lists again, or none. All lists of one op keep, and forget,
    the tensors of the same runs.
    """
    count = len(ctx.inputs) // 2
    size = ctx.args["num_to_collect"]
    tensors = [np.array(tensor(ctx, count + i)) for i in range(count)]
    with locked(*ctx.inputs[:count]):
        vectors = [_vector(ctx, blob) for blob in ctx.inputs[:count]]
        seen = vectors[0]["seen"]
        if any(vector["seen"] != seen for vector in vectors):
            raise BlobValueError(
                f"{ctx.op.call()}: expected lists that were offered as many tensors, "
                f"found {[vector['seen'] for vector in vectors]}"
            )
        place = int(_chosen(ctx.args["seed"], seen, 1, size)[0])
        for blob, vector, new in zip(ctx.inputs[:count], vectors, tensors, strict=True):
            kept = list(vector["tensors"])
            if place < size:
                kept[place : place + 1] = [new]
            blob.feed({"tensors": kept, "seen": seen + 1})


@register_op("TensorVectorSize", num_inputs=1, num_outputs=1)
def tensor_vector_size(ctx: OpContext) -> None:
    """Tell how many tensors a list has.

    Input: the list; output: int64, 0-d.
    """
    ctx.outputs[0].feed(np.int64(len(_vector(ctx, ctx.inputs[0])["tensors"])))


@register_op("ConcatTensorVector", num_inputs=1, num_outputs=1)
def concat_tensor_vector(ctx: OpContext) -> None:
    """Join the tensors of a list along axis 0.

    Input: the list, with one tensor at least, all of one dimension or more; output: the tensor.
    """
    tensors = _vector(ctx, ctx.inputs[0])["tensors"]
    try:
        joined = np.concatenate(tensors)
    except (TypeError, ValueError) as error:
        raise BlobValueError(f"{ctx.op.call()}: {error}; found {len(tensors)} tensors") from error
    ctx.outputs[0].feed(joined)


def _check_reservoir(op: Op) -> None:
    if op.outputs != op.inputs[:2]:
        raise BuildError(
            f"expected the first two inputs as outputs, {', '.join(op.inputs[:2])}, found {', '.join(op.outputs)}"
        )


@register_op(
    "ReservoirSampling",
    num_inputs=4,
    num_outputs=2,
    args={"num_to_collect": _COUNT, "seed": _SEED},
    inplace=True,
    check=_check_reservoir,
)
def reservoir_sampling(ctx: OpContext) -> None:
    """Offer rows to a sample, which keeps a uniform choice of all that it was offered.

    Inputs: the sample, a tensor, empty at first; how many rows it was offered, one int64 (empty is 0); the new rows, a
    tensor; and a mutex. Outputs: the first two again.
    """
    size = ctx.args["num_to_collect"]
    rows = tensor(ctx, 2)
    if rows.ndim == 0:
        raise BlobKindError(f"{ctx.op.call()}: expected rows, found {describe_blob(ctx.inputs[2])}")
    sample, visited = ctx.inputs[0], ctx.inputs[1]
    with lock_of(check_mutex(ctx, 3)):
        seen = 0 if visited.kind == "empty" else int(tensor(ctx, 1).reshape(()))
        old = rows[:0] if sample.kind == "empty" else tensor(ctx, 0)
        if not len(old):
            old = rows[:0]
        if len(old) != min(seen, size) or old.shape[1:] != rows.shape[1:] or old.dtype != rows.dtype:
            raise BlobValueError(
                f"{ctx.op.call()}: expected a sample of {min(seen, size)} rows like {describe_blob(ctx.inputs[2])}, "
                f"found {describe_blob(sample)}"
            )
        places = _chosen(ctx.args["seed"], seen, len(rows), size)
        kept = np.empty((min(seen + len(rows), size), *rows.shape[1:]), rows.dtype)
        kept[: len(old)] = old
        taken = np.flatnonzero(places < size)
        # One after another: of two rows for one place the later one stays.
        for row in taken:
            kept[places[row]] = rows[row]
        sample.feed(kept)
        visited.feed(np.int64(seen + len(rows)))
