"""Arrays that share storage are saved once and loaded shared."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import zarr
from hypothesis import given

import jobcore
from jobcore import Counter, Workspace
from jobcore._fast.sharing import find_shared
from jobcore.store import (
    AliasOf,
    BlobPolicy,
    Blosc,
    ChunkPolicy,
    Zstd,
    verify,
    write_database,
)
from jobcore.store.layout import without_fields
from sharing_cases import VIEWS, Array, address, any_views, containers, equal, model
from store_cases import DTYPES, TINY, any_bits, same_bits

# -- round trips


@containers
@pytest.mark.parametrize("chunks", [ChunkPolicy(), TINY])
def test_views_are_saved_once_and_loaded_as_views(suffix: str, chunks: ChunkPolicy, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", model()
    written = jobcore.save(path, values, chunks=chunks)
    assert written.blobs == len(values) == verify(path).blobs
    assert verify(path).ok
    found = jobcore.load(path)
    assert equal(found, values)
    for name, base in VIEWS.items():
        assert np.shares_memory(found[name], found[base])
        assert address(found[name]) - address(found["w"]) == address(values[name]) - address(values["w"]) or (
            base != "w"
        )
        assert found[name].flags.writeable
    found["w"][3] = -1
    assert (found["row"] == -1).all()
    assert (found["transposed"][:, 3] == -1).all()


@containers
def test_views_take_no_room(suffix: str, tmp_path: Path) -> None:
    w = np.random.default_rng(0).random(1 << 17)
    sizes = []
    for number, values in enumerate(
        ({"w": w}, {"w": w, "tied": w, "head": w[:100], "wt": w.reshape(256, -1).T})
    ):
        sizes.append(jobcore.save(tmp_path / f"{number}{suffix}", values).size_bytes)
    assert sizes[1] - sizes[0] < 1000


@containers
def test_the_table_says_what_a_view_is(suffix: str, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", model()
    jobcore.save(path, values)
    info = jobcore.inspect(path)
    assert [blob.name for blob in info.blobs] == list(values)
    assert {blob.name: blob.alias_of for blob in info.blobs if blob.alias_of is not None} == VIEWS
    halves = next(blob for blob in info.blobs if blob.name == "halves")
    assert (halves.kind, halves.dtype, halves.shape, halves.nbytes, halves.chunks) == (
        "tensor",
        "bfloat16",
        (12, 10),
        240,
        0,
    )


@containers
def test_the_version_is_the_lowest_that_says_it(suffix: str, tmp_path: Path) -> None:
    w = np.arange(4.0)
    plain = 1 if suffix == ".zarr.zip" else 2
    for number, (values, share, expected) in enumerate(
        [
            ({"w": w, "v": w.copy()}, True, plain),
            ({"w": w, "v": w}, False, plain),
            ({"w": w, "v": w}, True, 3),
            ({"w": w[:3], "v": w[1:]}, True, plain),
            ({"w": w[:0], "v": w[:0]}, True, plain),
        ]
    ):
        path = tmp_path / f"{number}{suffix}"
        jobcore.save(path, values, share=share)
        assert jobcore.inspect(path).format == expected
        assert equal(jobcore.load(path), values)


@containers
def test_without_sharing_each_is_an_array_of_its_own(suffix: str, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", model()
    jobcore.save(path, values, share=False)
    found = jobcore.load(path)
    assert equal(found, values)
    assert find_shared([value for value in found.values() if isinstance(value, np.ndarray)]) == []
    assert not any(blob.alias_of for blob in jobcore.inspect(path).blobs)


@containers
def test_zarr_python_lists_and_reads_all_that_is_no_view(suffix: str, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", model()
    jobcore.save(path, values)
    store = zarr.storage.ZipStore(path, mode="r") if suffix == ".zarr.zip" else path
    group = zarr.open_group(store, mode="r")
    names = {array.attrs["jobcore"]["name"]: array for _, array in group.arrays()}
    assert names.keys() == values.keys() - VIEWS.keys()
    assert np.array_equal(names["w"][...], values["w"])


@containers
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_dtype_can_be_shared(dtype: np.dtype[Any], suffix: str, tmp_path: Path) -> None:
    w = any_bits(dtype, (5, 4))
    values = {"w": w, "tied": w, "column": w[:, 1], "back": w[::-1], "one": w[2, 3, ...]}
    jobcore.save(tmp_path / f"x{suffix}", values, durable=False)
    found = jobcore.load(tmp_path / f"x{suffix}")
    assert list(found) == list(values)
    # NumPy's own copies of what lies between the fields are of no account.
    assert all(
        same_bits(without_fields(found[name]), without_fields(value)) for name, value in values.items()
    )
    assert all(found[name].dtype == dtype for name in values)
    assert all(np.shares_memory(found[name], found["w"]) for name in values)
    into = {name: np.empty_like(value) for name, value in values.items()}
    jobcore.load(tmp_path / f"x{suffix}", into=into)
    # A copy by fields leaves out what lies between them.
    assert all(same_bits(without_fields(into[name]), without_fields(value)) for name, value in values.items())


@given(any_views())
def test_any_views_come_back_with_what_they_share(arrays: list[Array]) -> None:
    import tempfile

    values = {str(number): array for number, array in enumerate(arrays)}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "x"
        jobcore.save(path, values, durable=False)
        found = jobcore.load(path)
        assert equal(found, values)
        for view, base, offset in find_shared(arrays):
            if arrays[base].flags.c_contiguous:
                assert address(found[str(view)]) - address(found[str(base)]) == offset
                assert find_shared([found[str(view)], found[str(base)]])
        for name, array in values.items():
            assert same_bits(jobcore.load(path, [name])[name], array)
        into = {name: np.empty(array.shape, array.dtype) for name, array in values.items()}
        jobcore.load(path, into=into)
        assert equal(into, values)


@containers
@pytest.mark.parametrize("codec", [Zstd(), Blosc()])
def test_a_base_may_be_encoded(codec: Any, suffix: str, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", model()
    for chunks in (ChunkPolicy(), TINY):
        jobcore.save(path, values, policies={"*": BlobPolicy(chunks, codec)}, overwrite=True)
        found = jobcore.load(path)
        assert equal(found, values)
        assert all(np.shares_memory(found[name], found[base]) for name, base in VIEWS.items())
        for name in ("row", "halves", "backwards"):
            assert equal(jobcore.load(path, [name]), {name: values[name]})


@containers
def test_what_is_declared_and_what_is_found_go_together(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    w = np.arange(12.0).reshape(3, 4)
    values = {
        "first": np.zeros(4),
        "row": w[1],
        "w": w,
        "like": np.zeros((3, 4)),
        "none": w[:0],
        "no": w[1:1],
    }
    policies = {"first": AliasOf("row"), "like": AliasOf("w"), "no": AliasOf("none")}
    expected = {**values, "first": w[1], "like": w}
    for share in (True, False):
        jobcore.save(path, values, policies=policies, share=share, overwrite=True)
        found = jobcore.load(path)
        assert equal(found, expected)
        assert np.shares_memory(found["like"], found["w"])
        assert np.shares_memory(found["first"], found["row"])
        assert np.shares_memory(found["row"], found["w"]) == share


def test_read_only_arrays_and_bound_blobs_are_shared(tmp_path: Path) -> None:
    w = np.arange(6.0)
    frozen = w[:3]
    frozen.flags.writeable = False
    workspace = Workspace()
    workspace.create_blob("w").bind(w)
    workspace.create_blob("tied").bind(w)
    workspace.feed("own", w)
    blobs: dict[str, object] = {name: workspace.blob(name) for name in ("w", "tied", "own")}
    jobcore.save(tmp_path / "x", {**blobs, "frozen": frozen})
    found = jobcore.load(tmp_path / "x")
    assert find_shared(list(found.values())) == [(1, 0, 0), (3, 0, 0)]
    assert found["frozen"].flags.writeable


def test_what_shows_its_memory_as_an_array_is_shared(tmp_path: Path) -> None:
    class Tensor:
        def __init__(self, data: Array) -> None:
            self.data = data

        def __array__(self, dtype: object = None, copy: object = None) -> Array:
            return self.data

    w = np.arange(6.0)
    jobcore.save(tmp_path / "x", {"a": Tensor(w), "b": Tensor(w[2:]), "c": w})
    assert {blob.name: blob.alias_of for blob in jobcore.inspect(tmp_path / "x").blobs} == {
        "a": None,
        "b": "a",
        "c": "a",
    }


def test_only_tensors_share(tmp_path: Path) -> None:
    data = b"0123456789"
    values = {"a": data, "b": data, "t": np.frombuffer(data, "u1"), "n": Counter(2)}
    jobcore.save(tmp_path / "x", values)
    assert jobcore.inspect(tmp_path / "x").format == 1
    assert jobcore.load(tmp_path / "x")["b"] == data


# -- in the background, again and again


@containers
def test_a_snapshot_copies_the_base_once(suffix: str, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", model()
    before = {name: np.array(value) if name != "text" else value for name, value in values.items()}
    pending = jobcore.save_async(path, values)
    values["w"][...] = -1
    pending.wait()
    found = jobcore.load(path)
    assert equal(found, before)
    assert np.shares_memory(found["w"], found["bits"])


def test_incremental_saves_link_the_base(tmp_path: Path) -> None:
    w = np.arange(12.0).reshape(3, 4)
    head = np.arange(3.0)
    values = {"t": w.T, "w": w, "head": head, "first": head[:1]}
    write_database(tmp_path / "1.zarr", values)
    head += 1
    write_database(tmp_path / "2.zarr", values, base=tmp_path / "1.zarr")
    assert (tmp_path / "1.zarr/w/c.0.0").samefile(tmp_path / "2.zarr/w/c.0.0")
    assert not (tmp_path / "1.zarr/head/c.0").samefile(tmp_path / "2.zarr/head/c.0")
    assert equal(jobcore.load(tmp_path / "2.zarr"), values)
    assert jobcore.load(tmp_path / "1.zarr")["first"] == 0


@containers
def test_equal_input_gives_equal_bytes(suffix: str, tmp_path: Path) -> None:
    digests = set()
    for number in range(2):
        w = np.arange(12.0).reshape(3, 4)
        # The stride of an axis of one element is anything.
        odd = np.lib.stride_tricks.as_strided(w, (3, 1), (32, 8 * (number + 5)))
        digests.add(jobcore.save(tmp_path / f"{number}{suffix}", {"odd": odd, "w": w}).digest)
    assert len(digests) == 1


# -- other packages

if importlib.util.find_spec("torch"):

    @containers
    def test_a_model_with_tied_weights_is_saved_once_and_loaded_tied(suffix: str, tmp_path: Path) -> None:
        import torch

        class Tied(torch.nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.emb = torch.nn.Embedding(50, 8)
                self.out = torch.nn.Linear(8, 50, bias=False)
                self.out.weight = self.emb.weight

        path, trained, fresh = tmp_path / f"x{suffix}", Tied(), Tied()
        jobcore.save(path, {name: tensor.detach() for name, tensor in trained.state_dict().items()})
        assert [blob.alias_of for blob in jobcore.inspect(path).blobs] == [None, "emb.weight"]
        loaded = {name: torch.from_numpy(array) for name, array in jobcore.load(path).items()}
        assert loaded["emb.weight"].data_ptr() == loaded["out.weight"].data_ptr()
        jobcore.load(path, into={name: tensor.numpy() for name, tensor in fresh.state_dict().items()})
        assert torch.equal(fresh.out.weight, trained.out.weight)
        assert fresh.out.weight is fresh.emb.weight


if importlib.util.find_spec("jax"):

    def test_arrays_of_jax_are_shared_where_they_are_one_array(tmp_path: Path) -> None:
        import jax.numpy as jnp

        w = jnp.arange(8.0)
        jobcore.save(tmp_path / "x", {"w": w, "tied": w, "other": w + 1})
        assert [blob.alias_of for blob in jobcore.inspect(tmp_path / "x").blobs] == [None, "w", None]
