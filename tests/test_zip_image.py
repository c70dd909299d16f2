"""The native zip image against its slow twin: equal bytes for any content, in a stream as in an arena."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobcore._fast.arena import Arena
from jobcore._fast.chunk import BlockWriter
from jobcore._fast.image import ZipImage
from jobcore.errors import BlobValueError, ClosedError
from jobcore.store import Blosc, ChunkPolicy, Zstd, arenas, load, save, verify, zipformat, zipwriter
from jobcore.store.container import Content
from jobcore.store.layout import without_fields
from jobcore.store.metadata import Header
from jobcore.store.policies import Layout
from jobcore.store.values import collect
from jobcore.store.write import make_table
from slow_image import slow_database
from store_cases import DTYPES, TINY, any_bits

TEXTS = [
    "zarr.json",
    "nul",
    "com1.x",
    "con",
    "__x",
    ".hidden",
    "end.",
    "Größe/W:0",
    '"\\\n\x01\x7f',
    "a" * 300,
    "=~",
]


def content(
    blobs: dict[str, Any], chunks: ChunkPolicy, header: Header | None = None, codecs: list[Any] | None = None
) -> Content:
    collected = collect(blobs)
    layouts = None if codecs is None else [Layout(chunks, codec) for codec in codecs]
    table = make_table(collected, chunks, layouts)
    arrays = [without_fields(array) for array in collected.arrays]
    version = 3 if any(codecs or []) else 0
    return Content(table.names, arrays, table, header or Header(user={"x": [1, "ü"]}, version=version))


def in_arena(
    blobs: dict[str, Any], chunks: ChunkPolicy, codecs: list[Any] | None = None
) -> tuple[bytes, str]:
    made = content(blobs, chunks, codecs=codecs)
    with arenas.taken(zipwriter.bound(made)) as arena:
        written = zipwriter.fill(arena, made)
        return arena.tobytes(written.size_bytes), written.digest


def in_stream(
    blobs: dict[str, Any], chunks: ChunkPolicy, path: Path, codecs: list[Any] | None = None
) -> tuple[bytes, str]:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    writer = BlockWriter(fd, 1 << 16, 4, 2, False)
    try:
        written = zipwriter.fill(writer, content(blobs, chunks, codecs=codecs))
        writer.finish()
    finally:
        writer.close()
        os.close(fd)
    data = path.read_bytes()
    assert len(data) == written.size_bytes
    return data, written.digest


def compare(blobs: dict[str, Any], chunks: ChunkPolicy, path: Path, codecs: list[Any] | None = None) -> None:
    expected = slow_database(content(blobs, chunks, codecs=codecs))
    assert in_arena(blobs, chunks, codecs) == expected
    assert in_stream(blobs, chunks, path, codecs) == expected


names = st.one_of(
    st.sampled_from(TEXTS), st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=90)
)
shapes = st.lists(st.integers(0, 5), max_size=4).map(tuple)


@settings(max_examples=60, deadline=None)
@given(
    st.dictionaries(names, st.tuples(st.sampled_from(DTYPES), shapes, st.booleans()), max_size=6),
    st.sampled_from([TINY, ChunkPolicy()]),
)
def test_any_content_gives_the_bytes_of_the_slow_twin(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any], chunks: ChunkPolicy
) -> None:
    blobs = {}
    for seed, (name, (dtype, shape, turned)) in enumerate(drawn.items()):
        array = any_bits(dtype, shape, seed)
        blobs[name] = array.T if turned else array
    compare(blobs, chunks, tmp_path_factory.getbasetemp() / "stream")


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(names, st.tuples(st.sampled_from(DTYPES), shapes, st.booleans()), max_size=6),
    st.lists(
        st.sampled_from([None, Zstd(), Zstd(9), Blosc(), Blosc("lz4", 5, "shuffle")]), min_size=6, max_size=6
    ),
)
def test_any_content_and_codecs_give_the_bytes_of_the_slow_twin(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any], codecs: list[Any]
) -> None:
    blobs = {}
    for seed, (name, (dtype, shape, turned)) in enumerate(drawn.items()):
        array = any_bits(dtype, shape, seed)
        blobs[name] = array.T if turned else array
    compare(blobs, TINY, tmp_path_factory.getbasetemp() / "stream", codecs[: len(blobs)])


def test_large_chunks_that_are_encoded_give_the_bytes_of_the_slow_twin(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    blobs = {
        "noise": rng.integers(0, 256, (1000, 900), np.uint8),
        "plain": rng.integers(0, 9, (1000, 300), np.int64),
        "turned": rng.integers(0, 9, (700, 111), np.int64).T,
        "small": np.arange(3),
        "zeros": np.zeros(900_000, np.uint8),
        "turned and plain": rng.integers(0, 9, (700, 111), np.int64).T,
    }
    codecs = [Zstd(), None, Blosc(), None, Zstd(), None]
    for policy in (ChunkPolicy(), ChunkPolicy(300_000, 500_000)):
        compare(blobs, policy, tmp_path / "stream", codecs)


@pytest.mark.parametrize(
    "policy", [ChunkPolicy(), ChunkPolicy(300_000, 500_000), ChunkPolicy(1 << 20, 1 << 20)]
)
def test_large_arrays_of_any_layout_give_the_bytes_of_the_slow_twin(
    policy: ChunkPolicy, tmp_path: Path
) -> None:
    rng = np.random.default_rng(0)
    blobs = {
        "plain": rng.integers(0, 9, (1000, 300), np.int64),
        "turned": rng.integers(0, 9, (700, 111), np.int64).T,
        "small": np.arange(3),
        "every other": rng.integers(0, 9, (2, 300_000), np.uint8)[:, ::2],
        "back to front": rng.integers(0, 9, 200_000, np.int32)[::-1],
        "one row": rng.integers(0, 9, (1, 400_000), np.uint8),
        "exactly": np.zeros(256 << 10, np.uint8),
        "just below": np.ones((256 << 10) - 1, np.uint8),
        "text": "x" * 300_000,
    }
    compare(blobs, policy, tmp_path / "stream")


def test_wide_fields_give_the_bytes_of_the_slow_twin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(zipformat, "_WIDE32", 700)
    monkeypatch.setattr(zipformat, "_WIDE16", 5)
    compare(
        {"a": np.arange(20.0), "b": np.arange(200.0), "c": np.arange(70_000.0)},
        ChunkPolicy(),
        tmp_path / "stream",
    )


def test_no_blob_at_all_gives_the_bytes_of_the_slow_twin(tmp_path: Path) -> None:
    compare({}, ChunkPolicy(), tmp_path / "stream")


@pytest.mark.parametrize("durable", [False, True])
def test_a_file_has_the_bytes_of_the_image_whatever_its_size(
    durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blobs = {"a": np.arange(300_000.0), "b": np.arange(6.0).reshape(2, 3).T}
    expected, digest = slow_database(content(blobs, ChunkPolicy(), Header()))
    for small in (0, 1 << 30):
        monkeypatch.setattr(zipwriter, "_SMALL", small)
        result = save(tmp_path / "x", blobs, durable=durable, overwrite=True)
        assert (tmp_path / "x").read_bytes() == expected
        assert result.digest == digest
        assert verify(tmp_path / "x").ok


def test_the_bound_of_a_size_holds_for_names_that_grow() -> None:
    blobs = {chr(1) * 40 + str(i): np.float32(i) for i in range(300)} | {"\U0001f600" * 90: 1, "ü" * 15: 2}
    made = content(blobs, TINY)
    most = zipwriter.bound(made)
    assert len(slow_database(made)[0]) <= most


def test_an_arena_that_is_too_small_is_told_and_nothing_is_written_behind_it() -> None:
    arena = Arena(1)
    made = content({"a": np.zeros(arena.nbytes, np.uint8)}, ChunkPolicy())
    with pytest.raises(MemoryError, match="too small"):
        zipwriter.fill(arena, made)


def test_bad_calls_are_told() -> None:
    arena = Arena(1)
    image = ZipImage([(b"{", b"}", 1, 8, 8, 0)], arena, str)
    with pytest.raises(BlobValueError, match="array of 8 bytes, found 4"):
        image.add(["a"], [np.array(1, "f4")], [0])
    with pytest.raises(BlobValueError, match="one of 1 specs, found 1"):
        image.add(["a"], [np.zeros(())], [1])
    with pytest.raises(BlobValueError, match="1 arrays and specs, found 0 and 1"):
        image.add(["a"], [], [0])
    with pytest.raises(BlobValueError, match="to stop at 0 to 1, found 2"):
        image.add(["a"], [np.zeros(())], [0], 0, 2)
    for chunks in ([], [b"x", b"y"], [b""]):
        with pytest.raises(BlobValueError, match="expected 1 chunks of encoded bytes, found"):
            image.add_encoded("a", 0, chunks)
    with pytest.raises(BlobValueError, match="chunks that hold"):
        ZipImage([(b"{", b"}", 3, 8, 8, 0)], arena, str)
    with pytest.raises(TypeError, match="BlockWriter or an Arena"):
        ZipImage([], "file", str)  # type: ignore[arg-type]  # that is the test
    with pytest.raises(BlobValueError, match=r"1 to 16 threads"):
        arena.write_to(0, 1, threads=0)
    arena.close()
    with pytest.raises(ClosedError, match="closed"):
        arena.tobytes(1)


def test_arenas_are_used_again_and_not_hoarded() -> None:
    arenas.release()
    one, other = arenas.take(40 << 20), arenas.take(50 << 20)
    arenas.give(one)
    arenas.give(other)
    assert [arena.nbytes for arena in arenas._kept] == [50 << 20]
    assert arenas.take(30 << 20) is other
    arenas.give(other)
    larger = arenas.take(60 << 20)
    assert arenas._kept == []
    arenas.give(larger)
    small = arenas.take(1)
    assert small is not larger
    arenas.give(small)
    assert len(arenas._kept) == 2
    arenas.release()


def test_a_forked_child_saves_with_arenas_of_its_own(tmp_path: Path) -> None:
    save(tmp_path / "parent", {"a": 1})
    kept = arenas.take(1)
    child = os.fork()
    if child == 0:
        try:
            save(tmp_path / "child", {"a": np.arange(1000)})
            kept.tobytes(1)
        except ClosedError:
            os._exit(0)
        os._exit(1)
    assert os.waitpid(child, 0)[1] == 0
    arenas.give(kept)
    assert load(tmp_path / "child")["a"].sum() == 499_500
