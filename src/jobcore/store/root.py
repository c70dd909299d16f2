"""The root document of an open database: its table as lists, or in native memory where a load needs no more."""

from __future__ import annotations

import json

from jobcore._fast.table import RootTable
from jobcore.errors import FormatError
from jobcore.store.layout import Spec
from jobcore.store.metadata import Header, Table, root_frame
from jobcore.store.parsing import parse_root

__all__ = ["Root", "columns_of", "read_root"]

_TABLE = b',"blobs":'
_END = b"}}}"


class Root:
    """What the root document says; it does not change.

    Parameters
    ----------
    header
        The database as a whole.
    specs
        The distinct specs.
    columns
        The table as native code has it, or ``None``.
    table
        The same as lists; made of `columns` when somebody asks for it.

    Notes
    -----
    Thread-safe.
    """

    __slots__ = ("_table", "columns", "header", "specs")

    def __init__(
        self, header: Header, specs: list[Spec], columns: RootTable | None, table: Table | None
    ) -> None:
        self.header = header
        self.specs = specs
        self.columns = columns
        self._table = table

    @property
    def table(self) -> Table:
        """The table as lists."""
        table = self._table
        if table is None:
            assert self.columns is not None
            # Two threads may make it at once; either will do.
            table = self._table = Table(self.columns.names, *_lists(self.columns, self.specs))
        return table


def _lists(columns: RootTable, specs: list[Spec]) -> tuple[list[int], list[Spec], list[int], list[int]]:
    spec, places, sums = columns.columns()
    return spec, specs, places, sums


def columns_of(data: memoryview) -> RootTable | None:
    """Take the table of a root document whose text is exactly what this library writes.

    Parameters
    ----------
    data
        The text, which need not be checked yet.

    Returns
    -------
    RootTable or None
        The columns, to be believed only when :func:`read_root` has looked at what stands before them.
    """
    start = _start(data)
    if start < 0 or data[-len(_END) :] != _END:
        return None
    return RootTable.parse(data[: -len(_END)], start)


def read_root(
    data: bytes | bytearray | memoryview, path: str, said: int | None, columns: RootTable | None = None
) -> Root:
    """Read the root document, which may come from a damaged or hostile file.

    Parameters
    ----------
    data
        The text.
    path, said
        As for :func:`~jobcore.store.parsing.parse_root`.
    columns
        What :func:`columns_of` found in it.

    Returns
    -------
    Root
        As :func:`~jobcore.store.parsing.parse_root` reads it.

    Raises
    ------
    FormatError
        As :func:`~jobcore.store.parsing.parse_root` does.
    """
    if columns is not None:
        found = _quick(memoryview(data), path, said, columns)
        if found is not None:
            return found
    header, table = parse_root(bytes(data) if isinstance(data, memoryview) else data, path, said)
    return Root(header, table.specs, None, table)


def _start(data: memoryview) -> int:
    # It stands near the beginning, unless there is much metadata of the user's own.
    for most in (1 << 12, len(data)):
        at = bytes(data[:most]).find(_TABLE + b'{"name":[')
        if at >= 0:
            return at + len(_TABLE)
    return -1


def _quick(data: memoryview, path: str, said: int | None, columns: RootTable) -> Root | None:
    # Everything but the columns is read by the general parser, out of a document without blobs. It is the same
    # document otherwise if the writer would put the same bytes before the table.
    head = bytes(data[: _start(data)])
    empty = b'{"name":[],"spec":[],"specs":' + columns.specs + b',"place":[],"crc32":[]}'
    try:
        if not isinstance(json.loads(columns.specs), list):
            return None
        header, table = parse_root(head + empty + _END, path, said)
        if root_frame(header) != (head, _END):
            return None
    except (FormatError, ValueError, RecursionError):
        return None  # what is wrong, and whether it matters, the general way tells
    specs = table.specs
    if table.aliases or table.has_codecs:
        return None
    if not columns.fits([spec.chunks for spec in specs], [spec.chunk_bytes for spec in specs]):
        return None
    if len(set(columns.names)) != len(columns.names):
        return None
    return Root(header, specs, columns, None)
