"""A run directory of format 1 loads for ever: claims, records, lineage, databases, and resuming from it."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

import jobcore
from jobcore import JobRunner, LocalSession, MultiNodeCheckpointManager
from jobcore.checkpoint import CommitLog, RunDirectory
from make_golden_run import build_job

GOLDEN = Path(__file__).with_name("data") / "run-v1"


def test_its_history():
    history = CommitLog(RunDirectory.at(GOLDEN, "zarr.zip")).read()
    assert history.faults == ()
    assert [(r.epoch, r.generation) for r in history.records] == [(0, 1), (1, 1), (2, 2), (3, 2), (4, 2)]
    assert [(r.epoch, r.generation) for r in history.superseded] == [(2, 1), (3, 1)]
    assert len({record.run for record in history.records}) == 1
    assert history.get(4).stop == {"met": True, "conditions": [{"name": "epoch_limiter(4)", "met": True}]}
    assert sorted(history.get(4).nodes) == ["Größe/1", "trainer_0"]


def test_each_database():
    for path in GOLDEN.glob("*.zarr.zip"):
        assert jobcore.verify(path).ok
    for record in CommitLog(RunDirectory.at(GOLDEN, "zarr.zip")).read().records:
        for number, node in enumerate(("trainer_0", "Größe/1")):
            entry = record.nodes[node]
            blobs = jobcore.load(GOLDEN / entry.file)
            weights = (np.arange(6, dtype=np.float32).reshape(2, 3) + number) * 2**record.epoch
            np.testing.assert_array_equal(blobs["weights"], weights, strict=True)
            assert blobs["config"] == {"rate": 0.5, "name": "golden", "sizes": (1, 2)}
            assert blobs["epochs"].retrieve() == record.epoch
            expected = np.random.default_rng(number)
            for _ in range(record.epoch):
                expected.integers(1000)
            assert blobs["rng"].integers(1000) == expected.integers(1000)
            info = jobcore.inspect(GOLDEN / entry.file)
            assert (info.node, info.epoch, info.digest) == (node, record.epoch, entry.digest)


@pytest.mark.parametrize("epochs", [4, 6])
def test_resuming_from_it(tmp_path, epochs):
    run = Path(shutil.copytree(GOLDEN, tmp_path / "run"))
    runner = JobRunner(build_job(epochs), MultiNodeCheckpointManager(run), resume_from_epoch="latest")
    with LocalSession() as session:
        assert runner.train(session) == epochs
        assert session.workspace("trainer_0").fetch("weights")[1, 2] == 5 * 2**epochs
    assert [e.epoch for e in runner.result.epochs] == list(range(5, epochs + 1))
