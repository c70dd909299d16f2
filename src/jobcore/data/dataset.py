"""Data sets: records kept in the columns of a workspace, with readers that remember where they are."""

from __future__ import annotations

from typing import Any

import numpy as np

from jobcore.data.reader import Reader, Writer
from jobcore.data.records import const_record, init_empty_record
from jobcore.data.schema import Field, Scalar, Struct, as_field
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, Net, scoped
from jobcore.graph.blobref import as_references

__all__ = ["Dataset", "DatasetReader", "DatasetWriter", "RandomDatasetReader"]

_ALL_BATCHES = 2**31


class Dataset:
    """Rows in columns, one blob for each.

    Parameters
    ----------
    fields
        The form of a row: a `Field`, what `as_record` makes one of, or a list of column names. A record with blobs
        says where the columns are already.
    name
        The columns are called ``<name>/<column>`` then, from the start. Without it `init_empty` and
        `init_from_columns` name them after their net.

    Raises
    ------
    BuildError
        `fields` is no record.

    Notes
    -----
    The columns belong into a workspace that all who use them can see: make them in a job's init group, or where the
    group runs. Any number of tasks and instances may read and append at once: each sees whole rows.
    """

    def __init__(self, fields: Any, name: str | None = None) -> None:
        if isinstance(fields, (list, tuple)) and fields and all(isinstance(f, str) for f in fields):
            fields = Struct(*((str(field), Scalar()) for field in fields))
        record = as_field(fields)
        self._name = name
        self._schema = record.clone_schema()
        self._content: Field | None = record if record.has_blobs() else None
        if self._content is None and name is not None:
            blobs = [BlobReference(scoped(f"{name}/{column or 'column'}")) for column in record.field_names()]
            self._content = record.with_blobs(blobs)

    def init_empty(self, net: Net) -> None:
        """Add ops to `net` that make the columns, without rows."""
        blobs = None if self._content is None else self._content.field_blobs()
        self._content = init_empty_record(net, self._schema, blobs)

    def init_from_columns(self, net: Net, columns: Any) -> None:
        """Add ops to `net` that make the columns from arrays.

        Parameters
        ----------
        net
            Where they go.
        columns
            Arrays by column name: a mapping, or a data frame.

        Raises
        ------
        BuildError
            A column is missing, or is no array of the dtype it is to have.
        """
        arrays = {name: columns[name] for name in self.field_names()}
        blobs = None if self._content is None else self._content.field_blobs()
        self._content = const_record(net, arrays, self._schema, blobs)

    def content(self) -> Any:
        """Return the record of the columns.

        Raises
        ------
        BuildError
            They have no blobs yet.
        """
        if self._content is None:
            raise BuildError(
                f"expected columns of {self!r}, found none yet",
                hint="call init_empty(net) or init_from_columns(net, columns) first, or give it a name",
            )
        return self._content

    def schema(self) -> Any:
        """Return the form of a row."""
        return self._schema

    def get_blobs(self) -> list[BlobReference]:
        """Return the columns in order; errors as for `content`."""
        blobs: list[BlobReference] = self.content().field_blobs()
        return blobs

    def field_names(self) -> list[str]:
        """Return the names of the columns."""
        return self._schema.field_names()

    def field_types(self) -> list[np.dtype[Any] | None]:
        """Return the dtypes of the columns."""
        return self._schema.field_types()

    def trim(self, net: Net, multiple_of: int) -> None:
        """Add an op that leaves out the last rows, so that a multiple of `multiple_of` is left."""
        blobs = self.get_blobs()
        net.TrimDataset(blobs, blobs, fields=self.field_names(), multiple_of=multiple_of)

    def reader(
        self,
        init_net: Net | None = None,
        cursor_name: str | None = None,
        batch_size: int = 1,
        enforce_batch_size: bool = False,
    ) -> DatasetReader:
        """Return a reader of the rows in order.

        Parameters
        ----------
        init_net
            Makes the cursor here, and nowhere else: in a job's init group, it goes on from epoch to epoch and after a
            resume. Without it each task that reads begins at the first row.
        cursor_name
            The cursor's blob; automatic by default.
        batch_size
            Rows of a record, at least 1; the last one may have fewer.
        enforce_batch_size
            Leave out the last rows when they do not make a whole batch.
        """
        return DatasetReader(self, init_net, cursor_name, batch_size, enforce_batch_size)

    def random_reader(
        self,
        init_net: Net | None = None,
        indices: str | None = None,
        cursor_name: str | None = None,
        batch_size: int = 1,
        loop_over: bool = False,
        enforce_batch_size: bool = False,
        *,
        sort_by_field: str | None = None,
        shuffle_size: int | None = None,
        seed: int | None = None,
    ) -> RandomDatasetReader:
        """Return a reader of the rows in another order.

        Parameters
        ----------
        init_net, cursor_name, batch_size, enforce_batch_size
            As for `reader`. Cursor, order and random generator are made where the columns are there already.
        indices
            A blob with numbers of rows, int64, 1-D: the order. By default the reader makes one.
        loop_over
            Begin again after the last row, in the same order, and never end. Every batch is whole then.
        sort_by_field
            A column to sort by, before rows are mixed.
        shuffle_size
            How many batches are mixed at a time, see the op SortAndShuffle. By default all rows are, and with
            `sort_by_field` none, but whole batches change places.
        seed
            Of the order; by default each run has another.
        """
        return RandomDatasetReader(
            self,
            init_net,
            cursor_name,
            batch_size,
            enforce_batch_size,
            indices=indices,
            loop_over=loop_over,
            sort_by_field=sort_by_field,
            shuffle_size=shuffle_size,
            seed=seed,
        )

    def writer(self) -> DatasetWriter:
        """Return a writer that appends records, of any number of rows each."""
        return DatasetWriter(self)

    def __repr__(self) -> str:
        name = "" if self._name is None else f"{self._name!r}, "
        return f"Dataset({name}{self.field_names()})"


class DatasetReader(Reader):
    """Reads the rows of a data set in order; made by `Dataset.reader`."""

    def __init__(
        self,
        dataset: Dataset,
        init_net: Net | None,
        cursor_name: str | None,
        batch_size: int,
        enforce_batch_size: bool,
    ) -> None:
        super().__init__(dataset.schema())
        self._dataset = dataset
        self._options = {"batch_size": batch_size, "enforce_batch_size": enforce_batch_size}
        self.cursor = None if cursor_name is None else BlobReference(scoped(cursor_name))
        self._persistent = False
        if init_net is not None:
            self.setup_ex(init_net, init_net)
            self._persistent = True

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:  # noqa: ARG002 - nothing is to be done at the end
        """Add the making of the cursor, unless that was done where the reader was made."""
        if self._persistent:
            return
        if self.cursor is None:
            self.cursor = init_net.next_blob("cursor")
        init_net.CreateTreeCursor([], self.cursor, fields=self._dataset.field_names())

    def _needs_cursor(self) -> BlobReference:
        if self.cursor is None:
            raise BuildError(
                f"expected a cursor of {self!r}, found none", hint="call setup_ex first, as pipe does"
            )
        return self.cursor

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the ops that read one batch."""
        fields = self._read_op(net, [net.next_blob(name or "column") for name in self._dataset.field_names()])
        stop: BlobReference = net.IsEmpty(fields[0], net.next_blob("should_stop"))
        return stop, fields

    def _read_op(self, net: Net, outputs: list[BlobReference]) -> list[BlobReference]:
        net.ReadNextBatch([self._needs_cursor(), *self._dataset.get_blobs()], outputs, **self._options)
        return outputs

    def peek_end(self, net: Net) -> BlobReference:
        """Add an op that tells whether no batch is left."""
        return self._peek(net, self._dataset.get_blobs()[0])

    def _peek(self, net: Net, rows: BlobReference) -> BlobReference:
        least = self._options["batch_size"] if self._options["enforce_batch_size"] else 1
        at_end: BlobReference = net.CursorAtEnd(
            [self._needs_cursor(), rows], net.next_blob("at_end"), min_rows=least
        )
        return at_end

    def reset(self, net: Net) -> None:
        """Add an op that goes back to the first row."""
        net.ResetCursor(self._needs_cursor())


class RandomDatasetReader(DatasetReader):
    """Reads the rows of a data set in an order of its own; made by `Dataset.random_reader`."""

    def __init__(
        self,
        dataset: Dataset,
        init_net: Net | None,
        cursor_name: str | None,
        batch_size: int,
        enforce_batch_size: bool,
        *,
        indices: str | None,
        loop_over: bool,
        sort_by_field: str | None,
        shuffle_size: int | None,
        seed: int | None,
    ) -> None:
        self._given = indices is not None
        if self._given and (sort_by_field is not None or shuffle_size is not None or seed is not None):
            raise BuildError("expected indices, or how to sort and mix the rows, found both")
        names = dataset.field_names()
        if sort_by_field is not None and sort_by_field not in names:
            raise BuildError(f"expected one of the columns {names} as sort_by_field, found {sort_by_field!r}")
        if shuffle_size is None:
            shuffle_size = _ALL_BATCHES if sort_by_field is None else 1
        self._order_options = {
            "sort_by_field_idx": -1 if sort_by_field is None else names.index(sort_by_field),
            "shuffle_size": shuffle_size,
            "batch_size": batch_size,
        }
        self._seed = seed
        self._loop_over = loop_over
        self.indices = None if indices is None else as_references([indices])[0]
        self.offsets: BlobReference | None = None
        self.generator: BlobReference | None = None
        super().__init__(dataset, init_net, cursor_name, batch_size, enforce_batch_size)

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Add the making of cursor, offsets, generator and order, unless that was done where the reader was made."""
        if self._persistent:
            return
        super().setup_ex(init_net, finish_net)
        cursor = str(self._needs_cursor())
        self.offsets = BlobReference(f"{cursor}_offsets")
        if not self._given:
            self.generator = BlobReference(f"{cursor}_generator")
            self.indices = BlobReference(f"{cursor}_indices")
            init_net.CreateGenerator([], self.generator, seed=self._seed)
        self.shuffle(init_net)

    def shuffle(self, net: Net) -> None:
        """Add ops that take in rows that came since, and draw a new order; go back to its begin with `reset`.

        The generator is a blob that goes on: the order of each epoch is another, and the same after a resume.
        """
        inputs = [self._needs_cursor(), *self._dataset.get_blobs()]
        net.ComputeOffset(inputs, self.offsets)
        if not self._given:
            net.SortAndShuffle([*inputs, self.generator], self.indices, **self._order_options)

    def _read_op(self, net: Net, outputs: list[BlobReference]) -> list[BlobReference]:
        cursor = self._needs_cursor()
        assert self.indices is not None
        assert self.offsets is not None
        net.ReadRandomBatch(
            [cursor, self.indices, self.offsets, *self._dataset.get_blobs()],
            outputs,
            loop_over=self._loop_over,
            **self._options,
        )
        return outputs

    def peek_end(self, net: Net) -> BlobReference:
        """Add an op that tells whether no batch is left; with `loop_over` there always is one."""
        if self._loop_over:
            never: BlobReference = net.Const(False, net.next_blob("at_end"))
            return never
        self._needs_cursor()
        assert self.indices is not None
        return self._peek(net, self.indices)


class DatasetWriter(Writer):
    """Appends records to a data set; made by `Dataset.writer`."""

    def __init__(self, dataset: Dataset) -> None:
        self._dataset = dataset
        self._schema = dataset.schema()

    def write(self, net: Net, fields: list[BlobReference]) -> None:
        """Add the op that appends the rows of one record, all of its columns or, where that fails, none.

        Raises
        ------
        BuildError
            There are more or fewer fields than columns.
        """
        columns = self._dataset.get_blobs()
        if len(fields) != len(columns):
            raise BuildError(f"expected {len(columns)} columns for {self._dataset!r}, found {len(fields)}")
        net.Append([*columns, *fields], [], fields=self._dataset.field_names())
