"""The layout that a table implies: where blobs are encoded, and what of a database takes the slow way."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore.errors import BlobValueError, ChecksumError
from jobcore.lowlevel import ZipLayout
from jobcore.store import Blosc, ChunkPolicy, containers, load, save, verify
from jobcore.store.documents import native_specs
from jobcore.store.metadata import Table
from jobcore.store.names import escape
from jobcore.store.zipformat import wide_from
from jobcore.store.zipreader import ZipReader
from jobcore.store.zipscan import Scan, Step
from policy_cases import encoded, repeated
from store_cases import same_bits

BLOBS: dict[str, Any] = {
    "a": np.arange(1000.0),
    "b": repeated(),
    "c": np.arange(80_000, dtype="i4"),
    "d": repeated(10),
    "e": np.array(3.0),
    "f": np.zeros((0, 4)),
    "text": "some",
    "ä/β" * 40: np.arange(5),
}
PLAIN = [name for name in BLOBS if name not in ("b", "d")]


@pytest.fixture
def mixed(tmp_path: Path) -> Path:
    path = tmp_path / "x.zarr.zip"
    small = ChunkPolicy(1 << 14, 1 << 15)
    save(path, BLOBS, policies={"b": encoded(Blosc(), chunks=small), "d": encoded()}, durable=False)
    return path


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> list[Step]:
    """Collect what is checked entry by entry."""
    found: list[Step] = []
    scan = Scan.scan

    def noted(self: Scan, steps: Iterable[Step], fault: Callable[..., None]) -> None:
        def each() -> Iterator[Step]:
            for step in steps:
                found.append(step)
                yield step

        scan(self, each(), fault)

    monkeypatch.setattr(Scan, "scan", noted)
    return found


def test_only_what_is_encoded_is_looked_at_entry_by_entry(mixed: Path, steps: list[Step]) -> None:
    values = load(mixed)
    assert all(same_bits(values[name], BLOBS[name]) for name in BLOBS if name != "text")
    assert {step.blob for step in steps} == {"b", "d"}
    steps.clear()
    assert verify(mixed).ok
    assert {step.blob for step in steps} == {"b", "d"}
    steps.clear()
    into = {name: np.zeros_like(value) for name, value in BLOBS.items() if name != "text"}
    load(mixed, [*into], into)
    assert all(same_bits(into[name], BLOBS[name]) for name in into)
    assert {step.blob for step in steps} == {"b", "d"}


def test_a_database_without_codecs_is_verified_in_native_code_alone(
    tmp_path: Path, steps: list[Step]
) -> None:
    path = tmp_path / "x.zarr.zip"
    save(path, BLOBS, durable=False)
    assert verify(path).ok
    assert not steps


@pytest.mark.parametrize("name", BLOBS)
def test_damage_of_any_blob_is_found_where_it_is(mixed: Path, name: str) -> None:
    table = _table(mixed)
    blob = table.names.index(name)
    chunks = range(table.first[blob], table.first[blob + 1])
    for at in [table.place[chunk] for chunk in chunks]:
        _flip(mixed, at)
        (fault,) = verify(mixed).faults
        assert fault.blob == name
        with pytest.raises(ChecksumError):
            load(mixed)
        others = load(mixed, [other for other in BLOBS if other != name])
        assert all(same_bits(others[other], BLOBS[other]) for other in others if other != "text")
        _flip(mixed, at)
    assert verify(mixed).ok


def test_blobs_that_are_encoded_have_places_but_are_not_read(mixed: Path) -> None:
    table = _table(mixed)
    names = table.names
    layout = _laid(mixed, table)
    assert layout is not None
    plain = [names.index(name) for name in sorted(PLAIN, key=names.index)]
    fd = os.open(mixed, os.O_RDONLY)
    try:
        assert layout.read(fd, plain, [None] * len(plain))
        for blob in {*range(len(names))} - {*plain}:
            assert 0 < layout.offset(blob) < table.place[table.first[blob]]
            with pytest.raises(BlobValueError, match=f"not encoded, found that of index {blob}"):
                layout.read(fd, [blob], [None])
    finally:
        os.close(fd)


def test_sizes_that_do_not_fit_make_no_layout(mixed: Path) -> None:
    table = _table(mixed)
    sizes = list(table.size)
    for wrong in (
        sizes[:-1],
        [*sizes, 1],
        [sizes[0] + 1, *sizes[1:]],
        [2**63, *sizes[1:]],
        [2**64 - 1] * len(sizes),
        [],
    ):
        assert _laid(mixed, table, wrong) is None
    for odd in ([-1], [2**64], ["4"], [None]):
        with pytest.raises(BlobValueError, match="expected sizes that a file can have"):
            _laid(mixed, table, odd)
    with pytest.raises(BlobValueError, match="expected as many in encoded as specs"):
        ZipLayout(native_specs(table.specs), _columns(mixed), escape, wide_from(), [True], sizes)


def _table(path: Path) -> Table:
    reader = containers.reader(str(path))
    try:
        return containers.root_of(reader).table
    finally:
        reader.close()


def _columns(path: Path) -> Any:
    from jobcore.lowlevel import RootTable

    table = _table(path)
    return RootTable(table.names, table.spec, table.place, table.crc32)


def _laid(path: Path, table: Table, sizes: Any = None) -> ZipLayout | None:
    reader = ZipReader(str(path))
    try:
        index = bytes(reader._index)
    finally:
        reader.close()
    codecs = [bool(spec.codecs) for spec in table.specs]
    chosen = list(table.size) if sizes is None else sizes
    layout = ZipLayout(native_specs(table.specs), _columns(path), escape, wide_from(), codecs, chosen)
    layout.begin(index)
    at, small = layout.finish()
    assert small is None
    return None if at is None else layout


def _flip(path: Path, at: int) -> None:
    path.chmod(0o644)
    with path.open("r+b") as file:
        file.seek(at)
        byte = file.read(1)[0]
        file.seek(at)
        file.write(bytes([byte ^ 1]))
