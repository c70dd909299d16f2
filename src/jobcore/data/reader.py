"""What gives records and what takes them: the interfaces of readers, writers and pipes.

A reader is described in three places of a program: what runs once per task, before and after all its instances
(`Reader.setup_ex`); what runs once per instance, before and after its rounds (the nets given to `Reader.read_ex`); and
the nets of one round, which set a *stop blob* instead of giving a record when there is nothing left.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, TypeAlias

from jobcore.data.records import from_blob_list
from jobcore.data.schema import Field, Struct, check_same_columns
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, ExecutionStep, Net, execution_step

__all__ = ["Part", "Pipe", "PipedReaderBuilder", "Reader", "ReaderBuilder", "Writer", "one_round"]


Part: TypeAlias = "Net | ExecutionStep"
"""A part of a round of a reader or writer."""


def one_round(parts: list[Part], stop: BlobReference) -> list[Part]:
    """Return the parts of a round for a place where `stop` is not looked at between them."""
    if len(parts) < 2:
        return parts
    return [execution_step("round", parts, should_stop_blob=stop, only_once=True)]


class Reader:
    """Gives records, one per round, until it has none. Base of all readers.

    A subclass defines `read`, or `read_ex` where a round is more than one net; and `setup_ex` and `reset` where it
    keeps a position.

    Parameters
    ----------
    schema
        Form of the records: a `Field`, or what `as_record` makes one of.

    Notes
    -----
    The nets it makes may be run by any number of task instances at once: each record goes to one of them. A blob that
    is made by `setup_ex` is made anew in every run when that stands in a task's init, and continues, and is part of
    every checkpoint, when it stands in a job's init group.
    """

    def __init__(self, schema: Field | None = None) -> None:
        self._schema = schema

    def schema(self) -> Any:
        """Return the form of the records.

        Raises
        ------
        BuildError
            It is not known, or not yet.
        """
        if self._schema is None:
            raise BuildError(
                f"expected a schema of {self!r}, found none",
                hint="give it one; that of a queue is also set by the first writer that is set up",
            )
        return self._schema

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Add what runs once per task to `init_net` and `finish_net`; by default nothing."""

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the ops of one round to `net`.

        Returns
        -------
        BlobReference
            Stop blob, a boolean scalar: there was nothing left, and the fields are not to be used.
        list of BlobReference
            The columns, in the order of the schema.
        """
        raise NotImplementedError(f"{type(self).__name__} defines neither read nor read_ex")

    def read_ex(
        self,
        init_net: Net,  # noqa: ARG002 - for subclasses
        finish_net: Net,  # noqa: ARG002 - for subclasses
    ) -> tuple[list[Part], BlobReference, list[BlobReference]]:
        """Make the nets of one round.

        Parameters
        ----------
        init_net, finish_net
            For what runs once per instance, before its first round and after its last.

        Returns
        -------
        list of Net or ExecutionStep
            Run in order; the stop blob is looked at after each.
        BlobReference
            Stop blob, see `read`.
        list of BlobReference
            The columns.
        """
        net = Net("read")
        stop, fields = self.read(net)
        return [net], stop, fields

    def peek_end(self, net: Net) -> BlobReference | None:  # noqa: ARG002 - for subclasses
        """Add ops that tell whether nothing is left, without reading anything.

        Returns
        -------
        BlobReference or None
            A boolean scalar; None where it can only be told by reading.
        """
        return None

    def read_record(self, net: Net) -> tuple[BlobReference, Any]:
        """Do what `read` does, and return stop blob and columns as a record."""
        stop, fields = self.read(net)
        return stop, self._record(fields)

    def read_record_ex(self, init_net: Net, finish_net: Net) -> tuple[list[Part], BlobReference, Any]:
        """Do what `read_ex` does, and return nets, stop blob and columns as a record."""
        nets, stop, fields = self.read_ex(init_net, finish_net)
        return nets, stop, self._record(fields)

    def _record(self, fields: list[BlobReference]) -> Any:
        return from_blob_list(self.schema(), fields)

    def reset(self, net: Net) -> None:
        """Add ops that go back to the first record."""
        raise NotImplementedError(f"{type(self).__name__} cannot go back to its first record")

    def execution_step(
        self, name: str | None = None, external_should_stop: str | None = None
    ) -> tuple[ExecutionStep, Any]:
        """Return a step that is repeated until nothing is left, and the record; nets added to the step use it.

        A step of nets takes more nets with `add_net`, one of steps more steps with `add_substep`.

        Parameters
        ----------
        name
            Of the step.
        external_should_stop
            A blob, a boolean scalar, that ends the step too.

        Raises
        ------
        BuildError
            The reader has something to run once per instance.
        """
        init_net, finish_net = Net("read_init"), Net("read_finish")
        nets, stop, record = self.read_record_ex(init_net, finish_net)
        if init_net.ops or finish_net.ops:
            raise BuildError(
                f"expected a reader without an init or finish of its own for execution_step, found {self!r}",
                hint="use pipe, or read_record_ex and put its init and finish nets round the loop",
            )
        if external_should_stop is not None:
            last = Net("read_stop")
            stop = last.Or([external_should_stop, stop])
            nets = [*nets, last]
        return execution_step(name or "read", nets, should_stop_blob=stop), record

    def __repr__(self) -> str:
        return f"{type(self).__name__}({'' if self._schema is None else self._schema.field_names()})"


class Writer:
    """Takes records, one per round. Base of all writers.

    A subclass defines `write`, or `write_ex`; and `commit`, or `setup_ex`, where something is to be done at the end.
    """

    _schema: Field | None = None

    def schema(self) -> Any:
        """Return the form of the records that it was told to write; None before."""
        return self._schema

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:  # noqa: ARG002 - for subclasses
        """Add what runs once per task; by default `commit`, at the end."""
        self.commit(finish_net)

    def write(self, net: Net, fields: list[BlobReference]) -> None:
        """Add ops that write one record to `net`; `fields` are its columns, in order."""
        raise NotImplementedError(f"{type(self).__name__} defines neither write nor write_ex")

    def write_ex(
        self,
        fields: list[BlobReference],
        init_net: Net,  # noqa: ARG002 - for subclasses
        finish_net: Net,  # noqa: ARG002 - for subclasses
        stop_blob: BlobReference | None = None,  # noqa: ARG002 - for subclasses
    ) -> list[Part]:
        """Make the nets that write one record.

        Parameters
        ----------
        fields
            Its columns, in order.
        init_net, finish_net
            For what runs once per instance.
        stop_blob
            Is set to true when nothing more can be written; a writer that always can leaves it alone.
        """
        net = Net("write")
        self.write(net, fields)
        return [net]

    def write_record(self, net: Net, record: Any) -> None:
        """Do what `write` does with the columns of a record.

        Raises
        ------
        BuildError
            Its columns are not those of the writer's schema.
        """
        self.write(net, self._columns(record))

    def write_record_ex(
        self, record: Any, init_net: Net, finish_net: Net, stop_blob: BlobReference | None = None
    ) -> list[Part]:
        """Do what `write_ex` does with the columns of a record; errors as for `write_record`."""
        return self.write_ex(self._columns(record), init_net, finish_net, stop_blob)

    def _columns(self, record: Any) -> list[BlobReference]:
        if not isinstance(record, Field):
            raise BuildError(
                f"expected a record to write, found {type(record).__name__}: {record!r}",
                hint="make one with as_record({'name': blob})",
            )
        if self._schema is None:
            self._schema = record.clone_schema()
        else:
            check_same_columns(self._schema, record, f"a record written to {self!r}")
        return record.field_blobs()

    def commit(self, finish_net: Net) -> None:
        """Add what is to be done when all is written to `finish_net`; by default nothing."""

    def __repr__(self) -> str:
        return type(self).__name__


class Pipe:
    """Something with two ends: what goes into its writers comes out of its readers. Base of queues.

    Parameters
    ----------
    schema
        Form of the records; by default that of the first writer.
    obj_key
        Key under which it attaches itself to the init nets of its readers and writers, so that its own `setup` and
        `exit` run where that key says: ``TaskGroup.LOCAL_SETUP``, for one.
    """

    def __init__(self, schema: Field | None = None, obj_key: str | None = None) -> None:
        self._schema = schema
        self._obj_key = obj_key
        self._num_readers = 0
        self._num_writers = 0

    def schema(self) -> Any:
        """Return the form of the records, None as long as nobody said."""
        return self._schema

    def num_readers(self) -> int:
        """Return how many readers have been set up."""
        return self._num_readers

    def num_writers(self) -> int:
        """Return how many writers have been set up."""
        return self._num_writers

    def reader(self) -> Reader:
        """Return a new reader."""
        raise NotImplementedError(f"{type(self).__name__} has no readers")

    def writer(self) -> Writer:
        """Return a new writer."""
        raise NotImplementedError(f"{type(self).__name__} has no writers")

    def _new_reader(self, init_net: Net) -> None:
        self._num_readers += 1
        if self._obj_key is not None:
            init_net.add_attribute(self._obj_key, self)

    def _new_writer(self, writer_schema: Field | None, init_net: Net) -> None:
        self._fix_schema(writer_schema)
        self._num_writers += 1
        if self._obj_key is not None:
            init_net.add_attribute(self._obj_key, self)

    def _fix_schema(self, writer_schema: Field | None) -> None:
        """Take the schema of the first writer, and hold the others to it."""
        if writer_schema is None:
            return
        if self._schema is None:
            self._schema = writer_schema.clone_schema()
        else:
            check_same_columns(self._schema, writer_schema, f"a writer of {type(self).__name__}")


class ReaderBuilder:
    """Makes readers of one source, each with options of its own. Base of all such builders."""

    def schema(self) -> Struct:
        """Return the form of the records."""
        raise NotImplementedError(f"{type(self).__name__} does not say what it reads")

    def setup(self, **kwargs: Any) -> Mapping[str, BlobReference] | None:  # noqa: ARG002 - for subclasses
        """Prepare the source; called once, before `new_reader`, at build time.

        Returns
        -------
        mapping of str to BlobReference, or None
            Blobs that tell that there is nothing left, by name.
        """
        return None

    def new_reader(self, **kwargs: Any) -> Reader:
        """Return a new reader."""
        raise NotImplementedError(f"{type(self).__name__} makes no readers")


class PipedReaderBuilder(ReaderBuilder):
    """Gives the readers of another builder with something behind them.

    Parameters
    ----------
    builder
        Makes the readers.
    piper
        Called with ``reader=`` and the options given to `new_reader`; returns a `Reader`, or a `Pipe` to read from.
    """

    def __init__(self, builder: ReaderBuilder, piper: Callable[..., Reader | Pipe]) -> None:
        self._builder = builder
        self._piper = piper

    def schema(self) -> Struct:
        """Return the form of the records of the builder given, which `piper` may change."""
        return self._builder.schema()

    def setup(self, **kwargs: Any) -> Mapping[str, BlobReference] | None:
        """Prepare the source."""
        return self._builder.setup(**kwargs)

    def new_reader(self, **kwargs: Any) -> Reader:
        """Return a new reader behind `piper`."""
        made = self._piper(reader=self._builder.new_reader(**kwargs), **kwargs)
        return made if isinstance(made, Reader) else made.reader()
