"""Chunks that are encoded: what comes back, how they are stored, and what goes wrong on the way."""

from __future__ import annotations

import threading
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobcore import Counter, Workspace
from jobcore.store import (
    BlobPolicy,
    Blosc,
    ChunkPolicy,
    Zstd,
    codecs,
    encoding,
    inspect,
    load,
    open_database,
    save,
    save_async,
    verify,
    write_database,
)
from jobcore.store.layout import without_fields
from policy_cases import CODECS, KINDS, blob, encoded, repeated
from store_cases import DTYPES, TINY, any_bits, same_bits


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


# ---- what comes back


@pytest.mark.parametrize("codec", CODECS, ids=str)
@pytest.mark.parametrize("chunks", [None, TINY, ChunkPolicy(1 << 17, 1 << 18)])
def test_what_is_encoded_comes_back(path: Path, codec: Any, chunks: ChunkPolicy | None) -> None:
    rows = 9 if chunks is TINY else 3000
    blobs = {
        "w": repeated(rows),
        "turned": repeated(rows).T[:50],
        "odd": np.arange(49, dtype=">i2").reshape(7, 7),
        "0-d": np.float64(2.5),
        "empty": np.zeros((0, 3)),
        "steps": Counter(7),
        "name": "größe",
    }
    save(path, blobs, policies={"*": encoded(codec)}, chunks=chunks)
    assert verify(path).ok
    back = load(path)
    assert list(back) == list(blobs)
    for name in ("w", "turned", "odd", "0-d", "empty"):
        assert same_bits(back[name], np.asarray(blobs[name])), name
    assert back["steps"].retrieve() == 7
    assert back["name"] == "größe"
    assert inspect(path).format == 3


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_data_type_is_encoded(tmp_path: Path, dtype: np.dtype[Any]) -> None:
    for number, codec in enumerate((Zstd(), Blosc(shuffle="shuffle"), Blosc())):
        array = any_bits(dtype, (5, 3))
        path = tmp_path / f"{number}.zarr.zip"
        save(
            path,
            {"a": array, "b": array[:1, :1].reshape(())},
            policies={"[ab]": encoded(codec)},
            chunks=TINY,
            durable=False,
            share=False,
        )
        back = load(path)
        assert same_bits(back["a"], array)
        assert same_bits(back["b"], array[:1, :1].reshape(()))
        assert verify(path).ok


def test_a_load_goes_everywhere_that_others_go(path: Path) -> None:
    w = repeated()
    save(
        path,
        {"w": w, "n": np.arange(5)},
        policies={"w": encoded(Blosc(), chunks=ChunkPolicy(1 << 17, 1 << 18))},
    )
    assert blob(path, "w").chunks > 3
    place = np.zeros_like(w)
    assert load(path, ["w"], {"w": place})["w"] is place
    assert same_bits(place, w)
    turned = np.zeros(w.shape[::-1], w.dtype).T
    load(path, ["w"], {"w": turned})
    assert (turned == w).all()
    wide = np.zeros(w.shape)
    load(path, ["w"], {"w": wide}, cast=True)
    assert (wide == w).all()
    workspace = Workspace()
    load(path, into=workspace)
    assert (workspace.fetch("w") == w).all()
    with open_database(path) as database:
        assert same_bits(database.read("w", slice(777, 2100)), w[777:2100])
        assert same_bits(database.read("w", slice(2, 3)), w[2:3])
        assert database.read("w", slice(5, 5)).shape == (0, 100)
    seen: list[int] = []
    load(path, progress=lambda done, _: seen.append(done))
    assert seen[-1] == w.nbytes + 40


def test_several_threads_load_encoded_blobs_from_one_database(path: Path) -> None:
    w = repeated(2000)
    save(path, {"w": w}, policies={"w": encoded(chunks=ChunkPolicy(1 << 16, 1 << 17))})
    wrong: list[int] = []
    with open_database(path) as database:

        def run(number: int) -> None:
            for at in range(number, 1990, 97):
                if not (database.read("w", slice(at, at + 9)) == w[at : at + 9]).all():
                    wrong.append(at)

        threads = [threading.Thread(target=run, args=(n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


@settings(max_examples=40, deadline=None)
@given(
    st.dictionaries(
        st.text("ab[]*?x/.", min_size=1, max_size=4),
        st.tuples(
            st.sampled_from(DTYPES),
            st.lists(st.integers(0, 6), max_size=3).map(tuple),
            st.booleans(),
            st.sampled_from([None, *CODECS[:2], *CODECS[3:6]]),
        ),
        max_size=5,
    ),
    st.sampled_from(KINDS),
)
def test_any_mixture_comes_back(
    tmp_path_factory: pytest.TempPathFactory, drawn: dict[str, Any], kind: str
) -> None:
    blobs, policies = {}, {}
    for seed, (name, (dtype, shape, turned, codec)) in enumerate(drawn.items()):
        array = any_bits(dtype, shape, seed)
        blobs[name] = array.T if turned else array
        policies[name] = BlobPolicy(TINY, codec)
    path = tmp_path_factory.mktemp("mixture") / kind
    save(path, blobs, policies=policies, durable=False)
    assert verify(path).ok
    back = load(path)
    assert list(back) == list(blobs)
    # As plain bytes: NumPy leaves out what lies between fields when it copies an array that is turned.
    assert all(same_bits(*map(without_fields, (back[name], blobs[name]))) for name in blobs)


# ---- how it is stored


def test_nothing_changes_where_no_policy_says_anything_new(path: Path) -> None:
    blobs = {"w": repeated(), "n": 5}
    plain = save(path, blobs)
    for policies in (
        None,
        {},
        {"*": BlobPolicy()},
        {"w": BlobPolicy(ChunkPolicy())},
        lambda _name, _array: None,
    ):
        assert save(path, blobs, policies=policies, overwrite=True).digest == plain.digest  # type: ignore[arg-type]
    assert inspect(path).format == (2 if path.suffix == ".zarr" else 1)


def test_equal_content_is_encoded_to_equal_bytes(path: Path) -> None:
    blobs = {"w": repeated(), "m": np.random.default_rng(0).random((500, 500))}
    policies = {"w": encoded(Blosc()), "m": encoded(chunks=ChunkPolicy(1 << 16, 1 << 17))}
    digests = {save(path, blobs, policies=policies, overwrite=True).digest for _ in range(4)}
    pending = save_async(path, blobs, policies=policies, overwrite=True)
    assert digests == {pending.wait().digest}
    import numcodecs

    numcodecs.blosc.use_threads = True
    try:
        assert save(path, blobs, policies=policies, overwrite=True).digest in digests
    finally:
        numcodecs.blosc.use_threads = False


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 1 << 17), st.integers(2, 40), st.randoms(use_true_random=False))
def test_blocks_of_blosc_are_put_in_order(elements: int, period: int, random: Any) -> None:
    codec = Blosc("lz4", 5, "shuffle").stored(4)
    codec["configuration"]["blocksize"] = 4096
    chunk = (np.arange(elements, dtype="<u4") ** 2 % period).view(np.uint8)
    data = codecs.encode(codec, chunk)
    count = -(-chunk.nbytes // int.from_bytes(data[8:12], "little"))
    if data[2] & 2 or count < 2:
        return
    starts = [int.from_bytes(data[at : at + 4], "little") for at in range(16, 16 + 4 * count, 4)]
    blocks = [data[a:b] for a, b in zip(starts, [*starts[1:], len(data)], strict=True)]
    order = random.sample(range(count), count)
    body, places = b"", [0] * count
    for block in order:
        places[block] = 16 + 4 * count + len(body)
        body += blocks[block]
    mixed = data[:16] + b"".join(place.to_bytes(4, "little") for place in places) + body
    assert codecs._blocks_in_order(mixed) == data
    out = bytearray(chunk.nbytes)
    codecs.decode(codec, memoryview(mixed), memoryview(out))
    assert bytes(out) == chunk.tobytes()


def test_a_table_tells_codecs_and_stored_bytes(path: Path) -> None:
    save(
        path,
        {"w": repeated(), "m": repeated(), "p": repeated(10)},
        policies={"w": encoded(Zstd(7)), "m": encoded(Blosc("lz4", 3, "shuffle"))},
    )
    w, m, p = inspect(path).blobs
    assert w.codecs == ("zstd(7)",)
    assert m.codecs == ("blosc(lz4, 3, shuffle)",)
    assert p.codecs == ()
    assert (w.nbytes, p.stored_bytes) == (1_200_000, 4000)
    assert 0 < w.stored_bytes < 100_000
    assert 0 < m.stored_bytes < 100_000
    size = sum(file.stat().st_size for file in path.rglob("*") if file.is_file()) or path.stat().st_size
    assert inspect(path).size_bytes == size < 300_000


def test_what_a_codec_makes_larger_is_stored_encoded_all_the_same(path: Path) -> None:
    noise = np.random.default_rng(1).integers(0, 256, 300_000, np.uint8)
    save(path, {"n": noise}, policies={"n": encoded()})
    assert blob(path, "n").stored_bytes > noise.nbytes
    assert same_bits(load(path)["n"], noise)


def test_chunks_follow_the_policy_then_the_save_then_the_codec(path: Path) -> None:
    w = np.zeros((64, 1 << 18), np.uint8)  # 16 MiB
    small, large = ChunkPolicy(1 << 20, 1 << 21), ChunkPolicy(8 << 20, 8 << 20)

    def count(policy: BlobPolicy, **options: Any) -> int:
        save(path, {"w": w}, policies={"w": policy}, overwrite=True, durable=False, **options)
        return int(blob(path, "w").chunks)

    assert count(BlobPolicy()) == 1
    assert count(encoded()) == 4
    assert count(encoded(), chunks=large) == 2
    assert count(encoded(chunks=small), chunks=large) == 16
    assert count(BlobPolicy(small)) == 16


def test_a_save_in_the_background_encodes_what_was_there_when_it_was_staged(path: Path) -> None:
    w = repeated()
    pending = save_async(path, {"w": w, "p": w.copy()}, policies={"w": encoded()})
    expected = w.copy()
    w[:] = -1
    pending.wait()
    assert same_bits(load(path)["w"], expected)
    assert verify(path).ok


def test_unchanged_chunks_of_an_encoded_blob_are_linked(tmp_path: Path) -> None:
    w = np.random.default_rng(0).integers(0, 9, (100, 1000), np.int64)
    policies = {"w": encoded(Blosc(), chunks=ChunkPolicy(80_000, 80_000))}
    save(tmp_path / "1.zarr", {"w": w}, policies=policies)
    w[35] += 1
    write_database(tmp_path / "2.zarr", {"w": w}, policies=policies, base=tmp_path / "1.zarr")
    same = [(tmp_path / f"1.zarr/w/c.{n}.0").samefile(tmp_path / f"2.zarr/w/c.{n}.0") for n in range(10)]
    assert same == [n != 3 for n in range(10)]
    assert (tmp_path / "1.zarr/w/zarr.json").samefile(tmp_path / "2.zarr/w/zarr.json")
    assert same_bits(load(tmp_path / "2.zarr")["w"], w)
    # Another codec shares nothing, and one that is gone neither.
    write_database(tmp_path / "3.zarr", {"w": w}, base=tmp_path / "2.zarr")
    assert same_bits(load(tmp_path / "3.zarr")["w"], w)
    assert inspect(tmp_path / "3.zarr").format == 2


# ---- errors while it is written, and memory


def test_an_error_of_a_codec_ends_the_save_and_nothing_is_left(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> bytes:
        raise MemoryError("no room to encode")

    monkeypatch.setattr(encoding, "encode", fail)
    with pytest.raises(MemoryError, match="no room"):
        save(
            path,
            {"w": repeated(), "p": repeated()},
            policies={"w": encoded(chunks=ChunkPolicy(1 << 16, 1 << 17))},
        )
    assert list(path.parent.iterdir()) == []
    assert not [one for one in threading.enumerate() if one.name == "jobcore-encode"]


def test_no_threads_to_be_had_encode_too(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def no_thread(_self: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", no_thread)
    w = repeated()
    save(path, {"w": w, "v": w + 1}, policies={"*": encoded(chunks=ChunkPolicy(1 << 16, 1 << 17))})
    monkeypatch.undo()
    assert same_bits(load(path)["w"], w)


@pytest.mark.parametrize("turned", [False, True])
def test_encoding_takes_little_memory(path: Path, turned: bool) -> None:
    w = np.random.default_rng(0).integers(0, 4, (48 << 8, 1 << 12), np.uint8)  # 48 MiB
    blobs = {"w": w.T if turned else w}
    save(path, {"n": 1.0}, policies={"n": encoded()}, durable=False)  # imports are not counted
    tracemalloc.start()
    try:
        save(path, blobs, policies={"w": encoded(Zstd(1))}, overwrite=True, durable=False)
        _, most = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert most < 60 << 20
    assert same_bits(load(path)["w"], blobs["w"])


def test_a_budget_is_kept_and_never_blocks_the_only_one() -> None:
    budget, most, now = encoding.Budget(100), [0], [0]
    lock = threading.Lock()

    def run(size: int) -> None:
        for _ in range(50):
            with budget.taken(size):
                with lock:
                    now[0] += size
                    most[0] = max(most[0], now[0])
                with lock:
                    now[0] -= size

    threads = [threading.Thread(target=run, args=(size,)) for size in (10, 30, 60, 100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert most[0] <= 100
    with budget.taken(1000):
        assert True
