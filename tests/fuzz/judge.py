"""What a database says, read in no hurry with `zipfile` and `json`, and not by the library.

It is lenient where the library is strict: it only has to tell what the values are, if the file says any.
"""

from __future__ import annotations

import base64
import json
import math
import random
import struct
import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numcodecs
import numpy as np

from jobcore import Counter
from slow_reader import dtype_of, key_of


class Entries(Mapping[str, bytes]):
    """The bytes of each key, read when they are asked for; chunks of a directory without their checksums."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._archive = zipfile.ZipFile(path) if path.is_file() else None
        if self._archive is not None:
            self._keys = self._archive.namelist()
        else:
            self._keys = [str(p.relative_to(path)) for p in path.rglob("*") if p.is_file()]

    def __getitem__(self, key: str) -> bytes:
        if self._archive is not None:
            if self._keys.count(key) != 1:
                raise KeyError(key)
            return self._archive.read(key)
        data = (self._path / key).read_bytes()
        return data if key.endswith("zarr.json") else data[:-4]

    def __iter__(self) -> Iterator[str]:
        return iter(self._keys)

    def __len__(self) -> int:
        return len(self._keys)

    def close(self) -> None:
        if self._archive is not None:
            self._archive.close()


class Said:
    """What a database says: the names of its blobs, and kind and value of each by name."""

    def __init__(self, path: Path) -> None:
        self._keys = Entries(path)
        inner = json.loads(self._keys["zarr.json"])["attributes"]["jobcore"]
        self._version = inner["format"]
        self._table = inner["blobs"]
        self.names: list[str] = list(self._table["name"])
        self._aliases = {row[0]: row for row in self._table.get("alias", ()) if self._version > 2}
        for row in self._aliases.values():
            self.names.insert(row[7], row[0])
        self._values: dict[str, tuple[str, Any]] = {}

    def value(self, name: str) -> tuple[str, Any]:
        if name not in self._values:
            self._values[name] = (
                self._alias(self._aliases[name]) if name in self._aliases else self._stored(name)
            )
        return self._values[name]

    def _stored(self, name: str) -> tuple[str, Any]:
        row = self._table["specs"][self._table["spec"][self._table["name"].index(name)]]
        return _value(self._keys, key_of(name), row if self._version > 2 else row[:6])

    def _alias(self, row: list[Any]) -> tuple[str, Any]:
        _, base, kind, dtype, shape, offset, strides = row[:7]
        raw = _bits(self._stored(self._table["name"][base])[1])
        return kind, np.ndarray(shape, dtype_of(dtype), raw, offset, strides)

    def close(self) -> None:
        self._keys.close()


def _value(keys: Mapping[str, bytes], key: str, row: list[Any]) -> tuple[str, Any]:
    kind, dtype, shape, _, item_bytes, chunk_rows = row[:6]
    stored = [*shape, item_bytes] if item_bytes else shape
    count = 0 if 0 in stored else -(-stored[0] // chunk_rows) if stored else 1
    names = [f"{key}/c" + (f".{i}" + ".0" * (len(stored) - 1) if stored else "") for i in range(count)]
    parts = [keys[name] for name in names]
    if row[6:]:
        parts = [_decode(row[6][0], part) for part in parts]
    raw = b"".join(parts)
    if kind == "tensor":
        true = dtype_of(dtype)
        return kind, np.frombuffer(raw[: math.prod(shape) * true.itemsize], true).reshape(shape)
    if kind == "counter":
        return kind, int(np.frombuffer(raw, dtype)[0])
    raw = raw[: shape[0]]
    if kind == "bytes":
        return kind, raw
    if kind == "string":
        return kind, raw.decode()
    if kind in ("state", "rng"):
        return kind, _untag(json.loads(raw.decode()))
    assert (kind, raw) == ("empty", b"")
    return kind, None


def _decode(codec: dict[str, Any], data: bytes) -> bytes:
    return bytes({"zstd": numcodecs.Zstd, "blosc": numcodecs.Blosc}[codec["name"]]().decode(data))


def _untag(node: Any) -> Any:
    if isinstance(node, list):
        return [_untag(item) for item in node]
    if not isinstance(node, dict):
        return node
    if len(node) != 1 or next(iter(node))[:1] != "$" or next(iter(node))[:2] == "$$":
        return {key.removeprefix("$"): _untag(item) for key, item in node.items()}
    ((tag, body),) = node.items()
    if tag in ("$array", "$scalar"):
        array = np.frombuffer(base64.b64decode(body["data"]), dtype_of(body["dtype"])).reshape(body["shape"])
        return array if tag == "$array" else array[()]
    return {
        "$int": lambda: int(body, 16),
        "$float": lambda: struct.unpack(">d", bytes.fromhex(body))[0],
        "$complex": lambda: complex(*map(_untag, body)),
        "$bytes": lambda: base64.b64decode(body),
        "$tuple": lambda: tuple(_untag(item) for item in body),
    }[tag]()


def same(found: Any, kind: str, said: Any) -> bool:
    """Whether a loaded value is what the database says."""
    if kind == "tensor":
        return type(found) is np.ndarray and _equal(found, said)
    if kind == "counter":
        return type(found) is Counter and found.retrieve() == said
    if kind == "rng":
        return _same_generator(found, said)
    return _equal(found, said)


def _equal(one: Any, other: Any) -> bool:
    """Equal by type, and bit by bit."""
    if type(one) is not type(other):
        return False
    if isinstance(one, np.ndarray | np.generic):
        return one.dtype == other.dtype and one.shape == other.shape and _bits(one) == _bits(other)
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_equal, one, other))
    if isinstance(one, dict):
        return list(one) == list(other) and all(_equal(one[key], other[key]) for key in one)
    if isinstance(one, complex):
        return _equal(one.real, other.real) and _equal(one.imag, other.imag)
    if isinstance(one, float):
        return struct.pack("<d", one) == struct.pack("<d", other)
    return bool(one == other)


def _bits(array: Any) -> bytes:
    # As raw memory: a copy of a structured array leaves out what lies between its fields.
    array = np.asarray(array)
    return bytes(array.view(np.dtype((np.void, array.dtype.itemsize))).tobytes())


def _same_generator(found: Any, said: Any) -> bool:
    state = said["state"]
    if type(found) is random.Random:
        return said["algorithm"] == "python.Random" and _equal(found.getstate(), state["state"])
    if type(found) is np.random.RandomState:
        return _alike(found.get_state(legacy=False), state)
    sequence = state["seed_seq"]
    if sequence is not None:
        mine = {
            **found.bit_generator.seed_seq.state,
            "spawn_key": list(found.bit_generator.seed_seq.spawn_key),
        }
        if not _alike(mine, {**sequence, "spawn_key": list(sequence["spawn_key"])}):
            return False
    return _alike(found.bit_generator.state, state["state"])


def _alike(found: Any, said: Any) -> bool:
    """Equal where both say something: NumPy gives plain integers for arrays, and arrays for lists, in its versions."""
    if isinstance(found, dict):
        return isinstance(said, dict) and all(key in said and _alike(found[key], said[key]) for key in found)
    if isinstance(found, np.ndarray | list | tuple):
        return np.array_equal(np.asarray(found), np.asarray(said))
    return bool(found == said)


def as_said(value: Any) -> tuple[str, Any]:
    """Kind and value of something that was loaded, as `says` gives them."""
    if isinstance(value, np.ndarray):
        return "tensor", value
    if isinstance(value, Counter):
        return "counter", value.retrieve()
    return "other", value
