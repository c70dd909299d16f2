"""Arrays whose bytes lie inside those of another array are found, as plain Python finds them."""

from __future__ import annotations

import random

import numpy as np
import pytest
from hypothesis import given

import slow_sharing
from jobcore._fast.sharing import find_shared
from sharing_cases import Array, any_views

# -- finding them


def test_a_view_is_found_with_its_base_and_the_place_of_its_first_element() -> None:
    a = np.zeros((3, 4))
    assert find_shared([]) == find_shared([a]) == find_shared([a, a.copy()]) == []
    assert find_shared([a[1], a, a.T, np.zeros(2), a[::-1]]) == [(0, 1, 32), (2, 1, 0), (4, 1, 64)]


def test_of_equal_arrays_the_first_is_the_base() -> None:
    a = np.zeros((3, 4))
    assert find_shared([a, a, a.reshape(-1), a.view("i8")]) == [(1, 0, 0), (2, 0, 0), (3, 0, 0)]
    f = np.asfortranarray(a)
    # The transpose is the one in C order; without it there is none that holds the other bytes.
    assert find_shared([f, f[:, :2], f, f.T]) == [(0, 3, 0), (1, 3, 0), (2, 3, 0)]
    assert find_shared([f, f[:, :2], f, f.view("i8")]) == [(2, 0, 0), (3, 0, 0)]
    assert find_shared([a[:, 1:], a[:, :3], a[:, 1:], a[:, :3]]) == [(2, 0, 0), (3, 1, 0)]


def test_no_view_is_the_base_of_another() -> None:
    a = np.zeros(100)
    found = find_shared([a[10:20], a[12:15], a, a[5:50]])
    assert found == [(0, 2, 80), (1, 2, 96), (3, 2, 40)]


def test_arrays_that_overlap_in_part_or_hold_nothing_are_no_views() -> None:
    a = np.zeros(10)
    assert find_shared([a[:6], a[4:], a[:0], a[3:3], a[::2], a[1::2]]) == []
    assert find_shared([a[:6], a[4:], a[4:6]]) == [(2, 1, 0)]


@pytest.mark.parametrize("step", [1 << 62, -(1 << 62), (1 << 63) - 1])
def test_strides_that_leave_the_address_space_make_no_view(step: int) -> None:
    a = np.zeros(10)
    odd = np.lib.stride_tricks.as_strided(a, (5, 2), (step, 8))
    found = find_shared([a, odd, odd[:1], odd])  # not in the assertion, which would print what cannot be read
    assert found == [(2, 0, 0)]


def test_what_is_no_array_is_refused() -> None:
    for arrays in ([3], [np.zeros(1), np.zeros(1), [1.0]]):
        with pytest.raises(TypeError, match="find_shared: expected arrays, found"):
            find_shared(arrays)  # type: ignore[arg-type]  # that is the point


@given(any_views())
def test_the_plain_way_finds_the_same(arrays: list[Array]) -> None:
    assert find_shared(arrays) == slow_sharing.find_shared(arrays)


def test_any_number_of_arrays_is_sorted() -> None:
    rng = random.Random(0)
    apart = [np.zeros(rng.randrange(1, 40), "u1") for _ in range(30_000)]
    assert find_shared(apart) == []
    big = np.zeros((20_000, 8), "u1")
    rows = list(enumerate([*big, big]))
    rng.shuffle(rows)
    base = next(at for at, (number, _) in enumerate(rows) if number == len(big))
    expected = [(at, base, 8 * number) for at, (number, _) in enumerate(rows) if at != base]
    assert find_shared([row for _, row in rows]) == expected
    assert find_shared([*(row for _, row in rows), *apart]) == expected
