"""Encoded chunks that are damaged, or claim what they are not: an error, in bounded memory."""

from __future__ import annotations

import contextlib
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobcore.errors import ChecksumError, FormatError
from jobcore.store import (
    Blosc,
    Zstd,
    codecs,
    load,
    save,
    verify,
)
from policy_cases import CODECS, KINDS, encoded, repeated
from store_cases import same_bits
from stored_bytes import replace_stored


@pytest.fixture(params=KINDS)
def path(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tmp_path / str(request.param)


# ---- damage


def test_a_size_that_no_chunk_can_have_is_refused_before_there_is_memory_for_it(path: Path) -> None:
    save(path, {"w": repeated(10)}, policies={"w": encoded()})
    data = codecs.encode(Zstd().stored(4), repeated(10).reshape(-1).view(np.uint8))
    for size in (0, -1, 5040, 2**62, True, "4"):
        replace_stored(path, "w/c.0.0", data, size)  # type: ignore[arg-type]  # that is the test
        with pytest.raises(FormatError, match="root document: expected 1 to 5039 bytes in an encoded chunk"):
            load(path)
        assert not verify(path).ok
    replace_stored(path, "w/c.0.0", data, len(data) + 1)
    with pytest.raises(FormatError, match=r"'w', chunk 0: expected|'w', chunk 0: the file"):
        load(path)
    replace_stored(path, "w/c.0.0", data)
    assert same_bits(load(path)["w"], repeated(10))


def test_stored_bytes_are_checked_before_they_are_decoded(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(path, {"w": repeated()}, policies={"w": encoded()})
    file = path / "w" / "c.0.0" if path.is_dir() else path
    data = bytearray(file.read_bytes())
    at = 100 if path.is_dir() else data.index(b"\x28\xb5\x2f\xfd") + 100
    data[at] ^= 1
    file.chmod(0o644)
    file.write_bytes(data)

    def decode(*_: object) -> None:
        raise AssertionError("decoded before it was checked")

    monkeypatch.setattr("jobcore.store.container.decode", decode)
    with pytest.raises(ChecksumError, match=r"'w', chunk 0: expected CRC-32"):
        load(path)
    (fault,) = verify(path).faults
    assert (fault.place, fault.blob) == ("w/c.0.0", "w")


@pytest.mark.parametrize("codec", [Zstd(), Blosc()], ids=str)
def test_what_decodes_to_anything_else_is_an_error_that_names_the_chunk(path: Path, codec: Any) -> None:
    import numcodecs

    inner: Any = numcodecs.Zstd() if isinstance(codec, Zstd) else numcodecs.Blosc("zstd", 9)
    w = repeated(10)
    bomb = inner.encode(bytes(2 << 20))
    claims = bytearray(inner.encode(w.tobytes()))
    if isinstance(codec, Zstd):
        claims[-1] ^= 0xFF
    else:
        claims[20] ^= 0xFF
    for stored in (bomb, inner.encode(w.tobytes()[:-1]), b"x", b"x" * 100, bytes(claims)[:-1]):
        save(path, {"w": w, "v": w}, policies={"w": encoded(codec)}, overwrite=True, share=False)
        replace_stored(path, "w/c.0.0", stored)
        tracemalloc.start()
        try:
            with pytest.raises(
                FormatError, match=r"'w', chunk 0: expected 4000 bytes that \w+ has encoded, found"
            ):
                load(path)
            assert tracemalloc.get_traced_memory()[1] < 3 << 19
        finally:
            tracemalloc.stop()
        report = verify(path)
        assert [(fault.place, fault.blob) for fault in report.faults] == [("w/c.0.0", "w")]
        assert same_bits(load(path, ["v"])["v"], w)


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=60), st.sampled_from(CODECS), st.integers(0, 400), st.integers(0, 7))
def test_any_bytes_are_decoded_or_refused(junk: bytes, codec: Any, at: int, bit: int) -> None:
    stored = codec.stored(4)
    chunk = np.arange(100, dtype="<u4")
    out = memoryview(bytearray(400))
    good = bytearray(codecs.encode(stored, chunk.view(np.uint8)))
    codecs.decode(stored, memoryview(good), out)
    assert bytes(out) == chunk.tobytes()
    good[at % len(good)] ^= 1 << bit
    for data in (junk, bytes(good[:4]) + junk, bytes(good), bytes(good[: at % len(good)])):
        with contextlib.suppress(ValueError):
            codecs.decode(stored, memoryview(data), out)


@pytest.mark.parametrize(
    "value",
    [
        None,
        [],
        [{"name": "zstd"}],
        [{"name": "gzip", "configuration": {"level": 1}}],
        [{"name": ["zstd"], "configuration": {}}],
        [{"name": "zstd", "configuration": {"level": 23, "checksum": False}}],
        [{"name": "zstd", "configuration": {"level": True, "checksum": False}}],
        [{"name": "zstd", "configuration": {"level": 1, "checksum": 0}}],
        [
            {
                "name": "blosc",
                "configuration": {"cname": "zstd", "clevel": 5, "shuffle": "shuffle", "typesize": 0},
            }
        ],
        [Zstd().stored(1), Zstd().stored(1)],
    ],
)
def test_codecs_that_break_the_format_are_refused(value: object) -> None:
    with pytest.raises(FormatError, match=r"specs\[0\]: expected"):
        codecs.parse_codecs(value, "specs[0]")


@pytest.mark.parametrize("codec", CODECS, ids=str)
def test_stored_codecs_come_back_and_further_members_are_left_out(codec: Any) -> None:
    stored = codec.stored(4)
    more = {**stored, "configuration": {**stored["configuration"], "later": 1}, "x": 2}
    assert codecs.parse_codecs([more], "here") == (stored,)
