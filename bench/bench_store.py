"""Saving and loading databases, beside the limit of the disk and what others do with the same state.

Each group is one operation on one state. ``limit`` is a plain write or read of as many bytes by one thread; a durable
write ends with ``fsync`` as ours does. The states are small, so that the suite also runs as a test; the fixed cost of a
call shows in them all the more.

    python -m pytest bench/bench_store.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr

from jobcore.store import inspect, load, open_database, save, verify

State = dict[str, "np.ndarray[Any, Any]"]

STATES: dict[str, tuple[int, int]] = {
    "4 x 8 MiB": (4, 8 << 20),
    "256 x 64 KiB": (256, 64 << 10),
    "500 x 256 B": (500, 256),
}


@pytest.fixture(scope="module", params=STATES)
def state(request: pytest.FixtureRequest) -> tuple[str, State]:
    count, size = STATES[request.param]
    rng = np.random.default_rng(0)
    return request.param, {
        f"layer{number}.weight": rng.integers(0, 255, size, np.uint8).view(np.float32)
        for number in range(count)
    }


def plain_write(path: Path, arrays: State, durable: bool) -> None:
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        data = np.concatenate(list(arrays.values())) if len(arrays) > 4 else None
        for array in [data] if data is not None else arrays.values():
            view = memoryview(array.view(np.uint8))
            while view:
                view = view[os.write(fd, view) :]
        if durable:
            os.fsync(fd)
    finally:
        os.close(fd)


def jobcore_save(path: Path, arrays: State, durable: bool) -> None:
    save(path, arrays, durable=durable)


def numpy_save(path: Path, arrays: State, durable: bool) -> None:
    with path.open("wb") as file:
        np.savez(file, **arrays)
        file.flush()
        if durable:
            os.fsync(file.fileno())


def zarr_save(path: Path, arrays: State, durable: bool) -> None:
    with zarr.storage.ZipStore(path, mode="w") as store:
        group = zarr.create_group(store)
        for name, array in arrays.items():
            group.create_array(name, data=array, chunks=array.shape, compressors=None)
    if durable:
        fd = os.open(path, os.O_RDONLY)
        os.fsync(fd)
        os.close(fd)


WRITERS = {"limit": plain_write, "jobcore": jobcore_save, "numpy.savez": numpy_save, "zarr-python": zarr_save}


def pairs(kinds: Iterable[str]) -> list[Any]:
    # zarr-python takes 5 to 8 ms for each array: with hundreds of them it would be most of the suite's time.
    return [
        pytest.param(name, kind, id=f"{name}-{kind}")
        for name, (count, _) in STATES.items()
        for kind in kinds
        if kind != "zarr-python" or count < 10
    ]


@pytest.mark.parametrize("durable", [True, False], ids=["durable", "not durable"])
@pytest.mark.parametrize(("state", "writer"), pairs(WRITERS), indirect=["state"])
def test_save(writer: str, durable: bool, state: tuple[str, State], benchmark: Any, tmp_path: Path) -> None:
    name, arrays = state
    benchmark.group = f"save {'durable' if durable else 'not durable'}, {name}"
    numbers = iter(range(10**6))

    def fresh() -> tuple[tuple[Path, State, bool], dict[str, Any]]:
        # A new file each time, as a checkpoint is one; the one before goes outside the measured time.
        number = next(numbers)
        (tmp_path / f"{number - 1}").unlink(missing_ok=True)
        return (tmp_path / f"{number}", arrays, durable), {}

    benchmark.pedantic(WRITERS[writer], setup=fresh, rounds=15, warmup_rounds=1)


def plain_read(path: Path, into: State) -> None:
    with path.open("rb", buffering=0) as file:
        for array in into.values():
            file.readinto(array)  # type: ignore[arg-type]  # an array is a buffer


def jobcore_read(path: Path, into: State) -> None:
    load(path, into=into)


def numpy_read(path: Path, into: State) -> None:
    with np.load(path) as file:
        for name, array in into.items():
            array[...] = file[name]


def zarr_read(path: Path, into: State) -> None:
    with zarr.storage.ZipStore(path, mode="r") as store:
        group = zarr.open_group(store, mode="r")
        for name, array in into.items():
            array[...] = group[name][...]  # type: ignore[index,call-overload]  # they are arrays


def filled(kind: str, arrays: State, folder: Path) -> Path:
    path = folder / kind
    WRITERS[kind](path, arrays, False)
    return path


READERS: dict[str, Callable[[Path, State], None]] = {
    "limit": plain_read,
    "jobcore": jobcore_read,
    "numpy.savez": numpy_read,
    "zarr-python": zarr_read,
}


@pytest.mark.parametrize(("state", "reader"), pairs(READERS), indirect=["state"])
def test_load_in_place(reader: str, state: tuple[str, State], benchmark: Any, tmp_path: Path) -> None:
    name, arrays = state
    benchmark.group = f"load in place, {name}"
    path = filled(reader, arrays, tmp_path)
    into = {key: np.empty_like(array) for key, array in arrays.items()}
    benchmark.pedantic(READERS[reader], args=(path, into), rounds=15, warmup_rounds=1)
    if reader != "limit":
        assert all(np.array_equal(into[key].view("u1"), arrays[key].view("u1")) for key in arrays)


NEW: dict[str, Callable[[Path], Any]] = {
    "limit": lambda path: path.read_bytes(),
    "jobcore": load,
    "numpy.savez": lambda path: dict(np.load(path)),
}


@pytest.mark.filterwarnings("ignore::ResourceWarning")  # np.load leaves its file to the garbage collector
@pytest.mark.parametrize("reader", NEW)
def test_load_new(reader: str, state: tuple[str, State], benchmark: Any, tmp_path: Path) -> None:
    name, arrays = state
    benchmark.group = f"load new, {name}"
    path = filled(reader, arrays, tmp_path)
    benchmark.pedantic(NEW[reader], args=(path,), rounds=15, warmup_rounds=1)


def numpy_names(path: Path) -> list[str]:
    with np.load(path) as file:
        return list(file.files)


@pytest.mark.parametrize("reader", ["limit", "jobcore", "numpy.savez"])
def test_inspect(reader: str, state: tuple[str, State], benchmark: Any, tmp_path: Path) -> None:
    name, arrays = state
    benchmark.group = f"inspect, {name}"
    path = filled(reader, arrays, tmp_path)
    if reader == "limit":

        def act() -> Any:  # the one read of the end that every reader needs
            with path.open("rb") as file:
                file.seek(-min(path.stat().st_size, 1 << 16), os.SEEK_END)
                return file.read()

    elif reader == "jobcore":

        def act() -> Any:
            return inspect(path)

    else:

        def act() -> Any:
            return numpy_names(path)

    benchmark.pedantic(act, rounds=30, warmup_rounds=1)


@pytest.mark.parametrize("reader", ["limit", "jobcore", "zip"])
def test_verify(reader: str, state: tuple[str, State], benchmark: Any, tmp_path: Path) -> None:
    import zipfile

    name, arrays = state
    benchmark.group = f"verify, {name}"
    path = filled("jobcore", arrays, tmp_path)

    def zip_test() -> Any:
        with zipfile.ZipFile(path) as file:
            return file.testzip()

    acts: dict[str, Callable[[], Any]] = {
        "limit": path.read_bytes,
        "jobcore": lambda: verify(path),
        "zip": zip_test,
    }
    benchmark.pedantic(acts[reader], rounds=10, warmup_rounds=1)


def test_load_one_of_many(benchmark: Any, tmp_path: Path) -> None:
    benchmark.group = "read one blob of 500 from an open database"
    arrays = {f"layer{number}.weight": np.zeros(64, np.float32) for number in range(500)}
    path = filled("jobcore", arrays, tmp_path)
    with open_database(path) as database:
        benchmark.pedantic(database.read, args=("layer250.weight",), rounds=50, warmup_rounds=1)
