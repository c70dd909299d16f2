"""The small JSON document that each blob has, and whether one says what the table of all implies.

Their members are section 4 of ``docs/reference/format.md``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Concatenate, ParamSpec, TypeVar

from jobcore.store.layout import DATA_TYPES, Spec
from jobcore.store.strict import loads

__all__ = ["ArrayDocuments", "dumps", "native_specs", "same_document", "spec_rows"]

_P = ParamSpec("_P")
_T = TypeVar("_T")

_encode = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def dumps(value: Any) -> bytes:
    """Write compact JSON, the same bytes for the same value."""
    return _encode(value).encode()


class ArrayDocuments:
    """The ``zarr.json`` of each blob.

    Most blobs of a database share a few specs, so everything but the name is made once for each.

    Parameters
    ----------
    specs
        The distinct specs.
    container
        Name of the container, which decides the codecs.
    """

    def __init__(self, specs: Sequence[Spec], container: str = "zarr.zip") -> None:
        self._frames = [_frame(spec, container) for spec in specs]

    @property
    def frames(self) -> list[tuple[bytes, bytes]]:
        """The text before and after the name, of each spec."""
        return self._frames

    def document(self, name: str, spec: int) -> bytes:
        """Give the document of a blob.

        Parameters
        ----------
        name
            Name of the blob.
        spec
            Index of its spec.

        Returns
        -------
        bytes
            UTF-8 JSON text.
        """
        head, tail = self._frames[spec]
        return head + _encode(name).encode() + tail


def native_specs(specs: Sequence[Spec]) -> list[tuple[bytes, bytes, int, int, int, int]]:
    """Give the specs of a table as native code takes them."""
    return [
        (head, tail, spec.chunks, spec.chunk_bytes, spec.nbytes, len(spec.stored_shape))
        for (head, tail), spec in zip(ArrayDocuments(specs).frames, specs, strict=True)
    ]


def spec_rows(specs: Sequence[Spec]) -> bytes:
    """Give the table of specs as JSON text."""
    return b"[" + b",".join(map(_row, specs)) + b"]"


def _kept(make: Callable[Concatenate[Spec, _P], _T]) -> Callable[Concatenate[Spec, _P], _T]:
    """Keep what is made of a spec, for the same few come again with every save."""
    cached: Any = lru_cache(maxsize=512)(make)

    def give(spec: Spec, /, *args: _P.args, **kwargs: _P.kwargs) -> _T:
        # A structured data type is a dict, and so are codecs: such a spec has no hash.
        known = type(spec.dtype) is str and not spec.codecs
        return (cached if known else make)(spec, *args, **kwargs)

    return give


@_kept
def _row(spec: Spec) -> bytes:
    return dumps(spec.to_json())


@_kept
def _frame(spec: Spec, container: str) -> tuple[bytes, bytes]:
    codec: dict[str, Any] = {"name": "bytes"}
    if DATA_TYPES[spec.data_type] > 1:
        codec["configuration"] = {"endian": "big" if spec.big_endian else "little"}
    codecs = [codec, *spec.codecs]
    if container == "zarr":
        codecs.append({"name": "crc32c"})
    document = {
        "zarr_format": 3,
        "node_type": "array",
        "shape": list(spec.stored_shape),
        "data_type": spec.data_type,
        "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": list(spec.chunk_shape)}},
        "chunk_key_encoding": {"name": "default", "configuration": {"separator": "."}},
        "fill_value": _fill_value(spec.data_type),
        "codecs": codecs,
        "dimension_names": _dimension_names(spec.stored_shape),
        "attributes": {"jobcore": {"kind": spec.kind, "dtype": spec.dtype}},
    }
    text = dumps(document)
    # Quotes inside a text are escaped, so no field of a structured type can look like this.
    mark = b'"attributes":{"jobcore":{'
    at = text.index(mark) + len(mark)
    return text[:at] + b'"name":', b"," + text[at:]


def _fill_value(data_type: str) -> Any:
    if data_type == "bool":
        return False
    if data_type.startswith("complex"):
        return ["NaN", "NaN"]
    return "NaN" if data_type.startswith("float") else 0


def _dimension_names(shape: tuple[int, ...]) -> list[str]:
    names: list[str] = []
    seen: dict[int, int] = {}
    for length in shape:
        seen[length] = count = seen.get(length, 0) + 1
        names.append(f"d{length}" if count == 1 else f"d{length}_{count}")
    return names


def same_document(found: bytes | memoryview, implied: bytes) -> bool:
    """Tell whether a document says what the table implies.

    Another writer may order and space its text otherwise, and add members; what is implied must be there.
    """
    if found == implied:
        return True
    try:
        return _covers(loads(found), json.loads(implied))
    except (ValueError, RecursionError):
        return False


def _covers(found: object, implied: object) -> bool:
    if isinstance(implied, dict):
        return isinstance(found, dict) and all(
            key in found and _covers(found[key], value) for key, value in implied.items()
        )
    if isinstance(implied, list):
        return isinstance(found, list) and len(found) == len(implied) and all(map(_covers, found, implied))
    # 1 == True == 1.0 in Python, not in JSON.
    return type(found) is type(implied) and found == implied
