"""The native block writer and chunk reader, against their twins and against failing files."""

from __future__ import annotations

import errno
import os
import resource
import signal
import subprocess
import sys
import textwrap
import threading
import zlib
from pathlib import Path

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobcore._fast.chunk import BlockWriter, allocate, read_chunks
from jobcore.errors import BlobValueError, ClosedError
from slow_chunk import SlowBlockWriter, slow_read_chunks


@pytest.fixture
def fd(tmp_path):
    number = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield number
    os.close(number)


SIZES = st.integers(0, 3 * 8192)
MOVES = st.lists(
    st.one_of(
        st.tuples(st.just("append"), SIZES),
        st.tuples(st.just("zeros"), SIZES),
        st.tuples(st.just("chunk"), SIZES, st.integers(1, 300)),
    ),
    max_size=20,
)


@settings(deadline=None)
@given(MOVES, st.integers(1, 3), st.integers(4, 7), st.integers(1, 4), st.booleans(), st.integers(0, 2**32))
def test_any_stream_gives_the_file_and_sums_of_the_twin(
    tmp_path_factory, moves, pages, blocks, threads, direct, seed
):
    path, rng = tmp_path_factory.getbasetemp() / "stream", np.random.default_rng(seed)
    results = []
    payloads = [rng.bytes(move[1]) for move in moves]
    heads = [rng.bytes(move[2]) if move[0] == "chunk" else b"" for move in moves]
    for make in (lambda fd: BlockWriter(fd, pages * 4096, blocks, threads, direct), SlowBlockWriter):
        with path.open("wb") as file:
            writer, sums = make(file.fileno()), []
            for move, data, head in zip(moves, payloads, heads, strict=True):
                if move[0] == "append":
                    sums.append(writer.append(data, 7))
                elif move[0] == "zeros":
                    sums.append(writer.append_zeros(len(data)))
                else:
                    room = writer.reserve(len(head))
                    sums.append(writer.append(data))
                    writer.fill(room, head)
                sums.append(writer.end)
            writer.finish()
        results.append((sums, path.read_bytes()))
    assert results[0] == results[1]


@settings(deadline=None)
@given(st.data(), st.integers(1, 5))
def test_any_ranges_are_read_as_by_the_twin(tmp_path_factory, data, threads):
    path = tmp_path_factory.getbasetemp() / "ranges"
    size = 9 << 20
    if not path.exists():
        path.write_bytes(np.random.default_rng(1).bytes(size))
    chunks, twins = [], []
    for _ in range(data.draw(st.integers(0, 6))):
        offset = data.draw(st.integers(0, size))
        length = data.draw(st.integers(0, size - offset))
        room = data.draw(st.one_of(st.none(), st.integers(0, length)))
        chunks.append((offset, length, None if room is None else bytearray(room)))
        twins.append((offset, length, None if room is None else bytearray(room)))
    with path.open("rb") as file:
        assert read_chunks(file.fileno(), chunks, threads) == slow_read_chunks(file.fileno(), twins)
    assert chunks == twins


def test_more_than_the_largest_share_of_a_thread_is_read_in_pieces(tmp_path):
    path, size = tmp_path / "file", 9 << 20
    path.write_bytes(np.random.default_rng(2).bytes(size))
    data = path.read_bytes()
    # Every second range is only summed.
    memory = [bytearray(size - 7 * i) for i in range(10)]
    chunks = [(7 * i, size - 7 * i, room if i % 2 else None) for i, room in enumerate(memory)]
    with path.open("rb") as file:
        sums = read_chunks(file.fileno(), chunks, 3)
    assert sums == [zlib.crc32(data[7 * i :]) for i in range(10)]
    assert all(memory[i] == data[7 * i :] for i in range(1, 10, 2))


def test_memory_that_is_not_of_bytes_is_refused(fd):
    writer = BlockWriter(fd)
    for bad in (np.zeros(3), np.zeros((2, 2), np.uint8), np.zeros(6, np.uint8)[::2]):
        with pytest.raises(ValueError, match=r"(?i)buffer|contiguous"):
            writer.append(bad)
    writer.close()


@pytest.mark.parametrize("arguments", [(0,), (4097,), (4096, 3), (4096, 4, 0), (4096, 4, 17)])
def test_bad_sizes_are_refused(fd, arguments):
    with pytest.raises(BlobValueError, match="expected blocks of a multiple"):
        BlockWriter(fd, *arguments)


def test_a_closed_writer_says_so(fd):
    writer = BlockWriter(fd)
    writer.finish()
    writer.close()
    for call in (lambda: writer.append(b"x"), lambda: writer.reserve(1), writer.finish, lambda: writer.end):
        with pytest.raises(ClosedError, match=r"BlockWriter\.\w+: expected an open writer"):
            call()


def test_room_that_was_not_reserved_cannot_be_filled(fd):
    writer = BlockWriter(fd)
    writer.append(b"abc")
    with pytest.raises(OSError, match="Invalid argument"):
        writer.fill(0, b"x")


def test_finishing_leaves_a_descriptor_that_anybody_can_use(fd):
    writer = BlockWriter(fd)
    writer.append(b"x" * 10_001)
    writer.finish()
    assert os.pread(fd, 5, 9_999) == b"xx"
    assert os.fstat(fd).st_size == 10_001


def fill_all(writer):
    for _ in range(100):
        writer.append(bytes(4096))


def test_a_failing_file_is_an_error_that_does_not_hang(tmp_path):
    path = tmp_path / "readonly"
    path.write_bytes(b"")
    with path.open("rb") as file:
        writer = BlockWriter(file.fileno(), 4096, 4)
        with pytest.raises(OSError, match="Bad file descriptor") as caught:
            fill_all(writer)
        assert caught.value.errno == errno.EBADF
        with pytest.raises(OSError, match="Bad file descriptor"):
            writer.finish()


def test_a_full_file_system_is_reported(tmp_path):
    # A limit on the size of files fails like a full disk does, at some write in the middle.
    script = """
        import os, resource, signal, sys
        from jobcore._fast.chunk import BlockWriter
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (100_000, 100_000))
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
        writer = BlockWriter(fd, 4096, 4, 2, sys.argv[2] == "direct")
        try:
            for _ in range(1000):
                writer.append(bytes(5000))
            writer.finish()
        except OSError as error:
            print(error.errno)
    """
    assert resource.RLIMIT_FSIZE is not None
    for mode in ("direct", "buffered"):
        done = subprocess.run(
            [sys.executable, "-c", textwrap.dedent(script), str(tmp_path / mode), mode],
            check=True,
            capture_output=True,
            text=True,
        )
        assert done.stdout.strip() == str(errno.EFBIG)


@pytest.mark.skipif(not hasattr(os, "posix_fadvise"), reason="the page cache cannot be told to forget a file")
def test_ranges_are_read_alike_whether_the_page_cache_has_them_or_not(tmp_path: Path) -> None:
    data = np.random.default_rng(0).integers(0, 256, 9 << 20, np.uint8).tobytes()
    path = tmp_path / "cold"
    path.write_bytes(data)
    ranges = [(100, 5 << 20), ((5 << 20) + 200, 700_000), (6 << 20, 3 << 20)]
    found = []
    with path.open("rb") as file:
        fd = file.fileno()
        for cold in (True, False):
            if cold:
                os.fsync(fd)
                os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            targets: list[bytearray | None] = [bytearray(5 << 20), bytearray(600_001), None]
            sums = read_chunks(fd, [(*one, target) for one, target in zip(ranges, targets, strict=True)])
            found.append((sums, targets))
    assert found[0] == found[1]
    assert found[0][0] == [zlib.crc32(data[start : start + size]) for start, size in ranges]
    assert found[0][1] == [
        data[start:][: len(target)] if target else None
        for (start, _), target in zip(ranges, targets, strict=True)
    ]


def test_the_end_of_the_file_and_bad_ranges(fd):
    os.write(fd, b"x" * 100)
    with pytest.raises(EOFError):
        read_chunks(fd, [(0, 100, None), (50, 51, bytearray(51))])
    for size in (2**31, 2**62):  # at once, and not piece by piece
        with pytest.raises(EOFError, match="100"):
            read_chunks(fd, [(0, 100, None), (50, size, None)])
    with pytest.raises(BlobValueError, match="expected a range"):
        read_chunks(fd, [(-1, 5, None)])
    with pytest.raises(BlobValueError, match="1 to 16 threads"):
        read_chunks(fd, [], 0)
    with pytest.raises(OSError, match="Bad file descriptor"):
        read_chunks(-1, [(0, 5, None)])
    with pytest.raises(BufferError):
        read_chunks(fd, [(0, 5, memoryview(bytes(5)))])
    assert read_chunks(fd, []) == []


def test_many_readers_share_a_descriptor(fd):
    data = np.random.default_rng(2).bytes(1 << 20)
    os.write(fd, data)
    failures = []

    def read():
        for _ in range(20):
            target = bytearray(len(data))
            read_chunks(fd, [(0, len(data), target)], 3)
            if target != data:
                failures.append(True)

    threads = [threading.Thread(target=read) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_native_threads_take_no_signals(fd):
    seen = []
    before = signal.signal(signal.SIGUSR1, lambda *_: seen.append(threading.current_thread()))
    try:
        writer = BlockWriter(fd, 4096, 4, 4)
        for _ in range(50):
            os.kill(os.getpid(), signal.SIGUSR1)
            writer.append(bytes(10_000))
        writer.finish()
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert set(seen) == {threading.main_thread()}


def test_writers_that_are_dropped_free_their_threads_and_memory(fd):
    threads = psutil.Process().num_threads
    before = threads()
    for _ in range(50):
        writer = BlockWriter(fd, 4096, 4, 3)
        writer.append(bytes(9_000))
        del writer
    assert threads() == before


def test_room_is_allocated_and_cut_to_what_was_written(tmp_path: Path) -> None:
    fd = os.open(tmp_path / "x", os.O_RDWR | os.O_CREAT)
    try:
        allocate(fd, 0)
        allocate(fd, 3 << 20)
        writer = BlockWriter(fd, 1 << 16, 4)
        writer.append(b"abc" * 1000)
        writer.finish()
        assert os.fstat(fd).st_size == 3000
        assert os.pread(fd, 4000, 0) == b"abc" * 1000
        with pytest.raises(OSError, match=r"No space|too large") as caught:
            allocate(fd, 1 << 60)
        assert caught.value.errno in (errno.ENOSPC, errno.EFBIG)
    finally:
        os.close(fd)


def test_a_writer_tells_whether_it_went_around_the_page_cache(fd: int) -> None:
    writer = BlockWriter(fd, 4096, 4, direct=False)
    assert (writer.direct, writer.refused) == (False, 0)
    writer.finish()
    assert (writer.direct, writer.refused) == (False, 0)
    # Not every file system takes direct writes; either way the two must agree, and stay what they were.
    writer = BlockWriter(fd, 4096, 4)
    writer.append(bytes(50_000))
    writer.finish()
    assert writer.direct is (writer.refused == 0 and sys.platform == "linux")


def test_a_forked_child_can_drop_the_writer_of_its_parent(tmp_path: Path) -> None:
    script = """
        import os, sys
        from jobcore._fast.chunk import BlockWriter
        fd = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT)
        writer = BlockWriter(fd, 4096, 4)
        writer.append(bytes(10_000))
        child = os.fork()
        if child == 0:
            del writer
            os._exit(7)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
        writer.append(bytes(10_000))
        writer.finish()
        print(os.path.getsize(sys.argv[1]))
    """
    done = subprocess.run(
        [
            sys.executable,
            "-W",
            "ignore::DeprecationWarning",
            "-c",
            textwrap.dedent(script),
            str(tmp_path / "x"),
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.returncode, done.stdout.strip()) == (0, "20000"), done.stderr
