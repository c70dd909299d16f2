"""Saves that encode and loads that decode, beside the codec alone in as many threads as there are processors.

python -m pytest bench/bench_codecs.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from jobcore.store import BlobPolicy, Blosc, Zstd, load, save
from jobcore.store.codecs import decode, encode
from jobcore.store.workers import THREADS, each

CODECS = {"zstd 1": Zstd(1), "blosc lz4": Blosc("lz4", 5, "bitshuffle"), "blosc zstd": Blosc()}
ROWS, COLUMNS = 16, 1 << 20  # 64 MiB, which is cut into chunks of a row


@pytest.fixture(scope="module")
def moments() -> np.ndarray[Any, Any]:
    """Squared gradients of which nine in ten are zero."""
    rng = np.random.default_rng(0)
    values = rng.standard_normal((ROWS, COLUMNS), np.float32) ** 2
    values[rng.random((ROWS, COLUMNS), np.float32) < 0.9] = 0
    return values


@pytest.fixture(params=CODECS)
def codec(request: pytest.FixtureRequest, benchmark: Any) -> Any:
    benchmark.group = f"codecs, {request.param}"
    return CODECS[request.param]


def test_encoding_alone(benchmark: Any, codec: Any, moments: np.ndarray[Any, Any]) -> None:
    stored = codec.stored(4)
    rows = [row.view(np.uint8) for row in moments]
    benchmark(lambda: each(((lambda row=row: encode(stored, row)) for row in rows), THREADS))


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
def test_save(benchmark: Any, codec: Any, moments: np.ndarray[Any, Any], tmp_path: Path, place: str) -> None:
    policies = {"m": BlobPolicy(codec=codec)}
    benchmark(save, tmp_path / place, {"m": moments}, policies=policies, durable=False, overwrite=True)


def test_decoding_alone(benchmark: Any, codec: Any, moments: np.ndarray[Any, Any]) -> None:
    stored = codec.stored(4)
    rows = [memoryview(encode(stored, row.view(np.uint8))) for row in moments]
    places = [memoryview(row.view(np.uint8)) for row in np.ones_like(moments)]
    pairs = list(zip(rows, places, strict=True))
    benchmark(lambda: each(((lambda pair=pair: decode(stored, *pair)) for pair in pairs), THREADS))


@pytest.mark.parametrize("place", ["x.zarr.zip", "x.zarr"])
def test_load_in_place(
    benchmark: Any, codec: Any, moments: np.ndarray[Any, Any], tmp_path: Path, place: str
) -> None:
    save(tmp_path / place, {"m": moments}, policies={"m": BlobPolicy(codec=codec)}, durable=False)
    into = {"m": np.ones_like(moments)}
    benchmark(load, tmp_path / place, into=into)
    assert (into["m"] == moments).all()
