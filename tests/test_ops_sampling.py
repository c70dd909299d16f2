"""Uniform samples of tensors and rows; sizes and values of blobs, shown."""

from __future__ import annotations

import io
from contextlib import redirect_stdout

import numpy as np
import pytest

from column_tools import do, workspace
from jobcore import LocalSession, Task, TaskGroup, Workspace, ops
from jobcore.errors import BlobKindError, BlobValueError, TaskGroupError


def test_a_list_of_tensors_keeps_a_sample_of_what_it_is_offered() -> None:
    ws = Workspace()
    for name in ("v", "w"):
        do(ws, "CreateTensorVector", [], [name])
    with pytest.raises(BlobValueError, match="found 0 tensors"):
        do(ws, "ConcatTensorVector", ["v"], ["all"])
    for i in range(50):
        ws.feed("t", np.array([i]))
        ws.feed("u", np.array([[i, -i]]))
        do(ws, "CollectTensor", ["v", "w", "t", "u"], num_to_collect=8, seed=5)
        do(ws, "TensorVectorSize", ["v"], ["size"])
        assert ws["size"] == min(i + 1, 8)
    do(ws, "ConcatTensorVector", ["v"], ["all"])
    do(ws, "ConcatTensorVector", ["w"], ["pairs"])
    assert ws["all"].tolist() == ws["pairs"][:, 0].tolist()
    assert len(set(ws["all"])) == 8
    assert max(ws["all"]) >= 8
    do(ws, "CollectTensor", ["v", "t"], num_to_collect=8)
    with pytest.raises(BlobValueError, match=r"offered as many tensors, found \[51, 50\]"):
        do(ws, "CollectTensor", ["v", "w", "t", "u"], num_to_collect=8)
    with pytest.raises(BlobKindError, match="expected a list of tensors, found 't'"):
        do(ws, "TensorVectorSize", ["t"], ["size"])


@pytest.mark.parametrize("batch", [1, 3, 40])
def test_every_row_has_the_same_chance_to_be_in_a_sample(batch) -> None:
    chances = np.zeros(40)
    for seed in range(300):
        ws = Workspace()
        for name in ("sample", "visited"):
            ws.create_blob(name)
        do(ws, "CreateMutex", [], ["m"])
        for at in range(0, 40, batch):
            ws.feed("rows", np.arange(at, min(at + batch, 40)))
            args = {"num_to_collect": 10, "seed": seed}
            do(ws, "ReservoirSampling", ["sample", "visited", "rows", "m"], ["sample", "visited"], **args)
        assert (len(set(ws["sample"])), int(ws["visited"])) == (10, 40)
        chances[ws["sample"]] += 1 / 300
    # 300 draws of chance 1/4: the standard deviation is 0.025.
    assert np.all(np.abs(chances - 0.25) < 0.125)


def test_a_sample_of_many_instances_counts_all_rows() -> None:
    group = TaskGroup("global")
    with group, Task(num_instances=6):
        with ops.task_init():
            ops.CreateMutex([], "m")
            ops.Const(np.zeros((0, 2)), "sample")
            ops.Const(0, "visited")
            ops.Const(np.ones((5, 2)), "rows")
        with ops.loop(40):
            ops.ReservoirSampling(["sample", "visited", "rows", "m"], ["sample", "visited"], num_to_collect=7)
    session = LocalSession()
    session.run(group)
    assert session.workspace()["visited"] == 1200
    assert session.workspace()["sample"].shape == (7, 2)
    session.workspace().feed("sample", np.ones(3))
    bad = TaskGroup("global")
    with bad, Task():
        ops.ReservoirSampling(["sample", "visited", "rows", "m"], ["sample", "visited"], num_to_collect=7)
    with pytest.raises(TaskGroupError, match="expected a sample of 7 rows"):
        session.run(bad)


def test_sizes_and_values_are_shown() -> None:
    above = workspace(big=np.zeros(1024, np.uint16), floats=np.zeros(4000, np.float32))
    ws = Workspace(above)
    ws.feed("own", "text")
    do(ws, "EstimateAllBlobSizes", [], ["names", "sizes"])
    assert dict(zip(ws["names"].tolist(), ws["sizes"].tolist(), strict=True)) == {
        "own": 4,
        "big": 2048,
        "floats": 16000,
    }
    do(ws, "EstimateAllBlobSizes", [], ["names", "sizes"], include_shared=False)
    assert ws["names"].tolist() == ["own"]
    out = io.StringIO()
    with redirect_stdout(out):
        do(ws, "Print", ["own"], [])
        do(ws, "Print", ["sizes"], [])
    assert out.getvalue() == "'own': string: text\n'sizes': int64 (1,): [4]\n"
