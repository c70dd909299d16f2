"""CRC-32C against its twin. The kernels are those of CRC-32 with other constants: test_crc.py has the rest."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slow_crc
from jobcore._fast import crc, crc32c
from jobcore.errors import BlobValueError, JobcoreError

KERNELS = crc32c.implementations()
every_kernel = pytest.mark.parametrize("kernel", KERNELS)

LENGTHS = 4_300
LINE = 64
STREAMED_FROM = 32 << 10
NOISE = random.Random(15).randbytes(1 << 19)

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
    expected = outcome(slow_crc.crc32c, data, value)
    assert outcome(crc32c.crc32c, data, value) == expected
    for kernel in KERNELS:
        copied = bytearray(len(data))
        assert outcome(crc32c.crc32c_with, kernel, data, value) == expected
        assert outcome(crc32c.copy_crc32c_with, kernel, copied, data, value) == expected
        assert copied == (data if isinstance(expected, int) else bytes(len(data)))


@pytest.fixture(scope="module")
def by_length() -> list[int]:
    """The checksum of each beginning of the noise."""
    found = slow_crc.crc32c_of_each_beginning(NOISE)
    assert found[:50] == [slow_crc.crc32c(NOISE[:n]) for n in range(50)]
    return found


@every_kernel
def test_agrees_at_every_length_and_alignment(kernel: str, by_length: list[int]) -> None:
    memory, crc32c_with = room(LENGTHS + LINE), crc32c.crc32c_with
    for start in range(LINE):
        memory[start : start + LENGTHS] = NOISE[:LENGTHS]
        found = [crc32c_with(kernel, memory[start : start + n]) for n in range(LENGTHS)]
        assert found == by_length[:LENGTHS], f"at {start} bytes past a cache line"


@every_kernel
def test_copies_every_length_and_nothing_else(kernel: str, by_length: list[int]) -> None:
    rng = random.Random(16)
    source, target = room(LENGTHS + LINE), room(LENGTHS + 3 * LINE)
    for n in range(LENGTHS):
        read_at, write_at = rng.randrange(LINE), LINE + rng.randrange(LINE)
        source[read_at : read_at + n] = NOISE[:n]
        around = target[: write_at + n + LINE]
        around[:] = bytes(len(around))
        data = source[read_at : read_at + n]
        assert crc32c.copy_crc32c_with(kernel, around[write_at : write_at + n], data) == by_length[n]
        assert bytes(around) == b"".join([bytes(write_at), data, bytes(LINE)])


@every_kernel
def test_goes_on_from_what_came_before(kernel: str, by_length: list[int]) -> None:
    rng = random.Random(17)
    data = memoryview(NOISE)
    for n in [STREAMED_FROM - 1, STREAMED_FROM, *(rng.randrange(len(data)) for _ in range(100))]:
        start = rng.randrange(len(data) - n)
        piece, before, after = data[start : start + n], by_length[start], by_length[start + n]
        target = room(n + LINE)[rng.randrange(LINE) :][:n]
        assert crc32c.crc32c_with(kernel, piece, before) == after
        assert crc32c.copy_crc32c_with(kernel, target, piece, before) == after
        assert target == piece
        assert crc32c.crc32c_combine(before, crc32c.crc32c_with(kernel, piece), n) == after


@every_kernel
@pytest.mark.parametrize("fill", [b"\0", b"\xff", b"\x01", b"\x80"])
def test_agrees_with_its_twin_on_monotonous_data(kernel: str, fill: bytes) -> None:
    expected = slow_crc.crc32c_of_each_beginning(fill * 20_000)
    for n in (1, 15, 16, 17, 4_096, 20_000):
        assert crc32c.crc32c_with(kernel, fill * n) == expected[n]


@given(crc1=values, crc2=values, len2=st.integers(0, 300) | st.sampled_from([-1, 2**63, 1.0, None]))
def test_combine_agrees_with_its_twin(crc1: Any, crc2: Any, len2: Any) -> None:
    expected = outcome(slow_crc.crc32c_combine, crc1, crc2, len2)
    assert outcome(crc32c.crc32c_combine, crc1, crc2, len2) == expected


@given(
    parts=st.tuples(st.integers(0, 2**61), st.integers(0, 2**61), st.integers(0, 2**61)),
    crcs=st.tuples(values, values, values),
)
def test_combine_is_associative_at_any_size(parts: tuple[int, int, int], crcs: tuple[int, int, int]) -> None:
    (a, b, c), (_, second, third) = crcs, parts
    left = crc32c.crc32c_combine(crc32c.crc32c_combine(a, b, second), c, third)
    assert left == crc32c.crc32c_combine(a, crc32c.crc32c_combine(b, c, third), second + third)


def test_check_value_of_the_catalogue() -> None:
    assert crc32c.crc32c(b"123456789") == 0xE3069283
    assert crc32c.crc32c(b"") == 0
    assert crc32c.crc32c(b"", 77) == 77
    # The examples of iSCSI: RFC 3720, appendix B.4.
    assert crc32c.crc32c(bytes(32)) == 0x8A9136AA
    assert crc32c.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert crc32c.crc32c(data=bytes(range(32)), value=np.uint32(0)) == 0x46DD794E
    assert crc32c.crc32c(bytes(reversed(range(32)))) == 0x113FDB5C


def released() -> memoryview:
    view = memoryview(b"abc")
    view.release()
    return view


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: crc32c.crc32c(np.arange(9)[::2]),
            BlobValueError,
            "crc32c: expected contiguous memory as data, found ndarray: ",
        ),
        (
            lambda: crc32c.crc32c(released()),
            BlobValueError,
            "crc32c: expected contiguous memory as data, found memoryview: ",
        ),
        (
            lambda: crc32c.crc32c("text"),  # type: ignore[arg-type]  # the point of the test
            TypeError,
            "crc32c: expected an object with a buffer as data, such as bytes or an array, found str",
        ),
        (
            lambda: crc32c.crc32c(b"", -1),
            BlobValueError,
            "crc32c: expected value within 0 to 2**32 - 1, found a negative integer of 1 bits",
        ),
        (
            lambda: crc32c.crc32c_combine(0, 2**32, 1),
            BlobValueError,
            "crc32c_combine: expected crc2 within 0 to 2**32 - 1, found an integer of 33 bits",
        ),
        (
            lambda: crc32c.crc32c_combine(0, 0, 2**63),
            BlobValueError,
            "crc32c_combine: expected len2 within 0 to 2**63 - 1, found an integer of 64 bits",
        ),
        (
            lambda: crc32c.crc32c_with("fastest", b""),
            BlobValueError,
            "crc32c_with: expected as name one of table",
        ),
        (
            lambda: crc32c.crc32c_with(7, b""),  # type: ignore[arg-type]  # the point of the test
            TypeError,
            "crc32c_with: expected a str as name, found int",
        ),
        (
            lambda: crc32c.copy_crc32c(b"abc", b"abc"),
            BlobValueError,
            "copy_crc32c: expected writable contiguous memory as dst, found bytes: ",
        ),
        (
            lambda: crc32c.copy_crc32c(bytearray(4), b"abc"),
            BlobValueError,
            "copy_crc32c: expected dst of as many bytes as src, found 4 for 3",
        ),
        (
            lambda: crc32c.copy_crc32c(np.empty(1, object), bytes(8)),
            BlobValueError,
            "copy_crc32c: expected plain memory as dst, found a buffer of Python objects",
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
    with pytest.raises(BlobValueError, match=r"found that they overlap \(.*: crc32c\(src\) is enough\)"):
        crc32c.copy_crc32c(memory[10:30], memory[20:40])
    assert memory == NOISE[:100]


def test_a_buffer_is_let_go_after_the_call() -> None:
    for data in (bytearray(NOISE[:100]), bytearray(NOISE)):
        target = bytearray(len(data))
        crc32c.crc32c(data)
        crc32c.copy_crc32c(target, data)
        data.append(0)  # raises BufferError while somebody holds the buffer
        target.append(0)


def test_has_the_kernels_of_its_sibling() -> None:
    of_sibling = [name.replace("armv8-crc32", "armv8-crc32c") for name in crc.implementations()]
    assert list(KERNELS) == of_sibling
    assert crc32c.implementation() == KERNELS[-1]


def test_many_threads_compute_and_copy_at_once(
    together: Callable[..., list[Any]], by_length: list[int]
) -> None:
    target = bytearray(len(NOISE))
    size = len(NOISE) // 4

    def work(number: int) -> list[int]:
        part = slice(number * size, (number + 1) * size)
        data, own = memoryview(NOISE)[part], memoryview(target)[part]
        return [crc32c.crc32c(data), *(crc32c.copy_crc32c(own, data) for _ in range(20))]

    combined = 0
    for found in together(4, work):
        assert len(set(found)) == 1
        combined = crc32c.crc32c_combine(combined, found[0], size)
    assert target == NOISE
    assert combined == by_length[-1]
