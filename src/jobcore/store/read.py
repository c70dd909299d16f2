"""Opening, inspecting and loading a database."""

from __future__ import annotations

import difflib
import os
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any

import numpy as np

from jobcore._dtypes import dtype_from_spec, spec_text
from jobcore.errors import FormatError, MismatchError
from jobcore.store import container, files
from jobcore.store.destinations import Destination, Item, destination
from jobcore.store.layout import KINDS, Spec, storage_of
from jobcore.store.metadata import FORMAT, parse_root
from jobcore.store.records import BlobInfo, DatabaseInfo, VerifyReport
from jobcore.store.values import decode
from jobcore.store.verification import verify, wrong_digest
from jobcore.workspace import Workspace

__all__ = ["Database", "inspect", "load", "open_database"]

_LISTED = 200
_COMPARED = 10


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
    return Database(files.absolute(path), digest=digest)


def load(
    path: str | os.PathLike[str],
    names: Iterable[str] | None = None,
    into: Workspace | Mapping[str, Any] | None = None,
) -> dict[str, Any]:
    """Load blobs from a file; every byte of theirs is checked.

    Parameters
    ----------
    path
        The file.
    names, into
        As for :meth:`Database.load`.

    Returns
    -------
    dict
        Name to value, in the order of `names` or of the file.

    Raises
    ------
    CheckpointNotFoundError, FormatError, MismatchError
        As for :func:`open_database` and :meth:`Database.load`.

    Notes
    -----
    Thread-safe.

    Examples
    --------
    >>> weights = jobcore.load("model.zarr.zip")["w"]  # doctest: +SKIP
    """
    with open_database(path) as database:
        return database.load(names, into)


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
        self._reader = container.reader(path)
        try:
            if digest is not None and digest != self._reader.digest:
                raise wrong_digest(path, digest, self._reader.digest)
            self._header, self._table = parse_root(self._reader.root(), path)
        except BaseException:
            self._reader.close()
            raise
        self._blobs = {name: blob for blob, name in enumerate(self._table.names)}

    def __enter__(self) -> Database:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<jobcore.store.Database {self.path!r}: {len(self._blobs)} blobs>"

    @property
    def path(self) -> str:
        """Absolute path of the file."""
        return self._reader.path

    @property
    def info(self) -> DatabaseInfo:
        """What the database says about itself and its blobs; it stays readable after :meth:`close`."""
        table, header = self._table, self._header
        texts = [spec_text(spec.dtype) for spec in table.specs]
        blobs = []
        for name, index in zip(table.names, table.spec, strict=True):
            spec = table.specs[index]
            blobs.append(BlobInfo(name, spec.kind, texts[index], spec.shape, spec.nbytes, spec.chunks))
        return DatabaseInfo(
            path=self.path,
            format=FORMAT,
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

    def read(self, name: str) -> Any:
        """Load one blob.

        Parameters
        ----------
        name
            Its name.

        Returns
        -------
        object
            Its value, as :meth:`load` gives it.

        Raises
        ------
        MismatchError
            There is no such blob.
        ChecksumError, FormatError
            It is damaged.
        """
        return self.load([name])[name]

    def load(
        self, names: Iterable[str] | None = None, into: Workspace | Mapping[str, Any] | None = None
    ) -> dict[str, Any]:
        """Load blobs.

        Parameters
        ----------
        names
            Which ones; all when ``None``.
        into
            Where to. ``None``: new values. A mapping of names to writable arrays of equal shape and dtype, of
            any layout, which are filled in place; counters and random generators are set in place likewise.
            Without `names` it must have exactly the blobs of the file. A workspace: blobs are created, filled
            in place where they have the same shape and dtype, or get a new value; bound arrays are always
            filled in place.

        Returns
        -------
        dict
            Name to value: ndarray, ``Counter``, str, bytes, small state, random generator, or ``None`` for an
            empty blob; for a mapping, what it holds; for a workspace, its ``Blob``.

        Raises
        ------
        MismatchError
            Names that are not there, arrays that do not fit, blobs that `into` has no place for: all of them
            are listed, and nothing was touched.
        ChecksumError
            A blob is damaged; the text names it. Arrays of a mapping and bound arrays may then hold anything,
            blobs that were being filled in place are empty, and everything else is as it was.
        FormatError
            A blob does not follow the format, or its dtype needs a package that is missing.
        ClosedError
            The database was closed.
        """
        target = destination(into)
        items = self._plan(names, target)
        values = {item.name: item for item in items}
        ordered = sorted(items, key=lambda item: item.blob)
        # What is no tensor is small. It comes first, so that a bad one is found before any array is touched.
        small = [item for item in ordered if item.spec.kind != "tensor"]
        self._read(small, [np.empty(item.spec.shape, item.dtype) for item in small], keep=True)
        target.check(small)
        tensors = [item for item in ordered if item.spec.kind == "tensor"]
        self._read(tensors, [target.array(item) for item in tensors], keep=False)
        return {name: target.finish(item) for name, item in values.items()}

    def _plan(self, names: Iterable[str] | None, target: Destination) -> list[Item]:
        if isinstance(names, str):
            raise TypeError(f"expected names as an iterable of texts, found the single text {names!r:.80}")
        wanted = list(dict.fromkeys(names)) if names is not None else target.names(self._table.names)
        problems: list[str] = []
        if names is None:
            problems += target.surplus(self._table.names)
        items: list[Item] = []
        dtypes: dict[int, np.dtype[Any]] = {}
        missing = 0
        for name in wanted:
            blob = self._blobs.get(name)
            if blob is None:
                missing += 1
                problems.append(self._missing(name, missing <= _COMPARED))
                continue
            index = self._table.spec[blob]
            if index not in dtypes:
                dtypes[index] = self._dtype(name, self._table.specs[index])
            item = Item(blob, name, self._table.specs[index], dtypes[index])
            problem = target.problem(item)
            if problem is not None:
                problems.append(f"{name!r:.120}: {problem}")
            items.append(item)
        if problems:
            more = f"; and {len(problems) - _LISTED} more" if len(problems) > _LISTED else ""
            raise MismatchError(
                f"{self.path}: what is stored and what was asked for differ in {len(problems)} places: "
                + "; ".join(problems[:_LISTED])
                + more,
                hint="name the blobs you want with names=, or correct the destination; nothing was loaded",
            )
        return items

    def _missing(self, name: object, compare: bool) -> str:
        close = difflib.get_close_matches(str(name), self._blobs, n=3) if compare else []
        return f"{name!r:.120}: no such blob is stored" + (f" (there is {', '.join(close)})" if close else "")

    def _dtype(self, name: str, spec: Spec) -> np.dtype[Any]:
        try:
            dtype = dtype_from_spec(spec.dtype)
        except FormatError as error:
            raise FormatError(
                f"{self.path}: blob {name!r:.120}: {error.message}",
                path=self.path,
                place=name,
                hint=error.hint,
            ) from error
        if spec.kind not in KINDS:
            raise FormatError(
                f"{self.path}: blob {name!r:.120}: expected a kind of {', '.join(KINDS)}, found {spec.kind!r:.80}",
                path=self.path,
                place=name,
                hint="a newer jobcore wrote it: pip install -U jobcore, or name the other blobs with names=",
            )
        good = storage_of(dtype) == (spec.data_type, spec.item_bytes)
        if spec.kind == "counter":
            good = good and spec.data_type == "int64" and spec.shape == ()
        elif spec.kind != "tensor":
            good = good and spec.data_type == "uint8" and len(spec.shape) == 1 and not spec.item_bytes
        if not good:
            raise FormatError(
                f"{self.path}: blob {name!r:.120}: a {spec.kind} of dtype {spec.dtype!r:.80} and shape "
                f"{spec.shape} does not go with {spec.data_type} and item_bytes {spec.item_bytes}",
                path=self.path,
                place=name,
            )
        return dtype

    def _read(self, items: list[Item], arrays: list[np.ndarray[Any, Any]], keep: bool) -> None:
        for item, array in zip(items, arrays, strict=True):
            item.array = array
        self._reader.read(self._table, (container.Target(item.blob, item.sinks) for item in items))
        if not keep:
            return
        for item in items:
            try:
                item.value = decode(item.spec.kind, item.array)
            except FormatError as error:
                raise FormatError(
                    f"{self.path}: blob {item.name!r:.120}: {error.message}",
                    path=self.path,
                    place=item.name,
                    hint=error.hint,
                ) from error
