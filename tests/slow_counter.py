"""The counter in plain Python: what `Counter` must do, without threads and without C."""

from __future__ import annotations

import operator

from jobcore.errors import BlobValueError

INT64_MIN = -(2**63)
INT64_MAX = 2**63 - 1


class SlowCounter:
    def __init__(self, init_count: object = 0) -> None:
        self._value = _start_value(init_count)

    def count_up(self) -> int:
        return self._swap(_wrapped(self._value + 1))

    def count_down(self) -> bool:
        return self._swap(_wrapped(self._value - 1)) <= 0

    def reset(self, init_count: object = 0) -> int:
        return self._swap(_start_value(init_count))

    def retrieve(self) -> int:
        return self._value

    def check_done(self) -> bool:
        return self._value <= 0

    def restore(self, value: object) -> None:
        self._value = _int64(value)

    def _swap(self, value: int) -> int:
        before, self._value = self._value, value
        return before


def _wrapped(value: int) -> int:
    return (value - INT64_MIN) % 2**64 + INT64_MIN


def _int64(value: object) -> int:
    number = operator.index(value)  # type: ignore[arg-type]  # anything else is a TypeError, as it must be
    if not INT64_MIN <= number <= INT64_MAX:
        raise BlobValueError("out of int64")
    return number


def _start_value(value: object) -> int:
    number = _int64(value)
    if number < 0:
        raise BlobValueError("negative")
    return number
