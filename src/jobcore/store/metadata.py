"""The JSON documents of a database: one small one for each blob, and the root with the table of all.

Their members are section 4 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import json
import math
import operator
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain
from typing import Any

from jobcore._version import __version__
from jobcore.errors import BlobValueError, FormatError, VersionError
from jobcore.store.layout import DATA_TYPES, Spec, parse_spec
from jobcore.store.names import check_name, escape

__all__ = [
    "FORMAT",
    "ArrayDocuments",
    "Header",
    "Table",
    "check_json",
    "dump_root",
    "dumps",
    "parse_root",
    "root_frame",
    "same_document",
]

#: The version of the format that a plain ``zarr.zip`` has.
FORMAT = 1
#: The version of the directory container.
FORMAT_2 = 2
WRITER = f"jobcore {__version__}"
_MAX_DEPTH = 64
_HASH = re.compile(r"[0-9a-f]{32}")
_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any) -> bytes:
    """Write compact JSON, the same bytes for the same value."""
    return _encode(value).encode()


class ArrayDocuments:
    """The ``zarr.json`` of each blob.

    Most blobs of a database share a few specs, so everything but the name is made once for each.

    Parameters
    ----------
    specs
        The distinct specs.
    container
        Name of the container, which decides the codecs.
    """

    def __init__(self, specs: Sequence[Spec], container: str = "zarr.zip") -> None:
        self._frames = [_frame(spec, container) for spec in specs]

    @property
    def frames(self) -> list[tuple[bytes, bytes]]:
        """The text before and after the name, of each spec."""
        return self._frames

    def document(self, name: str, spec: int) -> bytes:
        """Give the document of a blob.

        Parameters
        ----------
        name
            Name of the blob.
        spec
            Index of its spec.

        Returns
        -------
        bytes
            UTF-8 JSON text.
        """
        head, tail = self._frames[spec]
        return head + _encode(name).encode() + tail


def native_specs(table: Table) -> list[tuple[bytes, bytes, int, int, int, int]]:
    """Give the specs of a table as native code takes them."""
    return [
        (head, tail, spec.chunks, spec.chunk_bytes, spec.nbytes, len(spec.stored_shape))
        for (head, tail), spec in zip(ArrayDocuments(table.specs).frames, table.specs, strict=True)
    ]


def _frame(spec: Spec, container: str) -> tuple[bytes, bytes]:
    codec: dict[str, Any] = {"name": "bytes"}
    if DATA_TYPES[spec.data_type] > 1:
        codec["configuration"] = {"endian": "big" if spec.big_endian else "little"}
    codecs = [codec]
    if container == "zarr":
        codecs.append({"name": "crc32c"})
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.stored_shape),
        "data_type": spec.data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.chunk_shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": _fill_value(spec.data_type),
        "codecs": codecs,
        "dimension_names": _dimension_names(spec.stored_shape),
        "attributes": {"jobcore": {"kind": spec.kind, "dtype": spec.dtype}},
    }
    text = dumps(document)
    # Quotes inside a text are escaped, so no field of a structured type can look like this.
    mark = b'"attributes":{"jobcore":{'
    at = text.index(mark) + len(mark)
    return text[:at] + b'"name":', b"," + text[at:]


def _fill_value(data_type: str) -> Any:
    if data_type == "bool":
        return False
    if data_type.startswith("complex"):
        return ["NaN", "NaN"]
    return "NaN" if data_type.startswith("float") else 0


def _dimension_names(shape: tuple[int, ...]) -> list[str]:
    names: list[str] = []
    seen: dict[int, int] = {}
    for length in shape:
        seen[length] = count = seen.get(length, 0) + 1
        names.append(f"d{length}" if count == 1 else f"d{length}_{count}")
    return names


def same_document(found: bytes | memoryview, implied: bytes) -> bool:
    """Tell whether a document says what the table implies.

    Another writer may order and space its text otherwise, and add members; what is implied must be there.
    """
    try:
        return _covers(json.loads(bytes(found)), json.loads(implied))
    except (ValueError, RecursionError):
        return False


def _covers(found: object, implied: object) -> bool:
    if isinstance(implied, dict):
        return isinstance(found, dict) and all(
            key in found and _covers(found[key], value) for key, value in implied.items()
        )
    if isinstance(implied, list):
        return isinstance(found, list) and len(found) == len(implied) and all(map(_covers, found, implied))
    # 1 == True == 1.0 in Python, not in JSON.
    return type(found) is type(implied) and found == implied


@dataclass(frozen=True, slots=True)
class Header:
    """What the root says about the database as a whole; the members are those of ``DatabaseInfo``."""

    run: str = ""
    node: str = ""
    epoch: int | None = None
    generation: int | None = None
    stop: Any = None
    user: Any = None
    skipped: tuple[tuple[str, str], ...] = ()
    writer: str = WRITER
    container: str = "zarr.zip"

    @property
    def format(self) -> int:
        """The lowest version of the format that can say all this."""
        return FORMAT if self.container == "zarr.zip" else FORMAT_2


@dataclass(slots=True)
class Table:
    """The table of all blobs, by columns.

    Attributes
    ----------
    names
        Name of each blob.
    spec
        Index of each blob's spec.
    specs
        The distinct specs.
    place
        Offset in the file of each chunk, in bytes.
    crc32
        Checksum of each chunk.
    crc32c, hash
        In a directory, in place of the two before: checksum and 128-bit hash of each chunk, as hex digits.
    first
        Index in `place` of each blob's first chunk, and the number of all chunks at the end.
    """

    names: list[str]
    spec: list[int]
    specs: list[Spec]
    place: list[int] = field(default_factory=list)
    crc32: list[int] = field(default_factory=list)
    crc32c: list[int] = field(default_factory=list)
    hash: list[str] = field(default_factory=list)
    first: list[int] = field(init=False)

    def __post_init__(self) -> None:
        chunks = [spec.chunks for spec in self.specs]
        self.first = list(accumulate(map(chunks.__getitem__, self.spec), initial=0))

    def spec_of(self, blob: int) -> Spec:
        """Give the spec of the blob of that index."""
        return self.specs[self.spec[blob]]

    def entries(self) -> Iterator[tuple[str, int, int]]:
        """Give every entry of the container but the root, in order.

        Yields
        ------
        tuple of str, int, int
            Key, index of the blob, and number of the chunk or -1 for the blob's document.
        """
        for blob, name in enumerate(self.names):
            spec = self.spec_of(blob)
            key = escape(name)
            for chunk in range(spec.chunks):
                yield spec.chunk_key(key, chunk), blob, chunk
            yield f"{key}/zarr.json", blob, -1


def dump_root(header: Header, table: Table) -> bytes:
    """Write the root document.

    Parameters
    ----------
    header
        The database as a whole.
    table
        All blobs, places and checksums filled in.

    Returns
    -------
    bytes
        UTF-8 JSON text.
    """
    columns = {
        "name": table.names,
        "spec": table.spec,
        "specs": [spec.to_json() for spec in table.specs],
        **_chunk_columns(header, table),
    }
    head, tail = root_frame(header)
    return head + dumps(columns) + tail


def _chunk_columns(header: Header, table: Table) -> dict[str, list[Any]]:
    if header.container == "zarr":
        return {"crc32c": table.crc32c, "hash": table.hash}
    return {"place": table.place, "crc32": table.crc32}


def root_frame(header: Header) -> tuple[bytes, bytes]:
    """Write the root document before and after its table."""
    inner = {
        # A directory has no other place for its digest; zeros stand for it until all else is known.
        **({"sha256": "0" * 64} if header.container == "zarr" else {}),
        "format": header.format,
        "writer": header.writer,
        "container": header.container,
        "run": header.run,
        "node": header.node,
        "epoch": header.epoch,
        "generation": header.generation,
        "stop": header.stop,
        "user": header.user,
        "skipped": [list(pair) for pair in header.skipped],
    }
    text = dumps({"zarr_format": 3, "node_type": "group", "attributes": {"jobcore": inner}})
    return text[:-3] + b',"blobs":', b"}}}"


def parse_root(data: bytes | bytearray, path: str) -> tuple[Header, Table]:
    """Read the root document, which may come from a damaged or hostile file.

    Parameters
    ----------
    data
        The text.
    path
        The file, for errors.

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
        root = json.loads(data)
        inner = root["attributes"]["jobcore"]
        version = inner["format"]
        expected = FORMAT_2 if inner.get("container") == "zarr" else FORMAT
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise FormatError(
            f"{path}: root document: expected the attributes of a jobcore database, found "
            f"{bytes(data[:60])!r} ({type(error).__name__}: {error})",
            path=path,
            place="root",
        ) from error
    if type(version) is not int or version != expected:
        raise version_error(path, version, expected)
    try:
        header = _parse_header(inner)
        return header, _parse_table(inner["blobs"], header.container)
    except (FormatError, KeyError, TypeError, ValueError) as error:
        text = error.message if isinstance(error, FormatError) else f"{type(error).__name__}: {error}"
        raise FormatError(f"{path}: root document: {text}", path=path, place="root") from error


def version_error(path: str, found: object, expected: int = FORMAT) -> VersionError:
    """Make the error for a format version that is not known."""
    return VersionError(
        f"{path}: expected format version {expected}, found {found!r:.40}",
        path=path,
        place="root",
        hint="a newer jobcore wrote it: pip install -U jobcore",
    )


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
    )


def _parse_table(blobs: dict[str, Any], container: str) -> Table:
    names, spec = blobs["name"], blobs["spec"]
    first, second = ("crc32c", "hash") if container == "zarr" else ("crc32", "place")
    sums, other = blobs[first], blobs[second]
    for column in (names, spec, sums, other, blobs["specs"]):
        _expect(isinstance(column, list), "columns as arrays", column)
    specs = [parse_spec(row, f"specs[{i}]") for i, row in enumerate(blobs["specs"])]
    _check_names(names)
    _expect(len(set(names)) == len(names), "each name once", f"{len(names) - len(set(names))} repeated")
    _expect(len(spec) == len(names), f"a spec for each of {len(names)} blobs", f"{len(spec)} specs")
    _expect(_integers(spec, len(specs)), "indices into specs", "another value")
    # Before anything is made for each chunk: a table may claim more chunks than any file could hold.
    counts = [one.chunks for one in specs]
    chunks = sum(map(counts.__getitem__, spec))
    _expect(len(sums) == chunks, f"checksums of {chunks} chunks", f"{len(sums)}")
    _expect(_integers(sums, 2**32), "32-bit checksums", "another value")
    if container == "zarr":
        _expect(len(other) == chunks, f"hashes of {chunks} chunks", f"{len(other)}")
        _expect(
            all(isinstance(text, str) and _HASH.fullmatch(text) for text in other), "hashes", "another value"
        )
        return Table(names, spec, specs, crc32c=sums, hash=other)
    _expect(len(other) == chunks, f"places of {chunks} chunks", f"{len(other)}")
    _expect(_integers(other, 2**63), "places as offsets in a file", "another value")
    # Of the specs in use only: any other may claim more chunks than memory could list.
    sizes = {i: (specs[i].chunk_bytes,) * specs[i].chunks for i in set(spec)}
    ends = map(operator.add, other, chain.from_iterable(map(sizes.__getitem__, spec)))
    _expect(all(map(operator.ge, other[1:], ends)), "places in order and apart", "chunks that overlap")
    return Table(names, spec, specs, other, sums)


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


def check_json(value: object, where: str, depth: int = 0) -> None:
    """Refuse what JSON cannot hold or would give back as something else.

    Parameters
    ----------
    value
        None, bool, int of up to 64 bits, finite float, str, list, or dict with str keys.
    where
        What to call it in an error.
    depth
        How deep it lies in the whole.

    Raises
    ------
    BlobValueError
        A leaf does not fit; the text gives its path, such as ``user['lr'][2]``.
    """
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError as error:
            raise BlobValueError(f"{where}: expected Unicode text, found a lone surrogate") from error
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise BlobValueError(f"{where}: expected an integer of at most 64 bits, found a larger one")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise BlobValueError(
                f"{where}: expected a finite number, found {value!r}", hint="use None or text"
            )
    elif isinstance(value, list | dict):
        if depth == _MAX_DEPTH:
            raise BlobValueError(f"{where:.200}: nested deeper than {_MAX_DEPTH} levels")
        if isinstance(value, list):
            for i, item in enumerate(value):
                check_json(item, f"{where}[{i}]", depth + 1)
            return
        for key, item in value.items():
            if not isinstance(key, str):
                raise BlobValueError(f"{where}: expected keys of type str, found {key!r:.80}")
            check_json(key, f"{where}[{key!r}]", depth + 1)
            check_json(item, f"{where}[{key!r}]", depth + 1)
    else:
        raise BlobValueError(
            f"{where}: expected None, bool, int, float, str, list or dict, found {type(value).__qualname__}",
            hint="convert with float(), int(), list() or str(), or store it as a blob",
        )
