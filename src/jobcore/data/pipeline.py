"""Pipelines: tasks that read records, change them, and write them, joined by queues."""

from __future__ import annotations

from typing import Any

from jobcore.data.moves import only_written
from jobcore.data.processing import ProcessingReader
from jobcore.data.processors import processor_name
from jobcore.data.queues import Queue, QueueWriter
from jobcore.data.reader import Reader, Writer
from jobcore.data.schema import Field
from jobcore.errors import BuildError
from jobcore.graph import ExecutionStep, Net, NetBuilder, SetupNets, execution_step
from jobcore.graph.control import TASK_INSTANCE_SETUP, TASK_SETUP, positive_count
from jobcore.tasks import Task, TaskGroup

__all__ = ["pipe", "pipe_and_output"]

DEFAULT_CAPACITY = 100
"""Records that a queue between two stages holds where nobody said."""


def pipe(
    input: Any,
    output: Any = None,
    num_threads: int = 1,
    processor: Any = None,
    name: str | None = None,
    capacity: int | None = None,
    group: TaskGroup | None = None,
    num_runtime_threads: int = 1,
) -> Any:
    """Add a task that reads records, changes them and writes them, until there are none.

    Parameters
    ----------
    input
        A `Reader`, or what has one: a queue, a data set.
    output
        A `Writer`, or what has one; by default a new `Queue`.
    num_threads, num_runtime_threads
        How many instances of the task run at once; give one of them. 0: no task; the reader is returned, with the
        processor behind it, to be read by another task.
    processor
        A function that is called once, while the task is built, with the record that is read, and makes the ops that
        are to be done with each record, by `ops` or by returning nets. It returns the new record; (record, stop blob);
        (nets, record); (nets, record, stop blob); nets; a `ProcessorOutput`; or None, and nothing is written then. A
        stop in it, or a stop blob that is true, ends the task before this record is written. Also a `Net`, which ends
        the pipe, a `NetProcessor`, or for plain functions of arrays `python_processor`. One with methods `setup` or
        `exit` is set up once per node.
    name
        Of the task; by default the processor's, else made of the output's or the input's name.
    capacity
        How many records the new queue holds, 100 by default; only without `output`.
    group
        Where the task goes; by default the active task group.

    Returns
    -------
    Queue, Reader, object or None
        The new queue, or `output` if it is not a bare writer, to read from. None if nothing was written, or to a bare
        writer. With 0 threads a reader.

    Raises
    ------
    BuildError
        Input, output or processor are something else, or do not go together; or both numbers of threads are given.
    ContextError
        No group is given or active.

    Notes
    -----
    The records of one instance are written in the order in which it reads them; between several there is no order.
    What a task read is written once, or the run of the group fails: a failure stops all its tasks, also those that
    wait at a queue. A record is moved into a queue, not copied, where nothing else can look at its blobs; they are
    empty afterwards.
    """
    return _pipe(input, output, num_threads, processor, name, capacity, group, num_runtime_threads, None)[0]


def pipe_and_output(
    input: Any,
    output: Any = None,
    num_threads: int = 1,
    processor: Any = None,
    name: str | None = None,
    capacity: int | None = None,
    group: TaskGroup | None = None,
    num_runtime_threads: int = 1,
    final_outputs: Any = None,
) -> tuple[Any, Any]:
    """Do what `pipe` does, and make blobs outputs of the task.

    Parameters
    ----------
    input, output, num_threads, processor, name, capacity, group, num_runtime_threads
        As for `pipe`; there must be a thread.
    final_outputs
        One blob or `TaskOutput`, or a list of those.

    Returns
    -------
    object
        What `pipe` returns.
    TaskOutput, list of TaskOutput or None
        The outputs, one or a list like the argument.

    Raises
    ------
    BuildError, ContextError
        As `pipe`.
    """
    return _pipe(
        input, output, num_threads, processor, name, capacity, group, num_runtime_threads, final_outputs
    )


def _pipe(
    source: Any,
    target: Any,
    num_threads: int,
    processor: Any,
    name: str | None,
    capacity: int | None,
    group: TaskGroup | None,
    num_runtime_threads: int,
    final_outputs: Any,
) -> tuple[Any, Any]:
    threads = _threads(num_threads, num_runtime_threads)
    if target is not None and capacity is not None:
        raise BuildError(f"expected capacity or an output, found both: {capacity!r} and {target!r}")
    with TaskGroup.current(group) as inside:
        reader = _reader_of(source)
        if processor is not None:
            reader = ProcessingReader(reader, processor)
        if threads == 0:
            if target is not None or final_outputs is not None:
                raise BuildError(
                    "expected neither an output nor final_outputs with 0 threads: there is no task to write"
                )
            return reader, None
        writer = None if target is None else _writer_of(target)
        if name is None:
            name = _task_name(source, target, processor)
        with NetBuilder(name):
            step, result = _body(reader, writer, target, capacity, final_outputs)
        task = Task(step=step, name=name, group=inside, num_instances=threads)
        return result, None if final_outputs is None else task.add_outputs(final_outputs)


def _threads(num_threads: int, num_runtime_threads: int) -> int:
    for value, what in ((num_threads, "num_threads"), (num_runtime_threads, "num_runtime_threads")):
        if isinstance(value, bool) or value != 0:
            positive_count(value, what)
    if num_threads == 0 or num_runtime_threads == 0:
        return 0
    if num_threads > 1 and num_runtime_threads > 1:
        raise BuildError(
            f"expected num_threads or num_runtime_threads above 1, found both: {num_threads} and {num_runtime_threads}"
        )
    return max(num_threads, num_runtime_threads)


def _reader_of(source: Any) -> Reader:
    if isinstance(source, Reader):
        return source
    make = getattr(source, "reader", None)
    reader = make() if callable(make) else None
    if not isinstance(reader, Reader):
        raise BuildError(
            f"expected as input a Reader, or something with a method reader(), found {type(source).__name__}: "
            f"{source!r:.200}",
            hint="reader_from(...) makes a Reader of any iterable",
        )
    return reader


def _writer_of(target: Any) -> Writer:
    if isinstance(target, Writer):
        return target
    make = getattr(target, "writer", None)
    writer = make() if callable(make) else None
    if not isinstance(writer, Writer):
        raise BuildError(
            f"expected as output a Writer, or something with a method writer(), found {type(target).__name__}: "
            f"{target!r:.200}"
        )
    return writer


def _task_name(source: Any, target: Any, processor: Any) -> str:
    if processor is not None:
        return processor_name(processor)
    if target is not None:
        return f"pipe_into:{processor_name(target)}"
    return f"pipe_from:{processor_name(source)}"


def _body(
    reader: Reader, writer: Writer | None, target: Any, capacity: int | None, final_outputs: Any
) -> tuple[ExecutionStep, Any]:
    """Return the step of a task, and what to read its records from."""
    init, finish, begin, end = (
        Net("task_init"),
        Net("task_exit"),
        Net("instance_init"),
        Net("instance_exit"),
    )
    reader.setup_ex(init, finish)
    record: Field | None
    if isinstance(reader, ProcessingReader):
        parts, stop, record = reader.processed(begin, end)
    else:
        parts, stop, record = reader.read_record_ex(begin, end)
    result = None if isinstance(target, Writer) else target
    if record is None:
        if target is not None:
            raise BuildError(
                f"expected a record to write into {target!r}, found that {reader!r} gives none",
                hint="let the processor return its record",
            )
    else:
        if writer is None:
            result = Queue(DEFAULT_CAPACITY if capacity is None else capacity)
            writer = result.writer()
        writer.setup_ex(init, finish)
        if isinstance(writer, QueueWriter):
            writer.may_move = only_written(record, parts, [begin, end, init, finish], final_outputs)
        parts = [*parts, *writer.write_record_ex(record, begin, end, stop)]
    first = Net("begin")
    first.add_attribute(TASK_SETUP, SetupNets([init], [finish]))
    first.add_attribute(TASK_INSTANCE_SETUP, SetupNets([begin], [end]))
    rounds = execution_step("rounds", parts, should_stop_blob=stop)
    return execution_step("pipe", [first, rounds]), result
