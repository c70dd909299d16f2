"""Whole databases of many shapes, in both containers, and what they hold."""

from __future__ import annotations

import contextlib
import random
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

import make_golden
from jobcore import Counter
from jobcore.store import ChunkPolicy, load, write_database, zipformat
from jobcore.store.policies import BlobPolicy, Blosc, Zstd
from store_cases import DTYPES, TINY, any_bits

CUT = ChunkPolicy(800, 1000)
DATA = Path(__file__).parents[1] / "data"


@dataclass(frozen=True)
class Seed:
    """One database.

    `files` are those of a directory by key, or of a zip the one whose key is empty. `wide` are the limits from which
    on its fields are wide, and None for the usual ones.
    """

    name: str
    files: dict[str, bytes]
    values: dict[str, Any] = field(compare=False)
    wide: tuple[int, int] | None = None

    @property
    def is_zip(self) -> bool:
        return "" in self.files

    def write(self, path: Path) -> None:
        write_files(path, self.files)


def write_files(path: Path, files: dict[str, bytes]) -> None:
    for key, data in files.items():
        place = path / key if key else path
        # Not everything that an index may name can be a file.
        with contextlib.suppress(OSError):
            place.parent.mkdir(exist_ok=True, parents=True)
            place.write_bytes(data)


def read_files(path: Path) -> dict[str, bytes]:
    if path.is_file():
        return {"": path.read_bytes()}
    return {str(p.relative_to(path)): p.read_bytes() for p in sorted(path.rglob("*")) if p.is_file()}


@contextlib.contextmanager
def limits(wide: tuple[int, int] | None) -> Iterator[None]:
    """Read or write with wide fields from other limits on, so that a small file has some."""
    before = zipformat._WIDE32, zipformat._WIDE16
    zipformat._WIDE32, zipformat._WIDE16 = wide or before
    try:
        yield
    finally:
        zipformat._WIDE32, zipformat._WIDE16 = before


def contents() -> Iterator[tuple[str, dict[str, Any], ChunkPolicy, dict[str, Any]]]:
    """Name, blobs, chunks and header of each shape."""
    generator = np.random.Generator(np.random.Philox(3))
    generator.random(3, dtype=np.float32)
    legacy = np.random.RandomState(5)
    legacy.standard_normal()
    state = {"$a": (1, [2.5, None], {"b": b"\0"}), "n": 2**80, "w": np.arange(3, dtype=">i2"), "z": 1 - 2j}
    yield (
        "kinds",
        {
            "w": np.arange(12, dtype="f4").reshape(3, 4),
            "é": "größe",
            "n": Counter(3),
            "none": np.zeros(0),
            "raw": b"\0\xff",
            "state": state,
            "legacy": legacy,
            "philox": generator,
            "python": random.Random(1),
        },
        ChunkPolicy(1500, 2000),
        {"user": {"a": 1}},
    )
    yield "golden", make_golden.values(), make_golden.CHUNKS, make_golden.HEADER
    some = [dtype for dtype in DTYPES if dtype.kind in "MmVSU" or dtype.names or dtype.itemsize > 8]
    yield "records", {f"d{i}": any_bits(t, (2,), i) for i, t in enumerate(some)}, ChunkPolicy(), {}
    plain = [dtype for dtype in DTYPES if dtype not in some]
    yield "plain", {f"d{i}": any_bits(t, (2, 1), i) for i, t in enumerate(plain)}, ChunkPolicy(), {}
    rows = np.arange(600, dtype="<i4").reshape(100, 2, 3)
    yield "chunks", {"a": rows, "b": rows[:7, 0] + 1, "c": rows[0, 0, 0]}, ChunkPolicy(100, 200), {}
    halves = rows.reshape(-1).view("<i2")
    pairs = np.frombuffer(bytes(range(96)), np.dtype([("a", "i1"), ("b", "f8")], align=True))
    views = {
        "pairs": pairs,
        "odd pairs": pairs[1::2],
        "t": rows.T,
        "back": rows[::-2, ::-1],
        "same": rows,
        "half": halves[1::3],
        "wide": rows[:1, :, :1],
    }
    yield (
        "shared",
        {"a": rows, **views, "alone": np.ones(3), "z": np.broadcast_to(halves[:2], (5, 2))},
        CUT,
        {},
    )
    some = {
        f"b{i}": Blosc(name, 1, how)
        for i, (name, how) in enumerate([("zstd", "bitshuffle"), ("lz4", "shuffle")])
    }
    codecs = {"z": Zstd(1), "t": Zstd(-5), **some}
    encoded: dict[str, Any] = {name: rows * (i + 1) for i, name in enumerate(codecs)}
    policies = {name: BlobPolicy(codec=codec) for name, codec in codecs.items()}
    encoded |= {"v": encoded["z"][5:], "text": "a" * 500, "plain": rows[3].copy()}
    yield "codecs", encoded, CUT, {"policies": policies | {"text": BlobPolicy(codec=Zstd())}}
    yield "nothing", {}, ChunkPolicy(), {"stop": {"epochs": 1}, "epoch": 2, "generation": 1}
    yield "one", {"weights": np.ones((4, 4))}, ChunkPolicy(), {"run": "r", "node": "n"}
    names = [
        "x" * 300,
        "é" * 90,
        ".hidden",
        "__a",
        "nul.txt",
        "a/b:c",
        "A",
        "a",
        "end.",
        "zarr.json",
        "\0",
        "\U0001f600",
    ]
    yield "names", {name: np.array([i]) for i, name in enumerate(names)}, ChunkPolicy(), {}
    yield "shapes", {
        "flat": np.zeros((2, 0, 3), "<u2"),
        "axes": np.ones((1,) * 30, "|i1"),
        "none": np.zeros((0, 5), "S3"),
        "scalar": np.float64(1.5),
        "text": "",
        "bytes": b"",
    }, TINY, {}  # fmt: skip
    large = np.arange(80_000, dtype="<f8")
    yield "large", {"before": 1, "big": large, "two": large.reshape(2, -1) + 1, "after": 2}, ChunkPolicy(), {}


@cache
def corpus() -> list[Seed]:
    """All databases; the same ones in every process."""
    seeds = []
    with tempfile.TemporaryDirectory() as folder:
        for name, values, chunks, header in contents():
            for container, wide in (("zarr.zip", None), ("zarr", None), ("zarr.zip", (700, 5))):
                if wide and name not in ("kinds", "chunks", "codecs"):
                    continue
                label = f"{name}.{container}" + (".wide" if wide else "")
                path = Path(folder) / label
                with limits(wide):
                    write_database(path, values, chunks=chunks, db_type=container, durable=False, **header)
                    seeds.append(Seed(label, read_files(path), load(path), wide))
    for path in sorted(DATA.glob("format-*.zarr*")):
        seeds.append(Seed(f"data {path.name}", read_files(path), load(path)))
    return seeds
