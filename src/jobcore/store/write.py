"""Writing a database: everything is checked before anything is written."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import repeat
from typing import Any

from jobcore.errors import BlobValueError
from jobcore.store import containers, files
from jobcore.store.container import Content
from jobcore.store.layout import ChunkPolicy, Spec, make_spec, without_fields
from jobcore.store.metadata import Header, Table, lowest_version
from jobcore.store.policies import AliasOf, Decisions, Layout, Policies, Skip, check_layout
from jobcore.store.records import WriteResult
from jobcore.store.saving import Saving
from jobcore.store.sharing import Alias, find_aliases
from jobcore.store.strict import check_json
from jobcore.store.values import Collected, collect, plain_mapping
from jobcore.store.workers import giving_way

__all__ = ["begin", "check_blobs", "make_table", "save", "write_database"]


def save(
    path: str | os.PathLike[str],
    blobs: Mapping[str, object],
    *,
    user: Any = None,
    overwrite: bool = False,
    durable: bool = True,
    verify: bool = False,
    chunks: ChunkPolicy | None = None,
    policies: Policies | None = None,
    share: bool = True,
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
        Whether a file of that name is replaced, in one step, once the new one is whole. Of a symbolic link that is
        the link itself, not what it points to. Pipes, devices, and directories that are no database stay in any case.
    durable
        Whether to return only when the file would survive a power cut.
    verify
        Whether to read the file back and check it before it gets its name.
    chunks
        How large arrays are cut where no policy says it; by default as :class:`ChunkPolicy` does, and smaller where
        they are encoded.
    policies
        What becomes of single blobs: a mapping from names to :class:`BlobPolicy`, :class:`Skip` or
        :class:`AliasOf`. A key that is no name of a blob and has ``*``, ``?`` or ``[`` in it is a pattern, in which
        ``*`` stands for any text, ``/`` included. A name beats every pattern. Or a callable, which is given the name
        and the array to be stored, and gives a policy or ``None``. Patterns and callables cut and encode tensors
        only; other blobs when they are named.
    share
        Whether arrays that share memory are stored once and loaded as views of one array: tied weights, slices,
        transposes. What is such a view of another array is then no array of its own for other readers of Zarr.

    Returns
    -------
    WriteResult
        Path, size and digest.

    Raises
    ------
    UnsupportedBlobError
        Values that cannot be stored, all of them named; nothing was written.
    BlobValueError
        `user` holds something that JSON cannot; or policies that do not go with the blobs: a name that no blob has,
        two patterns that say different things of one, an alias whose value is not like the blob that it names.
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
        path,
        blobs,
        user=user,
        overwrite=overwrite,
        durable=durable,
        verify=verify,
        chunks=chunks,
        policies=policies,
        share=share,
    )


def check_blobs(blobs: Mapping[str, object], *, policies: Policies | None = None) -> None:
    """Check that blobs can be stored, without writing anything.

    Parameters
    ----------
    blobs
        As for :func:`write_database`.
    policies
        As for :func:`save`.

    Raises
    ------
    UnsupportedBlobError
        Values that cannot be stored; all of them are named.
    BlobValueError
        Policies that do not go with the blobs.
    """
    blobs = plain_mapping(blobs)
    _choose(blobs, Decisions(policies, None, blobs))


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
    chunks: ChunkPolicy | None = None,
    policies: Policies | None = None,
    share: bool = True,
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
    durable, overwrite, verify, chunks, policies, share
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
        policies=policies,
        share=share,
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
    chunks: ChunkPolicy | None = None,
    policies: Policies | None = None,
    share: bool = True,
    base: str | os.PathLike[str] | None = None,
    publish: bool = True,
) -> Saving:
    """Check everything and begin a save.

    The parameters and errors are those of :func:`write_database`, but for `publish`: whether the database gets its
    name when it is finished, or later, together with others.
    """
    db_type = containers.type_of(files.absolute(path)) if db_type is None else containers.check_type(db_type)
    # Copies: what the database says of itself is that of this moment, however late it is written.
    stop, user = check_json(stop, "stop"), check_json(user, "user")
    blobs = plain_mapping(blobs)
    left_out = tuple((str(name), str(reason)) for name, reason in skipped)
    check_json([list(pair) for pair in left_out], "skipped")
    decisions = Decisions(policies, chunks, blobs)
    chosen = _choose(blobs, decisions)
    aliases = chosen.take_aliases(share=share)
    collected = chosen.collected
    table = make_table(collected, decisions.plain_layout.chunks, chosen.layouts)
    table.aliases = aliases
    header = Header(
        run=_text("run", run),
        node=_text("node", node),
        epoch=_number("epoch", epoch),
        generation=_number("generation", generation),
        stop=stop,
        user=user,
        skipped=(*left_out, *collected.skipped),
        container=db_type,
        version=lowest_version(db_type, table),
    )
    return Saving(
        files.absolute(path),
        Content(
            table.names, [without_fields(array) for array in giving_way(collected.arrays)], table, header
        ),
        base=None if base is None else files.absolute(base),
        durable=durable,
        overwrite=overwrite,
        verify=verify,
        publish=publish,
    )


@dataclass(slots=True)
class _Chosen:
    """Blobs that are stored, with what was decided of each.

    Attributes
    ----------
    collected
        The blobs.
    layouts
        How each of them is cut and encoded; ``None`` when all are alike.
    declared
        Which of them are to be what another one is: number of each, and of the other.
    """

    collected: Collected
    layouts: list[Layout] | None = None
    declared: dict[int, int] = field(default_factory=dict)

    def take_aliases(self, *, share: bool) -> list[Alias]:
        """Take out the blobs that are views of others."""
        whole = self.collected
        aliases = find_aliases(whole.kinds, whole.names, whole.arrays, self.declared, share=share)
        if aliases:
            taken = {alias.position for alias in aliases}
            left = [at for at in range(len(whole.names)) if at not in taken]
            self.collected = Collected(
                [whole.names[at] for at in left],
                [whole.kinds[at] for at in left],
                [whole.arrays[at] for at in left],
                whole.skipped,
            )
            if self.layouts is not None:
                self.layouts = [self.layouts[at] for at in left]
        return aliases


def _choose(blobs: Mapping[str, object], decisions: Decisions) -> _Chosen:
    left_out = decisions.skipped(blobs)
    if left_out:
        names = dict(left_out)
        blobs = {name: value for name, value in blobs.items() if name not in names}
    collected = collect(blobs)
    if decisions.plain:
        return _Chosen(collected)
    kept = Collected(skipped=[*left_out, *collected.skipped])
    chosen = _Chosen(kept, [])
    assert chosen.layouts is not None
    aliases: dict[int, AliasOf] = {}
    for name, kind, array in zip(collected.names, collected.kinds, collected.arrays, strict=True):
        decided = decisions.decide(name, kind, array)
        if isinstance(decided, Skip):
            kept.skipped.append((name, decided.reason))
            continue
        if isinstance(decided, AliasOf):
            aliases[len(kept.names)] = decided
            decided = decisions.plain_layout
        kept.names.append(name)
        kept.kinds.append(kind)
        kept.arrays.append(array)
        chosen.layouts.append(decided)
    if aliases:
        index = {name: at for at, name in enumerate(kept.names) if at not in aliases}
        for at, alias in aliases.items():
            chosen.declared[at] = _base_of(at, alias, index.get(alias.name), kept)
    check_json([list(pair) for pair in kept.skipped], "skipped")
    return chosen


def _base_of(at: int, alias: AliasOf, base: int | None, kept: Collected) -> int:
    name, kind, array = kept.names[at], kept.kinds[at], kept.arrays[at]
    if base is None:
        raise BlobValueError(
            f"blob {name!r:.120}: expected {alias} to name a blob that is stored itself, found none",
            hint="name one that is saved and neither skipped nor an alias",
        )
    found, other = (kind, array.dtype, array.shape), kept.arrays[base]
    expected = (kept.kinds[base], other.dtype, other.shape)
    if found != expected or kind != "tensor":
        raise BlobValueError(
            f"blob {name!r:.120}: expected a tensor like {alias.name!r:.120}, which is a {kept.kinds[base]} of dtype "
            f"{other.dtype} and shape {other.shape}, found a {kind} of dtype {array.dtype} and shape {array.shape}",
            hint="store it under its own name, or name a blob that is like it",
        )
    return base


def make_table(collected: Collected, chunks: ChunkPolicy, layouts: list[Layout] | None = None) -> Table:
    """Lay out what was collected; places and checksums are the writer's to fill in.

    Parameters
    ----------
    collected
        The blobs.
    chunks
        How they are cut.
    layouts
        How each of them is cut and encoded, in place of `chunks`.

    Returns
    -------
    Table
        The table of all blobs.

    Raises
    ------
    BlobValueError
        Chunks are too large to be encoded.
    """
    specs: list[Spec] = []
    index: dict[Any, int] = {}
    column: list[int] = []
    plain = Layout(chunks)
    columns = zip(
        collected.kinds, collected.arrays, repeat(plain) if layouts is None else layouts, strict=False
    )
    for kind, array, layout in giving_way(columns):
        # Data types are compared slowly, and most arrays share the very object; so do layouts.
        quick = (kind, id(array.dtype), array.shape, id(layout))
        at = index.get(quick)
        if at is None:
            # Equal dtypes may differ in what equality does not see, such as alignment, but lie alike.
            at = index.setdefault((kind, array.dtype, array.shape, layout), len(specs))
            if at == len(specs):
                spec = make_spec(kind, array.dtype, array.shape, layout.chunks, layout.codec)
                check_layout(collected.names[len(column)], spec)
                if layouts is not None:
                    # Layouts that differ may cut this shape alike.
                    at = index[kind, array.dtype, array.shape, layout] = index.setdefault(spec.identity(), at)
                if at == len(specs):
                    specs.append(spec)
            index[quick] = at
        column.append(at)
    return Table(collected.names, column, specs)


def _text(what: str, value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(f"expected {what} as text, found {type(value).__qualname__}")
    check_json(value, what)
    return value


def _number(what: str, value: object) -> int | None:
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"expected {what} as an int or None, found {type(value).__qualname__}")
    number: int = check_json(value, what)
    return number
