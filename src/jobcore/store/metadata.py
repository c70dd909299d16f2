"""The root document of a database: what it says of the whole, and the table of all blobs.

Its members are section 4 of ``docs/reference/format.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Any

from jobcore._version import __version__
from jobcore.errors import VersionError
from jobcore.store.documents import dumps
from jobcore.store.layout import Spec
from jobcore.store.names import escape
from jobcore.store.sharing import Alias

__all__ = [
    "FORMAT",
    "FORMAT_3",
    "Header",
    "Table",
    "dump_root",
    "extra_columns",
    "lowest_version",
    "plain_version",
    "root_frame",
    "version_error",
]

#: The version of the format that a plain ``zarr.zip`` has.
FORMAT = 1
#: The version of a plain directory.
FORMAT_2 = 2
#: The version that has codecs, in both containers.
FORMAT_3 = 3
WRITER = f"jobcore {__version__}"


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
    version: int = 0

    @property
    def format(self) -> int:
        """The version of the format; where none is set, that of a plain database in its container."""
        return self.version or plain_version(self.container)


def plain_version(container: str) -> int:
    """Give the version of a database that has neither codecs nor aliases."""
    return FORMAT_2 if container == "zarr" else FORMAT


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
    size
        Bytes stored of each chunk that is encoded; of blobs without codecs there is none.
    aliases
        Blobs that are views of others. Where blobs are numbered, they come after all in `names`.
    first
        Index in `place` of each blob's first chunk, and the number of all chunks at the end.
    first_size
        Likewise in `size`; empty where no spec has codecs.
    """

    names: list[str]
    spec: list[int]
    specs: list[Spec]
    place: list[int] = field(default_factory=list)
    crc32: list[int] = field(default_factory=list)
    crc32c: list[int] = field(default_factory=list)
    hash: list[str] = field(default_factory=list)
    size: list[int] = field(default_factory=list)
    aliases: list[Alias] = field(default_factory=list)
    first: list[int] = field(init=False)
    first_size: list[int] = field(init=False)

    def __post_init__(self) -> None:
        chunks = [spec.chunks for spec in self.specs]
        self.first = list(accumulate(map(chunks.__getitem__, self.spec), initial=0))
        self.first_size = []
        if self.has_codecs:
            encoded = [spec.chunks if spec.codecs else 0 for spec in self.specs]
            self.first_size = list(accumulate(map(encoded.__getitem__, self.spec), initial=0))

    @property
    def has_codecs(self) -> bool:
        """Whether chunks of some blob are encoded."""
        return any(spec.codecs for spec in self.specs)

    def stored_bytes(self, blob: int, chunk: int) -> int:
        """Give the bytes that are stored of a chunk, its checksum in a directory not counted."""
        spec = self.spec_of(blob)
        return self.size[self.first_size[blob] + chunk] if spec.codecs else spec.chunk_bytes

    def stored_total(self, blob: int) -> int:
        """Give the bytes that are stored of all chunks of a blob, likewise."""
        spec = self.spec_of(blob)
        if not spec.codecs:
            return spec.chunks * spec.chunk_bytes
        return sum(self.size[self.first_size[blob] : self.first_size[blob + 1]])

    @property
    def count(self) -> int:
        """Number of all blobs."""
        return len(self.names) + len(self.aliases)

    def listing(self) -> dict[str, int]:
        """Give the number of each blob by its name, in the order in which the blobs were given."""
        if not self.aliases:
            return {name: blob for blob, name in enumerate(self.names)}
        at = {alias.position: blob for blob, alias in enumerate(self.aliases, len(self.names))}
        others = iter(range(len(self.names)))
        order = [at[i] if i in at else next(others) for i in range(self.count)]
        return {self.name_of(blob): blob for blob in order}

    def name_of(self, blob: int) -> str:
        """Give the name of the blob of that number."""
        names = self.names
        return names[blob] if blob < len(names) else self.aliases[blob - len(names)].name

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
        **_extra_columns(table),
    }
    head, tail = root_frame(header)
    return head + dumps(columns) + tail


def _chunk_columns(header: Header, table: Table) -> dict[str, list[Any]]:
    if header.container == "zarr":
        return {"crc32c": table.crc32c, "hash": table.hash}
    return {"place": table.place, "crc32": table.crc32}


def _extra_columns(table: Table) -> dict[str, list[Any]]:
    columns: dict[str, list[Any]] = {"size": table.size} if table.has_codecs else {}
    if table.aliases:
        columns["alias"] = [alias.to_json() for alias in table.aliases]
    return columns


def extra_columns(table: Table) -> bytes:
    """Write the columns that only some databases have, as JSON text that follows the other columns."""
    return b"".join(
        b"," + dumps(name) + b":" + dumps(column) for name, column in _extra_columns(table).items()
    )


def lowest_version(container: str, table: Table) -> int:
    """Give the lowest version of the format that can say what a table has to say."""
    return FORMAT_3 if _extra_columns(table) else plain_version(container)


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


def version_error(path: str, found: object, plain: int = FORMAT) -> VersionError:
    """Make the error for a format version that is not known in a container, whose plain version is given."""
    return VersionError(
        f"{path}: expected format version {plain} or {FORMAT_3}, found {found!r:.40}",
        path=path,
        place="root",
        hint="a newer jobcore wrote it: pip install -U jobcore",
    )
