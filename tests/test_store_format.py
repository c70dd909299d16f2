"""The layout is the documented one, and the files of every released version load for ever."""

from __future__ import annotations

import dataclasses
import json
import re
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import make_golden
import slow_directory
import slow_reader
from jobcore import Counter
from jobcore.store import (
    BlobPolicy,
    Blosc,
    ChunkPolicy,
    Zstd,
    inspect,
    load,
    save,
    verify,
    write_database,
    zipformat,
)
from jobcore.store.names import escape
from store_cases import DTYPES, any_bits, same_bits

DATA = Path(__file__).parent / "data"
GOLDEN = sorted(DATA.glob("format-*.zarr.zip"))
DIRECTORIES = sorted(DATA.glob("format-*.zarr"))
DOCUMENT = Path(__file__).parent.parent / "docs" / "reference" / "format.md"


def test_there_is_a_golden_file_of_every_version() -> None:
    assert [path.name for path in GOLDEN] == ["format-1.zarr.zip", "format-3.zarr.zip"]
    assert [path.name for path in DIRECTORIES] == ["format-2.zarr", "format-3.zarr"]


@pytest.mark.parametrize("path", [*GOLDEN, *DIRECTORIES], ids=lambda path: path.name)
def test_golden_files_load_to_the_values_they_were_made_of(path: Path) -> None:
    assert verify(path).ok
    found = load(path)
    expected = make_golden.values_3() if "format-3" in path.name else make_golden.values()
    assert list(found) == list(expected)
    for name, value in expected.items():
        if isinstance(value, np.ndarray | np.generic | float):
            assert same_bits(found[name], np.asarray(value)), name
        elif isinstance(value, Counter):
            assert found[name].retrieve() == value.retrieve()
        elif name.endswith("rng"):
            assert found[name].random() == value.random()  # type: ignore[attr-defined]  # both are generators
        elif name == "config":
            assert repr(found[name]) == repr(value)
        else:
            assert found[name] == value
    info = inspect(path)
    for name, value in make_golden.HEADER.items():
        assert getattr(info, name) == (tuple(value) if name == "skipped" else value)
    assert info.format == int(path.name[7])


@pytest.mark.parametrize("path", [GOLDEN[-1], DIRECTORIES[-1]], ids=lambda path: path.name)
def test_golden_files_of_version_3_have_codecs_and_aliases(path: Path, tmp_path: Path) -> None:
    again = tmp_path / path.name
    write_database(again, make_golden.values_3(), **make_golden.OPTIONS_3, **make_golden.HEADER)
    for one, other in zip(inspect(path).blobs, inspect(again).blobs, strict=True):
        # What a codec makes of a chunk may differ from one release of it to the next.
        assert one == dataclasses.replace(other, stored_bytes=one.stored_bytes)
    found = load(path)
    assert np.shares_memory(found["tied"], found["weights"])
    assert np.shares_memory(found["column"], found["weights"])
    used = {codec for blob in inspect(path).blobs for codec in blob.codecs}
    assert used == {"zstd(3)", "zstd(-1)", "blosc(zstd, 5, bitshuffle)", "blosc(lz4, 9, shuffle)"}


def test_what_is_written_today_is_the_golden_file(tmp_path: Path) -> None:
    path = tmp_path / "x"
    write_database(path, make_golden.values(), chunks=make_golden.CHUNKS, **make_golden.HEADER)
    golden = GOLDEN[0].read_bytes()
    # The root names the program that wrote it, which changes its length and checksum and those of the index.
    root = zipfile.ZipFile(path).getinfo("zarr.json").header_offset
    assert path.read_bytes()[:root] == golden[:root]
    with zipfile.ZipFile(path) as one, zipfile.ZipFile(GOLDEN[0]) as other:
        roots = [json.loads(file.read("zarr.json")) for file in (one, other)]
        assert one.namelist() == other.namelist()
    for document in roots:
        assert re.fullmatch(r"jobcore \d\S*", document["attributes"]["jobcore"].pop("writer"))
    assert roots[0] == roots[1]


def test_a_directory_that_is_written_today_is_the_golden_one(tmp_path: Path) -> None:
    path, golden = tmp_path / "x.zarr", DIRECTORIES[0]
    write_database(path, make_golden.values(), chunks=make_golden.CHUNKS, **make_golden.HEADER)
    one, other = (
        {str(p.relative_to(place)): p.read_bytes() for p in place.rglob("*") if p.is_file()}
        for place in (path, golden)
    )
    roots = [json.loads(files.pop("zarr.json"))["attributes"]["jobcore"] for files in (one, other)]
    assert one == other
    for root in roots:
        # Of the program that wrote it.
        assert re.fullmatch(r"jobcore \d\S*", root.pop("writer"))
        del root["sha256"]
    assert roots[0] == roots[1]


def same_as_slow(path: Path) -> None:
    if path.is_dir():
        header, blobs, digest = slow_directory.read(path)
        assert f"sha256:{header.pop('sha256')}" == digest
    else:
        header, blobs, digest = slow_reader.read(path.read_bytes())
    info = inspect(path)
    assert digest == info.digest
    assert header == {
        "format": info.format,
        "writer": info.writer,
        "container": info.container,
        "run": info.run,
        "node": info.node,
        "epoch": info.epoch,
        "generation": info.generation,
        "stop": info.stop,
        "user": info.user,
        "skipped": [list(pair) for pair in info.skipped],
    }
    found = load(path)
    assert list(blobs) == list(found)
    for name, (kind, value) in blobs.items():
        if kind == "tensor":
            assert same_bits(found[name], value)
        elif kind == "counter":
            assert value == found[name].retrieve().to_bytes(8, "little", signed=True)
        elif kind == "string":
            assert value.decode() == found[name]
        elif kind == "bytes":
            assert value == found[name]
        else:
            json.loads(value or b"null")


@pytest.mark.parametrize("path", [*GOLDEN, *DIRECTORIES], ids=lambda path: path.name)
def test_a_reader_written_from_the_document_reads_golden_files(path: Path) -> None:
    same_as_slow(path)


NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20) | st.sampled_from(
    ["A" * 300, ".", "__x", "con.x", "zarr.json", "LPT1", "é" * 40]
)
ARRAYS = st.builds(
    lambda dtype, shape, seed: any_bits(dtype, tuple(shape), seed),
    st.sampled_from(DTYPES),
    st.lists(st.integers(0, 5), max_size=4),
    st.integers(0, 99),
)
BLOBS = (
    ARRAYS | st.binary(max_size=20) | st.just("größe") | st.builds(Counter, st.integers(0, 2**62)) | st.none()
)


@given(st.dictionaries(NAMES, BLOBS, max_size=5), st.integers(1, 60))
def test_a_reader_written_from_the_document_reads_whatever_is_saved(
    blobs: dict[str, Any], target: int
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        save(path, blobs, durable=False, chunks=ChunkPolicy(target, 2 * target))
        same_as_slow(path)


@given(
    st.dictionaries(NAMES, BLOBS, max_size=5),
    st.integers(1, 60),
    st.lists(st.sampled_from([None, Zstd(), Blosc(), Blosc("lz4", 1, "shuffle")]), min_size=5, max_size=5),
    st.sampled_from(["x", "x.zarr"]),
)
def test_a_reader_written_from_the_document_reads_whatever_is_encoded(
    blobs: dict[str, Any], target: int, codecs: list[Any], name: str
) -> None:
    chunks = ChunkPolicy(target, 2 * target)
    policies = {name: BlobPolicy(chunks, codec) for name, codec in zip(blobs, codecs, strict=False)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / name
        save(path, blobs, durable=False, policies=policies)
        same_as_slow(path)


@given(NAMES)
def test_names_are_escaped_as_documented(name: str) -> None:
    assert escape(name) == slow_reader.key_of(name)


def test_wide_fields_are_read_by_us_and_by_a_zip_reader(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(zipformat, "_WIDE32", 2000)
    monkeypatch.setattr(zipformat, "_WIDE16", 3)
    state = {"small": np.arange(3.0), "big": np.arange(1000.0), "more": np.arange(500.0), "last": "x"}
    path = tmp_path / "x"
    save(path, state)
    assert verify(path).ok
    assert all(np.array_equal(load(path)[name], state[name]) for name in state)
    with zipfile.ZipFile(path) as file:
        assert file.testzip() is None
        assert file.getinfo("big/c.0").file_size == 8000
        assert file.getinfo("big/c.0").extract_version == 45
        assert file.getinfo("small/c.0").extract_version == 20
    monkeypatch.undo()
    # With the true limits the same file is one whose fields are wide without need, which no writer makes.
    assert not verify(path).ok


def test_the_wide_fields_of_a_large_file_are_the_documented_ones() -> None:
    entries, offset = [], 0
    for key, size in (("a/c.0", 2**32 - 2), ("b/c.0", 2**32 - 1), ("c/c.0", 5), ("zarr.json", 9)):
        entries.append(zipformat.Entry(key, offset, size, 7))
        offset += zipformat.header_bytes(key, offset, size) + size
    index, digest = zipformat.build_index(entries, offset)
    assert [len(zipformat.local_header(entry)) % 64 for entry in entries] == [
        -entry.offset % 64 for entry in entries
    ]
    tail = zipformat.parse_tail(index, offset + len(index), "x")
    assert tail is not None
    assert (tail.entries, tail.start) == (4, offset)
    assert zipformat.parse_directory(index, tail, "x") == entries
    assert zipformat.root_entry(index, tail, "x") == entries[-1]
    assert index.endswith(f"jobcore 1 sha256={digest[7:]}".encode())


def test_the_python_of_the_document_reads_a_file(tmp_path: Path) -> None:
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 3
    for name in ("model.zarr.zip", "model.zarr"):
        save(tmp_path / name, {"fc1/weight:0": np.arange(6.0).reshape(2, 3), "b": np.zeros((0, 2))})
    for block in blocks:
        done = subprocess.run(
            [sys.executable, "-X", "dev", "-W", "error", "-c", block],
            cwd=tmp_path,
            check=False,
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr


def test_the_keys_of_the_document_are_true() -> None:
    rows = re.findall(r"^\| `([^`]+)` \| `([^`]+)` \|$", DOCUMENT.read_text(encoding="utf-8"), re.MULTILINE)
    keys = dict(rows[: [name for name, _ in rows].index("nul.txt") + 1])
    assert len(keys) == 5
    assert all(escape(name) == key for name, key in keys.items())
