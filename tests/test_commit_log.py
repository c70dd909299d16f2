"""Claims and records on disk: nothing replaced, every byte checked, two masters kept apart."""

from __future__ import annotations

import threading

import pytest

from jobcore.checkpoint import CommitLog, NodeEntry, RunDirectory
from jobcore.checkpoint.lineage import EpochRef
from jobcore.errors import CheckpointNotFoundError, SaveError, SupersededError
from jobcore.store import write_database


@pytest.fixture
def log(tmp_path):
    return CommitLog(RunDirectory.at(tmp_path / "run", "zarr.zip"))


def commit(log: CommitLog, claim, epoch: int, node: str = "trainer"):
    path = log.directory.database(node, epoch, claim.generation)
    path.write_bytes(b"x" * 10)
    return log.commit(claim, epoch, {node: NodeEntry(path.name, 10, "sha256:0", 1)}, {"met": False})


def test_a_directory_that_is_not_there_has_no_history(log):
    assert log.read().epochs == ()
    assert log.read().latest() is None


def test_commits_are_read_back(log):
    claim = log.claim("run", None)
    for epoch in range(3):
        commit(log, claim, epoch)
    history = log.read()
    assert history.epochs == (0, 1, 2)
    assert history.get(1).nodes["trainer"].file == "trainer.1.1.zarr.zip"
    assert history.latest().stop == {"met": False}
    assert history.faults == ()


def test_a_missing_epoch_says_what_there_is_and_why(log):
    first = log.claim("run", None)
    for epoch in range(4):
        commit(log, first, epoch)
    log.claim("run", EpochRef(1, 1))
    with pytest.raises(
        CheckpointNotFoundError, match=r"epoch 3 .* found epochs: 0, 1; .*generation 1 was superseded"
    ):
        log.read().get(3)
    with pytest.raises(CheckpointNotFoundError, match="found epochs: 0, 1"):
        log.read().get(17)


def test_a_superseded_process_is_told_so_and_commits_nothing(log):
    old = log.claim("run", None)
    commit(log, old, 0)
    new = log.claim("run", EpochRef(0, 1))
    with pytest.raises(SupersededError, match=r"generation 1 to be the newest .* found generation\.2\.json"):
        commit(log, old, 1)
    commit(log, new, 1)
    assert [r.generation for r in log.read().records] == [1, 2]


def test_many_claimants_each_get_a_generation_of_their_own(log):
    got, barrier = [], threading.Barrier(8)

    def take():
        barrier.wait()
        got.append(log.claim("run", None).generation)

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(got) == list(range(1, 9))


def test_an_epoch_is_committed_once(log):
    claim = log.claim("run", None)
    before = commit(log, claim, 0)
    with pytest.raises(SaveError, match="expected no record of epoch 0 yet"):
        commit(log, claim, 0)
    assert log.read().get(0) == before


def test_a_database_of_another_size_is_not_committed(log):
    claim = log.claim("run", None)
    path = log.directory.database("trainer", 0, 1)
    path.write_bytes(b"short")
    with pytest.raises(SaveError, match=r"expected 10 bytes of node 'trainer' .* found 5"):
        log.commit(claim, 0, {"trainer": NodeEntry(path.name, 10, "sha256:0", 1)}, {})
    assert log.read().epochs == ()


@pytest.mark.parametrize("name", ["epoch.1.1.json", "generation.1.json"])
def test_every_flipped_byte_of_a_claim_or_record_is_noticed(log, name):
    claim = log.claim("run", None)
    for epoch in range(2):
        commit(log, claim, epoch)
    path = log.directory.path / name
    good = path.read_bytes()
    for position in range(len(good)):
        for flip in (0x01, 0x80):
            bad = bytearray(good)
            bad[position] ^= flip
            path.write_bytes(bad)
            history = log.read()
            assert [fault.path for fault in history.faults] == [str(path)]
            # A damaged record takes its epoch away; a damaged claim takes none, since the records repeat it.
            assert history.epochs == ((0,) if name.startswith("epoch") else (0, 1))
    for length in range(len(good)):
        path.write_bytes(good[:length])
        assert len(log.read().faults) == 1


def test_a_record_under_another_name_does_not_bring_an_epoch_back(log):
    claim = log.claim("run", None)
    commit(log, claim, 0)
    root = log.directory.path
    (root / "epoch.7.1.json").write_bytes((root / "epoch.0.1.json").read_bytes())
    assert log.read().epochs == (0,)
    assert log.read().faults[0].epoch == 7


def test_sweeping_removes_only_what_no_record_names(log):
    old = log.claim("run", None)
    commit(log, old, 0)
    commit(log, old, 1)
    root = log.directory.path
    (root / "epoch.1.1.json").write_bytes(b"damaged")
    keep = {"trainer.0.1.zarr.zip", "trainer.1.1.zarr.zip", "notes.txt", ".hidden", ".other.1.x.tmp"}
    for name in ("notes.txt", ".hidden", ".other.1.x.tmp"):
        (root / name).touch()
    stale = {"trainer.2.1.zarr.zip", ".trainer.2.1.zarr.zip.77.abc.tmp", ".epoch.2.1.json.77.abc.tmp"}
    for name in stale - {"trainer.2.1.zarr.zip"}:
        (root / name).touch()
    write_database(root / "trainer.2.1.zarr.zip", {"w": 1}, node="trainer", epoch=2, generation=1)
    new = log.claim("run", EpochRef(0, 1))
    own = log.directory.database("trainer", 1, new.generation)
    own.touch()
    assert set(log.sweep(new)) == stale
    assert keep | {own.name} <= {path.name for path in root.iterdir()}


def test_discarding_a_failed_save_leaves_committed_epochs_alone(log):
    claim = log.claim("run", None)
    commit(log, claim, 0)
    left = log.directory.database("other", 1, 1)
    left.touch()
    log.discard(claim, 1)
    log.discard(claim, 0)
    assert not left.exists()
    assert log.directory.database("trainer", 0, 1).exists()


def test_generations_are_never_handed_out_twice(log):
    claim = log.claim("run", None)
    commit(log, claim, 0)
    log.directory.claim(1).unlink()
    assert log.claim("run", None).generation == 2


def test_a_directory_that_cannot_be_made_is_said_at_once(tmp_path):
    (tmp_path / "file").write_text("not a directory")
    log = CommitLog(RunDirectory.at(tmp_path / "file" / "run", "zarr.zip"))
    with pytest.raises(SaveError, match="expected a writable run directory"):
        log.claim("run", None)
