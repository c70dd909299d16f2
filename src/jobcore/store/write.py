"""Writing a database: everything is checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

from jobcore.store import container, files
from jobcore.store.container import Content
from jobcore.store.layout import ChunkPolicy, Spec, make_spec, without_fields
from jobcore.store.metadata import Header, Table, check_json
from jobcore.store.records import WriteResult
from jobcore.store.saving import Saving
from jobcore.store.values import Collected, collect

__all__ = ["begin", "check_blobs", "make_table", "save", "write_database"]

_DEFAULT_CHUNKS = ChunkPolicy()


def save(
    path: str | os.PathLike[str],
    blobs: Mapping[str, object],
    *,
    user: Any = None,
    overwrite: bool = False,
    durable: bool = True,
    verify: bool = False,
    chunks: ChunkPolicy = _DEFAULT_CHUNKS,
) -> WriteResult:
    """Save named values in one file, whole or not at all.

    Parameters
    ----------
    path
        The file; by custom it ends in ``.zarr.zip``. A path that ends in ``.zarr`` becomes a directory with a file
        for each chunk. The directory above must exist.
    blobs
        Name to value: arrays of any shape and of any dtype without Python objects, numbers, text, bytes,
        small Python state (None, lists, tuples, dicts), ``Counter``, and random generators.
    user
        Your own metadata: None, bool, int, float, str, lists, and dicts with str keys.
    overwrite
        Whether a file of that name is replaced, in one step, once the new one is whole.
    durable
        Whether to return only when the file would survive a power cut.
    verify
        Whether to read the file back and check it before it gets its name.
    chunks
        How large arrays are cut.

    Returns
    -------
    WriteResult
        Path, size and digest.

    Raises
    ------
    UnsupportedBlobError
        Values that cannot be stored, all of them named; nothing was written.
    BlobValueError
        `user` holds something that JSON cannot.
    SaveError
        The file exists, or the file system failed; nothing was changed. Only if the last step fails, forcing
        the directory to the disk, may a file that is overwritten be the new one already.

    Notes
    -----
    Thread-safe. An array must not be changed by another thread while it is saved.

    Examples
    --------
    >>> import numpy as np, jobcore
    >>> result = jobcore.save("model.zarr.zip", {"w": np.zeros((3, 4)), "epochs": 5})  # doctest: +SKIP
    """
    return write_database(
        path, blobs, user=user, overwrite=overwrite, durable=durable, verify=verify, chunks=chunks
    )


def check_blobs(blobs: Mapping[str, object]) -> None:
    """Check that blobs can be stored, without writing anything.

    Parameters
    ----------
    blobs
        As for :func:`write_database`.

    Raises
    ------
    UnsupportedBlobError
        Values that cannot be stored; all of them are named.
    """
    collect(blobs)


def write_database(
    path: str | os.PathLike[str],
    blobs: Mapping[str, object],
    *,
    db_type: str | None = None,
    run: str = "",
    node: str = "",
    epoch: int | None = None,
    generation: int | None = None,
    stop: Any = None,
    user: Any = None,
    skipped: Sequence[tuple[str, str]] = (),
    durable: bool = True,
    overwrite: bool = False,
    verify: bool = False,
    chunks: ChunkPolicy = _DEFAULT_CHUNKS,
    base: str | os.PathLike[str] | None = None,
) -> WriteResult:
    """Write the database of one node and epoch.

    Parameters
    ----------
    path
        The file, or the directory. The directory above must exist.
    blobs
        Name to ``Blob`` or value. Blobs that are transient, and timers, are skipped with the reason.
    db_type
        The container: ``"zarr.zip"``, a file, or ``"zarr"``, a directory. By default a directory if `path` ends
        in ``.zarr``, and a file otherwise.
    run, node, epoch, generation
        What the database belongs to.
    stop, user
        State of the stop condition and the user's own metadata, as for :func:`save`.
    skipped
        Name and reason of blobs that the caller left out; they are recorded.
    durable, overwrite, verify, chunks
        As for :func:`save`.
    base
        An earlier database of the same container, whose unchanged chunks the new one may share.

    Returns
    -------
    WriteResult
        Path, size, digest, and what was skipped.

    Raises
    ------
    UnsupportedBlobError, BlobValueError, SaveError
        As for :func:`save`.
    ValueError
        `db_type` is not known.

    Notes
    -----
    Thread-safe. Tensors are written from their own memory, without a copy; one that is not contiguous is
    gathered a few MiB at a time. A blob that is fed meanwhile keeps its old value in the database; a
    *bound* array must not be changed.
    """
    return begin(
        path,
        blobs,
        db_type=db_type,
        run=run,
        node=node,
        epoch=epoch,
        generation=generation,
        stop=stop,
        user=user,
        skipped=skipped,
        durable=durable,
        overwrite=overwrite,
        verify=verify,
        chunks=chunks,
        base=base,
    ).finish()


def begin(
    path: str | os.PathLike[str],
    blobs: Mapping[str, object],
    *,
    db_type: str | None = None,
    run: str = "",
    node: str = "",
    epoch: int | None = None,
    generation: int | None = None,
    stop: Any = None,
    user: Any = None,
    skipped: Sequence[tuple[str, str]] = (),
    durable: bool = True,
    overwrite: bool = False,
    verify: bool = False,
    chunks: ChunkPolicy = _DEFAULT_CHUNKS,
    base: str | os.PathLike[str] | None = None,
) -> Saving:
    """Check everything and begin a save; the parameters and errors are those of :func:`write_database`."""
    db_type = container.type_of(files.absolute(path)) if db_type is None else container.check_type(db_type)
    check_json(stop, "stop")
    check_json(user, "user")
    left_out = tuple((str(name), str(reason)) for name, reason in skipped)
    check_json([list(pair) for pair in left_out], "skipped")
    collected = collect(blobs)
    header = Header(
        run=_text("run", run),
        node=_text("node", node),
        epoch=_number("epoch", epoch),
        generation=_number("generation", generation),
        stop=stop,
        user=user,
        skipped=(*left_out, *collected.skipped),
        container=db_type,
    )
    table = make_table(collected, chunks)
    return Saving(
        files.absolute(path),
        Content(table.names, list(map(without_fields, collected.arrays)), table, header),
        base=None if base is None else files.absolute(base),
        durable=durable,
        overwrite=overwrite,
        verify=verify,
    )


def make_table(collected: Collected, chunks: ChunkPolicy) -> Table:
    """Lay out what was collected; places and checksums are the writer's to fill in."""
    specs: list[Spec] = []
    index: dict[Any, int] = {}
    column: list[int] = []
    for kind, array in zip(collected.kinds, collected.arrays, strict=True):
        # Data types are compared slowly, and most arrays share the very object.
        quick = (kind, id(array.dtype), array.shape)
        at = index.get(quick)
        if at is None:
            # Equal dtypes may differ in what equality does not see, such as alignment, but lie alike.
            at = index.setdefault((kind, array.dtype, array.shape), len(specs))
            index[quick] = at
            if at == len(specs):
                specs.append(make_spec(kind, array.dtype, array.shape, chunks))
        column.append(at)
    return Table(collected.names, column, specs)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected {what} as text, found {type(value).__qualname__}")
    check_json(value, what)
    return value


def _number(what: str, value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"expected {what} as an int or None, found {type(value).__qualname__}")
    return value
