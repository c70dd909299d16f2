"""CRC-32 and CRC-32C in plain Python, one bit at a time: division of polynomials as one does it on paper."""

from __future__ import annotations

import operator
from itertools import accumulate

from jobcore.errors import BlobValueError

POLYNOMIAL = 0xEDB88320
CASTAGNOLI = 0x82F63B78
ONES = 2**32 - 1


def crc32(data: bytes, value: object = 0) -> int:
    return _checksum(POLYNOMIAL, data, value)


def crc32c(data: bytes, value: object = 0) -> int:
    return _checksum(CASTAGNOLI, data, value)


def crc32c_of_each_beginning(data: bytes) -> list[int]:
    """Return the checksums of the first 0, 1, 2, ... bytes: by a table, since one bit at a time would take long."""
    table = [_shifted(CASTAGNOLI, byte, 8) for byte in range(256)]
    steps = accumulate(data, lambda rest, byte: rest >> 8 ^ table[(rest ^ byte) & 255], initial=ONES)
    return [rest ^ ONES for rest in steps]


def crc32_combine(crc1: object, crc2: object, len2: object) -> int:
    return _combined(POLYNOMIAL, crc1, crc2, len2)


def crc32c_combine(crc1: object, crc2: object, len2: object) -> int:
    return _combined(CASTAGNOLI, crc1, crc2, len2)


def _checksum(polynomial: int, data: bytes, value: object) -> int:
    rest = _checked(value, ONES) ^ ONES
    for byte in data:
        rest = _shifted(polynomial, rest ^ byte, 8)
    return rest ^ ONES


def _combined(polynomial: int, first: object, second: object, second_bytes: object) -> int:
    """The first piece is followed by as many zero bytes as the second has; then the second is added."""
    before, after = _checked(first, ONES), _checked(second, ONES)
    return _shifted(polynomial, before, 8 * _checked(second_bytes, 2**63 - 1)) ^ after


def _shifted(polynomial: int, rest: int, bits: int) -> int:
    for _ in range(bits):
        rest = (rest >> 1) ^ (polynomial if rest & 1 else 0)
    return rest


def _checked(value: object, highest: int) -> int:
    number = operator.index(value)  # type: ignore[arg-type]  # anything else is a TypeError, as it must be
    if not 0 <= number <= highest:
        raise BlobValueError("out of range")
    return number
