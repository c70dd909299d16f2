"""``jobcore verify``: reads every byte of a checkpoint, or of a whole run, and names what is wrong."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import click

from jobcore.checkpoint import EpochRecord
from jobcore.cli.common import find_target, print_json, target_argument
from jobcore.cli.target import DatabaseFile, Run
from jobcore.cli.terminal import is_live_terminal, styled
from jobcore.cli.text import clean, count, size
from jobcore.errors import CheckpointNotFoundError
from jobcore.store import Fault, VerifyReport, files
from jobcore.store import verify as verify_database

__all__ = ["verify_command"]

_WORTH_PROGRESS_BYTES = 64 << 20
_Advance = Callable[[str, int], None]
_Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class _Item:
    """One database to verify; epoch, node and what the record says of it when it belongs to a run."""

    path: str
    epoch: int | None = None
    node: str | None = None
    size_bytes: int | None = None
    digest: str | None = None
    blobs: int | None = None


_EXAMPLES = """\b
Examples:
  jobcore verify runs/digits
  jobcore verify runs/digits@3
  jobcore verify model.zarr.zip && echo whole
"""


@click.command("verify", epilog=_EXAMPLES, short_help="Check every byte of a checkpoint or a run.")
@target_argument("CHECKPOINT|RUN")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON document instead of lines.")
@click.pass_context
def verify_command(ctx: click.Context, target: str, as_json: bool) -> None:
    """Read every byte of a checkpoint and hold it against its checksums.

    The argument is a database file, a run directory (every epoch on every node, claims and records too, and each
    database against the digest in its record), or RUN@EPOCH.

    One line a database says ok; each fault names file, place and blob. The exit status is 0 when all is well, 1 when
    anything is wrong, 2 when the path leads to no checkpoint.
    """
    found = find_target(target)
    log = list(_log_faults(found)) if isinstance(found, Run) else []
    items = list(_items(found))
    reports: list[tuple[_Item, VerifyReport]] = []
    with _progress(items, quiet=as_json) as (say, advance):
        for path, message in log:
            say(_fault_line(path, None, None, message))
        for item in items:
            advance(clean(item.path), 0)
            report = _verified(item)
            reports.append((item, report))
            for line in _report_lines(item, report):
                say(line)
            advance(clean(item.path), _size(item))
    faults = len(log) + sum(len(report.faults) for _, report in reports)
    if as_json:
        print_json(_as_json(target, log, reports))
    else:
        for line in _closing(found, reports, faults):
            print(line)
    ctx.exit(1 if faults else 0)


def _items(found: DatabaseFile | Run) -> Iterator[_Item]:
    if isinstance(found, DatabaseFile):
        yield _Item(str(found.path))
        return
    for record in _records(found):
        for node, entry in record.nodes.items():
            yield _Item(
                found.file(entry.file), record.epoch, node, entry.size_bytes, entry.digest, entry.blobs
            )


def _records(run: Run) -> tuple[EpochRecord, ...]:
    return run.history.records if run.epoch is None else (run.epoch,)


def _log_faults(run: Run) -> Iterator[tuple[str, str]]:
    """Yield path and message of each claim and record that is damaged or gone."""
    for fault in run.history.faults:
        if run.epoch is None or fault.epoch in (None, run.epoch.epoch):
            yield run.file(os.path.basename(fault.path)), fault.message  # noqa: PTH119 - paths are text here
    there = {claim.generation for claim in run.history.claims}
    damaged = {fault.generation for fault in run.history.faults if fault.epoch is None}
    for generation in sorted({record.generation for record in _records(run)} - there - damaged):
        yield (
            run.file(f"generation.{generation}.json"),
            f"expected the claim of generation {generation}, to which epochs belong, found no file",
        )


def _verified(item: _Item) -> VerifyReport:
    """Verify a database; its not being there is a fault like others, since a record names it."""
    try:
        report = verify_database(item.path, digest=item.digest)
    except CheckpointNotFoundError:
        missing = Fault("file", None, "expected a database, found no file")
        return VerifyReport(item.path, False, (missing,), 0, 0)
    except OSError as error:
        unread = Fault("file", None, f"cannot be read: {error.strerror or error}")
        return VerifyReport(item.path, False, (unread,), 0, 0)
    extra = []
    if item.size_bytes not in (None, report.size_bytes):
        extra.append(
            Fault("file", None, f"expected {item.size_bytes} bytes by the record, found {report.size_bytes}")
        )
    if report.ok and item.blobs not in (None, report.blobs):
        extra.append(Fault("root", None, f"expected {item.blobs} blobs by the record, found {report.blobs}"))
    if not extra:
        return report
    return VerifyReport(report.path, False, (*report.faults, *extra), report.blobs, report.size_bytes)


def _report_lines(item: _Item, report: VerifyReport) -> Iterator[str]:
    if report.ok:
        where = "" if item.epoch is None else f"epoch {item.epoch}, node {clean(item.node or '')}, "
        word = styled("ok:", "green", sys.stdout)
        yield f"{word} {clean(item.path)}: {where}{count(report.blobs, 'blob')}, {size(report.size_bytes)}"
    for fault in report.faults:
        yield _fault_line(item.path, fault.place, fault.blob, fault.message)


def _fault_line(path: str, place: str | None, blob: str | None, message: str) -> str:
    where = [path, place] if place and place != "file" else [path]
    if blob is not None and repr(blob) not in message:
        where.append(f"blob {blob!r}")
    # A message of the log names its file by its full path, which the line begins with already.
    message = message.replace(f" in {os.path.abspath(path)}", "")  # noqa: PTH100 - Path would keep ".." in it
    told = ": ".join(clean(part) for part in (*where, message))
    return f"{styled('fault:', 'red', sys.stdout)} {told}"


def _closing(
    found: DatabaseFile | Run, reports: list[tuple[_Item, VerifyReport]], faults: int
) -> Iterator[str]:
    """Yield what there is to say at the end of a run's verification: one file needs no sum."""
    if isinstance(found, DatabaseFile):
        return
    if not reports:
        yield f"no complete epoch in {clean(found.shown)}{': nothing to verify' if not faults else ''}"
    else:
        good = sum(report.ok for _, report in reports)
        bytes_ = sum(report.size_bytes for _, report in reports)
        yield f"{good} of {count(len(reports), 'database')} ok, {count(faults, 'fault')}, {size(bytes_)} read"
    if found.epoch is None and found.history.superseded:
        yield f"not verified: {count(len(found.history.superseded), 'superseded epoch')}"
    if found.epoch is None and found.unrecorded:
        yield f"not verified: {count(len(found.unrecorded), 'database')} without a record"


def _size(item: _Item) -> int:
    if item.size_bytes is not None:
        return item.size_bytes
    try:
        return files.tree_size(item.path)
    except OSError:
        return 0


@contextlib.contextmanager
def _progress(items: list[_Item], *, quiet: bool) -> Iterator[tuple[_Say, _Advance]]:
    """Give the functions that print a line and move the bar; a bar appears on a terminal when there is much to read."""
    total = sum(map(_size, items))

    def say(line: str) -> None:
        if not quiet:
            print(line, flush=True)

    if total < _WORTH_PROGRESS_BYTES or not is_live_terminal(sys.stderr):
        yield say, lambda _label, _bytes: None
        return
    from jobcore.cli.progress import ByteProgress

    with ByteProgress(total, quiet=quiet) as progress:
        yield progress.say, progress.advance


def _as_json(
    target: str, log: list[tuple[str, str]], reports: list[tuple[_Item, VerifyReport]]
) -> dict[str, Any]:
    return {
        "path": target,
        "ok": not log and all(report.ok for _, report in reports),
        "databases": [
            {
                "path": item.path,
                "epoch": item.epoch,
                "node": item.node,
                "ok": report.ok,
                "blobs": report.blobs,
                "bytes": report.size_bytes,
                "faults": [{"place": f.place, "blob": f.blob, "message": f.message} for f in report.faults],
            }
            for item, report in reports
        ],
        "log": [{"path": path, "message": message} for path, message in log],
    }
