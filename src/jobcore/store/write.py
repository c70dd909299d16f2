"""Writing a database: everything is checked first, then written under a temporary name, then published."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Mapping, Sequence
from typing import Any

from jobcore.errors import SaveError
from jobcore.store import container, files
from jobcore.store.container import Content, Written
from jobcore.store.layout import ChunkPolicy, Spec, make_spec
from jobcore.store.metadata import Header, Table, check_json
from jobcore.store.records import WriteResult
from jobcore.store.values import Collected, collect
from jobcore.store.verification import verify as verify_file

__all__ = ["check_blobs", "save", "write_database"]

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
        The file; by custom it ends in ``.zarr.zip``. Its directory must exist.
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
    db_type: str = "zarr.zip",
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
        The file. Its directory must exist.
    blobs
        Name to ``Blob`` or value. Blobs that are transient, and timers, are skipped with the reason.
    db_type
        The container, ``"zarr.zip"``.
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
    container.check_type(db_type)
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
    final = files.absolute(path)
    needed = sum(spec.chunk_bytes * spec.chunks for spec in map(table.spec_of, range(len(table.names))))
    try:
        content = Content(table.names, collected.arrays, table, header)
        written = _write(
            final, content, None if base is None else files.absolute(base), durable, overwrite, verify
        )
    except SaveError:
        raise
    except OSError as error:
        raise _save_error(error, final, needed) from error
    return WriteResult(final, written.size_bytes, written.digest, len(table.names), header.skipped)


def make_table(collected: Collected, chunks: ChunkPolicy) -> Table:
    specs: list[Spec] = []
    index: dict[Any, int] = {}
    column: list[int] = []
    for kind, array in zip(collected.kinds, collected.arrays, strict=True):
        key = (kind, array.dtype, array.shape)
        at = index.get(key)
        if at is None:
            # Equal dtypes may differ in what equality does not see, such as alignment, but lie alike.
            at = index[key] = len(specs)
            specs.append(make_spec(kind, array.dtype, array.shape, chunks))
        column.append(at)
    return Table(collected.names, column, specs)


def _write(
    final: str, content: Content, base: str | None, durable: bool, overwrite: bool, verify: bool
) -> Written:
    # Opened first: a missing directory is told before anything is written.
    directory = files.open_directory(os.path.dirname(final))  # noqa: PTH120 - paths are plain text here
    try:
        _check_place(final, overwrite)
        out = container.create(content.header.container, final, durable=durable, base=base)
        published = False
        try:
            try:
                written = out.write(content)
                if durable:
                    out.sync()
            finally:
                out.close()
            if verify:
                _reread(out.temporary, final, written.digest)
            if overwrite:
                os.replace(out.temporary, final)  # noqa: PTH105 - paths are plain text here
            else:
                files.publish(out.temporary, final)
                published = True
            if durable:
                files.sync_directory(directory)
        except BaseException:
            files.remove_quietly(out.temporary)
            if published:
                # Its name may be gone after a power cut, so nobody must be able to rely on it now.
                files.remove_quietly(final)
            raise
    finally:
        files.close_quietly(directory)
    return written


def _check_place(final: str, overwrite: bool) -> None:
    # Publishing would find all this out too, but only after everything was written.
    try:
        mode = os.lstat(final).st_mode
    except FileNotFoundError:
        return
    if not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), final)
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), final)


def _reread(temporary: str, final: str, digest: str) -> None:
    report = verify_file(temporary, digest=digest)
    if not report.ok:
        raise SaveError(
            f"{final}: what was written could not be read back: " + "; ".join(map(str, report.faults[:5])),
            hint="the disk, its driver or the memory is at fault; nothing was changed",
        )


def _save_error(error: OSError, final: str, needed: int) -> SaveError:
    reason = error.strerror or str(error)
    hint = None
    if error.errno == errno.EEXIST:
        hint = "choose another name, or pass overwrite=True"
    elif error.errno in (errno.ENOSPC, errno.EDQUOT):
        reason += f"; its data takes {needed:,} bytes, and {_free(final)} bytes are free"
        hint = "make room, or raise the quota"
    raised = SaveError(f"{final}: the database could not be written: {reason}", hint=hint)
    raised.errno, raised.strerror, raised.filename = error.errno, error.strerror, final
    return raised


def _free(final: str) -> str:
    try:
        found = os.statvfs(os.path.dirname(final))  # noqa: PTH120 - paths are plain text here
    except OSError:
        return "an unknown number of"
    return f"{found.f_bavail * found.f_frsize:,}"


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected {what} as text, found {type(value).__qualname__}")
    check_json(value, what)
    return value


def _number(what: str, value: object) -> int | None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int)):
        raise TypeError(f"expected {what} as an int or None, found {type(value).__qualname__}")
    return value
