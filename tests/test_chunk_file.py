"""Files of chunks, against the same done byte by byte."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

import slow_chunk_file
from jobcore._fast.chunk_file import ChunkFiles
from jobcore._fast.crc32c import crc32c
from jobcore._fast.hash128 import hash128
from jobcore.errors import BlobValueError

BLOCK = 1 << 20
NOISE = np.random.default_rng(4).bytes(3 * BLOCK + 99)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Path, int]]:
    path = tmp_path_factory.mktemp("files")
    fd = os.open(path, os.O_RDONLY)
    yield path, fd
    os.close(fd)


@settings(max_examples=50, deadline=None)
@given(st.integers(0, 300) | st.integers(0, 5_000), st.integers(0, 300) | st.integers(0, 5_000))
@example(0, 0)
@example(240, 0)
@example(240, 1)
@example(0, 241)
@example(12_288, 12_288)
@example(63, 2**14)
def test_is_what_the_slow_twin_writes(folder: tuple[Path, int], size: int, zeros: int) -> None:
    path, fd = folder
    data = NOISE[:size]
    found = ChunkFiles(fd).chunk("fast", data, zeros)
    assert found == (*slow_chunk_file.chunk(path / "slow", data, zeros), -1)
    assert (path / "fast").read_bytes() == (path / "slow").read_bytes()
    for name in ("fast", "slow"):
        (path / name).unlink()


@pytest.mark.parametrize("zeros", [0, 1, 64, 5_000, BLOCK - 4, BLOCK, 3 * BLOCK + 7])
@pytest.mark.parametrize("size", [0, 1, BLOCK - 4, BLOCK - 1, BLOCK, BLOCK + 1, BLOCK + 63, 3 * BLOCK + 99])
def test_round_the_edges_of_blocks(folder: tuple[Path, int], size: int, zeros: int) -> None:
    path, fd = folder
    whole = NOISE[:size] + bytes(zeros)
    found = ChunkFiles(fd).chunk("c", NOISE[:size], zeros)
    assert found == (crc32c(whole), hash128(whole), -1)
    assert (path / "c").read_bytes() == whole + crc32c(whole).to_bytes(4, "little")
    (path / "c").unlink()


@pytest.mark.parametrize("zeros", [0, 1, BLOCK, 5 * BLOCK + 7])
@pytest.mark.parametrize(
    "size", [0, 1, BLOCK, 4 * BLOCK - 1, 4 * BLOCK, 4 * BLOCK + 1, 8 * BLOCK, 9 * BLOCK + 5]
)
def test_pieces_make_the_same_file(folder: tuple[Path, int], size: int, zeros: int) -> None:
    path, fd = folder
    data = (NOISE * 4)[:size]
    files = ChunkFiles(fd)
    expected = files.chunk("whole", data, zeros)
    for step in (4 * BLOCK, 3 * BLOCK + 1, 70_001):
        pieces = (data[at : at + step] for at in range(0, size, step))
        assert files.chunk_in_pieces("c", pieces, size, zeros) == expected
        assert (path / "c").read_bytes() == (path / "whole").read_bytes()
        (path / "c").unlink()
    (path / "whole").unlink()


def test_pieces_that_are_not_what_was_said_leave_nothing_open(folder: tuple[Path, int]) -> None:
    path, fd = folder
    files, before = ChunkFiles(fd), psutil.Process().num_fds()

    def failing() -> Iterator[bytes]:
        yield bytes(5 * BLOCK)
        raise MemoryError("no room for the next")

    for pieces, nbytes, error, text in (
        ([b"ab", b"c"], 2, BlobValueError, "pieces of 2 bytes together, found more"),
        ([b"ab"], 3, BlobValueError, "pieces of 3 bytes together, found 2"),
        (failing(), 6 * BLOCK, MemoryError, "no room for the next"),
        ([np.arange(9)[::2]], 40, BlobValueError, "contiguous"),
        (["text"], 4, TypeError, "a buffer"),
        ([], -1, BlobValueError, "expected nbytes within 0"),
    ):
        with pytest.raises(error, match=text):
            files.chunk_in_pieces("c", pieces, nbytes)  # type: ignore[arg-type]  # that is the test
        (path / "c").unlink(missing_ok=True)
    (path / "c").touch()
    with pytest.raises(FileExistsError):
        files.chunk_in_pieces("c", [b"a"], 1)
    (path / "c").unlink()
    assert psutil.Process().num_fds() == before
    *_, kept = files.chunk_in_pieces("c", iter([b"a"]), 1, keep=True)
    os.close(kept)
    (path / "c").unlink()


def test_checksum_and_hash_are_those_of_the_file_though_the_data_change(tmp_path: Path) -> None:
    """Otherwise a later epoch would be linked to bytes that it does not have."""
    fd = os.open(tmp_path, os.O_RDONLY)
    data = np.zeros(8 * BLOCK, "u8")
    end = threading.Event()

    def change() -> None:
        while not end.is_set():
            data[:] += 1

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for number in range(5):
            crc, digest, _ = ChunkFiles(fd).chunk(f"c{number}", data)
            there = (tmp_path / f"c{number}").read_bytes()
            assert (crc32c(there[:-4]), hash128(there[:-4])) == (crc, digest)
            assert there[-4:] == crc.to_bytes(4, "little")
    finally:
        end.set()
        thread.join()
        os.close(fd)


def test_many_threads_at_once(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    files = ChunkFiles(fd)
    found: dict[int, tuple[int, bytes, int]] = {}

    def write(first: int) -> None:
        for number in range(first, first + 8):
            found[number] = files.chunk(f"c{number}", NOISE[number : BLOCK + 3 * number])

    threads = [threading.Thread(target=write, args=(8 * i,)) for i in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    os.close(fd)
    for number in range(160):
        data = NOISE[number : BLOCK + 3 * number]
        assert found[number] == (crc32c(data), hash128(data), -1)
        assert (tmp_path / f"c{number}").read_bytes()[:-4] == data


def test_plain_files_and_folders(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    files = ChunkFiles(fd, 0o600)
    files.folder("a")
    assert files.file("a/x", b"") == -1
    kept = files.file("a/y", NOISE, keep=True)
    assert files.chunk("a/z", b"xyz", keep=True)[2] == kept + 1
    assert (tmp_path / "a/x").read_bytes() == b""
    assert (tmp_path / "a/y").read_bytes() == NOISE
    assert (tmp_path / "a/y").stat().st_mode & 0o777 == 0o600
    for one in (kept, kept + 1, fd):
        os.close(one)


def test_what_cannot_be_made_is_an_error_that_names_it(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    files = ChunkFiles(fd)
    files.folder("a")
    files.file("x", b"old")
    before = psutil.Process().num_fds()
    for key, code in (
        ("x", errno.EEXIST),
        ("no/x", errno.ENOENT),
        ("x/y", errno.ENOTDIR),
        ("n" * 300, errno.ENAMETOOLONG),
    ):
        for call in (files.file, files.chunk):
            with pytest.raises(OSError) as caught:  # noqa: PT011 - its number is what matters
                call(key, b"new")
            assert (caught.value.errno, caught.value.filename) == (code, key)
    with pytest.raises(FileExistsError, match="a"):
        files.folder("a")
    assert psutil.Process().num_fds() == before
    assert (tmp_path / "x").read_bytes() == b"old"
    os.close(fd)
    with pytest.raises(OSError, match="Bad file descriptor"):
        ChunkFiles(fd).file("y", b"")


def test_arguments_that_make_no_sense(tmp_path: Path) -> None:
    fd = os.open(tmp_path, os.O_RDONLY)
    files = ChunkFiles(fd)
    for call in (
        lambda: files.folder("a\0b"),
        lambda: files.file("a\0b", b""),
        lambda: files.chunk("a\0b", b""),
    ):
        with pytest.raises(BlobValueError, match="NUL"):
            call()
    with pytest.raises(BlobValueError, match="zeros"):
        files.chunk("a", b"", -1)
    with pytest.raises(BlobValueError, match="contiguous"):
        files.chunk("a", np.zeros((4, 4))[:, ::2])
    with pytest.raises(TypeError, match="as data"):
        files.file("a", 3)  # type: ignore[arg-type]  # what is tested
    assert list(tmp_path.iterdir()) == []
    os.close(fd)
