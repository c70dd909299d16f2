"""``jobcore show``: what a checkpoint holds, from its table alone."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import click

from jobcore.checkpoint import EpochRecord
from jobcore.cli.common import end, find_target, print_json, target_argument
from jobcore.cli.failure import explain
from jobcore.cli.target import DatabaseFile, Run
from jobcore.cli.terminal import styled
from jobcore.cli.text import clean, count, local_time, shape, size, table
from jobcore.errors import JobcoreError
from jobcore.store import BlobInfo, DatabaseInfo, inspect

__all__ = ["show_command"]

_HEAD = ("name", "kind", "dtype", "shape", "bytes")
_BYTES = (4, 5)


@dataclass(frozen=True, slots=True)
class _Shown:
    """A database: its path as the user wrote it, and what it says of itself, or why it cannot be read."""

    path: str
    found: DatabaseInfo | Exception


_EXAMPLES = """\b
Examples:
  jobcore show runs/digits
  jobcore show runs/digits@3
  jobcore show runs/digits/local.3.1.zarr.zip --json
"""


@click.command("show", epilog=_EXAMPLES, short_help="Show the blobs of a checkpoint.")
@target_argument("CHECKPOINT")
@click.option(
    "--json", "as_json", is_flag=True, help="Print JSON, with exact bytes and the number of chunks."
)
def show_command(target: str, as_json: bool) -> None:
    """Show what a checkpoint holds: its attributes, and name, kind, dtype, shape and bytes of each blob.

    CHECKPOINT is a database file, a run directory (its newest epoch, all nodes), or RUN@EPOCH. No data is read, so
    it takes the same time however large the checkpoint is.
    """
    found = find_target(target)
    record: EpochRecord | None = None
    if isinstance(found, DatabaseFile):
        shown = [_inspected(target)]
    else:
        record = found.epoch or _newest(found)
        shown = [_inspected(found.file(entry.file)) for entry in record.nodes.values()]
    if as_json:
        print_json(_as_json(shown, record))
    else:
        if isinstance(found, Run):
            _note_newer_damage(found, record)
        blocks = [
            list(_lines(one.path, one.found, record)) for one in shown if isinstance(one.found, DatabaseInfo)
        ]
        print("\n\n".join("\n".join(lines) for lines in blocks), end="\n" if blocks else "")
    errors = [line for one in shown if isinstance(one.found, Exception) for line in explain(one.found)]
    if errors:
        end(errors)


def _newest(run: Run) -> EpochRecord:
    record = run.history.latest()
    if record is None:
        end(
            [
                f"error: expected a complete epoch in {clean(run.shown)}, found none",
                f"hint: jobcore ls {clean(run.shown)}",
            ]
        )
    return record


def _note_newer_damage(run: Run, shown: EpochRecord | None) -> None:
    """Say so when a newer epoch would be there but for its record."""
    if shown is None or run.epoch is not None:
        return
    for fault in run.history.faults:
        if fault.epoch is not None and fault.epoch > shown.epoch:
            note = styled("note:", "yellow", sys.stderr)
            state = "cannot be read" if fault.unread else "is damaged"
            print(
                f"{note} the record of epoch {fault.epoch} {state}: {clean(fault.message)}",
                file=sys.stderr,
            )


def _inspected(path: str) -> _Shown:
    try:
        return _Shown(path, inspect(path))
    except (JobcoreError, OSError) as error:
        return _Shown(path, error)


def _lines(path: str, info: DatabaseInfo, record: EpochRecord | None) -> Iterator[str]:
    yield styled(clean(path), "bold", sys.stdout)
    attributes = list(_attributes(info, record))
    width = max(len(name) for name, _ in attributes)
    yield from (f"  {name:{width}}  {text}" for name, text in attributes)
    yield ""
    rows: list[tuple[str, ...]] = [
        (clean(blob.name), blob.kind, clean(blob.dtype), shape(blob.shape), f"{blob.nbytes:,}")
        for blob in info.blobs
    ]
    titles: tuple[str, ...] = _HEAD
    if any(blob.codecs or blob.alias_of is not None for blob in info.blobs):
        # Of most databases this would only say the same again.
        titles = (*_HEAD, "stored", "as")
        rows = [
            (*row, f"{blob.stored_bytes:,}", _stored_as(blob))
            for row, blob in zip(rows, info.blobs, strict=True)
        ]
    head, *body = table(titles, rows, right=_BYTES)
    yield styled(head, "bold", sys.stdout)
    yield from body
    yield f"{count(len(info.blobs), 'blob')}, {size(sum(blob.nbytes for blob in info.blobs))}"


def _stored_as(blob: BlobInfo) -> str:
    if blob.alias_of is not None:
        return f"view of {clean(blob.alias_of)}"
    return ", ".join(blob.codecs)


def _attributes(info: DatabaseInfo, record: EpochRecord | None) -> Iterator[tuple[str, str]]:
    for name, given in (
        ("run", info.run),
        ("node", info.node),
        ("epoch", info.epoch),
        ("generation", info.generation),
    ):
        if given not in ("", None):
            yield name, clean(str(given))
    if record is not None:
        yield "saved at", local_time(record.created)
    if info.stop:
        yield "stop", clean(_stop(info.stop))
    yield "writer", clean(info.writer)
    yield "format", f"{info.format} ({info.container})"
    yield "size", f"{size(info.size_bytes)} ({info.size_bytes:,} bytes)"
    yield "digest", info.digest
    if info.user is not None:
        yield "user", clean(json.dumps(info.user, ensure_ascii=False))
    if info.skipped:
        yield "skipped", ", ".join(f"{clean(name)} ({clean(reason)})" for name, reason in info.skipped)


def _stop(stop: Any) -> str:
    """Return the state of the stop conditions in words; what has another form comes as JSON."""
    try:
        conditions = ", ".join(
            f"{one['name']}: {'yes' if one['met'] else 'no'}" for one in stop["conditions"]
        )
        return f"{'yes' if stop['met'] else 'no'}{f' ({conditions})' if conditions else ''}"
    except (KeyError, TypeError):
        return json.dumps(stop, ensure_ascii=False)


def _as_json(shown: list[_Shown], record: EpochRecord | None) -> dict[str, Any]:
    return {
        "epoch": None if record is None else record.epoch,
        "saved_at": None if record is None else record.created,
        "databases": [
            {**dataclasses.asdict(one.found), "error": None}
            if isinstance(one.found, DatabaseInfo)
            else {"path": one.path, "error": str(one.found)}
            for one in shown
        ],
    }
