"""Queues between tasks: of records (any blobs) and of rows (tensors, put in and taken out in batches of any size).

A queue is a blob of a kind of its own, which is transient: it is shared by whoever reads that blob, and never
checkpointed. An op that waits ends when its task group is cancelled. What goes through is in the statistics of the
process, as ``<queue>/queue_dequeued_records`` and so on; see `QueueTotals.read`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import SupportsFloat, TypeVar
from weakref import WeakKeyDictionary

import numpy as np

from jobcore._fast.cancel import current_flag
from jobcore._fast.queue import BlobQueue
from jobcore._fast.rebatch import RebatchingQueue
from jobcore.errors import BlobValueError, BuildError, ClosedError
from jobcore.graph.args import boolean, integer, optional, sequence, text
from jobcore.graph.kernels import wrong_kind
from jobcore.graph.op import Op, OpContext
from jobcore.graph.registry import REQUIRED, ArgSpec, register_op
from jobcore.statistics import stat_registry
from jobcore.workspace import Blob, Workspace

__all__: list[str] = []

_Queue = TypeVar("_Queue", BlobQueue, RebatchingQueue)

_CAPACITY = integer(minimum=1, default=1, doc="How many it holds before writers wait.")
_NUM_BLOBS = integer(minimum=1, default=1, doc="How many values make one record or row.")


def _how_to_move(value: object) -> object:
    if isinstance(value, str):
        if value != "large":
            raise ValueError("it is a string, but not 'large'")
        return str(value)
    return boolean().convert(value)


_MOVE = ArgSpec(
    _how_to_move,
    "True, False or 'large'",
    False,
    "Hand the values over where that is possible, which empties the input blobs; no copy. With 'large', tensors of at "
    "most 16 KiB are copied all the same, which native programs do without the interpreter.",
)
_UNIQUE = boolean(default=False, doc="Fail where the blob has a value already.")


def _seconds(value: SupportsFloat) -> float:
    number = float(value)
    if not number >= 0:
        raise ValueError("it is negative or no number")
    return number


_TIMEOUT = ArgSpec(_seconds, "seconds, at least 0", 0.0, "How long to wait at most; 0 is no limit.")
_WEIGHT = ArgSpec(_seconds, "a number of at least 0", REQUIRED)


def _queue_of(ctx: OpContext, index: int, kind: type[_Queue], expected: str) -> _Queue:
    value = ctx.inputs[index].value
    if not isinstance(value, kind):
        raise wrong_kind(ctx, ctx.inputs[index], expected)
    return value


def _blobs_queue(ctx: OpContext, index: int = 0) -> BlobQueue:
    return _queue_of(ctx, index, BlobQueue, "a queue of blobs")


def _rebatching_queue(ctx: OpContext) -> RebatchingQueue:
    return _queue_of(ctx, 0, RebatchingQueue, "a rebatching queue")


def _any_queue(ctx: OpContext) -> BlobQueue | RebatchingQueue:
    value = ctx.inputs[0].value
    if not isinstance(value, (BlobQueue, RebatchingQueue)):
        raise wrong_kind(ctx, ctx.inputs[0], "a queue")
    return value


def _install(ctx: OpContext, queue: BlobQueue | RebatchingQueue, unique: bool) -> None:
    output = ctx.outputs[0]
    before = output.value
    if unique and output.kind != "empty":
        raise BlobValueError(
            f"{ctx.op.call()}: expected an empty blob {output.name!r}, found a {output.kind}",
            hint="give the queue a name of its own, or leave enforce_unique_name out",
        )
    output.feed(queue, transient=True)
    stat_registry().watch(output.name, queue.totals)
    if isinstance(before, (BlobQueue, RebatchingQueue)):
        # Nobody finds it any more; who still waits at it would wait for ever.
        before.close()


def _same_blobs(op: Op, outputs: Sequence[str]) -> None:
    if outputs and tuple(outputs) != op.inputs[1:]:
        raise BuildError(
            f"expected as outputs the blobs that are put in, {', '.join(op.inputs[1:])}, or none of them, "
            f"found {', '.join(outputs)}"
        )


def _distinct_status(op: Op) -> None:
    if op.outputs[-1] in op.inputs:
        raise BuildError(f"expected a blob of its own as status, found the input {op.outputs[-1]!r}")


# ------------------------------------------------------------------------------------------------ queues of blobs


@register_op(
    "CreateBlobsQueue",
    num_inputs=0,
    num_outputs=1,
    args={
        "capacity": _CAPACITY,
        "num_blobs": _NUM_BLOBS,
        "enforce_unique_name": _UNIQUE,
        "field_names": optional(sequence(text(), doc="A name for each value, for statistics and errors.")),
        "num_writers": integer(minimum=0, default=0, doc="Writers that will each run FinishQueueWriter."),
    },
)
def create_blobs_queue(ctx: OpContext) -> None:
    """Make a queue of records of ``num_blobs`` values.

    No input; output: the queue. Each run makes a new one; the one that was in the blob before is closed.
    """
    fields = ctx.args["field_names"]
    queue = BlobQueue(
        ctx.args["capacity"], ctx.args["num_blobs"], fields, ctx.outputs[0].name, Workspace._classify
    )
    if ctx.args["num_writers"]:
        queue.register_writer(ctx.args["num_writers"])
    _install(ctx, queue, ctx.args["enforce_unique_name"])


def _check_enqueue(op: Op) -> None:
    _same_blobs(op, op.outputs)


@register_op(
    "EnqueueBlobs",
    num_inputs=(2, None),
    num_outputs=(0, None),
    args={"move": _MOVE},
    default_outputs=0,
    inplace=True,
    check=_check_enqueue,
)
def enqueue_blobs(ctx: OpContext) -> None:
    """Put a record into a queue, waiting for room.

    Inputs: the queue, then the blobs, of any kind, which are copied; outputs: none, or these blobs again. A
    closed queue is a ClosedError.
    """
    _blobs_queue(ctx).put(ctx.inputs[1:], move=ctx.args["move"], flag=current_flag())


def _check_safe_enqueue(op: Op) -> None:
    _same_blobs(op, op.outputs[:-1])
    _distinct_status(op)


@register_op(
    "SafeEnqueueBlobs",
    num_inputs=(2, None),
    num_outputs=(1, None),
    args={"move": _MOVE},
    inplace=True,
    check=_check_safe_enqueue,
)
def safe_enqueue_blobs(ctx: OpContext) -> None:
    """Put a record into a queue, waiting for room, and tell whether the queue is closed.

    Inputs: the queue, then the blobs, as for EnqueueBlobs; outputs: these blobs again, which may be left
    out, and the status: True when the queue is closed and nothing was put in; bool, 0-d.
    """
    queue = _blobs_queue(ctx)
    stopped = False
    try:
        queue.put(ctx.inputs[1:], move=ctx.args["move"], flag=current_flag())
    except ClosedError:
        stopped = True
    ctx.outputs[-1].feed(stopped)


@register_op("DequeueBlobs", num_inputs=1, num_outputs=(1, None), args={"timeout_secs": _TIMEOUT})
def dequeue_blobs(ctx: OpContext) -> None:
    """Take a record out of a queue, waiting for one.

    Input: the queue; outputs: the values. A queue that is closed and empty is a ClosedError, and nothing
    within ``timeout_secs`` (0: no limit) a WaitTimeoutError.
    """
    queue = _blobs_queue(ctx)
    if not queue.get_into(ctx.outputs, ctx.args["timeout_secs"] or None, flag=current_flag()):
        raise ClosedError(
            f"{ctx.op.call()}: expected a record, found queue {queue.name!r} closed and empty",
            hint="SafeDequeueBlobs tells the end by a status and does not fail",
        )


@register_op(
    "SafeDequeueBlobs",
    num_inputs=1,
    num_outputs=(2, None),
    args={"num_records": integer(minimum=1, default=1, doc="How many to take out and join along axis 0.")},
    default_outputs=2,
)
def safe_dequeue_blobs(ctx: OpContext) -> None:
    """Take records out of a queue, waiting for them, and tell whether it has come to its end.

    Input: the queue; outputs: the values, and the status: True when the queue is closed and nothing was
    left, and the other outputs are as they were; bool, 0-d. With ``num_records`` more than 1, that many
    records, or those that are left, are joined along axis 0; all must be tensors of one dimension or more.
    """
    queue = _blobs_queue(ctx)
    got = queue.get_into(ctx.outputs[:-1], num_records=ctx.args["num_records"], flag=current_flag())
    ctx.outputs[-1].feed(not got)


@register_op("CloseBlobsQueue", num_inputs=1, num_outputs=0)
def close_blobs_queue(ctx: OpContext) -> None:
    """Close a queue at once, whoever still writes to it; it may be closed already.

    Input: the queue; no output. Nothing is put in any more, waiting writers included; what is in it still
    comes out.
    """
    _blobs_queue(ctx).close()


@register_op(
    "RegisterQueueWriter",
    num_inputs=1,
    num_outputs=0,
    args={"count": integer(minimum=1, default=1, doc="How many.")},
)
def register_queue_writer(ctx: OpContext) -> None:
    """Count writers of a queue, which closes when the last of them has run FinishQueueWriter.

    Input: a queue of blobs or of rows; no output. Register all of them before the first can be done.
    """
    _any_queue(ctx).register_writer(ctx.args["count"])


@register_op("FinishQueueWriter", num_inputs=1, num_outputs=0)
def finish_queue_writer(ctx: OpContext) -> None:
    """Say that a registered writer of a queue is done; the last one closes the queue.

    Input: a queue of blobs or of rows; no output. More of them than writers is a ContextError.
    """
    _any_queue(ctx).writer_done()


# --------------------------------------------------------------------------------------------- a choice of queues


def _check_weighted(op: Op) -> None:
    weights = op.args["weights"]
    if weights is not None:
        if len(weights) != len(op.inputs):
            raise BuildError(f"expected {len(op.inputs)} weights, one for each queue, found {len(weights)}")
        if not 0 < sum(weights) < float("inf"):
            raise BuildError(f"expected finite weights, one of them above 0, found {list(weights)}")
    index = op.args["table_idx_blob"]
    if index >= 0 and not (index < len(op.outputs) - 1 and len(op.outputs) >= 3):
        raise BuildError(
            f"expected table_idx_blob to be one of the outputs 0 to {len(op.outputs) - 2} beside the values, "
            f"found {index}"
        )


# An op draws from a generator of its own, so that a seed gives one order whatever else runs.
_generators: WeakKeyDictionary[Op, np.random.Generator] = WeakKeyDictionary()


@register_op(
    "WeightedSampleDequeueBlobs",
    num_inputs=(1, None),
    num_outputs=(2, None),
    args={
        "weights": optional(sequence(_WEIGHT, doc="Of each queue, at least 0; by default all alike.")),
        "table_idx_blob": integer(
            minimum=-1, default=-1, doc="The output that tells which queue it was; -1: none does."
        ),
        "seed": optional(integer(minimum=0, doc="Of the choice; by default each process chooses anew.")),
    },
    default_outputs=2,
    check=_check_weighted,
)
def weighted_sample_dequeue_blobs(ctx: OpContext) -> None:
    """Take a record out of one of several queues, chosen at random by ``weights`` each time.

    Inputs: the queues; outputs: the values, and the status: True when the chosen queue is closed and
    empty, and the other outputs are as they were; bool, 0-d. ``table_idx_blob`` is the place among the
    outputs of one more: the number of the chosen queue, int64, 0-d.
    """
    generator = _generators.get(ctx.op)
    if generator is None:
        generator = _generators.setdefault(ctx.op, np.random.default_rng(ctx.args["seed"]))
    weights = np.array(ctx.args["weights"] or [1.0] * len(ctx.inputs))
    chosen = int(generator.choice(len(weights), p=weights / weights.sum()))
    index: int = ctx.args["table_idx_blob"]
    values: list[Blob] = [blob for i, blob in enumerate(ctx.outputs[:-1]) if i != index]
    got = _blobs_queue(ctx, chosen).get_into(values, flag=current_flag())
    if got and index >= 0:
        ctx.outputs[index].feed(np.int64(chosen))
    ctx.outputs[-1].feed(not got)


# ------------------------------------------------------------------------------------------------- queues of rows


@register_op(
    "CreateRebatchingQueue",
    num_inputs=0,
    num_outputs=1,
    args={"capacity": _CAPACITY, "num_blobs": _NUM_BLOBS},
)
def create_rebatching_queue(ctx: OpContext) -> None:
    """Make a queue of rows of ``num_blobs`` tensors.

    No input; output: the queue. Each run makes a new one; the one that was in the blob before is closed.
    """
    queue = RebatchingQueue(ctx.args["capacity"], ctx.args["num_blobs"], ctx.outputs[0].name)
    _install(ctx, queue, unique=False)


@register_op(
    "EnqueueRebatchingQueue",
    num_inputs=(2, None),
    num_outputs=0,
    args={"enqueue_batch": boolean(default=False, doc="Cut the tensors into rows along axis 0.")},
)
def enqueue_rebatching_queue(ctx: OpContext) -> None:
    """Put a row, or with ``enqueue_batch`` each row of a batch, into a queue of rows, waiting for room.

    Inputs: the queue, then the tensors, which are copied; no output. All rows of a queue are alike in dtype
    and shape. A closed queue is a ClosedError, which says how many rows had gone in.
    """
    _rebatching_queue(ctx).enqueue(ctx.inputs[1:], batch=ctx.args["enqueue_batch"], flag=current_flag())


@register_op(
    "DequeueRebatchingQueue",
    num_inputs=1,
    num_outputs=(1, None),
    args={"num_elements": integer(minimum=1, default=1, doc="How many rows.")},
)
def dequeue_rebatching_queue(ctx: OpContext) -> None:
    """Take ``num_elements`` rows out of a queue of rows, waiting until there are as many.

    Input: the queue; outputs: the tensors, stacked along a new axis 0. From a closed queue come the rows
    that are left, which may be fewer; none is a ClosedError.
    """
    queue = _rebatching_queue(ctx)
    if not queue.dequeue_into(ctx.outputs, ctx.args["num_elements"], flag=current_flag()):
        raise ClosedError(f"{ctx.op.call()}: expected a row, found queue {queue.name!r} closed and empty")


@register_op("CloseRebatchingQueue", num_inputs=1, num_outputs=0)
def close_rebatching_queue(ctx: OpContext) -> None:
    """Close a queue of rows at once; it may be closed already.

    Input: the queue; no output. No row goes in any more; those that are in it still come out.
    """
    _rebatching_queue(ctx).close()
