"""Holding the entries of a container against those that the table implies."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from jobcore.store.metadata import Table
from jobcore.store.names import unescape
from jobcore.store.records import Fault
from jobcore.store.zipformat import ROOT_KEY, Entry, header_bytes

__all__ = ["blob_of_key", "disagreements"]


def disagreements(entries: list[Entry], table: Table) -> Iterator[Fault]:
    """Tell where the index and the table contradict each other.

    Parameters
    ----------
    entries
        All entries, the root last.
    table
        The table of the root document.

    Yields
    ------
    Fault
        Each missing, doubled, foreign or misplaced entry, and each wrong size or checksum; nothing for a
        whole database.
    """
    if not _agree(entries, table):
        yield from _explain(entries, table)


def blob_of_key(key: str) -> tuple[str | None, int]:
    """Guess blob and chunk of an entry from its key alone.

    Parameters
    ----------
    key
        Key of the entry.

    Returns
    -------
    tuple of (str or None) and int
        Name of the blob, ``None`` if the key does not give it, and 0, or -1 for a document.
    """
    node, _, rest = key.partition("/")
    try:
        name: str | None = unescape(node)
    except ValueError:
        name = None
    if rest == "zarr.json":
        return name, -1
    number = rest.split(".")[1] if rest.startswith("c.") else "0"
    return name, int(number) if number.isascii() and number.isdigit() and len(number) < 20 else 0


def _agree(entries: list[Entry], table: Table) -> bool:
    if len(entries) != len(table.place) + len(table.names) + 1 or entries[-1].key != ROOT_KEY:
        return False
    return all(
        entry.key == key and (chunk < 0 or _chunk_fits(entry, table, blob, chunk))
        for entry, (key, blob, chunk) in zip(entries, table.entries(), strict=False)
    )


def _chunk_fits(entry: Entry, table: Table, blob: int, chunk: int) -> bool:
    at = table.first[blob] + chunk
    return (
        entry.size == table.stored_bytes(blob, chunk)
        and entry.crc32 == table.crc32[at]
        and entry.offset + header_bytes(entry.key, entry.offset, entry.size) == table.place[at]
    )


def _explain(entries: list[Entry], table: Table) -> Iterator[Fault]:
    implied = {key: (blob, chunk) for key, blob, chunk in table.entries()}
    counts = Counter(entry.key for entry in entries)
    faulty = False
    for entry in entries:
        key = entry.key
        if key == ROOT_KEY:
            continue
        if key not in implied:
            faulty = True
            yield Fault(
                key, blob_of_key(key)[0], f"entry {key!r:.120}: expected none, the table has no such entry"
            )
            continue
        blob, chunk = implied[key]
        name = table.names[blob]
        if chunk >= 0 and not _chunk_fits(entry, table, blob, chunk):
            faulty = True
            at = table.first[blob] + chunk
            size = table.stored_bytes(blob, chunk)
            expected = f"expected {size} bytes at {table.place[at]} with CRC-32 {table.crc32[at]:08x}"
            found = f"found {entry.size} in the entry at {entry.offset} with CRC-32 {entry.crc32:08x}"
            yield Fault(key, name, f"blob {name!r:.120}, chunk {chunk}: {expected}, {found}")
    for key, count in counts.items():
        if count > 1:
            faulty = True
            owner = table.names[implied[key][0]] if key in implied else None
            yield Fault(key, owner, f"entry {key!r:.120}: expected once, found {count} times")
    for key, (blob, chunk) in implied.items():
        if key not in counts:
            faulty = True
            name = table.names[blob]
            part = "its document" if chunk < 0 else f"chunk {chunk}"
            yield Fault(key, name, f"blob {name!r:.120}, {part}: expected entry {key!r:.120}, found none")
    if not faulty:
        yield Fault(
            "index", None, "index: expected the entries in the order of the table, found another order"
        )
