"""JSON by the letter: what another reader would refuse, or read as something else, is an error here too."""

from __future__ import annotations

import json
import math
import re
from typing import Any

from jobcore.errors import BlobValueError

__all__ = ["check_json", "loads"]

_MAX_DEPTH = 64
_SURROGATE = re.compile(r"\\u[dD][89a-fA-F]")


def loads(data: bytes | bytearray | memoryview) -> Any:
    """Read a document, which may come from a damaged or hostile file.

    Parameters
    ----------
    data
        The text.

    Returns
    -------
    object
        Its value.

    Raises
    ------
    ValueError
        It is no JSON in UTF-8; or an object has two members of one name, or a text has a lone surrogate, so that it
        could be neither printed nor written again.
    RecursionError
        It is nested too deeply.
    """
    text = str(data, "utf-8")
    value = _decoder.decode(text)
    # Only an escape can bring one in, and our writer makes none of these; so a large table is not gone through.
    if _SURROGATE.search(text):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("two members of one name in an object")
    return found


def _no_constant(text: str) -> Any:
    raise ValueError(f"the constant {text}, which JSON does not have")


_decoder = json.JSONDecoder(object_pairs_hook=_members, parse_constant=_no_constant)


def check_json(value: object, where: str, depth: int = 0) -> Any:
    """Refuse what JSON cannot hold or would give back as something else.

    Parameters
    ----------
    value
        None, bool, int of up to 64 bits, finite float, str, list, or dict with str keys.
    where
        What to call it in an error.
    depth
        How deep it lies in the whole.

    Returns
    -------
    object
        A copy, in which nobody can change anything any more.

    Raises
    ------
    BlobValueError
        A leaf does not fit; the text gives its path, such as ``user['lr'][2]``.
    """
    if depth == 0:
        try:
            return _copied(value, 0)
        except _NotPlainError:
            pass  # once more, with a look at what and where it is
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = "".join((value,))  # what a class of the user's own makes of it does not matter
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise BlobValueError(f"{where}: expected Unicode text, found a lone surrogate") from error
        return text
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise BlobValueError(f"{where}: expected an integer of at most 64 bits, found a larger one")
        return int.__int__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise BlobValueError(
                f"{where}: expected a finite number, found {value!r}", hint="use None or text"
            )
        return float.__float__(value)
    if isinstance(value, list | dict):
        if depth == _MAX_DEPTH:
            raise BlobValueError(f"{where:.200}: nested deeper than {_MAX_DEPTH} levels")
        if isinstance(value, list):
            return [check_json(item, f"{where}[{i}]", depth + 1) for i, item in enumerate(value)]
        copy: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise BlobValueError(f"{where}: expected keys of type str, found {key!r:.80}")
            name = check_json(key, f"{where}[{key!r}]", depth + 1)
            if name in copy:
                raise BlobValueError(f"{where}: expected each key once, found {name!r:.80} repeated")
            copy[name] = check_json(item, f"{where}[{key!r}]", depth + 1)
        return copy
    raise BlobValueError(
        f"{where}: expected None, bool, int, float, str, list or dict, found {type(value).__qualname__}",
        hint="convert with float(), int(), list() or str(), or store it as a blob",
    )


class _NotPlainError(Exception):
    pass


def _copied(value: object, depth: int) -> Any:
    """Copy what has no classes but Python's own; nearly everything that is saved is like this."""
    kind = type(value)
    if kind is str:
        if value.isascii():  # type: ignore[attr-defined]  # it is a str
            return value
    elif kind is bool or value is None:
        return value
    elif kind is int:
        if -(2**63) <= value < 2**64:  # type: ignore[operator]  # it is an int
            return value
    elif kind is float:
        if math.isfinite(value):  # type: ignore[arg-type]  # it is a float
            return value
    elif depth < _MAX_DEPTH:
        if kind is list:
            return [_copied(item, depth + 1) for item in value]  # type: ignore[attr-defined]  # it is a list
        if kind is dict:
            items = list(value.items())  # type: ignore[attr-defined]  # it is a dict, which others may change
            if all(type(key) is str and key.isascii() for key, _ in items):
                return {key: _copied(item, depth + 1) for key, item in items}
    raise _NotPlainError
