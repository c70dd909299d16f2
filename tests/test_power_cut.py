"""After a power cut at any moment of a run, whatever names the disk lost that no sync had made safe, it goes on.

A run is recorded: when which data and which directories were forced to the disk, and when which file got its name. From
that, every directory is made that a power cut could have left: at each moment the names that are safe, with any of the
others. Data that were not safe when their file got its name would be an error.
"""

from __future__ import annotations

import itertools
import os
import shutil
import sys
import threading
import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest

import jobcore
from jobcore import CheckpointWarning, Job, JobRunner, LocalSession, MultiNodeCheckpointManager, Node
from jobcore.checkpoint import History
from jobcore.store import files, publishing, syncing

EPOCHS = 2


@dataclass
class Recorder:
    """What happened, in order: (``data``, inode), (``name``, name, inode), (``folder``, path)."""

    events: list[tuple[str, ...]] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def note(self, *event: str) -> None:
        with self.lock:
            self.events.append(event)


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> Recorder:
    made = Recorder()
    publish, sync_file, sync_directory = publishing.publish, syncing.sync_file, syncing.sync_directory
    sync_files = syncing.sync_files

    def naming(temporary: str, final: str) -> None:
        inode = Path(temporary).stat().st_ino
        publish(temporary, final)
        made.note("name", Path(final).name, str(inode))

    def data(fd: int) -> None:
        sync_file(fd)
        made.note("data", str(os.fstat(fd).st_ino))

    def several(fds: Sequence[int]) -> list[OSError | None]:
        found = sync_files(fds)
        if len(fds) > 1 and sys.platform != "darwin":  # it syncs others, and one of them, by `sync_file`
            for fd in fds:
                made.note("data", str(os.fstat(fd).st_ino))
        return found

    def folder(path: str | int) -> None:
        inode = (os.fstat(path) if isinstance(path, int) else Path(path).stat()).st_ino
        sync_directory(path)
        made.note("folder", str(inode))

    monkeypatch.setattr(publishing, "publish", naming)
    monkeypatch.setattr(syncing, "sync_file", data)
    monkeypatch.setattr(syncing, "sync_files", several)
    monkeypatch.setattr(syncing, "sync_directory", folder)
    return made


def job(epochs: int, nodes: int) -> Job:
    with Job() as made:
        for number in range(nodes):
            with Node(f"n{number}"):

                @made.init_group.task
                def init(ws: jobcore.Workspace) -> None:
                    ws.feed("total", 0)
                    ws.feed("x", np.arange(5.0))

                @made.epoch_group.task
                def add(ws: jobcore.Workspace) -> None:
                    ws.feed("total", ws.fetch("total") + 1)
                    ws.feed("x", ws.fetch("x") * 3)

        jobcore.epoch_limiter(made, epochs)
    return made


def train(run: Path, epochs: int, nodes: int, container: str, background: bool = False) -> JobRunner:
    manager = MultiNodeCheckpointManager(run, container, background=background)
    runner = JobRunner(job(epochs, nodes), manager, resume_from_epoch="latest")
    with LocalSession() as session, warnings.catch_warnings():
        warnings.simplefilter("ignore", CheckpointWarning)
        runner.train(session)
        for number in range(nodes):
            assert session.workspace(f"n{number}").fetch("total") == epochs
            np.testing.assert_array_equal(
                session.workspace(f"n{number}").fetch("x"), np.arange(5.0) * 3**epochs
            )
    return runner


def cuts(events: list[tuple[str, ...]], folder: str) -> Iterator[tuple[set[str], set[str]]]:
    """For each moment and each choice: the names whose safety has been told, and those that are there."""
    safe: set[str] = set()
    late: list[str] = []
    for event in [*events, ("folder", folder)]:
        for count in range(len(late) + 1):
            for there in itertools.combinations(late, count):
                yield set(safe), safe | set(there)
        if event[0] == "name":
            late.append(event[1])
        elif event == ("folder", folder):
            safe |= set(late)
            late.clear()


def image(run: Path, names: set[str], place: Path) -> None:
    """Make a run directory that holds some of the names of another one."""
    place.mkdir()
    for name in names:
        if (run / name).is_dir():
            shutil.copytree(run / name, place / name)
        else:
            shutil.copy(run / name, place / name)
    (place / ".n0.1.1.zarr.zip.4711.0a1b2c3d.tmp").write_bytes(b"a temporary name that survived")


def is_whole(history: History, epoch: int) -> bool:
    return all((history.directory / entry.file).exists() for entry in history.get(epoch).nodes.values())


@pytest.mark.parametrize("background", [False, True], ids=["", "background"])
@pytest.mark.parametrize(("nodes", "container"), [(1, "zarr.zip"), (2, "zarr.zip"), (1, "zarr"), (2, "zarr")])
def test_a_power_cut(
    tmp_path: Path, recorder: Recorder, nodes: int, container: str, background: bool
) -> None:
    run = tmp_path / "run"
    train(run, EPOCHS, nodes, container, background)
    events, folder = list(recorder.events), str(run.stat().st_ino)
    names = [event for event in events if event[0] == "name"]
    assert len(names) == 1 + (EPOCHS + 1) * (nodes + 1)
    for name in names:
        before = events[: events.index(name)]
        # Of a directory its own names are synced last.
        assert ("data", name[2]) in before or ("folder", name[2]) in before, f"{name} before its data"
    tried: set[frozenset[str]] = set()
    torn = 0
    for safe, there in cuts(events, folder):
        if frozenset(there) in tried:
            continue
        tried.add(frozenset(there))
        place = tmp_path / f"cut{len(tried)}"
        image(run, there, place)
        history = MultiNodeCheckpointManager(place, container).history()
        told = {epoch for epoch in range(EPOCHS + 1) if f"epoch.{epoch}.1.json" in safe}
        whole = {epoch for epoch in history.epochs if is_whole(history, epoch)}
        torn += len(history.epochs) - len(whole)
        assert told <= whole, "an epoch is lost that was told to be committed"
        assert history.faults == ()
        for epoch in whole:
            for entry in history.get(epoch).nodes.values():
                blobs = jobcore.load(place / entry.file)
                assert blobs["total"] == epoch
                np.testing.assert_array_equal(blobs["x"], np.arange(5.0) * 3**epoch)
        runner = train(place, EPOCHS + 1, nodes, container)
        assert runner.result.resumed_from == max(whole, default=None)
        files.remove(place)
    # Names that are kept out of order do come up here, and never in the first epoch: there would be none to go back to.
    assert torn


def test_the_first_epoch_of_a_start_is_safe_before_its_record(tmp_path: Path, recorder: Recorder) -> None:
    run = tmp_path / "run"
    train(run, 1, 1, "zarr.zip")
    folder = ("folder", str(run.stat().st_ino))
    order = [
        event[1] if event[0] == "name" else "sync"
        for event in recorder.events
        if event[0] == "name" or event == folder
    ]
    assert order == [
        "generation.1.json",
        "sync",
        "n0.0.1.zarr.zip",
        "sync",
        "epoch.0.1.json",
        "sync",
        "n0.1.1.zarr.zip",
        "epoch.1.1.json",
        "sync",
    ]
