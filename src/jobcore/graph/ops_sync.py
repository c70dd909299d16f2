"""What tasks and instances that run at once agree by: mutexes, atomic sums and flags, deadlines.

All of it is kept in ordinary blobs, so that it is part of a checkpoint and works in one that was loaded.
"""

from __future__ import annotations

import time
from typing import Any, SupportsFloat

import numpy as np
from numpy.typing import NDArray

from jobcore._fast.cancel import current_flag
from jobcore._fast.frame import is_mutex
from jobcore.errors import BlobKindError, BlobValueError, BuildError
from jobcore.graph.blob_locks import lock_of
from jobcore.graph.kernels import describe_blob, tensor, wrong_kind
from jobcore.graph.op import Op, OpContext
from jobcore.graph.registry import ArgSpec, register_op
from jobcore.statistics import stat_registry
from jobcore.workspace import Blob

__all__ = ["check_mutex"]

_MUTEX = {"mutex": "unlocked"}


@register_op("CreateMutex", num_inputs=0, num_outputs=1)
def create_mutex(ctx: OpContext) -> None:
    """Make a mutex, which the ops that take one hold while they run.

    No input; output: the mutex, a state. Stored in a checkpoint and loaded it is an unlocked mutex.
    """
    ctx.outputs[0].feed(_MUTEX)


def check_mutex(ctx: OpContext, index: int) -> Blob:
    """Return input `index`, which is to be a mutex.

    Raises
    ------
    BlobKindError, BlobValueError
        It is none, or empty.
    """
    blob = ctx.inputs[index]
    if blob.kind != "state" or not is_mutex(blob.value):
        raise wrong_kind(ctx, blob, "a mutex")
    return blob


def _check_fetch_add(op: Op) -> None:
    if op.outputs[0] != op.inputs[1]:
        raise BuildError(
            f"expected the first output to be the input that is added to, {op.inputs[1]!r}, "
            f"found {op.outputs[0]!r}"
        )
    if op.outputs[1] in op.inputs:
        raise BuildError(
            f"expected a blob of its own for the value before, found the input {op.outputs[1]!r}"
        )


def _register_fetch_add(op_type: str, dtype: type[np.integer[Any]]) -> None:
    def kernel(ctx: OpContext) -> None:
        mutex, added = check_mutex(ctx, 0), _integers(ctx, 2, dtype)
        if dtype is np.int64 and _integers(ctx, 1, dtype).shape == added.shape == ():
            # One step beside a native kernel, which adds without a lock.
            ctx.outputs[1].feed(np.int64(ctx.inputs[1].fetch_add(int(added))))
            return
        with lock_of(mutex):
            before = _integers(ctx, 1, dtype)
            with np.errstate(over="ignore"):
                after = before + added
            if after.shape != before.shape:
                raise BlobValueError(
                    f"{ctx.op.call()}: expected something to add of shape {before.shape}, found {added.shape}"
                )
            # What was there is read before it goes: the view of it does not change.
            ctx.outputs[0].feed(after)
        ctx.outputs[1].feed(before)

    kernel.__doc__ = (
        "Add to a tensor and get the value before, as one step.\n\n"
        f"Inputs: a mutex, the tensor, {np.dtype(dtype)}, and what to add; outputs: the tensor, the same blob as the "
        "second input, and its value before. All ops with this mutex wait for each other. Sums wrap around."
    )
    register_op(op_type, num_inputs=3, num_outputs=2, inplace=True, check=_check_fetch_add)(kernel)


def _integers(ctx: OpContext, index: int, dtype: type[np.integer[Any]]) -> NDArray[Any]:
    array = tensor(ctx, index)
    if array.dtype != dtype:
        raise BlobKindError(
            f"{ctx.op.call()}: expected a tensor of {np.dtype(dtype)}, found {describe_blob(ctx.inputs[index])}"
        )
    return array


_register_fetch_add("AtomicFetchAdd", np.int32)
_register_fetch_add("AtomicFetchAdd64", np.int64)


# ------------------------------------------------------------------------------------------------------------ flags


@register_op("CreateAtomicBool", num_inputs=0, num_outputs=1)
def create_atomic_bool(ctx: OpContext) -> None:
    """Make a flag that is down, or take the one that the blob is down.

    No input; output: the flag, a tensor of bool, 0-d, False. It can be read like any other, and stop a loop or a job.
    """
    ctx.outputs[0].feed(np.False_)


def _flag(ctx: OpContext, index: int) -> bool:
    array = tensor(ctx, index)
    if array.dtype != np.bool_ or array.size != 1:
        raise BlobKindError(
            f"{ctx.op.call()}: expected a single boolean, found {describe_blob(ctx.inputs[index])}"
        )
    return bool(array.reshape(())[()])


@register_op("ConditionalSetAtomicBool", num_inputs=2, num_outputs=0)
def conditional_set_atomic_bool(ctx: OpContext) -> None:
    """Put a flag up if a condition is true; it is never taken down, so that no two instances undo each other.

    Inputs: the flag, and the condition, a single boolean; no output.
    """
    if _flag(ctx, 1):
        _flag(ctx, 0)
        ctx.inputs[0].feed(np.True_)


@register_op("CheckAtomicBool", num_inputs=1, num_outputs=1)
def check_atomic_bool(ctx: OpContext) -> None:
    """Read a flag.

    Input: the flag; output: whether it is up, bool, 0-d.
    """
    ctx.outputs[0].feed(np.bool_(_flag(ctx, 0)))


# ------------------------------------------------------------------------------------------------------- iterations


def _check_iter(op: Op) -> None:
    if op.inputs and op.outputs[0] != op.inputs[-1]:
        raise BuildError(
            f"expected {op.inputs[-1]!r} as output, the same as the input, found {op.outputs[0]!r}"
        )


def _next_iteration(ctx: OpContext) -> None:
    output = ctx.outputs[0]
    if output.kind == "empty":
        output.feed(np.int64(1))
        return
    if output.kind != "tensor" or output.dtype != np.int64 or output.view().size != 1:
        raise BlobKindError(f"{ctx.op.call()}: expected a single int64, found {describe_blob(output)}")
    with np.errstate(over="ignore"):
        output.feed(output.view() + np.int64(1))


@register_op("Iter", num_inputs=(0, 1), num_outputs=1, inplace=True, check=_check_iter)
def iteration(ctx: OpContext) -> None:
    """Count runs: add 1 to an int64, from 0 where the blob is empty, so that the first run gives 1.

    Input: the blob, which may be left out; output: the same blob, int64. One that was loaded goes on from its value.
    """
    _next_iteration(ctx)


@register_op("AtomicIter", num_inputs=2, num_outputs=1, inplace=True, check=_check_iter)
def atomic_iter(ctx: OpContext) -> None:
    """Count runs of several tasks and instances together; see Iter.

    Inputs: a mutex, and the blob; output: the same blob, int64. Each run also adds 1 to the statistic
    ``atomic_iter/stats/<blob>/num_iter`` of the process.
    """
    with lock_of(check_mutex(ctx, 0)):
        _next_iteration(ctx)
    stat_registry().add(f"atomic_iter/stats/{ctx.outputs[0].name}/num_iter")


# ------------------------------------------------------------------------------------------------------------- time


def _seconds(value: SupportsFloat) -> float:
    number = float(value)
    if not 0 <= number < float("inf"):
        raise ValueError("it is negative, infinite or no number")
    return number


_MAX_SECONDS = 4e9  # fits 64 bits of nanoseconds


@register_op(
    "CreateDeadline",
    num_inputs=0,
    num_outputs=1,
    args={"seconds": ArgSpec(_seconds, "seconds, at least 0", doc="How far away it is.")},
)
def create_deadline(ctx: OpContext) -> None:
    """Fix a time from now on.

    No input; output: the time in nanoseconds of the machine's steady clock, int64, 0-d, which is in no checkpoint.
    """
    in_ns = int(min(ctx.args["seconds"], _MAX_SECONDS) * 1e9)
    ctx.outputs[0].feed(np.int64(time.monotonic_ns() + in_ns), transient=True)


@register_op("DeadlinePassed", num_inputs=1, num_outputs=1)
def deadline_passed(ctx: OpContext) -> None:
    """Tell whether a time is over.

    Input: what CreateDeadline made; output: bool, 0-d.
    """
    deadline = int(_integers(ctx, 0, np.int64).reshape(()))
    ctx.outputs[0].feed(np.bool_(time.monotonic_ns() >= deadline))


_SLICE = 0.02


@register_op(
    "Sleep",
    num_inputs=0,
    num_outputs=0,
    args={"seconds": ArgSpec(_seconds, "seconds, at least 0", doc="How long.")},
)
def sleep(ctx: OpContext) -> None:
    """Wait for ``seconds``, or until the task group is cancelled.

    No input, no output.
    """
    flag = current_flag()
    end = time.monotonic() + ctx.args["seconds"]
    while (left := end - time.monotonic()) > 0:
        if flag is None:
            time.sleep(left)
        else:
            # Short enough that a cancelled group does not wait for it.
            time.sleep(min(left, _SLICE))
            flag.check()
