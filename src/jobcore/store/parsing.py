"""Reading the root document, which may come from a damaged or hostile file: every number is held against its range."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterator
from itertools import chain
from typing import Any

from jobcore.errors import FormatError, JobcoreError
from jobcore.store.layout import Spec, parse_spec
from jobcore.store.metadata import FORMAT_3, Header, Table, plain_version, version_error
from jobcore.store.names import check_name
from jobcore.store.sharing import Alias, parse_aliases
from jobcore.store.strict import check_json, loads

__all__ = ["parse_root"]

_HASH = re.compile(r"[0-9a-f]{32}")


def parse_root(data: bytes | bytearray, path: str, said: int | None = None) -> tuple[Header, Table]:
    """Read the root document, which may come from a damaged or hostile file.

    Parameters
    ----------
    data
        The text.
    path
        The file, for errors.
    said
        Version of the format that the end of a file told; ``None`` for a directory.

    Returns
    -------
    tuple of Header and Table
        Every number of the table is in range; places are in order, but not yet held against the file.

    Raises
    ------
    VersionError
        The format has another version.
    FormatError
        The document breaks a rule of the format.
    """
    try:
        root = loads(data)
        inner = root["attributes"]["jobcore"]
        version = inner["format"]
        plain = plain_version(inner.get("container"))
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"{path}: root document: expected the attributes of a jobcore database, found "
            f"{bytes(data[:60])!r} ({type(error).__name__}: {error})",
            path=path,
            place="root",
        ) from error
    if type(version) is not int or version not in (plain, FORMAT_3):
        raise version_error(path, version, plain)
    if said is not None and said != version:
        raise FormatError(
            f"{path}: root document: expected format version {said}, as the file ends with, found {version}",
            path=path,
            place="root",
        )
    try:
        header = _parse_header(inner)
        # A directory has no version beside its root; the columns of the one are none of the other's.
        container = "zarr" if said is None else "zarr.zip"
        _expect(header.container == container, f"the container {container}", header.container)
        table = _parse_table(inner["blobs"], header.container, version)
        if version >= FORMAT_3 and "alias" in inner["blobs"]:
            table.aliases = _parse_aliases(inner["blobs"]["alias"], table)
        return header, table
    except (KeyError, TypeError, ValueError, RecursionError) as error:
        text = error.message if isinstance(error, JobcoreError) else f"{type(error).__name__}: {error}"
        raise FormatError(f"{path}: root document: {text}", path=path, place="root") from error


def _parse_header(inner: dict[str, Any]) -> Header:
    for name in ("run", "node", "writer", "container"):
        _expect(isinstance(inner[name], str), f"{name} as text", inner[name])
    for name in ("epoch", "generation"):
        _expect(inner[name] is None or type(inner[name]) is int, f"{name} as an integer or null", inner[name])
    skipped = inner["skipped"]
    _expect(isinstance(skipped, list), "skipped as an array", skipped)
    for pair in skipped:
        good = isinstance(pair, list) and len(pair) >= 2 and all(isinstance(text, str) for text in pair[:2])
        _expect(good, "[name, reason]", pair)
    for name in ("stop", "user"):
        check_json(inner[name], name)
    return Header(
        run=inner["run"],
        node=inner["node"],
        epoch=inner["epoch"],
        generation=inner["generation"],
        stop=inner["stop"],
        user=inner["user"],
        skipped=tuple((pair[0], pair[1]) for pair in skipped),
        writer=inner["writer"],
        container=inner["container"],
        version=inner["format"],
    )


def _parse_table(blobs: dict[str, Any], container: str, version: int) -> Table:
    names, spec = blobs["name"], blobs["spec"]
    first, second = ("crc32c", "hash") if container == "zarr" else ("crc32", "place")
    sums, other = blobs[first], blobs[second]
    for column in (names, spec, sums, other, blobs["specs"]):
        _expect(isinstance(column, list), "columns as arrays", column)
    specs = [
        parse_spec(row, f"specs[{i}]", codecs=version >= FORMAT_3) for i, row in enumerate(blobs["specs"])
    ]
    for i, one in enumerate(specs):
        if not isinstance(one.dtype, str):
            check_json(one.dtype, f"specs[{i}]")
    _check_names(names)
    _expect(len(set(names)) == len(names), "each name once", f"{len(names) - len(set(names))} repeated")
    _expect(len(spec) == len(names), f"a spec for each of {len(names)} blobs", f"{len(spec)} specs")
    _expect(_integers(spec, len(specs)), "indices into specs", "another value")
    # Before anything is made for each chunk: a table may claim more chunks than any file could hold.
    counts = [one.chunks for one in specs]
    chunks = sum(map(counts.__getitem__, spec))
    _expect(len(sums) == chunks, f"checksums of {chunks} chunks", f"{len(sums)}")
    _expect(_integers(sums, 2**32), "32-bit checksums", "another value")
    size = _parse_sizes(blobs, specs, spec)
    if container == "zarr":
        _expect(len(other) == chunks, f"hashes of {chunks} chunks", f"{len(other)}")
        _expect(
            all(isinstance(text, str) and _HASH.fullmatch(text) for text in other), "hashes", "another value"
        )
        return Table(names, spec, specs, crc32c=sums, hash=other, size=size)
    _expect(len(other) == chunks, f"places of {chunks} chunks", f"{len(other)}")
    _expect(_integers(other, 2**63), "places as offsets in a file", "another value")
    table = Table(names, spec, specs, other, sums, size=size)
    # Of the specs in use only: any other may claim more chunks than memory could list.
    sizes = {i: (specs[i].chunk_bytes,) * specs[i].chunks for i in set(spec) if not specs[i].codecs}
    if table.has_codecs:
        lengths: Iterator[int] = chain.from_iterable(
            sizes[i] if i in sizes else size[table.first_size[blob] : table.first_size[blob + 1]]
            for blob, i in enumerate(spec)
        )
    else:
        lengths = chain.from_iterable(map(sizes.__getitem__, spec))
    ends = map(operator.add, other, lengths)
    _expect(all(map(operator.ge, other[1:], ends)), "places in order and apart", "chunks that overlap")
    return table


def _parse_sizes(blobs: dict[str, Any], specs: list[Spec], spec: list[int]) -> list[int]:
    if not any(one.codecs for one in specs):
        return []
    size: list[int] = blobs["size"]
    _expect(isinstance(size, list), "columns as arrays", size)
    encoded = [one.chunks if one.codecs else 0 for one in specs]
    chunks = sum(map(encoded.__getitem__, spec))
    _expect(len(size) == chunks, f"sizes of {chunks} encoded chunks", f"{len(size)}")
    at = 0
    for i in spec:
        if specs[i].codecs:
            part = size[at : at + specs[i].chunks]
            most = specs[i].stored_bound
            _expect(
                _integers(part, most + 1) and 0 not in part, f"1 to {most} bytes in an encoded chunk", part
            )
            at += specs[i].chunks
    return size


def _parse_aliases(rows: object, table: Table) -> list[Alias]:
    sizes = [spec.nbytes if spec.kind == "tensor" else 0 for spec in table.specs]
    aliases = parse_aliases(rows, table.names, [sizes[index] for index in table.spec])
    names = [alias.name for alias in aliases]
    _check_names(names)
    for i, one in enumerate(aliases):
        if not isinstance(one.dtype, str):
            check_json(one.dtype, f"alias[{i}]")
    distinct = len({*table.names, *names})
    _expect(
        distinct == len(table.names) + len(names), "each name once", "an alias with the name of another blob"
    )
    return aliases


def _check_names(names: list[Any]) -> None:
    # All at once, since each by itself would be most of the time that it takes to open a database of many.
    try:
        if set(map(type, names)) <= {str} and "" not in names:
            "".join(names).encode()
            return
    except UnicodeEncodeError:
        pass
    for name in names:
        reason = check_name(name)
        if reason is not None:
            raise FormatError(f"name {name!r:.80}: {reason}")


def _integers(values: list[Any], stop: int) -> bool:
    return not values or (set(map(type, values)) == {int} and min(values) >= 0 and max(values) < stop)


def _expect(good: bool, expected: str, found: object) -> None:
    if not good:
        raise FormatError(f"expected {expected}, found {found!r:.120}")
