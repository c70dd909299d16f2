"""Small JSON files that prove their own bytes.

Claims and commit records are a few hundred bytes each and decide what counts; a flipped bit in one of them
must be noticed just like one in the data. The file is ``{"sha256":"<hex>","record":<body>}`` and a
newline, where the digest covers the exact bytes of the body.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jobcore.errors import ChecksumError, FormatError

__all__ = ["open_sealed", "seal"]

_HEAD = b'{"sha256":"'
_MIDDLE = b'","record":'
_TAIL = b"}\n"
_encode = json.JSONEncoder(ensure_ascii=True, sort_keys=True, separators=(",", ":"), allow_nan=False).encode
_BODY = len(_HEAD) + 64 + len(_MIDDLE)


def seal(record: Mapping[str, Any]) -> bytes:
    """Return the bytes of a sealed file that holds `record`."""
    body = _encode(record).encode()
    return _HEAD + hashlib.sha256(body).hexdigest().encode() + _MIDDLE + body + _TAIL


def open_sealed(path: Path) -> dict[str, Any]:
    """Read a sealed file and check every byte of it.

    Raises
    ------
    FormatError
        The file is not of this form.
    ChecksumError
        It is, but the bytes are not those that were written.
    OSError
        It cannot be read.
    """
    data = path.read_bytes()
    framed = data.startswith(_HEAD) and data[_BODY - len(_MIDDLE) : _BODY] == _MIDDLE and data.endswith(_TAIL)
    if not framed:
        raise FormatError(
            f"expected a sealed record, found {len(data)} bytes beginning {data[:24]!r} in {path}",
            path=str(path),
            hint="the file is damaged or of another origin; the epoch it stands for does not count",
        )
    body = data[_BODY : -len(_TAIL)]
    expected, found = data[len(_HEAD) : len(_HEAD) + 64], hashlib.sha256(body).hexdigest().encode()
    if expected != found:
        raise ChecksumError(
            f"expected SHA-256 {expected.decode('ascii', 'replace')}, found {found.decode()} in {path}",
            path=str(path),
            hint="the file is damaged; the epoch it stands for does not count",
        )
    try:
        record = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise FormatError(
            f"expected a JSON object in {path}, found text that is none: {error}", path=str(path)
        ) from error
    if not isinstance(record, dict):
        raise FormatError(f"expected a JSON object in {path}, found {type(record).__name__}", path=str(path))
    return record
