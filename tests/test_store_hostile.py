"""What the fuzzer of tests/fuzz has found, one small case of each: databases that lie with every checksum right."""

from __future__ import annotations

import copy
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fuzz.corpus import Seed, read_files, write_files
from fuzz.model import Model
from fuzz.oracle import bounds
from jobcore import Counter, Workspace
from jobcore._dtypes import dtype_from_spec, dtype_spec, refusal
from jobcore._fast.chunk import read_chunks
from jobcore._rng import rng_restore, rng_state
from jobcore._state import decode_state, encode_state
from jobcore.errors import BlobValueError, FormatError
from jobcore.store import inspect, load, open_database, save, verify
from jobcore.store.policies import BlobPolicy, Blosc, Zstd

STATE = {
    "n": Counter(3),
    "text": "text",
    "rng": np.random.default_rng(1),
    "w": np.arange(12, dtype="f4").reshape(3, 4),
}


@pytest.fixture(params=["zarr.zip", "zarr"])
def model(request: pytest.FixtureRequest, tmp_path: Path) -> Model:
    """A whole database, taken apart."""
    path = tmp_path / f"whole.{request.param}"
    save(path, STATE)
    return Model(Seed("whole", read_files(path), {}), tmp_path / f"x.{request.param}")


def written(model: Model, tmp_path: Path) -> Path:
    path = tmp_path / ("x.zarr.zip" if model.seed.is_zip else "x.zarr")
    write_files(path, model.write(None))
    return path


def refused(path: Path, *names: str, place: str = "root") -> None:
    """Every way to load is an error that names the file; verify reports, or knows nothing of values."""
    ways: list[Callable[[], object]] = [
        lambda: load(path),
        lambda: load(path, list(names) or None),
        lambda: load(path, into=Workspace()),
    ]
    for way in ways:
        with pytest.raises(FormatError) as caught:
            way()
        assert str(path) in str(caught.value)
        assert caught.value.path == str(path)
        assert caught.value.place == place
    verify(path)


def with_text(model: Model, tmp_path: Path, change: Callable[[bytes], bytes]) -> Path:
    from fuzz import documents

    plain = documents.text
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(documents, "text", lambda document, rng=None: change(plain(document)))
        return written(model, tmp_path)


@pytest.mark.parametrize(
    "change",
    [
        lambda text: text.replace(b'"user":null', b'"user":NaN'),
        lambda text: text.replace(b'"user":null', b'"user":1e999'),
        lambda text: text.replace(b'"user":null', b'"user":' + b"[" * 500 + b"]" * 500),
        lambda text: text.replace(b'"user":null', b'"user":null,"user":1'),
        lambda text: text.replace(b'"run":""', b'"run":"\\ud800"'),
        lambda text: text.replace(b'"run":""', b'"run":"\xed\xa0\x80"'),
        lambda text: text.replace(b'"epoch":null', b'"epoch":' + b"[" * 900 + b"]" * 900),
        lambda text: text.replace(b'"<f4"', b'"\\ud800"'),
        lambda text: text.replace(b'"<f4"', b'{"a":' * 400 + b"1" + b"}" * 400),
        lambda text: text.replace(b'"<f4"', b'{"a":NaN}'),
        lambda text: text.replace(b'"container":"zarr.zip"', b'"container":"zarr"').replace(
            b'"format":1', b'"format":2'
        ),
        lambda text: text.replace(b'"container":"zarr"', b'"container":"zarr.zip"').replace(
            b'"format":2', b'"format":1'
        ),
        lambda text: text.replace(b'"container":"zarr', b'"container":"tar'),
    ],
)
def test_a_root_that_is_no_strict_json_or_of_another_container(
    change: Callable[[bytes], bytes], model: Model, tmp_path: Path
) -> None:
    path = with_text(model, tmp_path, change)
    if read_files(path) == written_as_it_was(model, tmp_path):
        return  # what is changed is in the other container only
    refused(path)
    with pytest.raises(FormatError):
        inspect(path)
    assert not verify(path).ok


def written_as_it_was(model: Model, tmp_path: Path) -> dict[str, bytes]:
    return model.write(None)


@pytest.mark.parametrize("encoding", ["utf-16", "utf-32-le", "utf-8-sig"])
def test_a_root_in_another_encoding(encoding: str, tmp_path: Path) -> None:
    save(tmp_path / "whole.zarr.zip", STATE)
    model = Model(Seed("whole", read_files(tmp_path / "whole.zarr.zip"), {}), tmp_path / "y")
    path = with_text(
        model, tmp_path, lambda text: text if b'node_type":"array' in text else text.decode().encode(encoding)
    )
    refused(path)


def test_a_document_in_another_encoding_or_with_a_member_twice_contradicts(
    model: Model, tmp_path: Path
) -> None:
    at = model.names.index("w")
    whole = model.texts[at]
    for text in (
        whole.decode().encode("utf-16"),
        whole.replace(b'"shape":', b'"shape":[1],"shape":'),
        whole.replace(b"}}}", b'},"x":NaN}}'),
        # Larger than what is read in one piece, so that it comes by another way.
        whole.replace(b"float32", b"uint32") + b" " * 300_000,
    ):
        model.texts[at] = text
        path = written(model, tmp_path)
        refused(path, "w", place="w/zarr.json")
        assert [fault.blob for fault in verify(path).faults] == ["w"]


def test_an_empty_blob_that_holds_bytes(model: Model, tmp_path: Path) -> None:
    at = model.names.index("text")
    model.rows[at][0] = "empty"
    model.document(at)
    refused(written(model, tmp_path), "text", place="text")


@pytest.mark.parametrize("rows", [2**40, 2**50])
def test_a_claim_of_more_than_the_file_holds_takes_no_memory(rows: int, model: Model, tmp_path: Path) -> None:
    at = model.names.index("w")
    model.rows[at][2], model.rows[at][5] = [rows, 4], rows
    model.document(at)
    path = written(model, tmp_path)
    refused(path, "w", place="w/c.0.0")
    with open_database(path) as database, pytest.raises(FormatError, match="'w', chunk 0"):
        database.read("w", slice(0, rows))
    assert [fault.blob for fault in verify(path).faults] == ["w"]


@pytest.mark.parametrize("key", ["zarr.json", "w/zarr.json", "w/c.0.0"])
def test_a_sparse_file_of_terabytes_takes_no_memory(key: str, tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    save(path, STATE)
    (path / key).chmod(0o644)
    os.truncate(path / key, 1 << 43)
    assert not verify(path).ok
    with pytest.raises(FormatError, match=str(path)):
        load(path)


def test_padding_between_fields_is_loaded_into_places_that_are_not_contiguous(tmp_path: Path) -> None:
    dtype = np.dtype([("a", "i1"), ("b", "f8")], align=True)
    stored = np.frombuffer(bytes(range(48)), dtype)
    for path in (tmp_path / "x.zarr.zip", tmp_path / "x.zarr"):
        save(path, {"r": stored})
        place = np.zeros(6, dtype)[::2]
        load(path, into={"r": place})
        assert place.view("V16").tobytes() == bytes(range(48))


def test_a_type_without_fields_keeps_its_bytes(tmp_path: Path) -> None:
    bare = np.dtype({"names": [], "formats": [], "itemsize": 4})
    rows = np.frombuffer(b"abcdefgh", bare)
    save(tmp_path / "x", {"r": rows, "again": rows})
    place = np.zeros(4, bare)[::2]
    load(tmp_path / "x", ["again"], into={"again": place})
    assert place.view("V4").tobytes() == b"abcdefgh"


def test_a_type_that_could_not_be_read_again_is_not_saved() -> None:
    dtype = np.dtype("<f4")
    while refusal(dtype) is None:
        assert dtype_from_spec(dtype_spec(dtype)) == dtype
        dtype = np.dtype([("a", dtype)])
    assert "deeper than 32 levels" in (refusal(dtype) or "")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b'"\\ud800"', "lone surrogate"),
        (b'{"a":["\\udc00"]}', "lone surrogate"),
        (b'{"\\ud800":1}', "lone surrogate"),
        (b"[" * 65 + b"]" * 65, "at most 64 levels"),
        (b'{"$tuple":[' * 65 + b"]}" * 65, "at most 64 levels"),
    ],
)
def test_a_state_that_could_not_be_saved_again_is_no_state(text: bytes, message: str) -> None:
    with pytest.raises(FormatError, match=message):
        decode_state(text)


def test_a_state_as_deep_as_it_may_be_is_read() -> None:
    value: Any = []
    for _ in range(63):
        value = (value,)
    assert decode_state(encode_state(value)) == value


GENERATORS: list[Any] = [
    np.random.default_rng(3),
    np.random.Generator(np.random.MT19937(3)),
    np.random.Generator(np.random.Philox(3)),
    np.random.RandomState(3),
    random.Random(3),
]


def first_of(state: Any, *keys: str) -> tuple[Any, Any]:
    """The member of a state that holds its numbers, and its key."""
    for key in keys[:-1]:
        state = state[key]
    return state, keys[-1]


@pytest.mark.parametrize(
    ("generator", "keys"),
    [
        (np.random.default_rng(3), ("state", "state", "state")),
        (np.random.default_rng(3), ("state", "uinteger")),
        (np.random.Generator(np.random.MT19937(3)), ("state", "state", "key")),
        (np.random.Generator(np.random.Philox(3)), ("state", "buffer")),
        (np.random.RandomState(3), ("state", "key")),
        (random.Random(3), ("state",)),
    ],
)
@pytest.mark.parametrize("add", [2**32, 2**64, 2**128])
def test_a_generator_whose_numbers_are_too_large_is_refused_and_not_cut(
    generator: Any, keys: tuple[str, ...], add: int
) -> None:
    algorithm, state = rng_state(generator)
    assert rng_restore(None, algorithm, copy.deepcopy(state)) is not None
    holder, key = first_of(state, *keys)
    numbers = holder[key]
    if isinstance(numbers, tuple):
        holder[key] = (numbers[0], (numbers[1][0] + add, *numbers[1][1:]), numbers[2])
    elif isinstance(numbers, int):
        holder[key] = numbers + add
    else:
        holder[key] = [int(numbers[0]) + add, *map(int, numbers[1:])]
    try:
        kept = rng_restore(None, algorithm, copy.deepcopy(state))
    except FormatError:
        return
    # It may have room for more than it needs.
    assert np.array_equal(first_of(rng_state(kept)[1], *keys)[0][key], holder[key])


@pytest.mark.parametrize("word", [False, 0.0, None])
def test_a_generator_of_other_things_than_numbers_is_refused(word: object) -> None:
    algorithm, state = rng_state(random.Random(3))
    version, words, _ = state["state"]
    for members in ((version, (word, *words[1:]), None), (version, words, [word])):
        with pytest.raises(FormatError, match="no numbers"):
            rng_restore(None, algorithm, {"state": members})
    drawn = random.Random(3)
    drawn.gauss(0, 1)
    again = rng_restore(None, *rng_state(drawn))
    assert again.gauss(0, 1) == drawn.gauss(0, 1)


def test_a_seed_of_an_enormous_pool_is_refused() -> None:
    algorithm, state = rng_state(np.random.default_rng(1))
    for size in (2**13, 2**32, 2**63):
        with pytest.raises(FormatError, match="pool"):
            rng_restore(None, algorithm, {**state, "seed_seq": {**state["seed_seq"], "pool_size": size}})
    large = np.random.Generator(np.random.PCG64(np.random.SeedSequence(1, pool_size=1 << 13)))
    again = rng_restore(None, *rng_state(large))
    assert again.random() == large.random()


@pytest.mark.parametrize(
    ("offset", "size"), [(0, 2**64 - 1), (2**40, 2**64 - 1), (1, 2**63 - 1), (2**63, 0), (2**63 - 1, 1)]
)
def test_a_range_that_no_file_has_is_refused_by_the_native_reader(
    offset: int, size: int, tmp_path: Path
) -> None:
    (tmp_path / "x").write_bytes(b"abc")
    with (tmp_path / "x").open("rb") as file, pytest.raises(BlobValueError, match="a range of the file"):
        read_chunks(file.fileno(), [(offset, size, bytearray(8))])


@pytest.mark.parametrize("container", ["zarr.zip", "zarr"])
@pytest.mark.parametrize("codec", [Zstd(), Blosc()])
def test_an_encoded_chunk_that_claims_gigabytes_takes_no_memory(
    codec: Zstd | Blosc, container: str, tmp_path: Path
) -> None:
    path = tmp_path / f"whole.{container}"
    save(path, {"w": np.arange(12, dtype="f4").reshape(3, 4)}, policies={"w": BlobPolicy(codec=codec)})
    model = Model(Seed("whole", read_files(path), {}), tmp_path / f"x.{container}")
    model.rows[0][2], model.rows[0][5] = [100_000_000, 4], 100_000_000
    model.document(0)
    path = written(model, tmp_path)
    with bounds():
        refused(path, "w", place="w/c.0.0")
        with open_database(path) as database, pytest.raises(FormatError, match="'w', chunk 0"):
            database.read("w", slice(0, 2))
        assert [fault.blob for fault in verify(path).faults] == ["w"]
