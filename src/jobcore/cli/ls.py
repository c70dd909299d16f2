"""``jobcore ls``: the epochs of a run, read from its records alone."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import click

from jobcore.checkpoint import EpochRecord
from jobcore.cli.common import expect_run, print_json, target_argument
from jobcore.cli.target import Run
from jobcore.cli.terminal import styled
from jobcore.cli.text import clean, count, local_time, size, table
from jobcore.store import files

__all__ = ["ls_command"]

_HEAD = ("epoch", "generation", "nodes", "blobs", "bytes", "saved at", "stop")
_NUMBERS = range(5)


_EXAMPLES = """\b
Examples:
  jobcore ls runs/digits
  jobcore ls runs/digits --json | jq '.epochs[-1].bytes'
"""


@click.command("ls", epilog=_EXAMPLES, short_help="List the epochs of a run.")
@target_argument("RUN")
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with every node's file, size and digest.")
def ls_command(target: str, as_json: bool) -> None:
    """List the epochs that exist in the run directory RUN.

    No data is read. Notes below the table tell of epochs that a later start has superseded, and of damaged records.
    """
    run = expect_run(target)
    if as_json:
        print_json(_as_json(run))
        return
    records = run.history.records
    if records:
        head, *rows = table(_HEAD, (_row(record) for record in records), right=_NUMBERS)
        print(styled(head, "bold", sys.stdout), *rows, sep="\n")
    else:
        print(f"no complete epoch in {clean(run.shown)}")
    for note in _notes(run):
        print(f"{styled('note:', 'yellow', sys.stdout)} {note}")


def _row(record: EpochRecord) -> tuple[str, ...]:
    return (
        str(record.epoch),
        str(record.generation),
        str(len(record.nodes)),
        f"{_blobs(record):,}",
        size(record.size_bytes),
        local_time(record.created),
        ", ".join(map(clean, _reasons(record))) or "-",
    )


def _blobs(record: EpochRecord) -> int:
    return sum(entry.blobs for entry in record.nodes.values())


def _reasons(record: EpochRecord) -> list[str]:
    """Return the names of the stop conditions that held."""
    conditions = record.stop.get("conditions", ())
    return [str(one.get("name")) for one in conditions if isinstance(one, dict) and one.get("met")]


def _notes(run: Run) -> Iterator[str]:
    for record in run.history.records:
        for node, fault in _absent(run, record):
            yield f"epoch {record.epoch} cannot be loaded: node {clean(node)}: {fault}"
    for found in run.history.faults:
        what = "a claim" if found.epoch is None else f"the record of epoch {found.epoch}"
        state = "cannot be read" if found.unread else "is damaged"
        yield f"{what} (generation {found.generation}) {state}: {clean(found.message)}"
    by_generation: dict[int, list[int]] = {}
    for record in run.history.superseded:
        by_generation.setdefault(record.generation, []).append(record.epoch)
    for generation, epochs in sorted(by_generation.items()):
        listed = ", ".join(map(str, sorted(epochs)))
        yield (
            f"{count(len(epochs), 'epoch')} of generation {generation} superseded, "
            f"since a later start went on from before: {listed}"
        )
    if run.unrecorded:
        yield (
            f"{count(len(run.unrecorded), 'database')} without a record, of a save that is going on or was "
            f"interrupted: {', '.join(map(clean, run.unrecorded))}"
        )


def _absent(run: Run, record: EpochRecord) -> Iterator[tuple[str, str]]:
    """Yield node and fault of each database that is not there in its recorded size; nothing is read."""
    for node, entry in record.nodes.items():
        try:
            found = files.tree_size(run.history.directory / entry.file)
        except OSError as error:
            yield node, f"{clean(entry.file)}: {error.strerror}"
            continue
        if found != entry.size_bytes:
            yield node, f"{clean(entry.file)}: expected {entry.size_bytes:,} bytes, found {found:,}"


def _as_json(run: Run) -> dict[str, Any]:
    return {
        "run_directory": str(run.history.directory),
        "epochs": [_record_as_json(run, record) for record in run.history.records],
        "superseded": [_record_as_json(run, record) for record in run.history.superseded],
        "faults": [
            {
                "path": f.path,
                "epoch": f.epoch,
                "generation": f.generation,
                "message": f.message,
                "unread": f.unread,
            }
            for f in run.history.faults
        ],
        "unrecorded": list(run.unrecorded),
    }


def _record_as_json(run: Run, record: EpochRecord) -> dict[str, Any]:
    absent = dict(_absent(run, record))
    return {
        "epoch": record.epoch,
        "generation": record.generation,
        "run": record.run,
        "saved_at": record.created,
        "bytes": record.size_bytes,
        "blobs": _blobs(record),
        "stop": dict(record.stop),
        "nodes": {
            node: {
                "file": entry.file,
                "bytes": entry.size_bytes,
                "digest": entry.digest,
                "blobs": entry.blobs,
                "fault": absent.get(node),
            }
            for node, entry in record.nodes.items()
        },
    }
