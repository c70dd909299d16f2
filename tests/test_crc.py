from __future__ import annotations

import platform
import random
import sys
import threading
import zlib
from array import array
from collections.abc import Callable
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slow_crc
from jobcore._fast import crc
from jobcore.errors import BlobValueError, JobcoreError

KERNELS = crc.implementations()
every_kernel = pytest.mark.parametrize("kernel", KERNELS)

LENGTHS = 4_300
LINE = 64
STREAMED_FROM = 32 << 10
NOISE = random.Random(5).randbytes(1 << 20)

values = st.integers(0, 2**32 - 1) | st.sampled_from([0, 1, 2**31, 2**32 - 1])


def room(nbytes: int) -> memoryview:
    """Return zeros that start at the beginning of a cache line."""
    memory = np.zeros(nbytes + LINE, np.uint8)
    start = -memory.ctypes.data % LINE
    return memory[start : start + nbytes].data


def outcome(call: Callable[..., object], *args: object) -> object:
    try:
        return call(*args)
    except (BlobValueError, TypeError) as error:
        return type(error)


@given(
    data=st.binary(max_size=200), value=values | st.sampled_from([-1, 2**32, 10**5000, 0.0, "0", None, True])
)
def test_agrees_with_its_twin(data: bytes, value: Any) -> None:
    expected = outcome(slow_crc.crc32, data, value)
    assert outcome(crc.crc32, data, value) == expected
    for kernel in KERNELS:
        copied = bytearray(len(data))
        assert outcome(crc.crc32_with, kernel, data, value) == expected
        assert outcome(crc.copy_crc32_with, kernel, copied, data, value) == expected
        assert copied == (data if isinstance(expected, int) else bytes(len(data)))


@every_kernel
def test_agrees_with_zlib_at_every_length_and_alignment(kernel: str) -> None:
    data = NOISE[:LENGTHS]
    expected = list(accumulate(data, lambda value, byte: zlib.crc32(bytes([byte]), value), initial=3))
    memory, crc32_with = room(LENGTHS + LINE), crc.crc32_with
    for start in range(LINE):
        memory[start : start + LENGTHS] = data
        found = [crc32_with(kernel, memory[start : start + n], 3) for n in range(LENGTHS + 1)]
        assert found == expected, f"at {start} bytes past a cache line"


@every_kernel
def test_copies_every_length_and_nothing_else(kernel: str) -> None:
    rng = random.Random(6)
    source, target = room(LENGTHS + LINE), room(LENGTHS + 3 * LINE)
    source[:] = NOISE[: len(source)]
    for n in [*range(LENGTHS + 1), *range(256), *range(256)]:
        read_at, write_at = rng.randrange(LINE), LINE + rng.randrange(LINE)
        around = target[: write_at + n + LINE]
        around[:] = bytes(len(around))
        data = source[read_at : read_at + n]
        assert crc.copy_crc32_with(kernel, around[write_at : write_at + n], data, n) == zlib.crc32(data, n)
        assert bytes(around) == b"".join([bytes(write_at), data, bytes(LINE)])


@every_kernel
def test_copies_past_the_caches_to_every_alignment(kernel: str) -> None:
    rng = random.Random(7)
    source, target = room(len(NOISE)), room(2 * STREAMED_FROM + 3 * LINE)
    source[:] = NOISE
    for write_at in range(LINE, 2 * LINE):
        for n in (STREAMED_FROM - 1, STREAMED_FROM, rng.randrange(STREAMED_FROM, 2 * STREAMED_FROM)):
            read_at = rng.randrange(len(NOISE) - n)
            around = target[: write_at + n + LINE]
            around[:] = bytes(len(around))
            data = source[read_at : read_at + n]
            assert crc.copy_crc32_with(kernel, around[write_at : write_at + n], data) == zlib.crc32(data)
            assert bytes(around) == b"".join([bytes(write_at), data, bytes(LINE)])


@every_kernel
def test_agrees_with_zlib_on_large_data(kernel: str) -> None:
    rng = random.Random(8)
    data = memoryview(NOISE)
    for _ in range(200):
        start = rng.randrange(len(data))
        stop = rng.randrange(start, len(data) + 1)
        value = rng.randrange(2**32)
        expected = zlib.crc32(data[start:stop], value)
        assert crc.crc32_with(kernel, data[start:stop], value) == expected
        assert crc.copy_crc32_with(kernel, bytearray(stop - start), data[start:stop], value) == expected


@every_kernel
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\x01", b"\x80"])
def test_agrees_with_zlib_on_monotonous_data(kernel: str, fill: bytes) -> None:
    for n in (1, 15, 16, 17, 4_096, 100_001):
        for value in (0, 1, 2**32 - 1):
            assert crc.crc32_with(kernel, fill * n, value) == zlib.crc32(fill * n, value)


@every_kernel
def test_pieces_one_after_the_other_give_the_checksum_of_the_whole(kernel: str) -> None:
    rng = random.Random(9)
    for _ in range(50):
        cuts = sorted(rng.randrange(len(NOISE)) for _ in range(rng.randrange(1, 20)))
        value, combined = 0, 0
        for start, stop in zip([0, *cuts], [*cuts, len(NOISE)], strict=True):
            piece = memoryview(NOISE)[start:stop]
            value = crc.crc32_with(kernel, piece, value)
            combined = crc.crc32_combine(combined, crc.crc32_with(kernel, piece), stop - start)
        assert value == combined == zlib.crc32(NOISE)


@given(crc1=values, crc2=values, len2=st.integers(0, 300) | st.sampled_from([-1, 2**63, 1.0, None]))
def test_combine_agrees_with_its_twin(crc1: Any, crc2: Any, len2: Any) -> None:
    expected = outcome(slow_crc.crc32_combine, crc1, crc2, len2)
    assert outcome(crc.crc32_combine, crc1, crc2, len2) == expected


@given(
    parts=st.tuples(st.integers(0, 2**61), st.integers(0, 2**61), st.integers(0, 2**61)),
    crcs=st.tuples(values, values, values),
)
def test_combine_is_associative_at_any_size(parts: tuple[int, int, int], crcs: tuple[int, int, int]) -> None:
    (a, b, c), (_, second, third) = crcs, parts
    left = crc.crc32_combine(crc.crc32_combine(a, b, second), c, third)
    assert left == crc.crc32_combine(a, crc.crc32_combine(b, c, third), second + third)


def test_combine_has_the_period_of_the_polynomial() -> None:
    # The polynomial is primitive: 2**32 - 1 zero bits, and no fewer, bring every state back.
    assert crc.crc32_combine(0x12345678, 0, 2**32 - 1) == 0x12345678
    for divisor in (3, 5, 17, 257, 65_537):
        assert crc.crc32_combine(1, 0, (2**32 - 1) // divisor) != 1


def test_check_value_of_the_catalogue() -> None:
    assert crc.crc32(b"123456789") == 0xCBF43926
    assert crc.crc32(b"") == 0
    assert crc.crc32(b"", 77) == 77
    assert crc.crc32(data=b"a", value=np.uint32(5)) == zlib.crc32(b"a", 5)


def test_takes_any_contiguous_buffer_as_it_lies_in_memory() -> None:
    grid = np.arange(60, dtype=">i4").reshape(4, 3, 5)
    raw = grid.tobytes()
    fortran = np.asfortranarray(grid)
    read_only = grid.view()
    read_only.flags.writeable = False
    for data in (raw, bytearray(raw), memoryview(raw), array("B", raw), grid, read_only, grid.data):
        assert crc.crc32(data) == zlib.crc32(raw)
    assert crc.crc32(fortran) == crc.crc32(fortran.data) == zlib.crc32(fortran.T.tobytes())
    assert crc.crc32(np.array(7, ">i4")) == zlib.crc32(b"\0\0\0\7")
    assert crc.crc32(np.zeros((3, 0, 2))) == 0
    assert crc.crc32(np.array(["2020"], "M8[s]")) == zlib.crc32(np.array(["2020"], "M8[s]").tobytes())
    target = np.zeros_like(fortran)
    assert crc.copy_crc32(target, fortran) == crc.crc32(fortran)
    assert (target == grid).all()


def released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: crc.crc32(np.arange(9)[::2]),
            BlobValueError,
            "crc32: expected contiguous memory as data, found ndarray: ",
        ),
        (
            lambda: crc.crc32(memoryview(b"abcdef")[::2]),
            BlobValueError,
            "crc32: expected contiguous memory as data, found memoryview: ",
        ),
        (
            lambda: crc.crc32(released()),
            BlobValueError,
            "crc32: expected contiguous memory as data, found memoryview: ",
        ),
        (
            lambda: crc.crc32("text"),  # type: ignore[arg-type]  # the point of the test
            TypeError,
            "crc32: expected an object with a buffer as data, such as bytes or an array, found str",
        ),
        (
            lambda: crc.crc32(b"", -1),
            BlobValueError,
            "crc32: expected value within 0 to 2**32 - 1, found a negative integer of 1 bits",
        ),
        (
            lambda: crc.crc32_combine(0, 2**32, 1),
            BlobValueError,
            "crc32_combine: expected crc2 within 0 to 2**32 - 1, found an integer of 33 bits",
        ),
        (
            lambda: crc.crc32_combine(0, 0, 2**63),
            BlobValueError,
            "crc32_combine: expected len2 within 0 to 2**63 - 1, found an integer of 64 bits",
        ),
        (
            lambda: crc.crc32_with("fastest", b""),
            BlobValueError,
            "crc32_with: expected as name one of table",
        ),
        (
            lambda: crc.crc32_with("table\0", b""),
            BlobValueError,
            "crc32_with: expected as name one of table",
        ),
        (
            lambda: crc.copy_crc32_with("\ud800", bytearray(1), b"a"),
            BlobValueError,
            "copy_crc32_with: expected as name one of table",
        ),
        (
            lambda: crc.crc32_with(7, b""),  # type: ignore[arg-type]  # the point of the test
            TypeError,
            "crc32_with: expected a str as name, found int",
        ),
        (
            lambda: crc.copy_crc32(b"abc", b"abc"),
            BlobValueError,
            "copy_crc32: expected writable contiguous memory as dst, found bytes: ",
        ),
        (
            lambda: crc.copy_crc32(np.zeros(6, "u1")[::2], b"abc"),
            BlobValueError,
            "copy_crc32: expected writable contiguous memory as dst, found ndarray: ",
        ),
        (
            lambda: crc.copy_crc32(bytearray(3), np.zeros(6, "u1")[::2]),
            BlobValueError,
            "copy_crc32: expected contiguous memory as src, found ndarray: ",
        ),
        (
            lambda: crc.copy_crc32(bytearray(4), b"abc"),
            BlobValueError,
            "copy_crc32: expected dst of as many bytes as src, found 4 for 3",
        ),
        (
            lambda: crc.copy_crc32(np.empty(1, object), bytes(8)),
            BlobValueError,
            "copy_crc32: expected plain memory as dst, found a buffer of Python objects",
        ),
    ],
)
def test_refuses_bad_arguments(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)
    assert isinstance(caught.value, JobcoreError) is (error is BlobValueError)


def test_refuses_to_copy_between_overlapping_buffers() -> None:
    memory = memoryview(bytearray(NOISE[:100]))
    for to in (*range(1, 20), *range(21, 40)):
        with pytest.raises(BlobValueError, match="found that they overlap"):
            crc.copy_crc32(memory[to : to + 20], memory[20:40])
    assert memory == NOISE[:100]
    for to in (0, 40):
        assert crc.copy_crc32(memory[to : to + 20], memory[20:40]) == zlib.crc32(NOISE[20:40])
    assert crc.copy_crc32(memory[30:30], memory[20:20]) == 0


def test_a_buffer_is_let_go_after_the_call() -> None:
    for data in (bytearray(NOISE[:100]), bytearray(NOISE)):
        target = bytearray(len(data))
        crc.crc32(data)
        crc.copy_crc32(target, data)
        with pytest.raises(BlobValueError):
            crc.copy_crc32(target, b"of another size")
        data.append(0)  # raises BufferError while somebody holds the buffer
        target.append(0)


def test_the_best_kernel_is_in_use_and_the_portable_one_is_always_there() -> None:
    assert KERNELS[0] == "table"
    assert crc.implementation() == KERNELS[-1]
    assert len(set(KERNELS)) == len(KERNELS)


# What each kernel needs, by the names that Linux gives to the features of a processor.
NEEDS = {
    "armv8-crc32": {"crc32"},
    "armv8-pmull": {"pmull"},
    "pclmulqdq": {"pclmulqdq", "sse4_1"},
    "vpclmulqdq-256": {"pclmulqdq", "sse4_1", "avx2", "vpclmulqdq"},
    "vpclmulqdq-512": {"pclmulqdq", "sse4_1", "avx2", "vpclmulqdq", "avx512f", "avx512vl"},
}


def test_the_kernels_are_those_that_the_processor_has() -> None:
    listed = Path("/proc/cpuinfo")
    arm = platform.machine() == "aarch64"
    if not (listed.exists() and (arm or platform.machine() == "x86_64")):
        # Nothing else says what the processor has: at least no foreign kernel is offered.
        assert set(KERNELS) <= {"table", *NEEDS}
        return
    line = next(line for line in listed.read_text().splitlines() if line.startswith(("flags", "Features")))
    features = set(line.partition(":")[2].split())
    expected = [name for name, needs in NEEDS.items() if name.startswith("arm") is arm and needs <= features]
    assert list(KERNELS) == ["table", *expected]


@every_kernel
def test_many_threads_compute_and_copy_at_once(kernel: str, together: Callable[..., list[Any]]) -> None:
    target = bytearray(len(NOISE))
    size = len(NOISE) // 8

    def work(number: int) -> list[int]:
        part = slice(number * size, (number + 1) * size)
        data, own = memoryview(NOISE)[part], memoryview(target)[part]
        found = [crc.crc32_with(kernel, data) for _ in range(20)]
        return [*found, *(crc.copy_crc32_with(kernel, own, data) for _ in range(20))]

    combined = 0
    for found in together(8, work):
        assert len(set(found)) == 1
        combined = crc.crc32_combine(combined, found[0], size)
    assert target == NOISE
    assert combined == crc.crc32(target) == zlib.crc32(NOISE)


@pytest.mark.parametrize("copied", [False, True])
def test_other_threads_run_during_a_large_checksum(copied: bool) -> None:
    target = bytearray(len(NOISE))
    interval = sys.getswitchinterval()
    go, ran = threading.Event(), []

    def other() -> None:
        go.wait()
        ran.append(True)

    thread = threading.Thread(target=other)
    thread.start()
    try:
        # From here on no thread is asked to let go of the GIL: the other one runs if this one does so by itself.
        sys.setswitchinterval(1_000)
        go.set()
        for _ in range(10_000):
            if ran:
                break
            if copied:
                crc.copy_crc32(target, NOISE)
            else:
                crc.crc32(NOISE)
        found = list(ran)
    finally:
        sys.setswitchinterval(interval)
        thread.join()
    assert found == [True]
