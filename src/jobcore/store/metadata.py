"""The JSON documents of a database: one small one for each blob, and the root with the table of all.

Their members are section 4 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from jobcore._version import __version__
from jobcore.errors import BlobValueError, FormatError, VersionError
from jobcore.store.layout import DATA_TYPES, Spec, parse_spec
from jobcore.store.names import check_name, escape

__all__ = ["FORMAT", "ArrayDocuments", "Header", "Table", "check_json", "dump_root", "parse_root"]

#: The version of the format that is written, and the only one that is read so far.
FORMAT = 1
WRITER = f"jobcore {__version__}"
_MAX_DEPTH = 64
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
    """

    def __init__(self, specs: Sequence[Spec]) -> None:
        self._frames = [_frame(spec) for spec in specs]

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


def _frame(spec: Spec) -> tuple[bytes, bytes]:
    codec: dict[str, Any] = {"name": "bytes"}
    if DATA_TYPES[spec.data_type] > 1:
        codec["configuration"] = {"endian": "big" if spec.big_endian else "little"}
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.stored_shape),
        "data_type": spec.data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.chunk_shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": _fill_value(spec.data_type),
        "codecs": [codec],
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
    first
        Index in `place` of each blob's first chunk, and the number of all chunks at the end.
    """

    names: list[str]
    spec: list[int]
    specs: list[Spec]
    place: list[int] = field(default_factory=list)
    crc32: list[int] = field(default_factory=list)
    first: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self.first = list(accumulate((self.specs[i].chunks for i in self.spec), initial=0))

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
    inner = {
        "format": FORMAT,
        "writer": header.writer,
        "container": header.container,
        "run": header.run,
        "node": header.node,
        "epoch": header.epoch,
        "generation": header.generation,
        "stop": header.stop,
        "user": header.user,
        "skipped": [list(pair) for pair in header.skipped],
        "blobs": {
            "name": table.names,
            "spec": table.spec,
            "specs": [spec.to_json() for spec in table.specs],
            "place": table.place,
            "crc32": table.crc32,
        },
    }
    return dumps({"zarr_format": 3, "node_type": "group", "attributes": {"jobcore": inner}})


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
    except (ValueError, KeyError, TypeError, RecursionError, UnicodeDecodeError) as error:
        raise FormatError(
            f"{path}: root document: expected the attributes of a jobcore database, found "
            f"{bytes(data[:60])!r} ({type(error).__name__}: {error})",
            path=path,
            place="root",
        ) from error
    if type(version) is not int or version != FORMAT:
        raise version_error(path, version)
    try:
        return _parse_header(inner), _parse_table(inner["blobs"])
    except (FormatError, KeyError, TypeError, ValueError) as error:
        text = error.message if isinstance(error, FormatError) else f"{type(error).__name__}: {error}"
        raise FormatError(f"{path}: root document: {text}", path=path, place="root") from error


def version_error(path: str, found: object) -> VersionError:
    """Make the error for a format version that is not known."""
    return VersionError(
        f"{path}: expected format version {FORMAT}, found {found!r:.40}",
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


def _parse_table(blobs: dict[str, Any]) -> Table:
    names, spec, place, crc32 = (blobs[column] for column in ("name", "spec", "place", "crc32"))
    for column in (names, spec, place, crc32, blobs["specs"]):
        _expect(isinstance(column, list), "columns as arrays", column)
    specs = [parse_spec(row, f"specs[{i}]") for i, row in enumerate(blobs["specs"])]
    for name in names:
        reason = check_name(name)
        if reason is not None:
            raise FormatError(f"name {name!r:.80}: {reason}")
    _expect(len(set(names)) == len(names), "each name once", f"{len(names) - len(set(names))} repeated")
    _expect(len(spec) == len(names), f"a spec for each of {len(names)} blobs", f"{len(spec)} specs")
    _expect(all(type(i) is int and 0 <= i < len(specs) for i in spec), "indices into specs", "another value")
    # Before anything is made for each chunk: a table may claim more chunks than any file could hold.
    chunks = sum(specs[i].chunks for i in spec)
    _expect(len(place) == chunks, f"places of {chunks} chunks", f"{len(place)}")
    _expect(len(crc32) == chunks, f"checksums of {chunks} chunks", f"{len(crc32)}")
    _expect(all(type(n) is int and 0 <= n < 2**32 for n in crc32), "32-bit checksums", "another value")
    _expect(all(type(n) is int and n >= 0 for n in place), "places as offsets", "another value")
    table = Table(names, spec, specs, place, crc32)
    end = 0
    for blob in range(len(names)):
        size = table.spec_of(blob).chunk_bytes
        for at in place[table.first[blob] : table.first[blob + 1]]:
            _expect(at >= end, "places in order and apart", f"{at} for a chunk of {names[blob]!r:.80}")
            end = at + size
    return table


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
