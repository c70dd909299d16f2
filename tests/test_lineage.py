"""Which epochs count, against a model that keeps the whole truth."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from jobcore.checkpoint.lineage import Claim, EpochRecord, EpochRef, chain


def record(epoch: int, generation: int, resumed_from: EpochRef | None = None) -> EpochRecord:
    return EpochRecord(epoch, generation, "run", resumed_from, {})


def epochs(claims: list[Claim], records: list[EpochRecord]) -> list[tuple[int, int]]:
    return [(r.epoch, r.generation) for r in chain(claims, records)]


def test_an_empty_directory_has_no_epochs():
    assert epochs([], []) == []


def test_one_generation_counts_whole():
    records = [record(e, 1) for e in (2, 0, 1)]
    assert epochs([Claim(1, "run", None)], records) == [(0, 1), (1, 1), (2, 1)]


def test_resuming_from_an_older_epoch_supersedes_the_later_ones_at_once():
    records = [record(e, 1) for e in range(5)]
    claims = [Claim(1, "run", None), Claim(2, "run", EpochRef(2, 1))]
    assert epochs(claims, records) == [(0, 1), (1, 1), (2, 1)]
    records.append(record(3, 2, EpochRef(2, 1)))
    assert epochs(claims, records) == [(0, 1), (1, 1), (2, 1), (3, 2)]


def test_a_start_from_scratch_leaves_everything_behind():
    claims = [Claim(1, "a", None), Claim(2, "b", None)]
    assert epochs(claims, [record(0, 1), record(1, 1)]) == []


def test_what_a_superseded_process_still_writes_never_counts():
    claims = [Claim(1, "run", None), Claim(2, "run", EpochRef(1, 1))]
    records = [record(0, 1), record(1, 1), record(2, 2, EpochRef(1, 1))]
    before = epochs(claims, records)
    records += [record(2, 1), record(3, 1), record(9, 1)]
    assert epochs(claims, records) == before


def test_a_lost_claim_is_replaced_by_what_its_records_say():
    origin = EpochRef(1, 1)
    records = [record(0, 1), record(1, 1), record(2, 1), record(2, 2, origin)]
    assert epochs([Claim(1, "run", None)], records) == [(0, 1), (1, 1), (2, 2)]


def test_a_forged_parent_does_not_loop():
    claims = [Claim(1, "run", EpochRef(5, 2)), Claim(2, "run", EpochRef(5, 1))]
    assert epochs(claims, [record(1, 1), record(2, 2)]) == [(1, 1), (2, 2)]


@st.composite
def histories(draw):
    """Starts (from scratch or from any epoch that counts), commits, and commits of superseded processes."""
    truth: dict[int, int] = {}
    claims: list[Claim] = []
    records: dict[EpochRef, EpochRecord] = {}
    origins: dict[int, EpochRef | None] = {}
    for _ in range(draw(st.integers(0, 25))):
        move = draw(st.sampled_from(["scratch", "resume", "commit", "commit", "commit", "zombie"]))
        generation = len(claims)
        if move == "scratch" or not claims:
            claims.append(Claim(generation + 1, "run", None))
            origins[generation + 1] = None
            truth = {}
        elif move == "resume" and truth:
            epoch = draw(st.sampled_from(sorted(truth)))
            origin = EpochRef(epoch, truth[epoch])
            claims.append(Claim(generation + 1, "run", origin))
            origins[generation + 1] = origin
            truth = {e: g for e, g in truth.items() if e <= epoch}
        elif move == "commit":
            epoch = max(truth, default=-1) + 1
            records[EpochRef(epoch, generation)] = record(epoch, generation, origins[generation])
            truth[epoch] = generation
        elif move == "zombie" and generation > 1:
            old = draw(st.integers(1, generation - 1))
            after = [r.epoch for r in records if r.generation == old]
            origin = origins[old]
            start = origin.epoch if origin else -1
            epoch = max(after, default=start) + 1
            # A process writes only what comes after its own last epoch, so nothing that counts is touched.
            records.setdefault(EpochRef(epoch, old), record(epoch, old, origin))
    return truth, claims, list(records.values())


@given(histories(), st.randoms())
def test_the_chain_equals_the_model_in_any_order(history, random):
    truth, claims, records = history
    random.shuffle(claims)
    random.shuffle(records)
    assert epochs(claims, records) == sorted(truth.items())
