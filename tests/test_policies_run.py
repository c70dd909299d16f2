"""Managers hand the policies of their blobs on to every epoch, of each node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import jobcore
from jobcore.errors import TaskGroupError
from jobcore.store import AliasOf, BlobPolicy, Blosc, ChunkPolicy, Skip, Zstd

POLICIES: dict[str, Any] = {
    "w": BlobPolicy(ChunkPolicy(8000, 8000), Zstd()),
    "moments/*": BlobPolicy(codec=Blosc()),
    "scratch*": Skip("made anew"),
    "old": AliasOf("w"),
    "only elsewhere": Skip(),
}


def job(epochs: int, nodes: tuple[str, ...]) -> jobcore.Job:
    with jobcore.Job() as made:
        for node in nodes:
            with jobcore.Node(node):

                @made.init_group.task
                def init(ws: jobcore.Workspace) -> None:
                    w = np.arange(10_000).reshape(10, 1000)
                    ws.feed("w", w)
                    ws.feed("old", w)
                    ws.feed("moments/w", np.zeros((10, 1000)))
                    ws.feed("scratch", np.zeros(1000))

                @made.epoch_group.task
                def tune(ws: jobcore.Workspace) -> None:
                    w = ws.fetch("w")
                    w[3] += 1
                    ws.feed("w", w)
                    ws.feed("old", w)

        jobcore.epoch_limiter(made, epochs)
    return made


@pytest.mark.parametrize("db_type", ["zarr.zip", "zarr"])
@pytest.mark.parametrize("background", [False, True])
def test_every_epoch_of_every_node_follows_the_policies(
    tmp_path: Path, db_type: str, background: bool
) -> None:
    manager = jobcore.MultiNodeCheckpointManager(
        tmp_path, db_type=db_type, background=background, policies=POLICIES
    )
    with jobcore.LocalSession() as session:
        jobcore.JobRunner(job(2, ("a", "b")), manager).train(session)
    for node in ("a", "b"):
        for epoch in range(3):
            path = manager.get_ckpt_db_path(node, epoch)
            assert jobcore.verify(path).ok
            info = jobcore.inspect(path)
            found = {blob.name: (blob.codecs, blob.alias_of) for blob in info.blobs}
            assert found == {
                "w": (("zstd(3)",), None),
                "old": ((), "w"),
                "moments/w": (("blosc(zstd, 5, bitshuffle)",), None),
            }
            assert ("scratch", "made anew") in info.skipped
            assert (jobcore.load(path)["w"][3] == np.arange(3000, 4000) + epoch).all()
    assert manager.skipped_blobs()["a"][-1] == ("scratch", "made anew")
    assert "scratch" not in manager.blob_list("a")
    if db_type == "zarr":
        one, two = (manager.get_ckpt_db_path("a", epoch) / "w" for epoch in (1, 2))
        linked = [(one / f"c.{n}.0").samefile(two / f"c.{n}.0") for n in range(10)]
        assert linked == [n != 3 for n in range(10)]


def test_a_run_resumes_from_what_is_encoded(tmp_path: Path) -> None:
    manager = jobcore.CheckpointManager(tmp_path, policies=POLICIES)
    with jobcore.LocalSession() as session:
        jobcore.JobRunner(job(1, ("local",)), manager).train(session)
    with jobcore.LocalSession() as session:
        jobcore.JobRunner(job(3, ("local",)), manager, resume_from_epoch="latest").train(session)
    loaded = jobcore.load(manager.get_ckpt_db_path("local", 3))
    assert (loaded["w"][3] == np.arange(3000, 4000) + 3).all()


def test_bad_policies_are_told_before_anything_is_trained(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="wrap it in BlobPolicy"):
        jobcore.CheckpointManager(tmp_path, policies={"w": Zstd()})  # type: ignore[dict-item]  # that is the test
    manager = jobcore.CheckpointManager(tmp_path, policies={"moments/*": AliasOf("w")})
    with jobcore.LocalSession() as session, pytest.raises(TaskGroupError, match="expected a tensor like 'w'"):
        jobcore.JobRunner(job(1, ("local",)), manager).train(session)
    assert manager.history().epochs == ()
