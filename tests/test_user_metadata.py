"""Metadata of the user's own: plain values come back as they went in, the rest is refused by place."""

from __future__ import annotations

import copy
import enum
import math
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore import inspect, save
from jobcore.errors import BlobValueError

BLOBS = {"w": np.arange(3.0)}


class Text(str):
    __slots__ = ()

    def __str__(self) -> str:
        return "another"


class Count(int):
    def __int__(self) -> int:
        return -1


class Rate(float):
    def __float__(self) -> float:
        return -1.0


class Several(list[Any]):
    pass


class Named(dict[str, Any]):
    pass


class Colour(enum.IntEnum):
    RED = 3


def nested(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = [value]
    return value


def nested_by_name(levels: int) -> Any:
    value: Any = 1
    for _ in range(levels):
        value = {"q" * 40: value}
    return value


def endless() -> list[Any]:
    value: list[Any] = []
    value.append(value)
    return value


@pytest.mark.parametrize(
    "value",
    [
        {},
        {"a": None, "b": [True, False, 0, 1, 1.0, -0.0], "ü": "ö\n\0"},
        {"least": -(2**63), "most": 2**64 - 1, "tiny": 5e-324, "huge": sys.float_info.max},
        {"deep": nested(62)},
        {"": {"": ""}},
    ],
)
def test_plain_values_come_back_with_their_types(value: Any, tmp_path: Path) -> None:
    given = copy.deepcopy(value)
    save(tmp_path / "x", BLOBS, user=given)
    found = inspect(tmp_path / "x").user
    assert repr(found) == repr(value)  # also whether 1 is True, an int or a float
    assert given == value


@pytest.mark.parametrize(
    ("value", "plain"),
    [
        (Text("x"), "x"),
        (Count(3), 3),
        (Colour.RED, 3),
        (Rate(2.5), 2.5),
        (np.float64(0.5), 0.5),
        (np.str_("x"), "x"),
        (Several([1, Several([Text("x")])]), [1, ["x"]]),
        (Named({Text("k"): Named()}), {"k": {}}),
    ],
)
def test_a_value_of_a_class_of_its_own_is_stored_as_what_it_extends(
    value: Any, plain: Any, tmp_path: Path
) -> None:
    save(tmp_path / "x", BLOBS, user={"v": value})
    found = inspect(tmp_path / "x").user["v"]
    assert repr(found) == repr(plain)


@pytest.mark.parametrize(
    ("value", "place", "reason"),
    [
        ({"lr": [1.0, 2.0, math.nan]}, "user['lr'][2]", "expected a finite number, found nan"),
        ({"lr": {"a": [[math.inf]]}}, "user['lr']['a'][0][0]", "expected a finite number, found inf"),
        ({"n": 2**64}, "user['n']", "expected an integer of at most 64 bits"),
        ({"n": -(2**63) - 1}, "user['n']", "expected an integer of at most 64 bits"),
        ({"t": ["a", "\udcff"]}, "user['t'][1]", "expected Unicode text, found a lone surrogate"),
        ({"\ud800": 1}, r"user['\ud800']", "expected Unicode text, found a lone surrogate"),
        ({"a": {1: 2}}, "user['a']", "expected keys of type str, found 1"),
        ({"a": (1, 2)}, "user['a']", "expected None, bool, int, float, str, list or dict, found tuple"),
        ({"a": [{"b": b"x"}]}, "user['a'][0]['b']", "found bytes"),
        ({"a": np.float32(1)}, "user['a']", "found float32"),
        ({"a": np.int64(1)}, "user['a']", "found int64"),
        ({"a": {1, 2}}, "user['a']", "found set"),
    ],
)
def test_a_value_that_does_not_fit_is_told_with_its_place(
    value: Any, place: str, reason: str, tmp_path: Path
) -> None:
    with pytest.raises(BlobValueError) as caught:
        save(tmp_path / "x", BLOBS, user=value)
    assert str(caught.value).startswith(f"{place}: ")
    assert reason in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("value", [nested(70), nested_by_name(70), endless(), nested(100_000)])
def test_what_is_nested_too_deeply_is_told_with_a_short_place(value: Any, tmp_path: Path) -> None:
    with pytest.raises(BlobValueError, match="nested deeper than 64 levels") as caught:
        save(tmp_path / "x", BLOBS, user={"v": value})
    assert str(caught.value).startswith("user['v'][")
    assert len(str(caught.value)) < 300
    assert list(tmp_path.iterdir()) == []


def test_keys_that_become_one_are_told(tmp_path: Path) -> None:
    class Same(str):
        __slots__ = ()
        __hash__ = object.__hash__

        def __eq__(self, other: object) -> bool:
            return self is other

    with pytest.raises(BlobValueError, match="user: expected each key once, found 'a' repeated"):
        save(tmp_path / "x", BLOBS, user={Same("a"): 1, Same("a"): 2})
    assert list(tmp_path.iterdir()) == []
