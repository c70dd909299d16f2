"""Blobs that share storage are loaded in part, and into arrays and workspaces that share memory or do not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import jobcore
from jobcore import CheckpointManager, Job, JobRunner, LocalSession, Workspace, epoch_limiter
from jobcore._fast.sharing import find_shared
from jobcore.errors import MismatchError
from jobcore.store import (
    ChunkPolicy,
    LoadReport,
    open_database,
    views,
)
from sharing_cases import Array, containers, equal, model, tensors
from store_cases import TINY, same_bits

# -- a part of it


@containers
def test_a_view_alone_is_read_with_the_rows_of_its_base(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    w = np.arange(64_000.0).reshape(1000, 64)
    values = {"row": w[500], "rows": w[100:200, ::2], "w": w, "other": np.zeros(3)}
    jobcore.save(path, values, chunks=ChunkPolicy(10_000, 10_000))
    for name in ("row", "rows"):
        found = jobcore.load(path, [name])
        assert equal(found, {name: values[name]})
        assert 0 < found[name].base.nbytes < 90_000
    both = jobcore.load(path, ["rows", "row"])
    assert both["row"].base is both["rows"].base or np.shares_memory(both["row"].base, both["rows"].base)
    with open_database(path) as database:
        assert np.array_equal(database.read("rows", rows=slice(10, 20)), w[110:120, ::2])
        assert np.array_equal(database.read("rows", rows=slice(-3, None)), w[197:200, ::2])
        assert database.read("rows", rows=slice(5, 5)).shape == (0, 32)
        assert np.array_equal(database.read("row"), w[500])
        assert np.array_equal(database.read("row", rows=slice(60, 99)), w[500, 60:])


@containers
def test_names_prefixes_and_new_names_know_views(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    w = np.arange(12.0).reshape(3, 4)
    jobcore.save(path, {"enc/w": w, "dec/w": w.T, "dec/b": np.zeros(2)})
    reports: list[LoadReport] = []
    found = jobcore.load(path, prefix="dec/", rename={"w": "weight"}, report=reports.append)
    assert equal(found, {"weight": w.T, "b": np.zeros(2)})
    assert reports[0].loaded == (("dec/w", "weight"), ("dec/b", "b"))
    assert equal(jobcore.load(path, lambda name: name.endswith("w")), {"enc/w": w, "dec/w": w.T})
    into = {"w": np.empty((4, 3)), "v": np.empty(1)}
    jobcore.load(path, into=into, prefix="dec/", strict=False, report=reports.append)
    assert np.array_equal(into["w"], w.T)
    assert (reports[1].missing, reports[1].unexpected) == (("v",), ("dec/b",))
    with pytest.raises(
        MismatchError, match=r"2 places: 'v': no such blob.*'dec/b' \(as 'b'\): stored, but not"
    ):
        jobcore.load(path, into=into, prefix="dec/")


def test_progress_counts_what_is_read(tmp_path: Path) -> None:
    w = np.arange(1000.0)
    jobcore.save(tmp_path / "x", {"w": w, "v": w[::2], "u": w[1:]})
    for names, total in ((None, 8000), (["v"], 8000), (["w", "u"], 8000)):
        seen: list[tuple[int, int]] = []
        jobcore.load(tmp_path / "x", names, progress=lambda *at, seen=seen: seen.append(at))
        assert seen[-1] == (total, total)


# -- into arrays that are there


@containers
@pytest.mark.parametrize("order", ["C", "F"])
@pytest.mark.parametrize("dtype", ["<f4", "f8"])
def test_destinations_that_share_alike_are_written_once(
    order: Any, dtype: str, suffix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, values = tmp_path / f"x{suffix}", tensors(model())
    jobcore.save(path, values, chunks=TINY)
    w = np.zeros((12, 5), dtype, order)
    into: dict[str, Any] = {
        "w": w,
        "again": w,
        "transposed": w.T,
        "row": w[3],
        "tail": w[-2:],
        "columns": w[:, 1:4:2],
        "backwards": w[::-2, ::-1],
        "one": w[4, 2:3],
        "scalar": w[11, 4, ...],
    }
    if order == "C":
        into["reshaped"] = w.reshape(5, 12)
    if (order, dtype) == ("C", "<f4"):
        into.update({"bits": w.view("<u4"), "halves": w.view(ml_dtypes.bfloat16)})
    monkeypatch.setattr(views, "copy_into", None)
    found = jobcore.load(path, list(into), into, cast=True)
    assert all(found[name] is into[name] for name in into)
    assert all(np.array_equal(into[name], values[name]) for name in into if name != "halves")


@containers
def test_other_destinations_get_copies(suffix: str, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", tensors(model())
    jobcore.save(path, values, chunks=TINY)
    for make in (
        lambda a: np.empty_like(a),
        lambda a: np.empty(a.shape, a.dtype, "F"),
        lambda a: np.empty((*a.shape, 2), a.dtype)[..., 0],
    ):
        into = {name: make(array) for name, array in values.items()}
        jobcore.load(path, into=into)
        assert equal(into, values)
        alone = {name: make(values[name]) for name in ("row", "transposed")}
        jobcore.load(path, list(alone), alone)
        assert equal(alone, {name: values[name] for name in alone})
    wide = {name: np.empty(array.shape, "f8") for name, array in values.items() if array.dtype == "<f4"}
    jobcore.load(path, list(wide), wide, cast=True)
    assert all(np.array_equal(wide[name], values[name]) for name in wide)


@containers
def test_destinations_that_share_otherwise_are_refused(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    w = np.arange(12.0).reshape(3, 4)
    jobcore.save(path, {"w": w, "t": w.T, "row": w[1], "other": w + 1})
    place = np.zeros((3, 4))
    for into in (
        {"w": place, "row": place[2]},
        {"w": place, "row": place[1, ::-1]},
        {"w": place, "t": place.reshape(4, 3)},
        {"w": place, "row": place[1], "other": place},
        {"row": place[1], "other": place},
    ):
        with pytest.raises(MismatchError, match="their destinations share memory, and they differ"):
            jobcore.load(path, list(into), into)
        assert not place.any()


def test_misfits_of_views_are_listed_with_all_others(tmp_path: Path) -> None:
    w = np.arange(12.0).reshape(3, 4)
    jobcore.save(tmp_path / "x", {"w": w, "t": w.T, "row": w[1], "more": w[0]})
    read_only = np.empty(4)
    read_only.flags.writeable = False
    into = {"w": np.empty(2), "t": np.empty((4, 3), "f4"), "row": read_only, "extra": np.empty(1)}
    with pytest.raises(MismatchError, match="in 5 places") as caught:
        jobcore.load(tmp_path / "x", into=into)
    for text in (
        "'w': stored is float64 of shape",
        "'t': stored is float64",
        "'row': the destination is read-only",
    ):
        assert text in str(caught.value)


@containers
def test_equal_blobs_may_fill_one_array(suffix: str, tmp_path: Path) -> None:
    path = tmp_path / f"x{suffix}"
    w = np.arange(12.0).reshape(3, 4)
    jobcore.save(path, {"a": w, "tied": w, "b": w.copy(), "half": w[:2], "half too": w[:2]})
    place = np.zeros((3, 4))
    jobcore.load(path, ["tied", "b"], {"tied": place, "b": place})
    assert np.array_equal(place, w)
    place[...] = 0
    jobcore.load(path, ["b", "a", "tied"], dict.fromkeys(("b", "a", "tied"), place))
    assert np.array_equal(place, w)
    jobcore.load(path, ["half", "half too"], {"half": place[1:], "half too": place[1:]})
    assert np.array_equal(place[1:], w[:2])


@containers
def test_a_workspace_owns_its_tensors_singly(suffix: str, tmp_path: Path) -> None:
    path, values = tmp_path / f"x{suffix}", tensors(model())
    jobcore.save(path, values)
    workspace = Workspace()
    workspace.feed("row", np.zeros(5, "f4"))
    place = np.zeros((12, 5), "f4")
    workspace.create_blob("w").bind(place)
    workspace.create_blob("transposed").bind(place.T)
    for _ in range(2):
        place[...] = 0
        jobcore.load(path, into=workspace)
        assert all(same_bits(workspace.fetch(name), array) for name, array in values.items())
    held: list[Any] = [workspace.blob(name).value for name in values]
    assert find_shared(held) == [(0, 2, 0)]  # the two that are bound to one array


def test_a_workspace_keeps_its_dtypes(tmp_path: Path) -> None:
    w = np.arange(12.0).reshape(3, 4)
    jobcore.save(tmp_path / "x", {"w": w, "row": w[1], "t": w.T})
    workspace = Workspace()
    workspace.feed("row", np.zeros(4, "f4"))
    workspace.feed("w", np.zeros((3, 4), "f2"))
    jobcore.load(tmp_path / "x", into=workspace, cast=True)
    assert [workspace.blob(name).dtype for name in ("w", "row", "t")] == [np.float16, np.float32, np.float64]
    assert all(
        np.array_equal(workspace.fetch(name), value) for name, value in (("w", w), ("row", w[1]), ("t", w.T))
    )


@containers
@pytest.mark.parametrize("share", [True, False])
def test_a_job_saves_and_restores_bound_arrays_that_share(share: bool, suffix: str, tmp_path: Path) -> None:
    db_type = suffix.removeprefix(".")

    def train(epochs: int) -> Array:
        held = np.zeros((3, 4))
        with Job() as job:

            @job.setup_group.task
            def setup(ws: Workspace) -> None:
                ws.bind("w", held)
                ws.bind("tied", held.T if share else held)  # equal blobs may fill one array

            @job.epoch_group.task
            def step(ws: Workspace) -> None:
                held[...] += 1

            epoch_limiter(job, epochs)
        manager = CheckpointManager(tmp_path, db_type=db_type, share=share)
        with LocalSession() as session:
            JobRunner(job, manager, resume_from_epoch="latest").train(session)
        return held

    train(2)
    assert (train(3) == 3).all()
    (newest,) = tmp_path.glob(f"*.2.*{suffix}")
    assert [blob.alias_of for blob in jobcore.inspect(newest).blobs if blob.name == "tied"] == [
        "w" if share else None
    ]
