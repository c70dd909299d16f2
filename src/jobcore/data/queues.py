"""Queues of records between the tasks of a group."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from jobcore._fast.counter import Counter
from jobcore.data.reader import Part, Pipe, Reader, Writer
from jobcore.data.schema import as_field
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, ExecutionStep, NameRoot, Net, execution_step, scoped
from jobcore.graph.blobref import BlobsLike, as_references
from jobcore.graph.control import LOCAL_SETUP, positive_count
from jobcore.graph.names import NameAllocator, check_name
from jobcore.workspace import Blob

__all__ = ["Queue", "QueueReader", "QueueWrapper", "QueueWriter", "close_queue", "dequeue", "enqueue"]


def enqueue(
    net: Net,
    queue: str,
    data_blobs: BlobsLike,
    status: str | None = None,
    *,
    move: bool | Literal["large"] = False,
) -> tuple[list[BlobReference], BlobReference]:
    """Add an op that puts a record into a queue, waiting for room.

    Parameters
    ----------
    net
        Where it goes.
    queue
        The queue's blob.
    data_blobs
        The values of the record; they are copied.
    status
        The blob that tells that the queue was closed and nothing was put in, a boolean scalar; automatic by default.
    move
        Hand the values over, which empties their blobs; with ``"large"``, only what is no tensor of at most 16 KiB. A
        blob that is named twice is copied.

    Returns
    -------
    list of BlobReference
        The values.
    BlobReference
        The status.
    """
    blobs = as_references(data_blobs)
    (told,) = [net.next_blob("enqueue_status")] if status is None else as_references([status])
    net.SafeEnqueueBlobs([queue, *blobs], [told], move=move if len(set(blobs)) == len(blobs) else False)
    return blobs, told


def dequeue(
    net: Net,
    queue: str,
    num_blobs: int,
    status: str | None = None,
    field_names: Sequence[str] | None = None,
    num_records: int = 1,
) -> tuple[list[BlobReference], BlobReference]:
    """Add an op that takes a record out of a queue, waiting for one.

    Parameters
    ----------
    net
        Where it goes.
    queue
        The queue's blob.
    num_blobs
        How many values a record has.
    status
        The blob that tells that the queue is closed and empty, a boolean scalar; automatic by default.
    field_names
        What to name the values' blobs after; by default their numbers.
    num_records
        Join that many records along axis 0, or those that are left.

    Returns
    -------
    list of BlobReference
        The values.
    BlobReference
        The status.

    Raises
    ------
    BuildError
        The names are of another number.
    """
    names = [f"dequeue_{i}" for i in range(num_blobs)] if field_names is None else list(field_names)
    if len(names) != num_blobs:
        raise BuildError(f"expected {num_blobs} names of values, found {names}")
    (told,) = [net.next_blob("dequeue_status")] if status is None else as_references([status])
    blobs = [net.next_blob(name or "column") for name in names]
    net.SafeDequeueBlobs([queue], [*blobs, told], num_records=num_records)
    return blobs, told


def close_queue(step: ExecutionStep | Net, *queues: str) -> ExecutionStep:
    """Return a step that does `step` and then closes queues, whoever still writes to them."""
    closing = Net("close_queue")
    for queue in queues:
        closing.CloseBlobsQueue([queue], [])
    return execution_step(f"{step.name}_and_close", [step, closing])


class QueueReader(Reader):
    """Takes records out of a queue; made by `Queue.reader` and `QueueWrapper.reader`."""

    def __init__(self, wrapper: QueueWrapper, num_dequeue_records: int) -> None:
        super().__init__()
        self._wrapper = wrapper
        self._num_records = num_dequeue_records

    def schema(self) -> Any:
        """Return the form of the records.

        Raises
        ------
        BuildError
            It is not known: no schema was given, and no writer was set up before.
        """
        schema = self._wrapper.schema()
        if schema is None:
            raise BuildError(
                f"expected a schema of {self._wrapper!r}, found none yet",
                hint="build what writes into the queue first, or give the queue a schema",
            )
        return schema

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Count the reader; when the last one is done, the queue closes, for nobody would take anything out."""
        self._wrapper._new_reader(init_net)
        self._wrapper._reader_done(finish_net)

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the op that takes a record out, or several, joined."""
        names = self.schema().field_names()
        blobs, status = dequeue(
            net, self._wrapper.queue, len(names), field_names=names, num_records=self._num_records
        )
        return status, blobs

    def __repr__(self) -> str:
        return f"QueueReader({self._wrapper!r})"


class QueueWriter(Writer):
    """Puts records into a queue; made by `Queue.writer` and `QueueWrapper.writer`."""

    def __init__(self, wrapper: QueueWrapper) -> None:
        self._wrapper = wrapper
        self._schema = wrapper.schema()
        # Set by a pipe that knows that nobody looks at the blobs again.
        self.may_move = False

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Count the writer; when the last one is done, the queue closes."""
        self._wrapper._new_writer(self._schema, init_net)
        self._wrapper._writer_done(finish_net)

    def write(self, net: Net, fields: list[BlobReference]) -> None:
        """Add the op that puts a record in; a queue that is closed fails the task."""
        net.EnqueueBlobs([self._wrapper.queue, *fields], [], move=self._moves(fields))

    def write_ex(
        self,
        fields: list[BlobReference],
        init_net: Net,  # noqa: ARG002 - the protocol of writers
        finish_net: Net,  # noqa: ARG002 - the protocol of writers
        stop_blob: BlobReference | None = None,
    ) -> list[Part]:
        """Make the net that puts a record in; a queue that is closed sets `stop_blob`, or without one fails."""
        net = Net("enqueue")
        if stop_blob is None:
            self.write(net, fields)
        else:
            enqueue(net, self._wrapper.queue, fields, stop_blob, move=self._moves(fields))
        return [net]

    def _columns(self, record: Any) -> list[BlobReference]:
        columns = super()._columns(record)
        # What is set up already has been counted; the form of the records came later.
        self._wrapper._fix_schema(self._schema)
        return columns

    def _moves(self, fields: list[BlobReference]) -> Literal["large", False]:
        # Small tensors are copied, by native code, in less time than it takes to hand them over in Python.
        return "large" if self.may_move and len(set(fields)) == len(fields) else False

    def __repr__(self) -> str:
        return f"QueueWriter({self._wrapper!r})"


class QueueWrapper(Pipe):
    """A queue that is there already as a `Pipe`.

    Parameters
    ----------
    handler
        The queue's blob.
    schema
        Form of the records; by default that of the first writer.
    num_dequeue_records
        How many records a read joins along axis 0.

    Notes
    -----
    It neither makes nor closes the queue: that is for whoever made it, with ``CloseBlobsQueue``, or by counting
    writers with ``RegisterQueueWriter`` and ``FinishQueueWriter``.
    """

    def __init__(self, handler: str, schema: Any = None, num_dequeue_records: int = 1) -> None:
        super().__init__(None if schema is None else as_field(schema).clone_schema())
        self._queue: BlobReference | None = as_references([handler])[0]
        self._num_records = positive_count(num_dequeue_records, "num_dequeue_records")

    @property
    def queue(self) -> BlobReference:
        """The queue's blob."""
        assert self._queue is not None
        return self._queue

    def reader(self) -> QueueReader:
        """Return a new reader."""
        return QueueReader(self, self._num_records)

    def writer(self) -> QueueWriter:
        """Return a new writer."""
        return QueueWriter(self)

    def _writer_done(self, finish_net: Net) -> None:
        """Add what a writer does at its end."""

    def _reader_done(self, finish_net: Net) -> None:
        """Add what a reader does at its end."""

    def __repr__(self) -> str:
        return f"QueueWrapper({str(self.queue)!r})"


class Queue(QueueWrapper):
    """A queue of records between tasks of one group: it is made anew, and empty, in each run of the group.

    It closes when the last of its writers is done, and then its readers get what is left. It closes too when the last
    of its readers is done: what is in it is dropped, and its writers stop.

    Parameters
    ----------
    capacity
        How many records it holds before writers wait.
    schema
        Form of the records; by default that of the first writer.
    name
        Of its blob; numbered where a queue of the same program has it already.
    num_dequeue_records
        How many records a read joins along axis 0, or what is left of them.

    Raises
    ------
    BuildError
        A number is no integer of at least 1.

    Notes
    -----
    Its blob is made where the group runs, before all tasks, and is in no checkpoint: a run of a group ends with all
    records handed on.
    """

    def __init__(
        self, capacity: int, schema: Any = None, name: str = "queue", num_dequeue_records: int = 1
    ) -> None:
        super().__init__("queue", schema, num_dequeue_records)
        self._obj_key = LOCAL_SETUP
        self._queue = None
        # The group, by its names, and the node that have it.
        self._made: tuple[NameAllocator, str] | None = None
        self.capacity = positive_count(capacity, "capacity")
        self.name = check_name(name, "queue name")

    @property
    def queue(self) -> BlobReference:
        """The queue's blob; it gets its name when it is first asked for, or used, in a group."""
        if self._queue is None:
            name, root = scoped(self.name), NameRoot.deciding()
            self._queue = BlobReference(name if root is None else root.names.unique(name, kind="queue"))
        return self._queue

    @property
    def _readers(self) -> BlobReference:
        return BlobReference(f"{self.queue}_readers")

    def setup(self, net: Net) -> None:
        """Add the op that makes the queue, once per node and run of the group."""
        names = self._schema.field_names() if self._schema is not None else None
        if not self._num_writers or not self._num_readers:
            raise BuildError(
                f"expected both ends of {self!r} in use, found {self._num_readers} readers and "
                f"{self._num_writers} writers: the others would wait for ever",
                hint="pipe into it and out of it in one task group; a processor that returns no record ends a pipe",
            )
        root = NameRoot.deciding()
        # The same again where the compiling of the group did not come to its end before.
        place = (NameAllocator() if root is None else root.names, net.name.rpartition("/")[0])
        if self._made is not None and (self._made[0] is not place[0] or self._made[1] != place[1]):
            raise BuildError(
                f"expected {self!r} in one task group and on one node, found it in another one",
                hint="make a queue for each: a record cannot pass from one to the other",
            )
        self._made = place
        net.CreateBlobsQueue(
            [],
            self.queue,
            capacity=self.capacity,
            num_blobs=1 if names is None else len(names),
            field_names=names,
            num_writers=self._num_writers,
        )
        net.Python(_counting(self._num_readers))([], self._readers)

    def _writer_done(self, finish_net: Net) -> None:
        finish_net.FinishQueueWriter([self.queue], [])

    def _reader_done(self, finish_net: Net) -> None:
        finish_net.Python(_reader_done)([self.queue, self._readers], [])

    def __repr__(self) -> str:
        return f"Queue({self.name!r}, capacity={self.capacity})"


def _counting(readers: int) -> Any:
    def count_readers(inputs: list[Blob], outputs: list[Blob]) -> None:  # noqa: ARG001 - the protocol of Python ops
        outputs[0].feed(Counter(readers - 1), transient=True)

    return count_readers


def _reader_done(inputs: list[Blob], outputs: list[Blob]) -> None:  # noqa: ARG001 - the protocol of Python ops
    queue, readers = inputs
    if readers.value.count_down():
        queue.value.close()
