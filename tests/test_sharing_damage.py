"""What a table says of arrays that share storage is held against their bases."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jobcore
from jobcore import Counter, Workspace
from jobcore.errors import ChecksumError, FormatError
from jobcore.store import (
    verify,
)
from sharing_cases import containers, equal

# -- what a file may say


def seal(path: Path, change: Callable[[list[list[Any]], dict[str, Any]], object]) -> None:
    """Change the aliases of a directory and the whole root, and make its digest true again."""
    document = json.loads((path / "zarr.json").read_bytes())
    inner = document["attributes"]["jobcore"]
    change(inner["blobs"]["alias"], inner)
    inner["sha256"] = "0" * 64
    text = json.dumps(document, separators=(",", ":")).encode()
    (path / "zarr.json").chmod(0o644)
    (path / "zarr.json").write_bytes(text.replace(b"0" * 64, hashlib.sha256(text).hexdigest().encode(), 1))


def put(number: int, value: object) -> Callable[[list[list[Any]], dict[str, Any]], object]:
    return lambda rows, _: rows[0].__setitem__(number, value)


@pytest.fixture
def hostile(tmp_path: Path) -> Path:
    w = np.arange(12.0).reshape(3, 4)
    jobcore.save(tmp_path / "x.zarr", {"w": w, "t": w.T, "n": np.zeros(0), "c": Counter(1), "u": w[1]})
    return tmp_path / "x.zarr"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(0, "w"), "each name once"),
        (put(0, "u"), "each name once"),
        (put(0, ""), "name ''"),
        (put(0, 3), "expected a name"),
        (put(0, "\ud800"), "surrogate"),
        (put(1, 3), "index of a tensor with elements"),
        (put(1, 4), "index of a tensor with elements"),
        (put(1, -1), "index of a tensor with elements"),
        (put(1, True), "index of a tensor with elements"),
        (put(1, 1), "index of a tensor with elements"),
        (put(1, 2), "index of a tensor with elements"),
        (put(1, 1 << 70), "index of a tensor with elements"),
        (put(2, "counter"), "the kind tensor"),
        (put(3, None), "a data type"),
        (put(4, [4, 0]), "lengths from 1 on"),
        (put(4, [4]), "as many strides"),
        (put(4, "43"), "lengths from 1 on"),
        (put(4, [4, 4]), "found the bytes 0 to 121"),
        (put(4, [4, 2.0]), "lengths from 1 on"),
        (put(4, [1 << 40, 1 << 40]), "larger than any array"),
        (put(5, -1), "found the bytes -1 to"),
        (put(5, 96), "found the bytes 96 to"),
        (put(5, 1 << 80), "expected bytes inside the 96 bytes of its base 'w'"),
        (put(5, None), "expected an offset"),
        (put(6, [-8, 32]), "found the bytes -24 to"),
        (put(6, [8, 32.5]), "as many strides"),
        (put(6, [1 << 62, 32]), "expected bytes inside"),
        (put(6, [1 << 80, 32]), "as many strides"),
        (put(7, 4), "expected an offset and a position"),
        (put(7, 5), "expected an offset and a position"),
        (put(7, -1), "expected an offset and a position"),
        (lambda rows, _: rows.reverse(), "expected an offset and a position"),
        (lambda rows, _: rows[0].pop(), "position.*, found"),
        (lambda rows, _: rows.append({}), "position.*, found"),
        (lambda _, inner: inner["blobs"].update(alias={}), "aliases as an array"),
    ],
)
def test_a_table_of_aliases_that_breaks_a_rule_is_an_error(
    change: Callable[[list[list[Any]], dict[str, Any]], object], message: str, hostile: Path
) -> None:
    seal(hostile, change)
    with pytest.raises(FormatError, match=message) as caught:
        jobcore.load(hostile)
    assert str(hostile) in str(caught.value)
    assert caught.value.place == "root"
    (fault, *_) = verify(hostile).faults
    assert fault.place == "root"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (put(5, 1), "found the bytes 1 to 97"),
        (put(3, "<c16"), "found the bytes 0 to 104"),
        (put(3, "|S9"), "found the bytes 0 to 97"),
        (put(3, "nonsense"), "expected a data type of the format"),
        (put(3, "|O8"), "expected a data type of the format"),
        (put(3, {"base": "<f4", "shape": [2]}), "no array can have the shape"),
        (
            lambda rows, _: rows[0].__setitem__(slice(4, 7), [[1 << 61, 2], 0, [0, 0]]),
            "no array can have the shape",
        ),
    ],
)
def test_an_alias_outside_its_base_is_an_error_that_names_it(
    change: Callable[[list[list[Any]], dict[str, Any]], object], message: str, hostile: Path
) -> None:
    seal(hostile, change)
    for call in (
        lambda: jobcore.load(hostile),
        lambda: jobcore.load(hostile, ["t"]),
        lambda: jobcore.load(hostile, ["t"], {"t": np.empty((4, 3))}),
        lambda: jobcore.load(hostile, into=Workspace()),
    ):
        with pytest.raises(FormatError, match=message) as caught:
            call()
        assert str(hostile) in str(caught.value)
        assert caught.value.place == "t"
    assert equal(jobcore.load(hostile, ["u", "w"]), jobcore.load(hostile, ["u", "w"]))
    assert jobcore.inspect(hostile).blobs[1].alias_of == "w"


def test_a_small_view_that_claims_to_be_huge_takes_no_memory(hostile: Path) -> None:
    seal(hostile, lambda rows, _: rows[0].__setitem__(slice(4, 7), [[1 << 50, 3], 0, [0, 32]]))
    found = jobcore.load(hostile)["t"]
    assert found.shape == (1 << 50, 3)
    assert found.base.nbytes == 96


def test_verify_tells_of_an_alias_outside_its_base(hostile: Path) -> None:
    seal(hostile, put(5, 1))
    (fault,) = verify(hostile).faults
    assert (fault.place, fault.blob) == ("root", "t")
    assert "found the bytes 1 to 97" in fault.message


def test_an_earlier_version_has_no_aliases(hostile: Path) -> None:
    seal(hostile, lambda _, inner: inner.update(format=2))
    assert list(jobcore.load(hostile)) == ["w", "n", "c"]


@containers
def test_damage_of_the_base_is_damage_of_its_views(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    w = np.arange(12.0)
    jobcore.save(path, {"w": w, "v": w[::2], "other": np.zeros(1)})
    place = path if suffix == ".zarr.zip" else path / "w" / "c.0"
    data = bytearray(place.read_bytes())
    data[data.index(w[3:5].tobytes())] ^= 1
    place.chmod(0o644)
    place.write_bytes(data)
    for names in (None, ["v"]):
        with pytest.raises(ChecksumError, match="'w', chunk 0"):
            jobcore.load(path, names)
    assert jobcore.load(path, ["other"])["other"] == 0
