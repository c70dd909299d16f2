"""From the text of ``--set key=value`` to the value that a parameter of ``build_job`` wants."""

from __future__ import annotations

import ast
import collections.abc
import enum
import pathlib
import types
import typing
from typing import Any

__all__ = ["Unfit", "convert", "type_name"]

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
_EMPTY = object()
_ABSTRACT: dict[object, type | tuple[type, ...]] = {
    collections.abc.Sequence: (list, tuple),
    collections.abc.Iterable: (list, tuple, set, dict),
    collections.abc.Collection: (list, tuple, set, dict),
    collections.abc.Mapping: dict,
    collections.abc.Set: set,
}
_CONTAINERS = (list, tuple, set, frozenset, dict)


class Unfit(ValueError):
    """The text does not stand for a value of the wanted type; the message says which type was expected."""


def convert(text: str, wanted: object) -> object:
    """Return the value that `text` stands for.

    Parameters
    ----------
    text
        What stands behind the equals sign.
    wanted
        A type, or what may stand in an annotation: unions, ``Literal``, ``list[int]`` and the like. ``Any``, and
        whatever is not known here, takes any Python literal.

    Raises
    ------
    Unfit
        Says what was expected.
    """
    wanted = _bare(wanted)
    origin = typing.get_origin(wanted)
    if origin in (typing.Union, types.UnionType):
        return _union(text, typing.get_args(wanted))
    if origin is typing.Literal:
        return _choice(text, typing.get_args(wanted))
    if wanted is str:
        return text
    if wanted in (None, types.NoneType):
        if text.strip().lower() == "none":
            return None
        raise Unfit("None")
    if wanted is bool:
        return _boolean(text)
    if wanted in (int, float, complex):
        return _number(text, wanted)
    if isinstance(wanted, type) and issubclass(wanted, enum.Enum):
        return _member(text, wanted)
    if isinstance(wanted, type) and issubclass(wanted, pathlib.PurePath):
        return wanted(text)
    kinds = _ABSTRACT.get(origin or wanted, origin or wanted)
    literal = _literal(text, wanted)
    if kinds in _CONTAINERS or isinstance(kinds, tuple):
        return _contained(literal, wanted, kinds)
    return literal


def type_name(wanted: object) -> str:
    """Return how a type is written in messages: ``int``, ``float | None``, ``list[int]``."""
    wanted = _bare(wanted)
    if wanted is Any:
        return "a Python literal"
    if wanted is types.NoneType:
        return "None"
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        return " | ".join(type_name(one) for one in typing.get_args(wanted))
    if typing.get_origin(wanted) is typing.Literal:
        return f"one of {', '.join(map(repr, typing.get_args(wanted)))}"
    if isinstance(wanted, type) and typing.get_origin(wanted) is None:
        if issubclass(wanted, enum.Enum):
            return f"one of {', '.join(member.name for member in wanted)}"
        return wanted.__name__
    return str(wanted).replace("typing.", "").replace("collections.abc.", "")


def _bare(wanted: object) -> object:
    while typing.get_origin(wanted) is typing.Annotated or hasattr(wanted, "__supertype__"):
        annotated = typing.get_origin(wanted) is typing.Annotated
        wanted = typing.get_args(wanted)[0] if annotated else wanted.__supertype__  # type: ignore[attr-defined]  # NewType
    return wanted


def _union(text: str, members: tuple[object, ...]) -> object:
    # A text fits a string always, so str comes last; None comes first, or "none" would be a string.
    order = sorted(members, key=lambda one: 0 if one is types.NoneType else 2 if one is str else 1)
    for one in order:
        try:
            return convert(text, one)
        except Unfit:
            continue
    raise Unfit(" | ".join(type_name(one) for one in members))


def _choice(text: str, choices: tuple[object, ...]) -> object:
    for choice in choices:
        try:
            if convert(text, type(choice)) == choice:
                return choice
        except Unfit:
            continue
    raise Unfit(f"one of {', '.join(map(repr, choices))}")


def _member(text: str, wanted: type[enum.Enum]) -> enum.Enum:
    if text in wanted.__members__:
        return wanted.__members__[text]
    for member in wanted:
        if str(member.value) == text:
            return member
    raise Unfit(type_name(wanted))


def _boolean(text: str) -> bool:
    word = text.strip().lower()
    if word in _TRUE:
        return True
    if word in _FALSE:
        return False
    raise Unfit("bool (true, false, yes, no, on, off, 1 or 0)")


def _number(text: str, wanted: object) -> complex:
    try:
        if wanted is int:
            # Base 0 takes 0x1f and 1_000, but not 007.
            return int(text, 10) if text.strip().lstrip("+-").isdecimal() else int(text, 0)
        return float(text) if wanted is float else complex(text)
    except ValueError:
        raise Unfit(type_name(wanted)) from None


def _literal(text: str, wanted: object) -> object:
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        expected = type_name(wanted)
        if expected != "a Python literal":
            expected += " as a Python literal"
        raise Unfit(f"{expected}, such as 3, 'text' or [1, 2]") from None


def _contained(found: object, wanted: object, kinds: object) -> object:
    """Check a container and its elements; ``1,2`` is a tuple to Python and will do for a list."""
    if kinds in (list, set, frozenset) and isinstance(found, tuple):
        found = list(found)
    elif kinds is tuple and isinstance(found, list):
        found = tuple(found)
    if kinds in (set, frozenset) and isinstance(found, (set, list)):
        found = kinds(found)
    if not isinstance(found, kinds):  # type: ignore[arg-type]  # a class or a tuple of classes
        raise Unfit(type_name(wanted))
    parts = typing.get_args(wanted)
    if not parts:
        return found
    try:
        return _elements(found, parts)
    except Unfit:
        raise Unfit(type_name(wanted)) from None


def _elements(found: object, parts: tuple[object, ...]) -> object:
    if isinstance(found, dict):
        return {_fit(k, parts[0]): _fit(v, parts[-1]) for k, v in found.items()}
    if isinstance(found, tuple) and Ellipsis not in parts and len(parts) != 1:
        if len(parts) != len(found):
            raise Unfit("another length")
        return tuple(_fit(one, part) for one, part in zip(found, parts, strict=True))
    assert isinstance(found, (list, tuple, set, frozenset))
    return type(found)(_fit(one, parts[0]) for one in found)


def _fit(found: object, wanted: object) -> object:
    """Return an element of a literal as the wanted type: an int will do for a float, True will not do for an int."""
    wanted = _bare(wanted)
    if typing.get_origin(wanted) in (typing.Union, types.UnionType):
        for one in typing.get_args(wanted):
            try:
                return _fit(found, one)
            except Unfit:
                continue
        raise Unfit(type_name(wanted))
    if wanted is float and type(found) is int:
        return float(found)
    if wanted in (int, float, str, bool, complex, types.NoneType):
        if type(found) is not wanted:
            raise Unfit(type_name(wanted))
        return found
    kinds = _ABSTRACT.get(typing.get_origin(wanted) or wanted, typing.get_origin(wanted) or wanted)
    if kinds in _CONTAINERS or isinstance(kinds, tuple):
        return _contained(found, wanted, kinds)
    return found
