"""Policies say of single blobs how they are cut and encoded, that they are left out, or whose alias they are."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore import Counter
from jobcore.errors import BlobValueError, UnsupportedBlobError
from jobcore.store import (
    AliasOf,
    BlobPolicy,
    Blosc,
    Skip,
    Zstd,
    check_blobs,
    inspect,
    load,
    save,
    verify,
)
from jobcore.store.policies import Decisions, for_names
from policy_cases import KINDS, encoded, repeated
from store_cases import same_bits


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


# ---- who has which policy


def test_a_name_beats_a_pattern() -> None:
    names = dict.fromkeys(["a/w", "a/b", "c", "d[0]", "d0"])
    policies = {"a/*": encoded(), "a/b": BlobPolicy(), "d[0]": encoded(Zstd(9)), "?": Skip("short")}
    decisions = Decisions(policies, None, names)
    array = np.zeros(3)
    layouts = [decisions.decide(name, "tensor", array) for name in names]
    assert [getattr(layout, "codec", layout) for layout in layouts] == [
        Zstd(),
        None,
        Skip("short"),
        Zstd(9),
        None,
    ]


def test_patterns_that_agree_are_fine_and_others_are_refused_by_name(path: Path) -> None:
    blobs = {"opt/w": np.zeros(3), "opt/b": np.zeros(3)}
    save(path, blobs, policies={"opt/*": encoded(), "*/w": encoded()})
    with pytest.raises(BlobValueError, match=r"'opt/w'.*'opt/\*' and '\*/w'.*level=3.*level=4.*own name"):
        save(path, blobs, policies={"opt/*": encoded(), "*/w": encoded(Zstd(4))}, overwrite=True)
    with pytest.raises(BlobValueError, match="both match"):
        save(path, blobs, policies={"opt/*": Skip("a"), "*/w": Skip("b")}, overwrite=True)
    policies: Any = {"opt/*": encoded(), "*/w": encoded(Zstd(4)), "opt/w": BlobPolicy()}
    save(path, blobs, policies=policies, overwrite=True)
    assert [one.codecs for one in inspect(path).blobs] == [(), ("zstd(3)",)]


def test_a_name_that_no_blob_has_is_refused_and_a_pattern_may_match_nothing(path: Path) -> None:
    with pytest.raises(BlobValueError, match=r"found 'weigth' \(there is weight\).*may match nothing"):
        save(path, {"weight": 1.0}, policies={"weigth": Skip()})
    assert not path.exists()
    save(path, {"weight": 1.0}, policies={"bias*": encoded(), "[!w]*": Skip()})
    assert for_names({"gone": Skip(), "w": Skip(), "*": encoded()}, {"w": 1}) == {"w": Skip(), "*": encoded()}


def test_patterns_encode_tensors_and_names_anything(path: Path) -> None:
    blobs = {"t": np.zeros(1000), "text": "x" * 1000, "raw": b"y" * 1000, "n": 5, "steps": Counter(1)}
    save(path, blobs, policies={"*": encoded(), "text": encoded(Zstd(5)), "steps": encoded()})
    found = {one.name: one.codecs for one in inspect(path).blobs}
    assert found == {
        "t": ("zstd(3)",),
        "text": ("zstd(5)",),
        "raw": (),
        "n": ("zstd(3)",),  # a number is an array
        "steps": ("zstd(3)",),
    }
    back = load(path)
    assert (back["text"], back["raw"], back["steps"].retrieve()) == ("x" * 1000, b"y" * 1000, 1)


def test_a_callable_decides_by_name_and_array(path: Path) -> None:
    seen = []

    def choose(name: str, array: np.ndarray[Any, Any]) -> Any:
        seen.append((name, array.dtype.name))
        if array.nbytes > 1000:
            return encoded()
        return Skip("scratch") if name.startswith("tmp") else None

    result = save(
        path, {"w": repeated(), "b": np.zeros(2), "tmp1": np.zeros(2), "text": "x" * 5000}, policies=choose
    )
    assert seen == [("w", "float32"), ("b", "float64"), ("tmp1", "float64"), ("text", "uint8")]
    assert result.skipped == (("tmp1", "scratch"),)
    assert [one.codecs for one in inspect(path).blobs] == [("zstd(3)",), (), ()]
    with pytest.raises(
        TypeError, match=r"what policies\('w', ...\) gives as a BlobPolicy.*Zstd: wrap it in BlobPolicy"
    ):
        save(path, {"w": 1.0}, policies=lambda _name, _array: Zstd(), overwrite=True)  # type: ignore[arg-type,return-value]


def test_skipped_blobs_are_recorded_and_need_not_be_storable(path: Path) -> None:
    blobs = {"w": np.zeros(3), "cache/a": object(), "cache/b": np.array([None]), "x": 1}
    with pytest.raises(UnsupportedBlobError):
        save(path, blobs)
    policies: Any = {"cache/*": Skip("a cache"), "x": Skip()}
    check_blobs(blobs, policies=policies)
    result = save(path, blobs, policies=policies)
    skipped = (("cache/a", "a cache"), ("cache/b", "a cache"), ("x", "skipped by policy"))
    assert result.skipped == inspect(path).skipped == skipped
    assert list(load(path)) == ["w"]


def test_an_alias_is_another_name(path: Path) -> None:
    tied = repeated(100)
    save(
        path,
        {"out": tied.copy(), "in": tied, "b": np.zeros(2)},
        policies={"out": AliasOf("in"), "in": encoded()},
    )
    out, one, b = inspect(path).blobs
    assert (out.name, out.alias_of, out.chunks, out.stored_bytes) == ("out", "in", 0, 0)
    assert one.codecs == ("zstd(3)",)
    assert b.alias_of is None
    back = load(path)
    assert list(back) == ["out", "in", "b"]
    assert np.shares_memory(back["out"], back["in"])
    assert same_bits(back["out"], tied)
    assert verify(path).ok


@pytest.mark.parametrize(
    ("value", "policies", "text"),
    [
        (
            np.zeros((2, 3)),
            {},
            r"'a': expected a tensor like 'w', which is a tensor of dtype float64 and shape \(3, 2\)",
        ),
        (np.zeros((3, 2), "f4"), {}, "found a tensor of dtype float32"),
        ("text", {}, "found a string"),
        (np.zeros((3, 2)), {"w": Skip()}, "'a': expected AliasOf.*stored itself, found none"),
        (np.zeros((3, 2)), {"a": AliasOf("a")}, "stored itself"),
        (np.zeros((3, 2)), {"a": AliasOf("gone")}, "stored itself"),
        (np.zeros((3, 2)), {"w": AliasOf("a")}, "stored itself"),
    ],
)
def test_an_alias_that_does_not_fit_is_refused(path: Path, value: Any, policies: Any, text: str) -> None:
    with pytest.raises(BlobValueError, match=text):
        save(path, {"w": np.zeros((3, 2)), "a": value}, policies={"a": AliasOf("w"), **policies})
    assert list(path.parent.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: Zstd(23), ValueError, "-131072 to 22, found 23"),
        (lambda: Zstd(True), ValueError, "found True"),
        (lambda: Zstd("3"), ValueError, "found '3'"),  # type: ignore[arg-type]  # that is the test
        (lambda: Blosc("gzip"), ValueError, "cname of blosclz.*found 'gzip'"),  # type: ignore[arg-type]
        (lambda: Blosc(clevel=10), ValueError, "0 to 9, found 10"),
        (lambda: Blosc(shuffle="bit"), ValueError, "noshuffle, shuffle, bitshuffle, found 'bit'"),  # type: ignore[arg-type]
        (lambda: BlobPolicy(codec="zstd"), TypeError, "Zstd, Blosc or None, found builtins.str"),  # type: ignore[arg-type]
        (lambda: BlobPolicy(5), TypeError, "ChunkPolicy or None, found builtins.int"),  # type: ignore[arg-type]
        (lambda: Skip(None), TypeError, "reason as text"),  # type: ignore[arg-type]
        (lambda: AliasOf(""), ValueError, "name of a blob"),
    ],
)
def test_bad_values_are_refused_where_they_are_made(make: Any, error: type[Exception], text: str) -> None:
    with pytest.raises(error, match=text):
        make()


@pytest.mark.parametrize(
    ("policies", "text"),
    [
        ([], "a mapping from names to policies, or a callable, found builtins.list"),
        ({"w": Zstd()}, r"policies\['w'\] as a BlobPolicy, Skip or AliasOf.*wrap it in BlobPolicy"),
        ({"w": None}, "found builtins.NoneType"),
        ({3: Skip()}, "names of blobs as the keys of policies, found 3"),
    ],
)
def test_bad_policies_are_refused(path: Path, policies: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        save(path, {"w": 1.0}, policies=policies)
    assert not path.exists()


def test_a_compressor_that_this_build_lacks_is_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("numcodecs.blosc.list_compressors", lambda: ["lz4", "zstd"])
    with pytest.raises(ValueError, match=r"numcodecs has \(lz4, zstd\), found 'snappy'"):
        save(path, {"w": 1.0}, policies={"w": encoded(Blosc("snappy"))})
    assert not path.exists()


def test_chunks_that_no_codec_takes_are_refused(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from jobcore.store import policies

    monkeypatch.setattr(policies, "MAX_BYTES", 1000)
    with pytest.raises(BlobValueError, match=r"'w': expected at most 1,000 bytes in a chunk.*smaller chunks"):
        save(path, {"w": np.zeros(1000)}, policies={"w": encoded()})
