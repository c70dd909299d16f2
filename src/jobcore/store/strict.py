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


def check_json(value: object, where: str) -> Any:
    """Refuse what JSON cannot hold or would give back as something else.

    Parameters
    ----------
    value
        None, bool, int of up to 64 bits, finite float, str, list, or dict with str keys.
    where
        What to call it in an error.

    Returns
    -------
    object
        A copy, in which nobody can change anything any more.

    Raises
    ------
    BlobValueError
        A leaf does not fit; the text gives its path, such as ``user['lr'][2]``.
    """
    try:
        return _copied(value, 0)
    except _RefusedError as refused:
        place = (where + "".join(reversed(refused.path)))[: refused.place_length]
        raise BlobValueError(f"{place}: {refused.reason}", hint=refused.hint) from refused.__cause__


class _RefusedError(Exception):
    """Why a value is refused, and its place, which grows on the way out: nearly no value needs one."""

    def __init__(self, reason: str, hint: str | None = None, place_length: int | None = None) -> None:
        self.reason, self.hint = reason, hint
        self.place_length = place_length  # how much of the place is told; None: all
        self.path: list[str] = []


def _copied(value: object, depth: int) -> Any:
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        text = "".join((value,))  # what a class of the user's own makes of it does not matter
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise _RefusedError("expected Unicode text, found a lone surrogate") from error
        return text
    if isinstance(value, int):
        if not -(2**63) <= value < 2**64:
            raise _RefusedError("expected an integer of at most 64 bits, found a larger one")
        return int.__int__(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise _RefusedError(f"expected a finite number, found {value!r}", "use None or text")
        return float.__float__(value)
    if isinstance(value, list | dict):
        if depth == _MAX_DEPTH:
            raise _RefusedError(f"nested deeper than {_MAX_DEPTH} levels", place_length=200)
        if isinstance(value, list):
            return [_copied_part(item, i, depth) for i, item in enumerate(value)]
        copy: dict[str, Any] = {}
        for key, item in value.items():
            if not isinstance(key, str):
                raise _RefusedError(f"expected keys of type str, found {key!r:.80}")
            name = _copied_part(key, key, depth)
            if name in copy:
                raise _RefusedError(f"expected each key once, found {name!r:.80} repeated")
            copy[name] = _copied_part(item, key, depth)
        return copy
    raise _RefusedError(
        f"expected None, bool, int, float, str, list or dict, found {type(value).__qualname__}",
        "convert with float(), int(), list() or str(), or store it as a blob",
    )


def _copied_part(value: object, key: object, depth: int) -> Any:
    try:
        return _copied(value, depth + 1)
    except _RefusedError as refused:
        refused.path.append(f"[{key!r}]")
        raise
