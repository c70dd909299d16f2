"""Finding out what is wrong with a zip container: every entry, one by one."""

from __future__ import annotations

from collections.abc import Iterator

from jobcore.errors import FormatError
from jobcore.store.agreement import blob_of_key, disagreements
from jobcore.store.container import as_stored
from jobcore.store.documents import ArrayDocuments
from jobcore.store.metadata import Table
from jobcore.store.records import Fault
from jobcore.store.zipformat import Entry, Tail, parse_directory
from jobcore.store.zipscan import Scan, Step

__all__ = ["zip_faults"]


def zip_faults(path: str, index: memoryview, place: Tail, scan: Scan, table: Table | None) -> Iterator[Fault]:
    """Check every byte of a file but those of the root and of the end records.

    Parameters
    ----------
    path
        The file.
    index, place
        Its central directory, and what the end records say of it.
    scan
        What checks entries of the file.
    table
        The table of the root document, or ``None`` when that cannot be read; then each entry is checked
        by itself.

    Yields
    ------
    Fault
        Each damage, in the order of the file.
    """
    try:
        entries = parse_directory(index, place, path)
    except FormatError as error:
        yield Fault("index", None, _without(path, error.message))
        return
    found: list[tuple[int, Fault]] = []

    def note(step: Step, message: str, _: type[FormatError]) -> None:
        found.append((step.entry.offset, Fault(step.entry.key, step.blob, message)))

    if table is not None:
        yield from disagreements(entries, table)
    try:
        scan.scan(_steps(table, entries), note)
    except FormatError as error:
        # The file cannot be read any further.
        found.append((place.start, Fault("file", None, _without(path, error.message))))
    yield from (fault for _, fault in sorted(found, key=lambda pair: pair[0]))


def _steps(table: Table | None, entries: list[Entry]) -> Iterator[Step]:
    documents = ArrayDocuments(table.specs) if table is not None else None
    implied = {key: (blob, chunk) for key, blob, chunk in table.entries()} if table is not None else {}
    for entry in entries[:-1]:
        blob, chunk = implied.get(entry.key, (-1, 0))
        if table is None or documents is None or blob < 0:
            yield Step(entry, *blob_of_key(entry.key))
            continue
        name = table.names[blob]
        document = documents.document(name, table.spec[blob]) if chunk < 0 else None
        yield Step(entry, name, chunk, None if chunk < 0 else as_stored(table, blob, None), document)


def _without(path: str, message: str) -> str:
    return message.removeprefix(f"{path}: ")
