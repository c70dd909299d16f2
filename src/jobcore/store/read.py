"""Opening, inspecting and loading a database."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, get_args

import numpy as np

from jobcore._dtypes import spec_text
from jobcore.errors import FormatError, MismatchError
from jobcore.store import containers, files
from jobcore.store.codecs import summary
from jobcore.store.container import Casting
from jobcore.store.destinations import Item, destination
from jobcore.store.fresh import load_into, load_native, load_new
from jobcore.store.metadata import Table
from jobcore.store.plan import LoadPlan, Request
from jobcore.store.progress import Meter, Progress
from jobcore.store.records import BlobInfo, DatabaseInfo, LoadReport, VerifyReport
from jobcore.store.selection import Names, Rename
from jobcore.store.values import decode
from jobcore.store.verification import verify, wrong_digest
from jobcore.store.views import Views, copy_into
from jobcore.workspace import Workspace

__all__ = ["Database", "inspect", "load", "open_database"]


def open_database(path: str | os.PathLike[str], *, digest: str | None = None) -> Database:
    """Open a database for reading.

    Parameters
    ----------
    path
        The file.
    digest
        The digest that it must have, as :class:`WriteResult` gave it, or ``None`` when it is not known.

    Returns
    -------
    Database
        A context manager; leaving it closes the file.

    Raises
    ------
    CheckpointNotFoundError
        There is no such file.
    VersionError
        It follows a format version that this library does not know.
    ChecksumError
        Its index or its table is damaged, or it has another digest.
    FormatError
        It is no database; the text says what it seems to be.
    """
    place = files.absolute(path)
    return containers.again(lambda: Database(place, digest=digest))


def load(
    path: str | os.PathLike[str],
    names: Names = None,
    into: Workspace | Mapping[str, Any] | None = None,
    *,
    strict: bool = True,
    rename: Rename = None,
    prefix: str | None = None,
    cast: bool | Casting = False,
    progress: Progress | None = None,
    report: Callable[[LoadReport], object] | None = None,
) -> dict[str, Any]:
    """Load blobs from a file; every byte of theirs is checked.

    Parameters
    ----------
    path
        The file.
    names, into, strict, rename, prefix, cast, progress, report
        As for :meth:`Database.load`.

    Returns
    -------
    dict
        Name to value, in the order of `names`, of a mapping `into`, or of the file.

    Raises
    ------
    CheckpointNotFoundError, FormatError, MismatchError
        As for :func:`open_database` and :meth:`Database.load`.
    ReadError
        Others replaced the directory again and again while it was read.

    Notes
    -----
    Thread-safe. When another process or thread replaces the database meanwhile, what is loaded is all of the old one or
    all of the new one; callables may then be asked twice.

    Examples
    --------
    >>> weights = jobcore.load("model.zarr.zip")["w"]  # doctest: +SKIP
    >>> head = jobcore.load("model.zarr.zip", prefix="head/")  # doctest: +SKIP
    """
    place = files.absolute(path)
    # It may be gone through more than once.
    names = list(names) if isinstance(names, Iterator) else names

    def read() -> dict[str, Any]:
        with Database(place) as database:
            return database.load(
                names,
                into,
                strict=strict,
                rename=rename,
                prefix=prefix,
                cast=cast,
                progress=progress,
                report=report,
            )

    return containers.again(read)


def inspect(path: str | os.PathLike[str]) -> DatabaseInfo:
    """Tell what a file holds, from its table alone; no data is read.

    Parameters
    ----------
    path
        The file.

    Returns
    -------
    DatabaseInfo
        Its metadata, and name, kind, dtype, shape and size of every blob.

    Raises
    ------
    CheckpointNotFoundError, FormatError
        As for :func:`open_database`.
    """
    with open_database(path) as database:
        return database.info


class Database:
    """A database that is open for reading; made by :func:`open_database`.

    Parameters
    ----------
    path
        Absolute path.
    digest
        As for :func:`open_database`.

    Notes
    -----
    Thread-safe: several threads may load from one database at once. Damage is an error, never a wrong value.
    """

    def __init__(self, path: str, *, digest: str | None = None) -> None:
        self._reader = containers.reader(path)
        try:
            if digest is not None and digest != self._reader.digest:
                raise wrong_digest(path, digest, self._reader.digest)
            self._root = containers.root_of(self._reader)
        except BaseException:
            self._reader.close()
            raise
        self._header = self._root.header
        self._planned: LoadPlan | None = None

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<jobcore.store.Database {self.path!r}: {self._table.count} blobs>"

    @property
    def _table(self) -> Table:
        return self._root.table

    @property
    def _plan(self) -> LoadPlan:
        # Two threads may make one at once; either will do.
        if self._planned is None:
            self._planned = LoadPlan(self.path, self._table)
        return self._planned

    @property
    def path(self) -> str:
        """Absolute path of the file."""
        return self._reader.path

    @property
    def info(self) -> DatabaseInfo:
        """What the database says about itself and its blobs; it stays readable after :meth:`close`."""
        table, header = self._table, self._header
        texts = [spec_text(spec.dtype) for spec in table.specs]
        codecs = [tuple(map(summary, spec.codecs)) for spec in table.specs]
        blobs = []
        for blob, (name, index) in enumerate(zip(table.names, table.spec, strict=True)):
            spec = table.specs[index]
            form = name, spec.kind, texts[index], spec.shape, spec.nbytes, spec.chunks
            blobs.append(BlobInfo(*form, None, codecs[index], table.stored_total(blob)))
        for alias in table.aliases:
            # Each was given at its position, and they are in order.
            base = table.names[alias.base]
            nbytes = alias.nbytes()
            blobs.insert(
                alias.position,
                BlobInfo(alias.name, "tensor", spec_text(alias.dtype), alias.shape, nbytes, 0, base),
            )
        return DatabaseInfo(
            path=self.path,
            format=header.format,
            writer=header.writer,
            container=header.container,
            run=header.run,
            node=header.node,
            epoch=header.epoch,
            generation=header.generation,
            stop=header.stop,
            user=header.user,
            blobs=tuple(blobs),
            skipped=header.skipped,
            size_bytes=self._reader.size_bytes,
            digest=self._reader.digest,
        )

    def close(self) -> None:
        """Close the file. More than once is harmless; loads under way in other threads end first."""
        self._reader.close()

    def verify(self) -> VerifyReport:
        """Check every byte of the file, see :func:`verify`."""
        return verify(self.path, digest=self._reader.digest)

    def read(self, name: str, rows: slice | None = None) -> Any:
        """Load one blob, or some rows of an array.

        Parameters
        ----------
        name
            Its name.
        rows
            Which rows along axis 0, by the rules of NumPy for a slice of step 1; all by default. Only the
            chunks that hold them are read, each of them whole and checked.

        Returns
        -------
        object
            Its value, as :meth:`load` gives it; with `rows` an array of these rows.

        Raises
        ------
        MismatchError
            There is no such blob, or `rows` was given and it is no array of at least one axis.
        ValueError
            `rows` has another step than 1.
        ChecksumError, FormatError
            It is damaged.
        """
        if rows is None:
            return self.load([name])[name]
        if not isinstance(rows, slice):
            raise TypeError(f"expected rows as a slice, found {type(rows).__qualname__}")
        if rows.step not in (None, 1):
            raise ValueError(f"expected rows of step 1, found {rows!r}; index the array that you get")
        (item,) = self._plan.items(destination(None), Request([name]))
        if item.spec.kind != "tensor" or not item.shape:
            found = f"a {item.spec.kind}" if item.spec.kind != "tensor" else "an array without axes"
            raise MismatchError(
                f"{self.path}: blob {name!r:.120}: expected an array that has rows, found {found}",
                hint="leave out rows=",
            )
        start, stop, _ = rows.indices(item.shape[0])
        stop = max(start, stop)
        if item.alias is not None:
            return self._read_view(item, start, stop)
        item.rows = start, stop
        self._reader.check_sizes(self._table, [item.blob])
        item.array = item.new_array()
        self._reader.read(self._table, [item.target(*item.chunk_range())])
        return item.array

    def _read_view(self, item: Item, start: int, stop: int) -> np.ndarray[Any, Any]:
        if start == stop or item.alias is None:
            item.rows = start, stop
            return item.new_array()
        item.alias = item.alias.rows(start, stop)
        views = Views(self._plan, [item])
        for base in views.extra:
            base.array = base.new_array()
            self._reader.read(self._table, [base.target(*base.chunk_range())])
        return views.view(item)

    def load(
        self,
        names: Names = None,
        into: Workspace | Mapping[str, Any] | None = None,
        *,
        strict: bool = True,
        rename: Rename = None,
        prefix: str | None = None,
        cast: bool | Casting = False,
        progress: Progress | None = None,
        report: Callable[[LoadReport], object] | None = None,
    ) -> dict[str, Any]:
        """Load blobs.

        Stored names become wanted names in this order: `names` picks among the stored ones, `prefix` is cut
        off, `rename` is asked with what is left. `into` and the result have the wanted names.

        Parameters
        ----------
        names
            Which ones, by their stored names: an iterable, or a callable that is true for those wanted. All
            when ``None``.
        into
            Where to. ``None``: new values; small arrays of one load lie in common pieces of about 1 MiB, each of
            which is freed with the last of them. A mapping of names to writable arrays of equal shape and dtype, of
            any layout, which are filled in place; counters and random generators are set in place likewise.
            Without `names` it must have exactly the blobs that are selected; with `names` it may have more.
            Arrays of it may not share memory, except that blobs of equal content may fill one and the same
            array, and that arrays may be views of one another as the blobs were when they were saved. A
            workspace: blobs are created, filled in place where they have the same shape and dtype, or get a new
            value; bound arrays are always filled in place.
        strict
            Whether missing names, and blobs for which `into` has no place, are errors. If not, they are left
            out, and told to `report`, or else in one warning of the log ``"jobcore.store"``. What has a place
            and does not fit it is always an error.
        rename
            A mapping of names to other names, where names that it lacks stay; or a callable that gives the
            other name. ``None`` as the other name drops the blob. Every name in a mapping must be stored, and
            no two blobs may get one name.
        prefix
            Take only blobs whose stored name begins with this text, its separator included (``"encoder/"``),
            and cut it off.
        cast
            Whether arrays of `into` of another dtype are filled by conversion, one chunk at a time: ``True``
            is ``"same_kind"``, and each name of a NumPy casting rule means that rule. In a workspace the
            blob keeps its dtype then. Overflow warns as :func:`numpy.errstate` says.
        progress
            Is called in the loading thread with the bytes that are done and the bytes of the whole load, at
            least every 256 MiB, about every second and for each chunk that takes longer, and at the end. An
            exception of it ends the load as damage does. Slow loads also appear in the log
            ``"jobcore.store"``, level INFO, about every 10 s.
        report
            Is called with what is loaded, missing and unexpected, before anything is touched; an exception of
            it prevents the load.

        Returns
        -------
        dict
            Name to value: ndarray, ``Counter``, str, bytes, small state, random generator, or ``None`` for an
            empty blob; for a mapping, what it holds; for a workspace, its ``Blob``. New arrays share memory as
            those that were saved did.

        Raises
        ------
        MismatchError
            Names that are not there, arrays that do not fit, blobs that `into` has no place for, names that
            become one: all of them are listed, and nothing was touched.
        ChecksumError
            A blob is damaged; the text names it. Arrays of a mapping and bound arrays may then hold anything,
            blobs that were being filled in place are empty, and everything else is as it was.
        FormatError
            A blob does not follow the format, or its dtype needs a package that is missing.
        ValueError
            `cast` is no casting rule, or there is no `into` to convert for.
        ClosedError
            The database was closed.
        ReadError
            It is a directory, and others have replaced or removed it since it was opened; arrays may then hold
            anything, as if a blob were damaged.
        """
        request = (names, prefix, rename, progress, report)
        if cast is False and not any(option is not None for option in request):
            values = self._load_straight(into)
            if values is not None:
                return values
        target = destination(into)
        rule = _rule(cast)
        if rule is not None and into is None:
            raise ValueError("expected into= beside cast=: new arrays have the stored data type")
        items = self._plan.items(target, Request(names, prefix, rename, strict, rule, report))
        ordered = sorted(items, key=lambda item: item.blob)
        views = Views(self._plan, items)
        total = sum(item.spec.nbytes for item in items if item.alias is None)
        total += sum(item.bytes_in(*item.chunk_range()) for item in views.extra)
        meter = Meter(self.path, total, progress)
        # What is no tensor is small. It comes first, so that a bad one is found before any array is touched.
        small = [item for item in ordered if item.spec.kind != "tensor"]
        self._reader.check_sizes(
            self._table, {item.blob for item in [*ordered, *views.extra] if item.alias is None}
        )
        for item in small:
            item.array = item.new_array()
        self._read(small, meter)
        self._decode(small)
        self._plan.refuse(list(target.check(small)))
        tensors = [item for item in ordered if item.spec.kind == "tensor" and item.alias is None]
        for item in tensors:
            item.array = target.array(item)
        for item in views.extra:
            item.array = item.new_array()
        self._read(tensors, meter)
        self._read(views.extra, meter)
        for item in views.aliases:
            view = views.view(item)
            if target.takes_views:
                item.array = view
            else:
                item.array = target.array(item)
                copy_into(item, view)
        meter.end()
        return {item.name: target.finish(item) for item in items}

    def _load_straight(self, into: Workspace | Mapping[str, Any] | None) -> dict[str, Any] | None:
        """Do what a plan does, for the most common loads; ``None`` where that takes a plan."""
        if logging.getLogger("jobcore.store").isEnabledFor(logging.INFO):
            return None
        if into is None:
            values = load_native(self._reader, self._root)
            return load_new(self._reader, self._root, self._plan, self.load) if values is None else values
        return load_into(self._reader, self._root, self._plan, into) if type(into) is dict else None

    def _read(self, items: list[Item], meter: Meter) -> None:
        meter.read(items, lambda targets: self._reader.read(self._table, targets))

    def _decode(self, items: list[Item]) -> None:
        for item in items:
            try:
                item.value = decode(item.spec.kind, item.array)
            except FormatError as error:
                raise FormatError(
                    f"{self.path}: blob {item.stored!r:.120}: {error.message}",
                    path=self.path,
                    place=item.stored,
                    hint=error.hint,
                ) from error


def _rule(cast: object) -> Casting | None:
    if isinstance(cast, bool):
        return "same_kind" if cast else None
    rules: tuple[Casting, ...] = get_args(Casting)
    for rule in rules:
        if cast == rule:
            return rule
    raise ValueError(f"expected cast as a bool or one of {', '.join(rules)}, found {cast!r:.80}")
