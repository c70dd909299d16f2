"""One flipped byte anywhere in the newest checkpoint: resuming says so by blob, and takes the epoch before it."""

from __future__ import annotations

import shutil
import struct
import zipfile
from pathlib import Path

import numpy as np
import pytest

from jobcore import (
    CheckpointWarning,
    Job,
    JobRunner,
    LocalSession,
    MultiNodeCheckpointManager,
    Node,
    epoch_limiter,
)
from jobcore.errors import CheckpointNotFoundError, TaskGroupError

EPOCHS = 3
BLOBS = ("weights", "moments", "name", "steps")


def build(epochs: int = EPOCHS, nodes: tuple[str, ...] = ("a", "b")) -> Job:
    with Job() as job:
        for node in nodes:
            with Node(node):

                @job.init_group.task
                def init(ws):
                    ws.feed("weights", np.arange(100.0))
                    ws.feed("moments", np.zeros((3, 5), np.float32))
                    ws.feed("name", "a job")
                    ws.counter("steps")

                @job.epoch_group.task
                def work(ws):
                    ws.feed("weights", ws.fetch("weights") * 1.5)
                    ws.feed("moments", ws.fetch("moments") + 1)
                    ws.fetch("steps").count_up()

        epoch_limiter(job, epochs)
    return job


@pytest.fixture(scope="module")
def good(tmp_path_factory):
    run = tmp_path_factory.mktemp("good") / "run"
    with LocalSession() as session:
        JobRunner(build(), MultiNodeCheckpointManager(run)).train(session)
        return run, {node: session.workspace(node).fetch("weights") for node in "ab"}


@pytest.fixture
def run(good, tmp_path):
    return Path(shutil.copytree(good[0], tmp_path / "run"))


def newest(run: Path, node: str = "b") -> Path:
    return run / f"{node}.{EPOCHS}.1.zarr.zip"


def flip(path: Path, position: int) -> None:
    data = bytearray(path.read_bytes())
    data[position] ^= 0x10
    path.write_bytes(data)


def parts(path: Path) -> dict[str, tuple[int, str | None]]:
    """Positions to flip: by description, with the blob that the message must name, found with zipfile alone."""
    data = path.read_bytes()
    found: dict[str, tuple[int, str | None]] = {}
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            key = info.filename.partition("/")[0]
            blob = key if key in BLOBS else None
            name, extra = struct.unpack_from("<HH", data, info.header_offset + 26)
            payload = info.header_offset + 30 + name + extra
            found[f"{info.filename}: header"] = (info.header_offset + 5, blob)
            found[f"{info.filename}: checksum in header"] = (info.header_offset + 15, blob)
            found[f"{info.filename}: padding"] = (payload - 1, blob)
            found[f"{info.filename}: first byte"] = (payload, blob)
            found[f"{info.filename}: last byte"] = (payload + info.file_size - 1, blob)
        at = archive.start_dir
    number = 0
    while data[at : at + 4] == b"PK\x01\x02":
        name, extra, comment = struct.unpack_from("<HHH", data, at + 28)
        for what, offset in (("signature", 0), ("checksum", 16), ("size", 20), ("offset", 42), ("name", 46)):
            found[f"central header {number}: {what}"] = (at + offset, None)
        at += 46 + name + extra + comment
        number += 1
    for offset in range(22):
        found[f"end record byte {offset}"] = (at + offset, None)
    for offset in range(at + 22, len(data)):
        found[f"comment byte {offset - at - 22}"] = (offset, None)
    return found


def resume(run: Path) -> tuple[JobRunner, list[str]]:
    runner = JobRunner(build(), MultiNodeCheckpointManager(run), resume_from_epoch="latest")
    with LocalSession() as session:
        with pytest.warns(CheckpointWarning) as caught:
            runner.train(session)
        runner.weights = {node: session.workspace(node).fetch("weights") for node in "ab"}
    return runner, [str(warning.message) for warning in caught]


def test_every_part_of_the_newest_database(good, tmp_path):
    places = parts(newest(good[0]))
    assert len([name for name in places if name.endswith("first byte")]) == 2 * len(BLOBS) + 1
    for number, (what, (position, blob)) in enumerate(places.items()):
        run = Path(shutil.copytree(good[0], tmp_path / str(number)))
        flip(newest(run), position)
        runner, messages = resume(run)
        assert runner.result.resumed_from == EPOCHS - 1, what
        assert [e.epoch for e in runner.result.epochs] == [EPOCHS], what
        text = " ".join(messages)
        assert f"epoch {EPOCHS} is damaged and passed over" in text, what
        assert newest(run).name in text, what
        assert blob is None or blob in text, (what, text)
        for node, weights in good[1].items():
            np.testing.assert_array_equal(runner.weights[node], weights)
        shutil.rmtree(run)


@pytest.mark.parametrize("name", [f"epoch.{EPOCHS}.1.json", "generation.1.json"])
def test_the_record_and_the_claim(run, good, name):
    flip(run / name, 100)
    runner, messages = resume(run)
    assert name in messages[0]
    # A claim is repeated by every record, so nothing is lost with it.
    assert runner.result.resumed_from == (EPOCHS - 1 if name.startswith("epoch") else EPOCHS)
    np.testing.assert_array_equal(runner.weights["a"], good[1]["a"])


@pytest.mark.parametrize(
    "harm",
    [
        lambda path: path.unlink(),
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes() + b"\0"),
        lambda path: shutil.copy(path.with_name(path.name.replace(f".{EPOCHS}.", ".1.")), path),
        lambda path: shutil.copy(newest(path.parent, "a"), path),
    ],
    ids=[
        "deleted",
        "emptied",
        "truncated",
        "extended",
        "replaced by an older epoch",
        "replaced by another node",
    ],
)
def test_other_damage_of_one_nodes_file(run, harm):
    harm(newest(run))
    runner, _ = resume(run)
    assert runner.result.resumed_from == EPOCHS - 1
    # Both nodes went back, not only the one whose file was hurt.
    assert {node: w[1] for node, w in runner.weights.items()} == {"a": 1.5**EPOCHS, "b": 1.5**EPOCHS}


def test_several_damaged_epochs_are_passed_over(run):
    flip(newest(run), 200)
    flip(run / f"a.{EPOCHS - 1}.1.zarr.zip", 200)
    runner, messages = resume(run)
    assert runner.result.resumed_from == EPOCHS - 2
    assert [epoch for epoch, _ in runner.result.damaged] == [EPOCHS, EPOCHS - 1]
    assert len(messages) == 2


def test_damage_everywhere_is_an_error_and_never_a_silent_start_from_scratch(run):
    for path in run.glob("*.zarr.zip"):
        flip(path, 200)
    runner = JobRunner(build(), MultiNodeCheckpointManager(run), resume_from_epoch="latest")
    with (
        LocalSession() as session,
        pytest.warns(CheckpointWarning),
        pytest.raises(CheckpointNotFoundError, match="found damage in every one of"),
    ):
        runner.train(session)
    for path in run.glob("epoch.*"):
        flip(path, 50)
    with (
        LocalSession() as session,
        pytest.warns(CheckpointWarning),
        pytest.raises(CheckpointNotFoundError, match="found only damaged records"),
    ):
        runner.train(session)


def test_an_epoch_asked_for_by_number_is_never_replaced_by_another(run):
    flip(newest(run), 200)
    runner = JobRunner(build(), MultiNodeCheckpointManager(run), resume_from_epoch=EPOCHS)
    with LocalSession() as session, pytest.raises(TaskGroupError, match=newest(run).name):
        runner.train(session)
    assert runner.result.epochs == []


def test_blobs_of_a_load_that_failed_do_not_stay(tmp_path):
    def make(epochs: int) -> Job:
        job = build(epochs, ("a", "b"))
        with job, Node("a"):

            @job.exit_group.task
            def extra(ws):
                ws.parent.feed("extra", np.ones(3))

        return job

    run = tmp_path / "run"
    with LocalSession() as session:
        JobRunner(make(1), MultiNodeCheckpointManager(run)).train(session)
        JobRunner(make(2), MultiNodeCheckpointManager(run), resume_from_epoch="latest").train(session)
    # Epoch 2 holds a blob that epoch 1 does not, on node a; node b's part of it is damaged.
    flip(run / "b.2.2.zarr.zip", 200)
    runner = JobRunner(build(1, ("a", "b")), MultiNodeCheckpointManager(run), resume_from_epoch="latest")
    with LocalSession() as session:
        with pytest.warns(CheckpointWarning):
            runner.train(session)
        assert set(session.workspace("a").blob_names()) == set(BLOBS)
