"""An array of more than 4 GiB, in one chunk: what does not fit into 32 bits, nor into one call of the system."""

from __future__ import annotations

import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from jobcore.store import inspect, load, save, verify

WIDTH, COUNT = 1 << 20, 4097
SIZE = WIDTH * COUNT


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Goes at once: folders of tests are kept for a while, and this one is too large for that."""
    with tempfile.TemporaryDirectory(dir=tmp_path) as name:
        yield Path(name)


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("suffix", ["zarr.zip", "zarr"])
def test_it_comes_back_and_so_does_what_lies_behind_it(suffix: str, folder: Path) -> None:
    path = folder / f"x.{suffix}"
    line = np.random.default_rng(0).integers(0, 256, WIDTH, np.uint8)
    # The same memory again and again: no copy of all of it is made on the way.
    large = np.broadcast_to(line, (1, COUNT, WIDTH))
    last = np.arange(7, dtype="<i2")
    written = save(path, {"large": large, "last": last}, durable=False)
    assert written.size_bytes > SIZE > 1 << 32
    blob, behind = inspect(path).blobs
    assert (blob.shape, blob.nbytes, blob.chunks) == ((1, COUNT, WIDTH), SIZE, 1)
    assert behind.name == "last"
    assert load(path, ["last"])["last"].tolist() == last.tolist()
    if path.is_file():
        with zipfile.ZipFile(path) as file:
            assert file.getinfo("large/c.0.0.0").file_size == SIZE
            assert file.getinfo("last/c.0").header_offset > 1 << 32
            assert file.read("last/c.0") == last.tobytes()
    found = load(path)["large"]
    assert found.shape == large.shape
    assert all(np.array_equal(row, line) for row in found[0])
    del found
    # The last byte of the chunk counts as much as the first.
    file_of = path if path.is_file() else path / "large" / "c.0.0.0"
    file_of.chmod(0o644)
    with file_of.open("r+b") as raw:
        at = SIZE - 1 if path.is_dir() else raw.read(4096).index(line[:64].tobytes()) + SIZE - 1
        raw.seek(at)
        byte = raw.read(1)
        assert byte == line[-1:].tobytes()
        raw.seek(at)
        raw.write(bytes([byte[0] ^ 1]))
    report = verify(path)
    assert {fault.blob for fault in report.faults} == {"large"}
