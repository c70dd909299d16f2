"""The examples do what they promise."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import jobcore
from jobcore import JobRunner, LocalSession, MultiNodeCheckpointManager, RunEvent

EXAMPLES = Path(__file__).parents[1] / "examples"
WEIGHTS = [f"{kind}{name}" for kind in ("", "velocity/") for name in ("w1", "b1", "w2", "b2")]


@pytest.fixture(scope="module")
def digits():
    spec = importlib.util.spec_from_file_location("digits_example", EXAMPLES / "digits.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def train(job, run):
    events: list[RunEvent] = []
    runner = JobRunner(job, MultiNodeCheckpointManager(run), "latest", observers=[events.append])
    with LocalSession() as session:
        runner.train(session)
    return [event.outputs for event in events if event.kind == "epoch_finished"]


def test_digits_are_learned_and_the_accuracy_is_told_at_each_epoch(digits, tmp_path):
    outputs = train(digits.build_job(), tmp_path / "run")
    assert len(outputs) == 15
    accuracies = [float(epoch["accuracy"]) for epoch in outputs]
    assert all(0 <= accuracy <= 1 for accuracy in accuracies)
    assert accuracies[-1] >= 0.95
    assert float(outputs[-1]["loss"]) < float(outputs[0]["loss"])


def test_digits_trained_in_parts_end_with_the_same_weights(digits, tmp_path):
    straight = train(digits.build_job(epochs=5), tmp_path / "straight")
    parts = [
        epoch for epochs in (1, 2, 5) for epoch in train(digits.build_job(epochs=epochs), tmp_path / "parts")
    ]
    assert parts == straight
    one = jobcore.load(tmp_path / "straight/local.5.1.zarr.zip", names=WEIGHTS)
    (path,) = (tmp_path / "parts").glob("local.5.*.zarr.zip")
    other = jobcore.load(path, names=WEIGHTS)
    for name in WEIGHTS:
        np.testing.assert_array_equal(one[name], other[name], strict=True)
