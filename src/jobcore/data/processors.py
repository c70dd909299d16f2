"""Processors: what makes the ops that turn one record of a pipeline into another."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, TypeAlias

from jobcore.data.reader import Part
from jobcore.data.schema import Field, as_field, check_same_columns
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, ExecutionStep, Net, NetBuilder, SetupNets
from jobcore.graph.blobref import as_references
from jobcore.graph.control import LOCAL_REPORT, LOCAL_SETUP, REPORT_STEP, TASK_INSTANCE_SETUP, TASK_SETUP
from jobcore.graph.functions import function_name

__all__ = ["NetProcessor", "Processor", "ProcessorOutput", "as_processor", "processor_name"]

Processor: TypeAlias = Callable[[Any], Any]
"""Makes the ops that turn a record into another one; see `jobcore.data.pipe`."""


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
