"""Readers of checkpoint databases, and a reader that keeps what it reads in one."""

from __future__ import annotations

import os
from typing import Any

import numpy as np

from jobcore._fast.blob import Blob
from jobcore.data.dataset import Dataset, DatasetReader
from jobcore.data.reader import Reader
from jobcore.data.records import from_column_list
from jobcore.data.schema import Field, as_field
from jobcore.errors import BuildError
from jobcore.graph import BlobReference, ExecutionStep, Net, When, execution_step
from jobcore.graph.control import positive_count
from jobcore.graph.names import check_name
from jobcore.store import inspect

__all__ = ["CachedReader", "DBFileReader"]

_SINGLE = "column"


def _stored_names(schema: Field) -> list[str]:
    return [name or _SINGLE for name in schema.field_names()]


class DBFileReader(Reader):
    """Reads the rows of a database whose blobs are columns: one that `CachedReader` wrote, or `jobcore.save`.

    Parameters
    ----------
    db_path
        The database.
    db_type
        Its container.
    name
        In front of the names of the columns in the workspace; by default made of the path.
    batch_size
        Rows of a record; the last one may have fewer.
    loop_over
        Begin again after the last row, and never end. Every batch is whole then.
    field_names
        The columns to read, as they are called in the database; by default all, in its order.
    schema
        Form of the records, with the columns as field names; by default made of the names and dtypes in the
        database, which must be there already then.
    shuffle
        Mix all rows.
    seed
        Of the order, see `Dataset.random_reader`.

    Raises
    ------
    BuildError
        `schema` and `field_names` are both given.
    JobcoreError
        Without a schema: what `jobcore.inspect` raises for a database that is missing or damaged.

    Notes
    -----
    The columns are loaded when a task begins, as a whole, and each run of it begins at the first row.
    """

    def __init__(
        self,
        db_path: str | os.PathLike[str],
        db_type: str = "zarr.zip",
        name: str | None = None,
        batch_size: int = 100,
        loop_over: bool = False,
        field_names: list[str] | None = None,
        *,
        schema: Any = None,
        shuffle: bool = False,
        seed: int | None = None,
    ) -> None:
        self.db_path = os.fspath(db_path)
        self.db_type = db_type
        self.name = "db_reader" if name is None else check_name(name, "reader name")
        if schema is not None and field_names is not None:
            raise BuildError("expected a schema or field_names, found both")
        super().__init__(
            self._stored_schema(field_names) if schema is None else as_field(schema).clone_schema()
        )
        self._options: dict[str, Any] = {"batch_size": positive_count(batch_size, "batch_size")}
        self._loop_over = bool(loop_over)
        self._shuffle = bool(shuffle)
        self._seed = seed
        self._reader: DatasetReader | None = None

    def _stored_schema(self, field_names: list[str] | None) -> Field:
        stored = {blob.name: blob for blob in inspect(self.db_path).blobs}
        names = list(stored) if field_names is None else list(field_names)
        missing = [name for name in names if name not in stored]
        if missing:
            raise BuildError(f"{self.db_path}: expected the columns {missing}, found {list(stored)}")
        odd = [name for name in names if stored[name].kind != "tensor" or not stored[name].shape]
        if odd:
            raise BuildError(
                f"{self.db_path}: expected columns, arrays of one dimension or more, found others under {odd}",
                hint="name the columns with field_names",
            )
        types = [(np.dtype(stored[name].dtype), tuple(stored[name].shape[1:])) for name in names]
        return from_column_list(names, types)

    def setup_ex(self, init_net: Net, finish_net: Net) -> None:
        """Add the loading of the columns, and the making of a cursor."""
        names = _stored_names(self.schema())
        base = init_net.next_blob(self.name)
        columns = [BlobReference(f"{base}/{name}") for name in names]
        init_net.Load([], columns, db=self.db_path, db_type=self.db_type, source_blob_names=names)
        dataset = Dataset(self.schema().with_blobs(columns))
        cursor = f"{base}/cursor"
        if self._shuffle:
            self._reader = dataset.random_reader(
                cursor_name=BlobReference(cursor), loop_over=self._loop_over, seed=self._seed, **self._options
            )
        elif self._loop_over:
            order = BlobReference(f"{base}/order")
            # The first column may be lengths; it has one item for each row in any case.
            init_net.Python(_in_order)([columns[0]], [order])
            self._reader = dataset.random_reader(
                indices=order, cursor_name=BlobReference(cursor), loop_over=True, **self._options
            )
        else:
            self._reader = dataset.reader(cursor_name=BlobReference(cursor), **self._options)
        self._reader.setup_ex(init_net, finish_net)

    def _needs_reader(self) -> DatasetReader:
        if self._reader is None:
            raise BuildError(
                f"expected {self!r} to be set up, found that it is not",
                hint="call setup_ex first, as pipe does",
            )
        return self._reader

    def read(self, net: Net) -> tuple[BlobReference, list[BlobReference]]:
        """Add the ops that read one batch."""
        return self._needs_reader().read(net)

    def peek_end(self, net: Net) -> BlobReference:
        """Add an op that tells whether no batch is left."""
        return self._needs_reader().peek_end(net)

    def reset(self, net: Net) -> None:
        """Add ops that go back to the first row."""
        self._needs_reader().reset(net)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.db_path!r})"


def _in_order(inputs: list[Blob], outputs: list[Blob]) -> None:
    outputs[0].feed(np.arange(len(inputs[0].view())))


class CachedReader(DBFileReader):
    """Reads another reader once, keeps its records in a database, and gives them from there from then on.

    Parameters
    ----------
    original_reader
        The source.
    db_path, db_type, name, batch_size, loop_over, shuffle, seed
        As for `DBFileReader`. A database that is there is used as it is, whatever the source would give.

    Notes
    -----
    Run the step of `build_cache_step` before what reads, in a group of its own.
    """

    def __init__(
        self,
        original_reader: Reader,
        db_path: str | os.PathLike[str],
        db_type: str = "zarr.zip",
        name: str | None = None,
        batch_size: int = 100,
        loop_over: bool = False,
        *,
        shuffle: bool = False,
        seed: int | None = None,
    ) -> None:
        super().__init__(
            db_path,
            db_type,
            "cached_reader" if name is None else name,
            batch_size,
            loop_over,
            schema=original_reader.schema(),
            shuffle=shuffle,
            seed=seed,
        )
        self.original_reader = original_reader

    def build_cache_step(self, overwrite: bool = False, num_threads: int = 1) -> ExecutionStep:
        """Return a step that writes the database, and does nothing when it is there already.

        Parameters
        ----------
        overwrite
            Write it in any case.
        num_threads
            How many threads read the source at once. With more than one the order of records is not that of the
            source.

        Raises
        ------
        BuildError
            `num_threads` is no integer of at least 1.

        Notes
        -----
        Whether it is there is looked at when the step runs. It is written whole or not at all, once all is read.
        """
        threads = positive_count(num_threads, "num_threads")
        look, init, finish, begin, end, save = (
            Net(f"cache_{what}") for what in ("look", "init", "finish", "begin", "end", "save")
        )
        exists = look.DBExists([], look.next_blob("exists"), db_name=self.db_path, db_type=self.db_type)
        needed = look.Const(True) if overwrite else look.Not(exists)
        schema = self.schema()
        dataset = Dataset(
            schema.with_blobs([init.next_blob(f"{self.name}/{n}") for n in _stored_names(schema)])
        )
        dataset.init_empty(init)
        self.original_reader.setup_ex(init, finish)
        nets, stop, record = self.original_reader.read_record_ex(begin, end)
        write = Net("cache_write")
        dataset.writer().write_record(write, record)
        rounds = execution_step("rounds", [*nets, write], should_stop_blob=stop)
        copies = ExecutionStep(
            "copies",
            substeps=[execution_step("copy", [begin, rounds, end], own_workspace=True)],
            num_concurrent_instances=threads,
        )
        save.Save(
            dataset.get_blobs(),
            [],
            db=self.db_path,
            db_type=self.db_type,
            blob_name_overrides=_stored_names(schema),
            overwrite=overwrite,
        )
        fill = execution_step("fill", [init, copies, finish, save], control=When(str(needed)))
        return execution_step("build_cache", [look, fill])
