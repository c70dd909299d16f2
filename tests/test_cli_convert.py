"""From the text of a setting to the value that a parameter of ``build_job`` wants."""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, NewType, Optional, Union

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcore.cli.convert import Unfit, convert, type_name
from jobcore.cli.jobfile import JobFile, SettingError, parse_settings

Rate = NewType("Rate", float)


class Kind(enum.Enum):
    SGD = "sgd"
    ADAM = "adam"


@pytest.mark.parametrize(
    ("text", "wanted", "value"),
    [
        ("3", int, 3),
        (" -07 ", int, -7),
        ("0x1f", int, 31),
        ("1_000", int, 1000),
        ("3", float, 3.0),
        ("1e-3", float, 0.001),
        ("inf", float, float("inf")),
        ("1+2j", complex, 1 + 2j),
        *((word, bool, True) for word in ("true", "True", "YES", "on", "1")),
        *((word, bool, False) for word in ("false", "No", "off", "0")),
        ("", str, ""),
        (" as it is ", str, " as it is "),
        ("None", str, "None"),
        ("none", None, None),
        ("None", Optional[str], None),  # noqa: UP045 - the older spelling is of another class
        ("adam", str | None, "adam"),
        ("3", int | float, 3),
        ("3.5", int | float, 3.5),
        ("3", Union[str, int], 3),  # noqa: UP007 - the older spelling is of another class
        ("adam", Literal["sgd", "adam"], "adam"),
        ("2", Literal[1, 2, "x"], 2),
        ("SGD", Kind, Kind.SGD),
        ("adam", Kind, Kind.ADAM),
        ("a b/c", Path, Path("a b/c")),
        ("0.5", Rate, 0.5),
        ("5", Annotated[int, "positive"], 5),
        ("[1, 2]", list[int], [1, 2]),
        ("1,2", list[int], [1, 2]),
        ("[1, 2.5]", list[float], [1.0, 2.5]),
        ("1,2", tuple[int, ...], (1, 2)),
        ("[1, 'a']", tuple[int, str], (1, "a")),
        ("[]", list, []),
        ("[[1], [2, 3]]", list[list[int]], [[1], [2, 3]]),
        ("[1, None]", list[int | None], [1, None]),
        ("{1, 2}", set[int], {1, 2}),
        ("[1, 1]", frozenset[int], frozenset({1})),
        ("{'a': 1}", dict[str, float], {"a": 1.0}),
        ("{'a': 1}", Mapping[str, int], {"a": 1}),
        ("(1, 2)", Sequence[int], (1, 2)),
        ("[1, 'two', None]", Any, [1, "two", None]),
        ("-1", Any, -1),
        ("'text'", object, "text"),
        ("[1]", np.ndarray, [1]),
    ],
)
def test_a_text_becomes_what_is_wanted(text, wanted, value):
    found = convert(text, wanted)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("text", "wanted", "expected"),
    [
        ("ten", int, "int"),
        ("1.0", int, "int"),
        ("", int, "int"),
        ("1,5", float, "float"),
        ("maybe", bool, "bool (true, false, yes, no, on, off, 1 or 0)"),
        ("2", bool, "bool (true, false, yes, no, on, off, 1 or 0)"),
        ("null", None, "None"),
        ("x", int | None, "int | None"),
        ("rmsprop", Literal["sgd", "adam"], "one of 'sgd', 'adam'"),
        ("rmsprop", Kind, "one of SGD, ADAM"),
        ("[1, 'a']", list[int], "list[int]"),
        ("[1, True]", list[int], "list[int]"),
        ("[1, 2, 3]", tuple[int, int], "tuple[int, int]"),
        ("{1: 1}", dict[str, int], "dict[str, int]"),
        ("3", list[int], "list[int]"),
        ("[1", list[int], "list[int] as a Python literal, such as 3, 'text' or [1, 2]"),
        ("adam", Any, "a Python literal, such as 3, 'text' or [1, 2]"),
        ("__import__('os')", Any, "a Python literal, such as 3, 'text' or [1, 2]"),
        ("(" * 500, Any, "a Python literal, such as 3, 'text' or [1, 2]"),
        ("x", np.ndarray, "ndarray as a Python literal, such as 3, 'text' or [1, 2]"),
    ],
)
def test_a_text_that_does_not_fit_names_the_type_that_was_expected(text, wanted, expected):
    with pytest.raises(Unfit) as caught:
        convert(text, wanted)
    assert str(caught.value) == expected


@given(st.one_of(st.integers(), st.floats(allow_nan=False), st.booleans(), st.text(), st.none()))
def test_what_python_writes_is_read_back(value):
    text = value if isinstance(value, str) else str(value)
    assert convert(text, type(value)) == value
    assert convert(repr(value).replace("inf", "1e999"), Any) == value


@pytest.mark.parametrize(
    ("wanted", "name"),
    [
        (int, "int"),
        (None, "None"),
        (float | None, "float | None"),
        (Optional[int], "int | None"),  # noqa: UP045 - the older spelling is of another class
        (list[int], "list[int]"),
        (Any, "a Python literal"),
        (Rate, "float"),
    ],
)
def test_types_are_named_as_they_are_written(wanted, name):
    assert type_name(wanted) == name


def build_job(
    epochs: int,
    rate=0.1,
    name=None,
    late: NotThere = 3,  # noqa: F821 - such names exist for type checkers only
    old: int = None,  # noqa: RUF013 - a spelling that people still use
    *,
    flag=False,
): ...


def test_types_come_from_annotations_or_else_from_defaults():
    settings = {"epochs": "3", "rate": "1", "name": "'x'", "late": "4", "old": "none", "flag": "no"}
    assert JobFile("job.py", build_job).values(settings) == {
        "epochs": 3,
        "rate": 1.0,
        "name": "x",
        "late": 4,
        "old": None,
        "flag": False,
    }


def test_a_builder_with_open_keywords_takes_any_key():
    def build(epochs: int = 1, **others: float): ...

    found = JobFile("job.py", build).values({"epochs": "2", "rate": "1"})
    assert found == {"epochs": 2, "rate": 1.0}
    assert isinstance(found["rate"], float)
    with pytest.raises(SettingError, match="--set rate: expected float, found 'x'"):
        JobFile("job.py", build).values({"rate": "x"})


def test_values_may_hold_equals_signs():
    assert parse_settings(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
