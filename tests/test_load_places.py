"""Loading some rows, and into places that overlap."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobcore import Counter, Workspace
from jobcore.errors import ChecksumError, MismatchError
from jobcore.store import containers, load, open_database, overlap, save
from jobcore.store.overlap import covers_itself, overlaps
from load_tools import damage, save_model
from store_cases import TINY


@pytest.fixture(params=containers.known_types())
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / f"m.{request.param}"


@pytest.fixture
def path(place: Path) -> Path:
    return save_model(place)


def test_rows_come_from_the_chunks_that_hold_them(place: Path) -> None:
    array = np.arange(40, dtype="i4").reshape(20, 2)
    save(
        place, {"x": array, "note": "text", "one": 1.0, "none": np.empty((0, 3))}, durable=False, chunks=TINY
    )
    with open_database(place) as database:
        (info, *_) = database.info.blobs
        assert info.chunks > 4
        for rows in (slice(None), slice(3, 5), slice(-4, None), slice(7, 100), slice(5, 2), slice(0, 0)):
            found = database.read("x", rows)
            assert found.tolist() == array[rows].tolist()
            assert found.dtype == array.dtype
            assert found.shape == array[rows].shape
        assert database.read("none", slice(0, 5)).shape == (0, 3)
        assert database.read("x", slice(4, 5, 1)).tolist() == array[4:5].tolist()
        with pytest.raises(ValueError, match=r"step 1, found slice\(None, None, 2\)"):
            database.read("x", slice(None, None, 2))
        with pytest.raises(TypeError, match="rows as a slice, found int"):
            database.read("x", 3)  # type: ignore[arg-type]  # that is the point
        with pytest.raises(MismatchError, match="'note': expected an array that has rows, found a string"):
            database.read("note", slice(1))
        with pytest.raises(MismatchError, match="found an array without axes"):
            database.read("one", slice(1))
        with pytest.raises(MismatchError, match="'y': no such blob"):
            database.read("y", slice(1))
    damage(place, "x/c.2.0")
    with open_database(place) as database:
        chunk = -(-20 // info.chunks)
        assert database.read("x", slice(0, 2 * chunk)).tolist() == array[: 2 * chunk].tolist()
        assert database.read("x", slice(3 * chunk, None)).tolist() == array[3 * chunk :].tolist()
        with pytest.raises(ChecksumError, match="'x', chunk 2"):
            database.read("x", slice(3 * chunk - 1, None))


def test_destinations_that_overlap_are_refused_unless_both_blobs_are_equal(place: Path) -> None:
    blobs = {
        "a": np.arange(4.0),
        "b": np.arange(1.0, 5),
        "tied": np.arange(4.0),
        "n": Counter(1),
        "m": Counter(2),
    }
    save(place, blobs, durable=False)
    memory, handle = np.zeros(8), Counter()
    for places, text in [
        (
            {"a": memory[:4], "b": memory[3:7]},
            "'a' and 'b': their destinations share memory, and they differ",
        ),
        ({"a": memory[:4], "b": memory[:4]}, "'a' and 'b'"),
        ({"a": memory[:4], "tied": memory[1:5]}, "'a' and 'tied'"),
        ({"n": handle, "m": handle}, "'n' and 'm': they have one destination"),
        ({"a": np.lib.stride_tricks.as_strided(memory, (4,), (4,))}, "several elements of the destination"),
    ]:
        with pytest.raises(MismatchError, match=text):
            load(place, list(places), places)
        assert not memory.any()
    load(place, ["a", "b"], {"a": memory[::2], "b": memory[1::2]})
    assert memory.tolist() == [0, 1, 1, 2, 2, 3, 3, 4]
    shared = {"a": memory[:4], "tied": memory[:4]}
    load(place, list(shared), shared)
    assert memory[:4].tolist() == [0, 1, 2, 3]
    ws = Workspace()
    ws.bind("a", memory[2:6])
    ws.bind("b", memory[:4])
    with pytest.raises(MismatchError, match="share memory"):
        load(place, ["a", "b"], ws)
    damage(place, "tied/c.0")
    with pytest.raises(ChecksumError, match="'tied'"):
        load(place, list(shared), shared)


@given(
    st.lists(st.tuples(st.integers(0, 30), st.integers(1, 5), st.integers(-3, 3).filter(bool)), max_size=6)
)
@settings(max_examples=60, deadline=None)
def test_overlaps_are_those_of_the_elements(views: list[tuple[int, int, int]]) -> None:
    memory = np.zeros(64, "u1")
    arrays = [
        memory[16 + at :][: n * abs(step) : abs(step)][:: 1 if step > 0 else -1] for at, n, step in views
    ]
    cells = [{16 + at + i * abs(step) for i in range(n)} for at, n, step in views]
    found = list(overlaps(arrays))
    for at, other, same in found:
        assert cells[at] & cells[other]
        assert not same or cells[at] == cells[other]
    clash = any(one & two for i, one in enumerate(cells) for two in cells[:i])
    assert bool(found) == clash
    assert not any(map(covers_itself, arrays))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["u1", "u2", "u4", "V3"]),
            st.integers(0, 40),
            st.integers(1, 4),
            st.integers(-2, 2),
        ),
        min_size=overlap._FEW + 1,
        max_size=overlap._FEW + 9,
    ),
    st.sampled_from([4, 6, 8]),
)
@settings(max_examples=100, deadline=None)
def test_overlaps_of_many_views_by_like_steps(views: list[tuple[str, int, int, int]], unit: int) -> None:
    memory = np.zeros(160, "u1")
    arrays = [np.ndarray((n,), kind, memory, 60 + at, (unit * step,)) for kind, at, n, step in views]
    found = list(overlaps(arrays))
    assert all(np.shares_memory(arrays[at], arrays[other]) for at, other, _ in found)
    left = [array for at, array in enumerate(arrays) if at not in {at for at, _, _ in found}]
    assert not any(np.shares_memory(one, two) for i, one in enumerate(left) for two in left[:i])


def test_columns_are_not_compared_each_with_each(monkeypatch: pytest.MonkeyPatch) -> None:
    compared = 0

    def counting(one: object, two: object) -> bool:
        nonlocal compared
        compared += 1
        return False

    monkeypatch.setattr(overlap, "_meet", counting)
    matrix = np.zeros((4, 1000), "f4")
    columns = [matrix[:, i] for i in range(1000)]
    assert list(overlaps(columns)) == []
    assert compared == 0
    assert [pair[2] for pair in overlaps([*columns, matrix[:, 7]])] == [True]


def test_views_that_meet_themselves_are_told() -> None:
    base = np.zeros(12)
    assert covers_itself(np.lib.stride_tricks.sliding_window_view(base, 3, writeable=True))
    assert covers_itself(np.lib.stride_tricks.as_strided(base, (3, 2), (0, 8)))
    for fine in (base, base[::-2], base.reshape(3, 4).T[1:], base.reshape(2, 3, 2)[:, ::-1], base[:, None]):
        assert not covers_itself(fine)
