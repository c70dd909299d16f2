"""Pipelines: tasks that read records, change them, and write them, joined by queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from jobcore._fast.blob import Blob
from jobcore.data.queues import Queue, QueueWriter
from jobcore.data.reader import Part, Reader, Writer, one_round
from jobcore.data.records import new_record
from jobcore.data.schema import Field, as_field, check_same_columns
from jobcore.errors import BlobValueError, BuildError
from jobcore.graph import BlobReference, ExecutionStep, Guard, Net, NetBuilder, SetupNets, execution_step
from jobcore.graph.blobref import as_references
from jobcore.graph.control import (
    LOCAL_REPORT,
    LOCAL_SETUP,
    REPORT_STEP,
    STOPS,
    TASK_INSTANCE_SETUP,
    TASK_SETUP,
    positive_count,
    stop_comes_out,
)
from jobcore.graph.functions import function_name
from jobcore.graph.step import to_execution_step
from jobcore.outputs import TaskOutput
from jobcore.tasks import Task, TaskGroup

__all__ = [
    "NetProcessor",
    "ProcessingReader",
    "ProcessorOutput",
    "pipe",
    "pipe_and_output",
    "python_processor",
    "python_sink",
]

DEFAULT_CAPACITY = 100
"""Records that a queue between two stages holds where nobody said."""

Processor: TypeAlias = Callable[[Any], Any]
"""Makes the ops that turn a record into another one; see `pipe`."""


class ProcessorOutput:
    """What a processor made.

    Parameters
    ----------
    nets
        What to run for each record, in order: nets, steps or builders. Not together with calls of `ops`.
    record
        The new record; None ends the pipe here.
    should_stop
        A blob, a boolean scalar that the nets make: this record is not to be written, and there is no further one.

    Raises
    ------
    BuildError
        `nets` has something else in it, or `record` is no record.
    """

    def __init__(self, nets: object = None, record: object = None, should_stop: str | None = None) -> None:
        listed: list[Any] = [] if nets is None else list(nets) if isinstance(nets, (list, tuple)) else [nets]
        for net in listed:
            if not isinstance(net, (Net, ExecutionStep, NetBuilder)):
                raise BuildError(
                    f"expected nets, steps and builders as the nets of a processor, found {type(net).__name__}: {net!r}"
                )
        self.nets: list[Part] = [n.as_step() if isinstance(n, NetBuilder) else n for n in listed]
        self.record: Field | None = None if record is None else as_field(record)
        if self.record is not None and not self.record.has_blobs():
            raise BuildError(f"expected a record with a blob for each column, found {self.record!r}")
        self.should_stop = None if should_stop is None else as_references([should_stop])[0]

    @classmethod
    def of(cls, made: object) -> ProcessorOutput:
        """Return what a processor returned as an output."""
        if isinstance(made, ProcessorOutput):
            return made
        if made is None or isinstance(made, (Field, Mapping)):
            return cls(record=made)
        if _is_nets(made):
            return cls(nets=made)
        if isinstance(made, (list, tuple)):
            if len(made) == 2 and _is_nets(made[0]) and isinstance(made[1], (Field, Mapping)):
                return cls(nets=made[0], record=made[1])
            if len(made) == 2:
                return cls(record=made[0], should_stop=made[1])
            if len(made) == 3:
                return cls(*made)
        raise BuildError(
            "expected of a processor a record, (record, stop blob), (nets, record), (nets, record, stop blob), nets, "
            f"a ProcessorOutput or None, found {type(made).__name__}: {made!r}"
        )


def _is_nets(value: object) -> bool:
    if isinstance(value, (list, tuple)):
        return bool(value) and all(map(_is_nets, value))
    return isinstance(value, (Net, ExecutionStep, NetBuilder))


class ProcessingReader(Reader):
    """Reads what another reader gives, changed by a processor.

    Parameters
    ----------
    reader
        The source.
    processor
        As for `pipe`. A stop in it ends the reading.
    schema
        Form of the new records; by default what ``processor.schema_func(reader)`` gives, if there is that, or else
        known once `read_ex` was called.
    """

    def __init__(self, reader: Reader, processor: Processor, schema: Field | None = None) -> None:
        make_schema = getattr(processor, "schema_func", None)
        if schema is None and make_schema is not None:
            schema = as_field(make_schema(reader))
        super().__init__(schema)
        self.reader = reader
        self.processor = as_processor(processor)

    def schema(self) -> Any:
        """Return the form of the new records.

        Raises
        ------
        BuildError
            It is not known yet, or there is none: the processor gave no record.
        """
        return super().schema()

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Add what the source needs, and bring along a processor with a `setup` or `exit` of its own for the node."""
        self.reader.setup_ex(init_net, finish_net)
        if any(callable(getattr(self.processor, phase, None)) for phase in ("setup", "exit")):
            init_net.add_attribute(LOCAL_SETUP, self.processor)

    def read_ex(
        self, init_net: Net, finish_net: Net
    ) -> tuple[list[Part], BlobReference, list[BlobReference]]:
        """Make the nets of one round: read, then process.

        Raises
        ------
        BuildError
            The processor gave no record.
        """
        parts, stop, record = self.processed(init_net, finish_net)
        if record is None:
            raise BuildError(f"expected a record of {self.processor!r} to read, found that it returned none")
        return parts, stop, record.field_blobs()

    def processed(self, init_net: Net, finish_net: Net) -> tuple[list[Part], BlobReference, Field | None]:
        """Do what `read_ex` does, and return the new record, or None where the processor gives none."""
        nets, stop, record = self.reader.read_record_ex(init_net, finish_net)
        with NetBuilder(processor_name(self.processor)) as builder:
            made = ProcessorOutput.of(self.processor(record))
        written = list(builder.children)
        if written and made.nets:
            raise BuildError(
                f"processor {self.processor!r}: expected ops or returned nets, found both",
                hint="return only the record; what is written with ops runs in any case",
            )
        parts: list[Part] = [c.as_step() if isinstance(c, NetBuilder) else c for c in written] or made.nets
        if made.record is not None:
            if self._schema is not None:
                check_same_columns(self._schema, made.record, f"a record of processor {self.processor!r}")
            else:
                self._schema = made.record.clone_schema()
        stops_within = any(map(_stops, parts))
        if made.should_stop is None and not stops_within:
            return [*nets, *parts], stop, made.record
        # One blob that tells of both; it is looked at after each part, and must not be left from the run before.
        begin, after = Net("process_begin"), Net("process_read")
        status = begin.Const(False, begin.next_blob("should_stop"))
        after.Copy(stop, status)
        all_parts: list[Part] = [begin, *one_round(nets, stop), after]
        if stops_within:
            guard = ExecutionStep(
                "process", substeps=[to_execution_step(p) for p in parts], control=Guard(str(status))
            )
            all_parts.append(guard)
        else:
            all_parts += parts
        if made.should_stop is not None:
            last = Net("process_stop")
            last.Copy(made.should_stop, status)
            all_parts.append(last)
        return all_parts, status, made.record

    def reset(self, net: Net) -> None:
        """Add ops that go back to the first record of the source."""
        self.reader.reset(net)

    def __repr__(self) -> str:
        return f"ProcessingReader({self.reader!r}, {processor_name(self.processor)})"


def _stops(part: Part) -> bool:
    if isinstance(part, Net):
        return any(op.type in STOPS for op in part.ops)
    return stop_comes_out(part)


class NetProcessor:
    """A net as a processor: a copy of it, with blobs of its own, runs for each record.

    Parameters
    ----------
    net
        Its ops; it is frozen when it is first used.
    stop_signal
        A blob that the net makes, a boolean scalar: no further record.
    thread_init_nets
        Run once per instance; copied like the net, with the same blobs.
    name
        Goes in front of the blobs' names; by default the net's.
    input_record, output_record
        The record that the net reads, in blobs that it does not make, and the one that it makes.

    Raises
    ------
    BuildError
        `net` is no net, or `input_record` no record with blobs.
    """

    def __init__(
        self,
        net: Net,
        stop_signal: str | None = None,
        thread_init_nets: Net | Iterable[Net] | None = None,
        name: str | None = None,
        *,
        input_record: Any = None,
        output_record: Any = None,
    ) -> None:
        if not isinstance(net, Net):
            raise BuildError(f"expected a Net, found {type(net).__name__}: {net!r}")
        self.net = net
        self.name = name or net.name
        self._stop = None if stop_signal is None else as_references([stop_signal])[0]
        nets = [thread_init_nets] if isinstance(thread_init_nets, Net) else list(thread_init_nets or ())
        self._init_nets = nets
        self._input = None if input_record is None else as_field(input_record)
        self._output = None if output_record is None else as_field(output_record)
        self.schema_func = None if self._output is None else lambda _reader: self._output.clone_schema()  # type: ignore[union-attr]

    def __call__(self, record: Any) -> ProcessorOutput:
        """Return a copy of the net that reads `record`.

        Raises
        ------
        BuildError
            The record has other columns than `input_record`.
        """
        given: dict[str, BlobReference] = {}
        if self._input is not None:
            check_same_columns(self._input, record, f"a record for {self!r}")
            given = dict(zip(map(str, self._input.field_blobs()), record.field_blobs(), strict=True))
        self.net.freeze(f"{self!r}")
        copy = Net("net")
        made = {out for net in (*self._init_nets, self.net) for op in net.ops for out in op.outputs}
        renamed = {old: copy.next_blob(old) for old in sorted(made - given.keys())} | given
        _copy_ops(self.net, copy, renamed)
        begin: list[Net] = []
        for net in self._init_nets:
            net.freeze(f"{self!r}")
            begin.append(Net("net_init"))
            _copy_ops(net, begin[-1], renamed)
        if begin:
            copy.add_attribute(TASK_INSTANCE_SETUP, SetupNets(begin))
        output = None
        if self._output is not None:
            output = self._output.with_blobs([renamed.get(str(b), b) for b in self._output.field_blobs()])
        stop = None if self._stop is None else renamed.get(str(self._stop), self._stop)
        return ProcessorOutput([copy], output, stop)

    def __repr__(self) -> str:
        return f"NetProcessor({self.name!r})"


def _copy_ops(source: Net, target: Net, renamed: Mapping[str, BlobReference]) -> None:
    for op in source.ops:
        inputs = [renamed.get(blob, BlobReference(blob)) for blob in op.inputs]
        outputs = [renamed.get(blob, BlobReference(blob)) for blob in op.outputs]
        target.add_op(op.type, inputs, outputs, name=op.name, **op.args)
    for key in (TASK_SETUP, TASK_INSTANCE_SETUP, LOCAL_SETUP, REPORT_STEP, LOCAL_REPORT):
        for value in source.get_attributes(key):
            target.add_attribute(key, value)


class _PythonProcessor:
    """See `python_processor`."""

    def __init__(self, function: Callable[..., Any], schema: Any, ends: bool = False) -> None:
        if not callable(function):
            raise BuildError(f"expected a function of arrays, found {type(function).__name__}: {function!r}")
        self.function = function
        self.name = function_name(function)
        self._schema = None if schema is None else as_field(schema).clone_schema()
        self._ends = ends

    def __call__(self, record: Any) -> ProcessorOutput:
        net = Net("python")
        if self._ends:
            return self._last(net, record)
        schema = record.clone_schema() if self._schema is None else self._schema
        made = new_record(net, schema)
        stop = net.next_blob("should_stop")
        names = schema.field_names()
        function = self.function

        def process(inputs: list[Blob], outputs: list[Blob]) -> None:
            try:
                result = function(*_values(inputs))
            except StopIteration:
                outputs[-1].feed(True)
                return
            for blob, value in zip(outputs, _columns_of(self.name, names, result), strict=False):
                blob.feed(value)
            outputs[-1].feed(False)

        net.Python(process)(record.field_blobs(), [*made.field_blobs(), stop], name=self.name)
        return ProcessorOutput([net], made, stop)

    def _last(self, net: Net, record: Any) -> ProcessorOutput:
        stop = net.next_blob("should_stop")
        function = self.function

        def process(inputs: list[Blob], outputs: list[Blob]) -> None:
            try:
                function(*_values(inputs))
            except StopIteration:
                outputs[0].feed(True)
            else:
                outputs[0].feed(False)

        net.Python(process)(record.field_blobs(), [stop], name=self.name)
        return ProcessorOutput([net], None, stop)

    def __repr__(self) -> str:
        return f"{'python_sink' if self._ends else 'python_processor'}({self.name})"


def _values(blobs: list[Blob]) -> list[Any]:
    return [blob.view() if blob.kind == "tensor" else blob.value for blob in blobs]


def _columns_of(name: str, names: list[str], result: Any) -> list[Any]:
    if isinstance(result, Mapping):
        if set(result) == set(names):
            return [result[column] for column in names]
        found = f"a mapping with {list(result)}"
    elif isinstance(result, tuple):
        if len(result) == len(names):
            return list(result)
        found = f"a tuple of {len(result)}"
    elif len(names) == 1:
        return [result]
    else:
        found = type(result).__name__
    raise BlobValueError(
        f"processor {name}: expected the columns {names}, as a mapping or a tuple in this order, found {found}"
    )


def python_processor(function: Callable[..., Any], schema: Any = None) -> Processor:
    """Return a processor that calls a plain function of arrays for each record.

    Parameters
    ----------
    function
        Called with the columns in order, as read-only arrays. It returns the new columns: a mapping by name, a tuple in
        order, or of a single column an array. To stop before this record, it raises `StopIteration`.
    schema
        Form of the new records; by default that of those that come in.

    Raises
    ------
    BuildError
        `function` cannot be called.

    Notes
    -----
    Several instances call it at once, from threads of their own.
    """
    return _PythonProcessor(function, schema)


def python_sink(function: Callable[..., Any]) -> Processor:
    """Return a processor that hands each record to a plain function and ends the pipe there.

    Parameters
    ----------
    function
        Called with the columns in order, as read-only arrays; what it returns is ignored. To stop, it raises
        `StopIteration`.

    Raises
    ------
    BuildError
        `function` cannot be called.

    Notes
    -----
    Several instances call it at once, from threads of their own.
    """
    return _PythonProcessor(function, None, ends=True)


def as_processor(processor: object) -> Processor:
    """Return a processor as it is, and a net or nets as one that runs it and ends the pipe.

    Raises
    ------
    BuildError
        It is none of those.
    """
    if isinstance(processor, Net):
        return NetProcessor(processor)
    if callable(processor):
        return processor
    raise BuildError(
        f"expected as processor a function of a record or a net, found {type(processor).__name__}: {processor!r}"
    )


def processor_name(processor: object) -> str:
    """Return what to call a processor."""
    name = getattr(processor, "name", None)
    return name if isinstance(name, str) and name else function_name(processor)


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
            writer.may_move = _only_written(record, parts, [begin, end, init, finish], final_outputs)
        parts = [*parts, *writer.write_record_ex(record, begin, end, stop)]
    first = Net("begin")
    first.add_attribute(TASK_SETUP, SetupNets([init], [finish]))
    first.add_attribute(TASK_INSTANCE_SETUP, SetupNets([begin], [end]))
    rounds = execution_step("rounds", parts, should_stop_blob=stop)
    return execution_step("pipe", [first, rounds]), result


def _only_written(record: Field, parts: list[Part], others: list[Net], final_outputs: Any) -> bool:
    """Tell whether the blobs of a record are made anew in each round, and nobody looks at them after it."""
    blobs = {str(blob) for blob in record.field_blobs()}
    if blobs & _output_names(final_outputs):
        return False
    steps = [to_execution_step(part) for part in parts]
    nets = [net for step in steps for net in step.all_nets()]
    for net in (*nets, *others):
        if net.get_attributes(REPORT_STEP) or net.get_attributes(LOCAL_REPORT):
            return False
    if any(_has_function(step) for step in steps):
        return False
    if any(op.args.get("pass_workspace") for net in (*nets, *others) for op in net.ops):
        return False
    if any(blob in blobs for net in others for op in net.ops for blob in op.inputs):
        return False
    return blobs <= _made_first(steps, blobs, set())


def _output_names(outputs: Any) -> set[str]:
    if outputs is None:
        return set()
    listed = [outputs] if isinstance(outputs, (str, TaskOutput)) else list(outputs)
    names: set[str] = set()
    for output in listed:
        names.update(map(str, output.names) if isinstance(output, TaskOutput) else [str(output)])
    return names


def _has_function(step: ExecutionStep) -> bool:
    return step.function is not None or any(map(_has_function, step.substeps))


def _made_first(steps: Iterable[ExecutionStep], blobs: set[str], spoiled: set[str]) -> set[str]:
    """Return those of `blobs` that ops which run in every round make before any op reads them."""
    made: set[str] = set()
    for step in steps:
        plain = step.control is None or isinstance(step.control, Guard)
        once = step.only_once or (step.num_iter == 1 and step.should_stop_blob is None)
        if plain and once and not step.own_workspace and step.num_concurrent_instances == 1:
            for net in step.nets:
                for op in net.ops:
                    spoiled.update(b for b in op.inputs if b in blobs and b not in made)
                    made.update(b for b in op.outputs if b in blobs)
            made |= _made_first(step.substeps, blobs, spoiled) if not step.concurrent_substeps else set()
        else:
            touched = {b for net in step.all_nets() for op in net.ops for b in (*op.inputs, *op.outputs)}
            spoiled.update(b for b in touched & blobs if b not in made)
    return made - spoiled
