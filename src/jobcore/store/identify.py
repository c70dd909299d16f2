"""Telling what a file is that is no database, so that the error can say it."""

from __future__ import annotations

import codecs
import os
import re

from jobcore.errors import FormatError

__all__ = ["not_a_database"]

_EXPECTED = "expected a jobcore database (zarr.zip or zarr)"
_RECORD = re.compile(r"(epoch\.\d+|generation)\.\d+\.json")
_SAFETENSORS = re.compile(rb".{8}\{", re.DOTALL)
_OURS = re.compile(rb"PK\x03\x04(\x14|\x2d)\0\0{6}\x21\0")
_FIELD = re.compile(rb"(\x01\0\x10\0.{16})?JC", re.DOTALL)
_END = re.compile(rb"jobcore \d+ sha256=[0-9a-f]{64}")
_NAME_AT = 30


def not_a_database(
    path: str, head: bytes | bytearray, tail: bytes | bytearray, size_bytes: int
) -> FormatError:
    """Make the error for a file that does not end as a database does.

    Parameters
    ----------
    path
        The file.
    head
        Its first bytes, 512 or so.
    tail
        Its last bytes.
    size_bytes
        Its length, in bytes.

    Returns
    -------
    FormatError
        To be raised; its text says what was found.
    """
    found, hint = _guess(head, tail, size_bytes)
    return FormatError(
        f"{path}: {_EXPECTED}, found {found} of {size_bytes:,} bytes", path=path, place="file", hint=hint
    )


def a_directory(path: str) -> FormatError:
    """Make the error for a directory that is no database; the text says what it seems to be."""
    try:
        names = set(os.listdir(path))  # noqa: PTH208 - paths are plain text here
    except OSError:
        names = set()
    found = "a directory"
    hint: str | None = "give the path of one *.zarr.zip or *.zarr in it"
    if not names:
        found, hint = "an empty directory", None
    elif names & {"zarr.json", ".zgroup", ".zarray"}:
        found, hint = "a directory with a Zarr group or array", "open it with zarr-python"
    elif any(_RECORD.fullmatch(name) for name in names):
        found = "a run directory"
    return FormatError(f"{path}: {_EXPECTED}, found {found}", path=path, place="file", hint=hint)


def _guess(head: bytes | bytearray, tail: bytes | bytearray, size_bytes: int) -> tuple[str, str | None]:
    if size_bytes == 0:
        return "an empty file", "its writer died, or the disk was full"
    ends = [match.end() for match in _END.finditer(tail)]
    if ends and ends[-1] < len(tail):
        return f"one with {len(tail) - ends[-1]} bytes added after its end", "cut them off"
    name = head[_NAME_AT : _NAME_AT + int.from_bytes(head[26:28], "little")]
    if _OURS.match(head) and _FIELD.match(head, _NAME_AT + len(name)):
        return "the beginning of one without its end: a truncated file", "take another copy of it"
    if head.startswith(b"PK\x03\x04"):
        if name.endswith(b".npy"):
            return "a NumPy .npz file", "read it with numpy.load"
        if name.endswith((b"/data.pkl", b"/.format_version", b"/.data/serialization_id")):
            return "a file of torch.save", "read it with torch.load"
        return f"another zip file (its first entry is {name[:60].decode('latin-1')!r})", None
    if head.startswith(b"PK\x05\x06"):
        return "an empty zip file", None
    if head.startswith(b"\x93NUMPY"):
        return "a NumPy .npy file", "read it with numpy.load"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "an HDF5 file", "read it with h5py"
    if head.startswith(b"\x1f\x8b"):
        return "a gzip file", None
    if _SAFETENSORS.match(head) and int.from_bytes(head[:8], "little") < size_bytes:
        return "a safetensors file", "read it with safetensors"
    if head[:1] == b"\x80" and head[1:2] in b"\x02\x03\x04\x05":
        return "a pickle", "it may run any code when it is read; load it with what wrote it"
    try:
        # The head may end inside a character, which an incremental decoder waits for.
        text = codecs.getincrementaldecoder("utf-8")().decode(head)
    except UnicodeDecodeError:
        return f"data that begins with the bytes {head[:8].hex(' ')}", None
    if text.isprintable() or all(char.isprintable() or char in "\r\n\t" for char in text):
        return f"text that begins {text[:40]!r}", None
    return f"data that begins with the bytes {head[:8].hex(' ')}", None
