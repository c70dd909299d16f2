"""The units below the readers, called directly with arguments that no reader would give."""

from __future__ import annotations

import contextlib
import json
import os
import random
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import documents
from fuzz.corpus import Seed, limits
from fuzz.fields import blind, index_start
from fuzz.oracle import Finding, Hang, bounds
from jobcore._fast.chunk import read_chunks
from jobcore._fast.crc import crc32
from jobcore._fast.fresh import Rooms
from jobcore._fast.reader import ZipLayout
from jobcore._fast.table import RootTable
from jobcore.store.documents import native_specs
from jobcore.store.metadata import Table
from jobcore.store.names import escape
from jobcore.store.parsing import parse_root
from jobcore.store.strict import loads
from jobcore.store.zipformat import wide_from

#: What a wrong argument may be answered with; a crash or a write beside the target may not.
REFUSALS = (TypeError, ValueError, OverflowError, OSError, EOFError, MemoryError, AttributeError, BufferError)
GUARD = 64
#: From which size on a chunk is not read ahead.
LARGE = 1 << 18


def one(seed: Seed, folder: Path, rng: random.Random) -> list[str]:
    """One round of calls."""
    path = folder / "native"
    seed.write(path)
    fd = os.open(path, os.O_RDONLY)
    try:
        with limits(seed.wide), bounds():
            what = rng.choice([_layout, _layout, _table, _table, _chunks])
            return [f"native {what.__name__[1:]}: {what(seed, path, fd, rng)}"]
    except Hang as error:
        raise Finding(f"native: {error}") from error
    finally:
        os.close(fd)


def _hostile(rng: random.Random) -> Any:
    value = documents.scalar(rng)
    return rng.choice([value, value, -1, 2**63, 2**64, None, b"x", "x", np.zeros(3), object()])


def _columns(data: bytes, path: Path) -> tuple[Table, list[Any]]:
    with zipfile.ZipFile(path) as archive:
        _, table = parse_root(archive.read("zarr.json"), str(path), int(data[-73:-72]))
    return table, [list(table.names), list(table.spec), list(table.place), list(table.crc32)]


def _spoil(columns: list[Any], rng: random.Random) -> None:
    at = rng.randrange(len(columns))
    column = columns[at]
    if type(column) is not list or not column or rng.random() < 0.1:
        columns[at] = _hostile(rng)
    elif rng.random() < 0.3:
        rng.choice([list.pop, list.reverse, lambda c: c.append(c[0]), list.clear])(column)
    else:
        column[rng.randrange(len(column))] = rng.choice([*documents.NUMBERS, _hostile(rng)])


def _spoil_specs(specs: list[Any], rng: random.Random) -> None:
    if specs:
        row = list(specs[rng.randrange(len(specs))])
        row[rng.randrange(len(row))] = rng.choice(
            [*documents.NUMBERS, -1, 2**64, b"", b"x" * 70_000, None, "x", 1.5]
        )
        specs[rng.randrange(len(specs))] = tuple(row[: rng.choice([6, 6, 6, 5])])


def _layout(seed: Seed, path: Path, fd: int, rng: random.Random) -> str:
    data = seed.files[""]
    table, columns = _columns(data, path)
    specs: Any = native_specs(table.specs)
    long_key: Any = escape
    wide: Any = wide_from()
    encoded: Any = [bool(spec.codecs) for spec in table.specs] if table.has_codecs else None
    sizes: Any = list(table.size) or None
    spoilt = rng.choice(["", "", "columns", "columns", "specs", "key", "wide", "sizes"])
    if spoilt == "columns":
        for _ in range(rng.choice([1, 1, 2])):
            _spoil(columns, rng)
    elif spoilt == "specs":
        _spoil_specs(specs, rng)
    elif spoilt == "key":
        length = rng.choice([0, 1, 200, 201, 5000])
        long_key = rng.choice([lambda _: "x" * length, lambda _: "é", lambda _: b"x", None])
    elif spoilt == "wide":
        wide = _hostile(rng)
    elif spoilt == "sizes":
        both = [encoded or [False] * len(specs), sizes or []]
        _spoil(both, rng)
        encoded, sizes = both
    honest = not spoilt
    targets = [_guarded(table.spec_of(blob).nbytes) for blob in range(len(table.names))]
    came = "refused"
    with contextlib.suppress(*REFUSALS):
        root = RootTable(*columns)
        layout = ZipLayout(specs, root, long_key, wide, encoded, sizes)
        came = _read(layout, root, table, data, fd, targets, honest, rng)
    if honest and came == "refused":
        raise Finding("native layout: a whole table was refused")
    _check_guards(targets)
    return came


def _read(
    layout: ZipLayout,
    root: RootTable,
    table: Table,
    data: bytes,
    fd: int,
    targets: list[np.ndarray[Any, Any]],
    honest: bool,
    rng: random.Random,
) -> str:
    index = data[index_start(data) :]
    directory = index
    if rng.random() < 0.5:
        directory = rng.choice([blind(index, rng, index), b"", index[:30]])
        honest = honest and directory == index
    rooms = None
    if not table.has_codecs and rng.random() < 0.5:
        with contextlib.suppress(*REFUSALS):
            rooms = Rooms([((spec.nbytes,), np.dtype("u1")) for spec in table.specs], root)
    with contextlib.suppress(*REFUSALS):
        layout.offset(rng.choice([0, -1, 10**6, 2**63 - 1]))
    layout.begin(directory, rng.choice([fd, fd, fd, -1, 10**6]), rooms)
    if rng.random() < 0.1:
        return "left alone"
    held = rooms.arrays() if rooms is not None else {}
    at, small = layout.finish()
    if honest and (at is None or layout.end > len(data)):
        raise Finding("native layout: a whole index was not taken for one")
    with contextlib.suppress(*REFUSALS):
        layout.finish()
    came = "made" if at is not None else "not ok"
    blobs: list[Any] = list(range(len(table.names)))
    if rng.random() < 0.9:
        blobs = [blob for blob in blobs if not table.spec_of(blob).codecs]
    elif table.has_codecs:
        honest = False  # those that are encoded are refused
    arrays: list[Any] = [targets[blob][GUARD:-GUARD] for blob in blobs]
    threads = rng.choice([1, 2, 16])
    if not honest or rng.random() < 0.5:
        honest = False
        match rng.randrange(5):
            case 0 if blobs:
                odd = [None, np.zeros(1), b"x", np.zeros((4, 4))[::2], 3]
                arrays[rng.randrange(len(arrays))] = rng.choice(odd)
            case 1 if blobs:
                blobs[rng.randrange(len(blobs))] = rng.choice([-1, 0, len(blobs), 2**31, 2**63, None, "x"])
            case 2:
                fd = rng.choice([-1, 10**6, 2**31])
            case 3:
                threads = rng.choice([0, -1, 17, 2**31])
            case _:
                blobs, arrays = blobs[::2], arrays[::2]
    with contextlib.suppress(*REFUSALS):
        if layout.read(fd, blobs, arrays, threads):
            came = "read"
    if honest and came != "read":
        raise Finding("native layout: a whole file was not read")
    if honest and small:
        for name, target in zip(table.names, targets, strict=True):
            wanted = target[GUARD:-GUARD]
            if len(wanted) < LARGE and not np.array_equal(held[name], wanted):
                raise Finding(f"native layout: {name!r:.100} was read to other bytes ahead")
    return came


def _table(seed: Seed, path: Path, _fd: int, rng: random.Random) -> str:
    with zipfile.ZipFile(path) as archive:
        text = archive.read("zarr.json")
    mark = b'"blobs":'
    start = text.index(mark) + len(mark)
    for _ in range(rng.choice([0, 1, 1, 2])):
        # The columns only: what is before them is read by other means.
        text = text[:start] + blind(text[start:-3], rng, text) + text[-3:]
    try:
        found = RootTable.parse(text[:-3], rng.choice([start, start, start, start - 1, 0, len(text), 2**31]))
    except REFUSALS:
        return "refused"
    if found is None:
        return "not ok"
    try:
        loads(found.specs)
    except (ValueError, RecursionError):
        return "other specs"  # it leaves them to the reader of documents
    try:
        said = json.loads(text)["attributes"]["jobcore"]["blobs"]
    except (ValueError, KeyError, TypeError) as error:
        raise Finding(f"native table: columns were found in what is no document: {error}") from error
    columns = [found.names, *found.columns()]
    if columns != [said["name"], said["spec"], said["place"], said["crc32"]]:
        raise Finding(f"native table: found {columns!r:.500}, but it says {said!r:.500}")
    with contextlib.suppress(*REFUSALS):
        found.fits(
            [rng.choice(documents.NUMBERS) for _ in range(3)],
            [rng.choice(documents.NUMBERS) for _ in range(3)],
        )
    return "good"


def _guarded(nbytes: int) -> np.ndarray[Any, Any]:
    array = np.full(nbytes + 2 * GUARD, 0xA5, np.uint8)
    array[GUARD:-GUARD] = 0
    return array


def _check_guards(targets: list[np.ndarray[Any, Any]]) -> None:
    for target in targets:
        if not (target[:GUARD] == 0xA5).all() or not (target[-GUARD:] == 0xA5).all():
            raise Finding("native: bytes beside the target were written")


def _chunks(seed: Seed, path: Path, fd: int, rng: random.Random) -> str:
    data = seed.files[""]
    targets = []
    jobs: list[Any] = []
    honest = True
    for _ in range(rng.choice([0, 1, 2, 5])):
        offset, size = rng.randrange(len(data) + 1), rng.choice([0, 1, 63, 64, 4096, len(data)])
        size = min(size, len(data) - offset)
        if rng.random() < 0.3:
            offset, size = (
                rng.choice([*documents.NUMBERS, -1, offset]),
                rng.choice([*documents.NUMBERS, -1, size]),
            )
            honest = False
        target = _guarded(rng.choice([0, 1, min(abs(size), 1 << 20), min(abs(size), 1 << 20) + 100]))
        targets.append(target)
        view: Any = memoryview(target)[GUARD:-GUARD]  # type: ignore[arg-type]  # an array is a buffer
        if rng.random() < 0.2:
            view = rng.choice([None, b"abc", "x", 3, view[::2], np.zeros((2, 2))])
            honest = honest and view is None
        jobs.append((offset, size, view))
    if rng.random() < 0.1:
        jobs.append(rng.choice([None, (1, 2), (1, 2, 3, 4), ("a", "b", None)]))
        honest = False
    came = "refused"
    with contextlib.suppress(*REFUSALS):
        sums = read_chunks(fd, jobs, rng.choice([1, 2, 4]))
        came = "read"
        for (offset, size, view), found in zip(jobs, sums, strict=True):
            if found != crc32(data[offset : offset + size]):
                raise Finding(f"native chunks: a wrong sum of {size} bytes at {offset}")
            if view is not None and bytes(view[:size]) != data[offset : offset + size][: len(view)]:
                raise Finding(f"native chunks: wrong bytes, {size} at {offset}")
    if honest and came != "read":
        raise Finding(f"native chunks: {jobs!r:.300} was refused")
    _check_guards(targets)
    return came
