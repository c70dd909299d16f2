"""Keys of blobs: an escape of any text that every file system and every Zarr store takes.

The rules are section 1 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import hashlib
import re

from jobcore.errors import BlobValueError

__all__ = ["check_name", "escape", "unescape"]

_MAX_KEY = 200
_CUT = 160
_PLAIN = re.compile(r"[a-z0-9_\-.]+")
_SPECIAL = re.compile(r"[^a-z0-9_\-.]")
_DEVICE = re.compile(r"(con|prn|aux|nul|com[0-9]|lpt[0-9])(\.|$)")
_TOKEN = re.compile(r"[a-z0-9_\-.]|~[a-z]|=[0-9a-f]{2}")


def check_name(name: object) -> str | None:
    """Say why `name` cannot be the name of a blob.

    Parameters
    ----------
    name
        Anything.

    Returns
    -------
    str or None
        The reason, or ``None`` for a good name.
    """
    if not isinstance(name, str):
        return f"expected a name of type str, found {type(name).__qualname__}"
    if not name:
        return "a blob needs a name, found the empty text"
    try:
        name.encode()
    except UnicodeEncodeError:
        return "expected Unicode text as name, found a lone surrogate"
    return None


def escape(name: str) -> str:
    """Turn the name of a blob into a key.

    Parameters
    ----------
    name
        Non-empty Unicode text.

    Returns
    -------
    str
        ASCII text of 1 to 200 characters without a slash; two names never give one key.

    Raises
    ------
    BlobValueError
        The name is empty or has a lone surrogate.
    """
    reason = check_name(name)
    if reason is not None:
        raise BlobValueError(f"{name!r:.80}: {reason}")
    key = name if _PLAIN.fullmatch(name) else _escape_bytes(name.encode())
    if key[0] in ".-_0123456789abcdefghijklmnopqrstuvwxyz" and (
        key.startswith((".", "__")) or key == "zarr.json" or _DEVICE.match(key)
    ):
        key = f"={ord(key[0]):02x}{key[1:]}"
    if key.endswith("."):
        key = key[:-1] + "=2e"
    if len(key) <= _MAX_KEY:
        return key
    return _cut(key) + "==" + hashlib.sha256(name.encode()).hexdigest()[:32]


def unescape(key: str) -> str:
    """Turn a key back into the name.

    Parameters
    ----------
    key
        What :func:`escape` gave.

    Returns
    -------
    str
        The name.

    Raises
    ------
    ValueError
        The name was too long to be kept in the key, or no name gives this key.
    """
    if "==" in key:
        raise ValueError(f"key {key!r:.80} is cut short; the name is in the metadata of the array")
    parts = []
    for token in _TOKEN.findall(key):
        if token[0] == "~":
            parts.append(token[1].upper().encode())
        elif token[0] == "=":
            parts.append(bytes.fromhex(token[1:]))
        else:
            parts.append(token.encode())
    try:
        name = b"".join(parts).decode()
        if escape(name) == key:
            return name
    except ValueError:  # not UTF-8, or empty
        pass
    raise ValueError(f"{key!r:.80} is not the key of a blob")


def _escape_bytes(data: bytes) -> str:
    return _SPECIAL.sub(_escape_one, data.decode("latin-1"))


def _escape_one(match: re.Match[str]) -> str:
    char = match.group()
    return "~" + char.lower() if "A" <= char <= "Z" else f"={ord(char):02x}"


def _cut(key: str) -> str:
    end = _CUT
    if key[end - 1] in "=~":
        end -= 1
    elif key[end - 2] == "=":
        end -= 2
    return key[:end]
