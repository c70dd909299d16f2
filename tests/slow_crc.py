"""CRC-32 in plain Python, one bit at a time: division of polynomials as one does it on paper."""

from __future__ import annotations

import operator

from jobcore.errors import BlobValueError

POLYNOMIAL = 0xEDB88320
ONES = 2**32 - 1


def crc32(data: bytes, value: object = 0) -> int:
    rest = _checked(value, ONES) ^ ONES
    for byte in data:
        rest = _shifted(rest ^ byte, 8)
    return rest ^ ONES


def crc32_combine(crc1: object, crc2: object, len2: object) -> int:
    """The first piece is followed by as many zero bytes as the second has; then the second is added."""
    first, second = _checked(crc1, ONES), _checked(crc2, ONES)
    return _shifted(first, 8 * _checked(len2, 2**63 - 1)) ^ second


def _shifted(rest: int, bits: int) -> int:
    for _ in range(bits):
        rest = (rest >> 1) ^ (POLYNOMIAL if rest & 1 else 0)
    return rest


def _checked(value: object, highest: int) -> int:
    number = operator.index(value)  # type: ignore[arg-type]  # anything else is a TypeError, as it must be
    if not 0 <= number <= highest:
        raise BlobValueError("out of range")
    return number
