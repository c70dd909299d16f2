"""Codecs that stand between the bytes of a chunk and the container: what they are, and their calls.

A stored codec is the JSON object that a Zarr document has; what a caller chooses is a small value that makes one. The
calls of numcodecs release the interpreter lock, so several threads may encode and decode at once. The rules are
section 3.1 of ``docs/reference/format.md``.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal, get_args

import numpy as np

from jobcore.errors import FormatError

__all__ = [
    "HEAD_BYTES",
    "MAX_BYTES",
    "Blosc",
    "Codec",
    "StoredCodec",
    "Zstd",
    "check_claim",
    "decode",
    "encode",
    "encoded_bound",
    "parse_codecs",
    "ready",
    "summary",
]

#: A codec as documents and tables have it.
StoredCodec = dict[str, Any]
#: Names of the compressors that Blosc brings.
CName = Literal["blosclz", "lz4", "lz4hc", "snappy", "zlib", "zstd"]
#: How Blosc orders bytes or bits before it compresses.
Shuffle = Literal["noshuffle", "shuffle", "bitshuffle"]

#: Most bytes of a chunk that is encoded: what the libraries take in one call.
MAX_BYTES = 0x7E000000
_LEVELS = range(-131072, 23)
_MAX_TYPESIZE = 255
#: Bytes at the beginning of an encoded chunk that say how large it will be.
HEAD_BYTES = 18
_BLOSC_HEAD = 16
_COPIED = 2  # flag of a buffer that has its bytes as they are, and no blocks


@dataclass(frozen=True, slots=True)
class Zstd:
    """Zstandard.

    Attributes
    ----------
    level
        From -131072, the fastest, to 22, the smallest. Levels from 20 on need hundreds of MiB while they compress.
    """

    level: int = 3

    def __post_init__(self) -> None:
        if type(self.level) is not int or self.level not in _LEVELS:
            raise ValueError(f"expected a level of -131072 to 22, found {self.level!r:.80}")

    def stored(self, _element_bytes: int) -> StoredCodec:
        """Give the codec as it is stored, for elements of that many bytes."""
        return {"name": "zstd", "configuration": {"level": self.level, "checksum": False}}


@dataclass(frozen=True, slots=True)
class Blosc:
    """Blosc: bytes or bits of equal weight are put side by side, then compressed in blocks.

    Attributes
    ----------
    cname
        The compressor: ``"zstd"``, ``"lz4"``, ``"lz4hc"``, ``"blosclz"``, ``"zlib"`` or ``"snappy"``, where the build
        of numcodecs has it.
    clevel
        From 0, which only copies, to 9, the smallest.
    shuffle
        ``"shuffle"`` orders bytes, ``"bitshuffle"`` bits, ``"noshuffle"`` nothing.
    """

    cname: CName = "zstd"
    clevel: int = 5
    shuffle: Shuffle = "bitshuffle"

    def __post_init__(self) -> None:
        if self.cname not in get_args(CName):
            raise ValueError(f"expected a cname of {', '.join(get_args(CName))}, found {self.cname!r:.80}")
        if type(self.clevel) is not int or not 0 <= self.clevel <= 9:
            raise ValueError(f"expected a clevel of 0 to 9, found {self.clevel!r:.80}")
        if self.shuffle not in get_args(Shuffle):
            raise ValueError(
                f"expected a shuffle of {', '.join(get_args(Shuffle))}, found {self.shuffle!r:.80}"
            )

    def stored(self, element_bytes: int) -> StoredCodec:
        """Give the codec as it is stored, for elements of that many bytes."""
        return {
            "name": "blosc",
            "configuration": {
                "cname": self.cname,
                "clevel": self.clevel,
                "shuffle": self.shuffle,
                "typesize": element_bytes if element_bytes <= _MAX_TYPESIZE else 1,
                "blocksize": 0,
            },
        }


#: What a policy may name.
Codec = Zstd | Blosc


def ready(codec: Codec) -> None:
    """Check that a codec can be used here, and import what it needs.

    Raises
    ------
    ValueError
        The build of numcodecs lacks the compressor.
    """
    if isinstance(codec, Blosc):
        known = _blosc().list_compressors()
        if codec.cname not in known:
            raise ValueError(
                f"expected a cname that this numcodecs has ({', '.join(known)}), found {codec.cname!r}"
            )
    else:
        _zstd()


def encoded_bound(nbytes: int) -> int:
    """Give the most bytes that a chunk of `nbytes` can have once it is encoded."""
    return nbytes + (nbytes >> 8) + 1024


def summary(codec: StoredCodec) -> str:
    """Name a stored codec for people, such as ``"zstd(3)"`` or ``"blosc(zstd, 5, bitshuffle)"``."""
    given = codec["configuration"]
    if codec["name"] == "zstd":
        return f"zstd({given['level']})"
    return f"blosc({given['cname']}, {given['clevel']}, {given['shuffle']})"


def parse_codecs(value: object, where: str) -> tuple[StoredCodec, ...]:
    """Read the codecs of a spec, which may come from a damaged or hostile file.

    Parameters
    ----------
    value
        The JSON value.
    where
        What to call it in an error.

    Returns
    -------
    tuple of dict
        One codec, with the members that are known and nothing else.

    Raises
    ------
    FormatError
        It breaks a rule of the format.
    """
    if not isinstance(value, list) or len(value) != 1 or not isinstance(value[0], dict):
        raise FormatError(f"{where}: expected one codec, found {value!r:.120}")
    name, given = value[0].get("name"), value[0].get("configuration")
    rules = _CONFIGURATIONS.get(name) if isinstance(name, str) else None
    if rules is None:
        raise FormatError(f"{where}: expected a codec of {', '.join(_CONFIGURATIONS)}, found {name!r:.80}")
    if not isinstance(given, dict) or not all(
        member in given and type(given[member]) is type(next(iter(allowed))) and given[member] in allowed
        for member, allowed in rules.items()
    ):
        raise FormatError(
            f"{where}: expected a configuration of {name} with {', '.join(rules)}, found {given!r:.200}"
        )
    return ({"name": name, "configuration": {member: given[member] for member in rules}},)


_CONFIGURATIONS: dict[str, dict[str, Any]] = {
    "zstd": {"level": _LEVELS, "checksum": (False, True)},
    "blosc": {
        "cname": get_args(CName),
        "clevel": range(10),
        "shuffle": get_args(Shuffle),
        "typesize": range(1, _MAX_TYPESIZE + 1),
        "blocksize": range(2**31),
    },
}


def encode(codec: StoredCodec, chunk: np.ndarray[Any, Any]) -> bytes:
    """Encode a chunk; equal bytes give equal bytes.

    Parameters
    ----------
    codec
        The codec.
    chunk
        The bytes, contiguous.

    Returns
    -------
    bytes
        What is stored.

    Raises
    ------
    MemoryError
        There is not enough to encode it.
    """
    given = codec["configuration"]
    data: bytes
    if codec["name"] == "zstd":
        with _memory_errors():
            data = _zstd().compress(chunk, given["level"], given["checksum"])
        return data
    # The size of an element is that of the buffer: another parameter for it came with a later numcodecs.
    element = given["typesize"]
    view = chunk.view(np.dtype((np.void, element))) if chunk.nbytes % element == 0 else chunk
    shuffle = get_args(Shuffle).index(given["shuffle"])
    data = _blosc().compress(view, given["cname"].encode(), given["clevel"], shuffle, given["blocksize"])
    return _blocks_in_order(data)


def _blocks_in_order(data: bytes) -> bytes:
    """Put the blocks of a buffer of Blosc in the order of what they hold.

    Threads of Blosc itself put blocks down in the order in which they are done, and any part of a program can turn
    these threads on for all: equal chunks would have other bytes from one save to the next, and no incremental save
    would find them again.
    """
    if data[2] & _COPIED:
        return data
    nbytes, block_bytes = int.from_bytes(data[4:8], "little"), int.from_bytes(data[8:12], "little")
    count = -(-nbytes // block_bytes)
    starts = np.frombuffer(data, "<u4", count, _BLOSC_HEAD).astype(np.int64)
    if (starts[1:] > starts[:-1]).all():
        return data
    order = np.argsort(starts)
    sizes = np.empty(count, np.int64)
    sizes[order] = np.diff(starts[order], append=len(data))
    places = np.cumsum(sizes) - sizes + (_BLOSC_HEAD + 4 * count)
    blocks = [data[start : start + size] for start, size in zip(starts.tolist(), sizes.tolist(), strict=True)]
    return b"".join([data[:_BLOSC_HEAD], places.astype("<u4").tobytes(), *blocks])


def decode(codec: StoredCodec, data: memoryview, chunk: memoryview) -> None:
    """Decode a chunk into memory of its size; what the bytes claim is held against that before they are decoded.

    Parameters
    ----------
    codec
        The codec.
    data
        What is stored; its checksum was found right.
    chunk
        Contiguous memory for exactly the bytes of a chunk.

    Raises
    ------
    ValueError
        It decodes to another size, or not at all; the memory may hold anything then.
    MemoryError
        There is not enough to decode it.
    """
    check_claim(codec, data, len(data), len(chunk))
    try:
        if codec["name"] == "zstd":
            with _memory_errors():
                _zstd().decompress(data, chunk)
        else:
            _blosc().decompress(data, chunk)
    except (RuntimeError, ValueError) as error:
        raise ValueError(
            f"expected {len(chunk)} bytes that {codec['name']} has encoded, found damage: {error}"
        ) from error


@contextmanager
def _memory_errors() -> Iterator[None]:
    """Raise what the library says of too little memory as what it is: it is no damage."""
    try:
        yield
    except RuntimeError as error:
        if "not enough memory" in str(error):
            raise MemoryError(str(error)) from error
        raise


def check_claim(
    codec: StoredCodec, head: bytes | bytearray | memoryview, stored_bytes: int, nbytes: int
) -> None:
    """Hold what an encoded chunk claims against what it should be, before there is memory for it.

    Parameters
    ----------
    codec
        The codec.
    head
        The first `HEAD_BYTES` bytes of what is stored, or more, or all.
    stored_bytes
        Bytes of all that is stored.
    nbytes
        Bytes that it should decode to.

    Raises
    ------
    ValueError
        It decodes to another size, or not at all.
    """
    claimed = _zstd_bytes(head) if codec["name"] == "zstd" else _blosc_bytes(head, stored_bytes)
    if claimed != nbytes:
        found = "nothing that it could decode" if claimed is None else f"{claimed} bytes"
        raise ValueError(f"expected {nbytes} bytes that {codec['name']} has encoded, found {found}")


def _zstd_bytes(data: bytes | bytearray | memoryview) -> int | None:
    """Give the size that the header of a frame of Zstandard claims, RFC 8878, section 3.1.1.1."""
    if len(data) < 6 or bytes(data[:4]) != b"\x28\xb5\x2f\xfd":
        return None
    described = data[4]
    single, width = described & 0x20, (0, 2, 4, 8)[described >> 6]
    if not width:
        width = 1 if single else 0
    at = 5 + (0 if single else 1) + (0, 1, 2, 4)[described & 3]
    if not width or len(data) < at + width:
        return None
    return int.from_bytes(data[at : at + width], "little") + (256 if width == 2 else 0)


def _blosc_bytes(data: bytes | bytearray | memoryview, stored_bytes: int) -> int | None:
    """Give the size that the header of a buffer of Blosc claims, if the buffer is as long as it claims too."""
    if len(data) < 16 or int.from_bytes(data[12:16], "little") != stored_bytes:
        return None
    return int.from_bytes(data[4:8], "little")


@cache
def _zstd() -> Any:
    from numcodecs import zstd  # type: ignore[import-untyped]  # it has no types

    return zstd


@cache
def _blosc() -> Any:
    from numcodecs import blosc

    # As zarr does: several chunks are encoded at once, and threads of Blosc itself would take turns.
    blosc.use_threads = False
    return blosc
