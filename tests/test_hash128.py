from __future__ import annotations

import platform
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import slow_hash128
from jobcore._fast import hash128
from jobcore.errors import BlobValueError, JobcoreError

KERNELS = hash128.implementations()
every_kernel = pytest.mark.parametrize("kernel", KERNELS)

LENGTHS = 2_100
LINE = 64
NOISE = random.Random(25).randbytes(1 << 19)

# Of the bytes 0, 1, ... 255, 0, 1, ...; made with version 4.1.0 of the package xxhash, on the reference library.
VECTORS = {
    0: "99aa06d3014798d86001c324468d497f",
    1: "a6cd5e9392000f6ac44bdff4074eecdb",
    3: "e3b55f57945a17cf5f4299fc161c9cbb",
    4: "eb70bf5fc779e9e6a6111d53e80a3db5",
    8: "e1e4432a62217fe4cfd50c61c8bb98c1",
    9: "16c769d83e4aebce907931979dca3746",
    16: "72950631827607e2842812cc870dcae2",
    17: "685bc458b37d057fc06e233df7729217",
    128: "14792fc3af88dc6c05321a0b64d67b41",
    129: "dd5e74ac6b45f54ebc30b63382b09a3b",
    240: "65b5be86da5540e7c92b68e16f83bbb6",
    241: "1da1cb61bcb8a2a102e8cd95421c6d02",
    1024: "83885e853bb6640ca870f92984398d22",
    1025: "e1e508f110763b4678c86e91ee939852",
    2048: "df73e0768dd183fadd420471ff96bd00",
    100_000: "077f8d86a61f4d7439cf9d035d60ad58",
}


def outcome(call: Callable[..., object], *args: object) -> object:
    try:
        return call(*args)
    except (BlobValueError, TypeError) as error:
        return type(error)


@every_kernel
@pytest.mark.parametrize("n", VECTORS)
def test_gives_the_hashes_of_the_reference(kernel: str, n: int) -> None:
    data = bytes(range(256)) * (n // 256 + 1)
    assert hash128.hash128_with(kernel, data[:n]).hex() == VECTORS[n]
    assert hash128.hash128(data[:n]).hex() == VECTORS[n]
    assert slow_hash128.hash128(data[:n]).hex() == VECTORS[n]


@given(
    data=st.binary(max_size=600),
    zeros=st.integers(0, 600) | st.sampled_from([-1, 2**40 + 1, 10**5000, 0.0, "0", None, True]),
)
def test_agrees_with_its_twin(data: bytes, zeros: Any) -> None:
    expected = outcome(slow_hash128.hash128, data, zeros)
    assert outcome(hash128.hash128, data, zeros) == expected
    for kernel in KERNELS:
        assert outcome(hash128.hash128_with, kernel, data, zeros) == expected


@pytest.fixture(scope="module")
def by_length() -> list[bytes]:
    """The hash of each beginning of the noise."""
    return [slow_hash128.hash128(NOISE[:n]) for n in range(LENGTHS + 1)]


@every_kernel
def test_agrees_at_every_length_and_alignment(kernel: str, by_length: list[bytes]) -> None:
    memory = np.zeros(LENGTHS + 2 * LINE, np.uint8)
    line = memory[-memory.ctypes.data % LINE :].data
    for start in range(LINE):
        line[start : start + LENGTHS] = NOISE[:LENGTHS]
        found = [hash128.hash128_with(kernel, line[start : start + n]) for n in range(LENGTHS + 1)]
        assert found == by_length, f"at {start} bytes past a cache line"


@every_kernel
def test_agrees_with_its_twin_on_large_data(kernel: str) -> None:
    rng = random.Random(26)
    for n in (16_383, 16_384, 65_537, rng.randrange(100_000), rng.randrange(100_000)):
        start = rng.randrange(len(NOISE) - n)
        data = NOISE[start : start + n]
        assert hash128.hash128_with(kernel, data) == slow_hash128.hash128(data)


@every_kernel
@pytest.mark.parametrize("fill", [b"\0", b"\xff"])
def test_agrees_with_its_twin_on_monotonous_data(kernel: str, fill: bytes) -> None:
    for n in (5, 12, 100, 200, 1_024, 3_000):
        assert hash128.hash128_with(kernel, fill * n) == slow_hash128.hash128(fill * n)


@every_kernel
def test_zeros_that_follow_need_not_be_there(kernel: str) -> None:
    rng = random.Random(27)
    sizes = [0, 1, 16, 17, 63, 64, 65, 240, 241, 960, 1_023, 1_024, 1_025, 2_048]
    cases = [(n, zeros) for n in sizes for zeros in sizes]
    cases += [(rng.randrange(3_000), rng.randrange(3_000)) for _ in range(1_000)]
    for n, zeros in [*cases, (100_000, 50_000), (3, 1_000_000)]:
        whole = hash128.hash128_with(kernel, NOISE[:n] + bytes(zeros))
        assert hash128.hash128_with(kernel, NOISE[:n], zeros) == whole, f"{n} bytes, {zeros} zeros"


def test_takes_any_contiguous_buffer_as_it_lies_in_memory() -> None:
    grid = np.arange(60, dtype=">i4").reshape(4, 3, 5)
    raw = grid.tobytes()
    expected = slow_hash128.hash128(raw)
    for data in (raw, bytearray(raw), memoryview(raw), grid, grid.data):
        assert hash128.hash128(data) == expected
    fortran = np.asfortranarray(grid)
    assert hash128.hash128(fortran) == slow_hash128.hash128(fortran.T.tobytes())
    assert hash128.hash128(np.zeros((3, 0, 2))) == hash128.hash128(b"")
    assert hash128.hash128(data=b"a", zeros=np.uint8(3)) == hash128.hash128(b"a\0\0\0")


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (
            lambda: hash128.hash128(np.arange(9)[::2]),
            BlobValueError,
            "hash128: expected contiguous memory as data, found ndarray: ",
        ),
        (
            lambda: hash128.hash128("text"),  # type: ignore[arg-type]  # the point of the test
            TypeError,
            "hash128: expected an object with a buffer as data, such as bytes or an array, found str",
        ),
        (
            lambda: hash128.hash128(b"", -1),
            BlobValueError,
            "hash128: expected zeros within 0 to 2**40, found a negative integer of 1 bits",
        ),
        (
            lambda: hash128.hash128_with("fastest", b""),
            BlobValueError,
            "hash128_with: expected as kernel one of portable",
        ),
        (
            lambda: hash128.hash128_with(7, b""),  # type: ignore[arg-type]  # the point of the test
            TypeError,
            "hash128_with: expected a str as kernel, found int",
        ),
    ],
)
def test_refuses_bad_arguments(call: Callable[[], object], error: type[Exception], text: str) -> None:
    with pytest.raises(error) as caught:
        call()
    assert str(caught.value).startswith(text)
    assert isinstance(caught.value, JobcoreError) is (error is BlobValueError)


def test_a_buffer_is_let_go_after_the_call() -> None:
    for data in (bytearray(NOISE[:100]), bytearray(NOISE)):
        hash128.hash128(data)
        with pytest.raises(BlobValueError):
            hash128.hash128(data, -1)
        data.append(0)  # raises BufferError while somebody holds the buffer


def test_the_kernels_are_those_that_the_processor_has() -> None:
    assert KERNELS[0] == "portable"
    if platform.machine() in {"aarch64", "arm64"}:
        assert KERNELS == ("portable", "neon")
    elif platform.machine() == "x86_64" and Path("/proc/cpuinfo").exists():
        has = " avx2 " in Path("/proc/cpuinfo").read_text()
        assert ("avx2" in KERNELS) is has
    else:
        assert set(KERNELS) <= {"portable", "avx2"}


def test_many_threads_hash_at_once(together: Callable[..., list[Any]]) -> None:
    expected = hash128.hash128(NOISE)
    found = together(4, lambda number: {hash128.hash128(NOISE) for _ in range(20)})
    assert found == [{expected}] * 4


@given(
    size=st.integers(0, 500) | st.integers(0, 20_000),
    cuts=st.lists(st.integers(0, 20_000) | st.integers(0, 3).map(lambda n: 64 * n), max_size=8),
)
def test_pieces_make_the_hash_of_the_whole(size: int, cuts: list[int]) -> None:
    data = NOISE[:size]
    pieces = hash128.Hash128(size)
    places = sorted({0, size, *(cut for cut in cuts if cut < size)})
    for start, stop in zip(places, [*places[1:], size], strict=True):
        pieces.update(data[start:stop])
    assert pieces.digest() == pieces.digest() == slow_hash128.hash128(data)


@pytest.mark.parametrize("size", [0, 1, 64, 240, 241, 256, 1024, 65_536, 1 << 19])
@pytest.mark.parametrize("step", [1, 63, 64, 65, 240, 4096, 1 << 18])
def test_pieces_of_any_length_will_do(size: int, step: int) -> None:
    size = min(size, 2_000 * step)
    pieces = hash128.Hash128(size)
    for start in range(0, size, step):
        pieces.update(memoryview(NOISE)[start : min(start + step, size)])
    assert pieces.digest() == hash128.hash128(NOISE[:size])


def test_pieces_must_be_as_many_bytes_as_was_said() -> None:
    for size in (3, 300):
        pieces = hash128.Hash128(size)
        pieces.update(bytes(size - 1))
        with pytest.raises(BlobValueError, match=f"expected {size} bytes, found {size - 1}"):
            pieces.digest()
        with pytest.raises(BlobValueError, match=f"expected {size} bytes, found 1 more"):
            pieces.update(b"xx")
        pieces.update(b"\0")
        assert pieces.digest() == hash128.hash128(bytes(size))
    with pytest.raises(BlobValueError, match=r"Hash128: expected total within 0 to 2\*\*60"):
        hash128.Hash128(-1)
    with pytest.raises(TypeError):
        hash128.Hash128("3")  # type: ignore[arg-type]  # the point of the test
    with pytest.raises(BlobValueError, match="contiguous"):
        hash128.Hash128(40).update(np.arange(9)[::2])
