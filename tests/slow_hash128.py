"""The 128-bit hash in plain Python, with integers of any size: the specification of XXH3 line by line, for seed 0."""

from __future__ import annotations

import operator

from jobcore.errors import BlobValueError

WORD = 2**64 - 1
HALF = 2**32 - 1
P32_1, P32_2, P32_3 = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
P64_1, P64_2, P64_3 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9
P64_4, P64_5 = 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
MX_1, MX_2 = 0x165667919E3779F9, 0x9FB21C651E98DF25
SECRET = bytes.fromhex(
    "b8fe6c3923a44bbe7c01812cf721ad1cded46de9839097db7240a4a4b7b3671fcb79e64eccc0e578825ad07dccff7221"
    "b8084674f743248ee03590e6813a264c3c2852bb91c300cb88d0658b1b532ea371644897a20df94e3819ef46a9deacd8"
    "a8fa763fe39c343ff9dcbbc7c70b4f1d8a51e04bcdb45931c89f7ec9d9787364eac5ac8334d3ebc3c581a0fffa1363eb"
    "170ddd51b7f0da49d316552629d4689e2b16be587d47a1fc8ff8b8d17ad031ce45cb3a8f95160428afd7fbcabb4b407e"
)


def hash128(data: bytes, zeros: object = 0) -> bytes:
    count = operator.index(zeros)  # type: ignore[arg-type]  # anything else is a TypeError, as it must be
    if not 0 <= count <= 2**40:
        raise BlobValueError("out of range")
    data = bytes(data) + bytes(count)
    if len(data) <= 16:
        low, high = _tiny(data)
    elif len(data) <= 240:
        low, high = _medium(data)
    else:
        low, high = _long(data)
    return ((high & WORD) << 64 | low & WORD).to_bytes(16, "big")


def _words(data: bytes, start: int, count: int, size: int = 8) -> list[int]:
    at = range(start, start + count * size, size)
    return [int.from_bytes(data[i : i + size], "little") for i in at]


def _keys(start: int, count: int) -> list[int]:
    return _words(SECRET, start, count)


def _swapped(x: int, size: int) -> int:
    return int.from_bytes(x.to_bytes(size, "little"), "big")


def _avalanche(x: int) -> int:
    x &= WORD
    x = (x ^ x >> 37) * MX_1 & WORD
    return x ^ x >> 32


def _avalanche_64(x: int) -> int:
    x &= WORD
    x = (x ^ x >> 33) * P64_2 & WORD
    x = (x ^ x >> 29) * P64_3 & WORD
    return x ^ x >> 32


def _folded(a: int, b: int) -> int:
    return a * b & WORD ^ a * b >> 64


def _tiny(data: bytes) -> tuple[int, int]:
    n = len(data)
    if n == 0:
        a, b, c, d = _keys(64, 4)
        return _avalanche_64(a ^ b), _avalanche_64(c ^ d)
    if n <= 3:
        a, b, c, d = _words(SECRET, 0, 4, 4)
        x = data[-1] | n << 8 | data[0] << 16 | data[n >> 1] << 24
        y = _swapped(x, 4)
        return _avalanche_64(a ^ b ^ x), _avalanche_64(c ^ d ^ (y << 13 & HALF | y >> 19))
    if n <= 8:
        a, b = _keys(16, 2)
        x = int.from_bytes(data[:4], "little") | int.from_bytes(data[-4:], "little") << 32
        product = (a ^ b ^ x) * (P64_1 + 4 * n)
        low, high = product & WORD, product >> 64
        high = high + 2 * low & WORD
        low ^= high >> 3
        low = (low ^ low >> 35) * MX_2 & WORD
        return low ^ low >> 28, _avalanche(high)
    a, b, c, d = _keys(32, 4)
    first, last = int.from_bytes(data[:8], "little"), int.from_bytes(data[-8:], "little")
    x, y = a ^ b ^ first ^ last, c ^ d ^ last
    low = (x * P64_1 & WORD) + (n - 1 << 54) & WORD
    high = (x * P64_1 >> 64) + (y >> 32 << 32) + (y & HALF) * P32_2 & WORD
    low ^= _swapped(high, 8)
    product = (high << 64 | low) * P64_2
    return _avalanche(product), _avalanche(product >> 64)


def _medium(data: bytes) -> tuple[int, int]:
    n = len(data)
    one, two = n * P64_1 & WORD, 0

    def mix(first: int, second: int, key: int) -> None:
        nonlocal one, two
        (a, b), (c, d), k = _words(data, first, 2), _words(data, second, 2), _keys(key, 4)
        one = one + _folded(a ^ k[0], b ^ k[1]) & WORD ^ c + d & WORD
        two = two + _folded(c ^ k[2], d ^ k[3]) & WORD ^ a + b & WORD

    if n <= 128:
        for i in reversed(range((n - 1) // 32 + 1)):
            mix(16 * i, n - 16 * i - 16, 32 * i)
    else:
        for i in range(4):
            mix(32 * i, 32 * i + 16, 32 * i)
        one, two = _avalanche(one), _avalanche(two)
        for i in range(4, n // 32):
            mix(32 * i, 32 * i + 16, 32 * (i - 4) + 3)
        mix(n - 16, n - 32, 103)
    return _avalanche(one + two), -_avalanche(one * P64_1 + two * P64_4 + n * P64_2)


def _long(data: bytes) -> tuple[int, int]:
    n = len(data)
    lanes = [P32_3, P64_1, P64_2, P64_3, P64_4, P32_2, P64_5, P32_1]

    def accumulate(start: int, key: int) -> None:
        for i, (word, secret) in enumerate(zip(_words(data, start, 8), _keys(key, 8), strict=True)):
            keyed = word ^ secret
            lanes[i ^ 1] = lanes[i ^ 1] + word & WORD
            lanes[i] = lanes[i] + (keyed & HALF) * (keyed >> 32) & WORD

    for stripe in range((n - 1) // 64):
        accumulate(64 * stripe, 8 * (stripe % 16))
        if stripe % 16 == 15:
            lanes = [(x ^ x >> 47 ^ k) * P32_1 & WORD for x, k in zip(lanes, _keys(128, 8), strict=True)]
    accumulate(n - 64, 121)

    def merged(start: int, key: int) -> int:
        mixed = [x ^ k for x, k in zip(lanes, _keys(key, 8), strict=True)]
        return _avalanche(start + sum(_folded(mixed[i], mixed[i + 1]) for i in range(0, 8, 2)))

    return merged(n * P64_1, 11), merged(~(n * P64_2), 117)
