"""A reader with a processor behind it."""

from __future__ import annotations

from typing import Any

from jobcore.data.processors import Processor, ProcessorOutput, as_processor, processor_name
from jobcore.data.reader import Part, Reader, one_round
from jobcore.data.schema import Field, as_field, check_same_columns
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, ExecutionStep, Guard, Net, NetBuilder
from jobcore.graph.control import LOCAL_SETUP, STOPS, stop_comes_out
from jobcore.graph.step import to_execution_step

__all__ = ["ProcessingReader"]


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
