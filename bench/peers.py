"""Other ways to keep named arrays: each saves, loads into the arrays that are there, and maybe saves in the background.

Every save ends durable: what it wrote is forced to the disk, as part of the measured time. Every load ends with the
values in the given arrays, as a resumed training needs them, or in new ones where arrays are immutable (JAX). A package
that is not installed is left out; `MISSING` names it. Types that a package does not know go in as unsigned integers of
their width.
"""

from __future__ import annotations

import contextlib
import ctypes
import importlib
import importlib.util
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from states import State


def force(path: Path) -> None:
    """Force a file or a tree to the disk; many files by one call for the file system, in favour of who wrote them."""
    found = [path, *path.rglob("*")] if path.is_dir() else [path]
    if len(found) > 100:
        fd = os.open(path, os.O_RDONLY)
        try:
            if not hasattr(_libc, "syncfs") or _libc.syncfs(fd):
                os.sync()
        finally:
            os.close(fd)
        found = []
    for one in [*found, path.parent]:
        fd = os.open(one, os.O_RDONLY)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)


_libc = ctypes.CDLL(None)


def plain(arrays: State) -> State:
    """The same memory, with types that NumPy has itself."""
    return {key: array.view("u2") if array.dtype.kind == "V" else array for key, array in arrays.items()}


def put(into: State, found: Any) -> None:
    for key, array in into.items():
        np.copyto(array, found[key])


class Peer:
    """A way to save and load; ``prepare`` makes of the arrays what it takes, outside the measured time.

    Attributes
    ----------
    slow
        Whether it takes milliseconds for a blob, so that of many small ones only a part is measured.
    background
        Whether it can save in the background.
    source
        Whose arrays it takes; those of JAX nobody can change, so that a save in the background need not copy them.
    """

    needs: tuple[str, ...] = ()
    slow = False
    background = False
    source = "NumPy"

    def prepare(self, arrays: State) -> Any:
        return plain(arrays)

    def save(self, path: Path, values: Any) -> None:
        raise NotImplementedError

    def load(self, path: Path, into: Any) -> None:
        raise NotImplementedError

    def start(self, path: Path, values: Any) -> Callable[[], object]:
        """Start a save, return once the values may change; what is returned waits for the end."""
        raise NotImplementedError


class Savez(Peer):
    """`numpy.savez`."""

    def save(self, path: Path, values: Any) -> None:
        with path.open("wb") as file:
            np.savez(file, **values)

    def load(self, path: Path, into: Any) -> None:
        with np.load(path) as found:
            put(into, found)


class Torch(Peer):
    """`torch.save` and `torch.load`."""

    needs: tuple[str, ...] = ("torch",)

    def prepare(self, arrays: State) -> Any:
        import torch

        made = {key: torch.from_numpy(array) for key, array in plain(arrays).items()}
        return {
            key: one.view(torch.bfloat16) if one.dtype == torch.uint16 else one for key, one in made.items()
        }

    def save(self, path: Path, values: Any) -> None:
        import torch

        torch.save(values, path)

    def load(self, path: Path, into: Any) -> None:
        import torch

        for key, one in torch.load(path).items():
            into[key].copy_(one)


class Distributed(Torch):
    """`torch.distributed.checkpoint`."""

    needs: tuple[str, ...] = ("torch",)
    background = True

    def save(self, path: Path, values: Any) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.save(values, checkpoint_id=path, no_dist=True)

    def load(self, path: Path, into: Any) -> None:
        import torch.distributed.checkpoint as dcp

        dcp.load(into, checkpoint_id=path, no_dist=True)

    def start(self, path: Path, values: Any) -> Callable[[], object]:
        import torch.distributed.checkpoint as dcp

        wait: Callable[[], object] = dcp.async_save(values, checkpoint_id=path, no_dist=True).result
        return wait


class Safetensors(Torch):
    """`safetensors`, by way of torch where it is there, which also knows bfloat16."""

    needs: tuple[str, ...] = ("torch", "safetensors")

    def save(self, path: Path, values: Any) -> None:
        from safetensors.torch import save_file

        save_file(values, path)

    def load(self, path: Path, into: Any) -> None:
        from safetensors.torch import load_file

        for key, one in load_file(path).items():
            into[key].copy_(one)


class HDF5(Peer):
    """`h5py`, one contiguous dataset for each array."""

    needs: tuple[str, ...] = ("h5py",)

    def save(self, path: Path, values: Any) -> None:
        import h5py

        with h5py.File(path, "w") as file:
            for key, array in values.items():
                file.create_dataset(key, data=array)

    def load(self, path: Path, into: Any) -> None:
        import h5py

        with h5py.File(path, "r") as file:
            for key, array in into.items():
                file[key].read_direct(array)


class ZarrPython(Peer):
    """`zarr`, a directory of uncompressed arrays of one chunk each."""

    needs: tuple[str, ...] = ("zarr",)
    slow = True

    def save(self, path: Path, values: Any) -> None:
        import zarr

        group = zarr.create_group(path)
        for key, array in values.items():
            group.create_array(key, data=array, chunks=array.shape, compressors=None)

    def load(self, path: Path, into: Any) -> None:
        import zarr

        group = zarr.open_group(path, mode="r")
        for key, array in into.items():
            array[...] = group[key][...]  # type: ignore[index]  # they are arrays


class TensorStore(Peer):
    """`tensorstore` with the zarr3 driver over files, all arrays at once."""

    needs: tuple[str, ...] = ("tensorstore",)
    slow = True  # it syncs each file by itself
    background = True

    def prepare(self, arrays: State) -> Any:
        return arrays

    def _open(self, path: Path, key: str, array: Any, create: bool) -> Any:
        import tensorstore as ts

        spec: dict[str, Any] = {"driver": "zarr3", "kvstore": self._store(path, key)}
        if create:
            spec["metadata"] = {
                "shape": array.shape,
                "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": array.shape}},
                "data_type": array.dtype.name,
            }
        return ts.open(spec, create=create, open=True, context=self._context)

    def _store(self, path: Path, key: str) -> Any:
        return {"driver": "file", "path": f"{path}/{key}/"}

    def _begin(self, path: Path, values: Any) -> list[Any]:
        import tensorstore as ts

        self._context = ts.Context()
        opened = [self._open(path, key, array, True) for key, array in values.items()]
        return [one.result().write(array) for one, array in zip(opened, values.values(), strict=True)]

    def save(self, path: Path, values: Any) -> None:
        for written in self._begin(path, values):
            written.result()

    def load(self, path: Path, into: Any) -> None:
        import tensorstore as ts

        self._context = ts.Context()
        opened = [self._open(path, key, array, False) for key, array in into.items()]
        copied = [
            ts.array(array).write(one.result()) for one, array in zip(opened, into.values(), strict=True)
        ]
        for one in copied:
            one.result()

    def start(self, path: Path, values: Any) -> Callable[[], object]:
        pending = self._begin(path, values)
        for one in pending:
            one.copy.result()
        return lambda: [one.result() for one in pending]


class OCDBT(TensorStore):
    """`tensorstore` with the zarr3 driver in one OCDBT database, written in one transaction."""

    slow = False
    background = False

    def _store(self, path: Path, key: str) -> Any:
        return {"driver": "ocdbt", "base": f"file://{path}/", "path": f"{key}/"}

    def save(self, path: Path, values: Any) -> None:
        import tensorstore as ts

        self._context = ts.Context()
        with ts.Transaction(atomic=False) as transaction:
            opened = [self._open(path, key, array, True) for key, array in values.items()]
            for one, array in zip(opened, values.values(), strict=True):
                one.result().with_transaction(transaction).write(array).result()


class Orbax(Peer):
    """`orbax.checkpoint`, a pytree of JAX arrays."""

    needs: tuple[str, ...] = ("orbax.checkpoint", "jax")
    slow = True
    background = True
    source = "JAX"

    def prepare(self, arrays: State) -> Any:
        import jax

        return {key: jax.device_put(array) for key, array in arrays.items()}

    def _made(self) -> Any:
        import orbax.checkpoint as ocp

        return ocp.AsyncCheckpointer(ocp.StandardCheckpointHandler())

    def save(self, path: Path, values: Any) -> None:
        self.start(path, values)()

    def load(self, path: Path, into: Any) -> None:
        import jax

        with self._made() as made:
            jax.block_until_ready(made.restore(path, into))

    def start(self, path: Path, values: Any) -> Callable[[], object]:
        import orbax.checkpoint as ocp

        made = self._made()
        made.save(path, args=ocp.args.StandardSave(values))
        close: Callable[[], object] = made.close
        return close


class OrbaxV1(Orbax):
    """`orbax.checkpoint.v1`, the interface that is to come."""

    def save(self, path: Path, values: Any) -> None:
        from orbax.checkpoint import v1

        v1.save(path, values)

    def load(self, path: Path, into: Any) -> None:
        import jax
        from orbax.checkpoint import v1

        jax.block_until_ready(v1.load(path, into))

    def start(self, path: Path, values: Any) -> Callable[[], object]:
        from orbax.checkpoint import v1

        wait: Callable[[], object] = v1.save_async(path, values).result
        return wait


_ALL: dict[str, type[Peer]] = {
    "np.savez": Savez,
    "torch.save": Torch,
    "torch DCP": Distributed,
    "safetensors": Safetensors,
    "h5py": HDF5,
    "zarr-python": ZarrPython,
    "TensorStore zarr3": TensorStore,
    "TensorStore OCDBT": OCDBT,
    "Orbax": Orbax,
    "Orbax v1": OrbaxV1,
}


def _there(module: str) -> bool:
    with contextlib.suppress(ModuleNotFoundError):
        return importlib.util.find_spec(module) is not None
    return False


PEERS = {name: peer for name, peer in _ALL.items() if all(map(_there, peer.needs))}
MISSING = sorted(_ALL.keys() - PEERS.keys())
