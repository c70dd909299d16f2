"""Loading a part, under other names, into another dtype, some rows, and watched."""

from __future__ import annotations

import logging
import os
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import jobcore.store
import slow_reader
from jobcore import Counter, Workspace
from jobcore.errors import ChecksumError, MismatchError
from jobcore.store import ChunkPolicy, LoadReport, container, inspect, load, open_database, progress, save
from jobcore.store.overlap import covers_itself, overlaps
from jobcore.store.progress import Meter
from store_cases import TINY

MODEL: dict[str, Any] = {
    "net/enc/w": np.arange(12.0).reshape(3, 4),
    "net/enc/b": np.arange(4.0),
    "net/dec/w": np.arange(8, dtype="f4").reshape(4, 2),
    "note": "text",
    "steps": Counter(7),
}


@pytest.fixture(params=container.known_types())
def place(tmp_path: Path, request: pytest.FixtureRequest) -> Path:
    return tmp_path / f"m.{request.param}"


@pytest.fixture
def path(place: Path) -> Path:
    save(place, MODEL, chunks=TINY, durable=False)
    return place


def damage(path: Path, key: str) -> None:
    """Flip a bit in the first byte of an entry."""
    file, at = path, 0
    if path.is_dir():
        file = path / key
        file.chmod(0o644)
    else:
        entries = slow_reader.take_apart(path.read_bytes())[1]
        at = next(at for name, at, _ in entries if name == key)
    data = bytearray(file.read_bytes())
    data[at] ^= 1
    file.write_bytes(data)


# A part, and other names


def test_names_may_be_a_function_of_the_name(path: Path) -> None:
    assert list(load(path, lambda name: name.endswith("/w"))) == ["net/enc/w", "net/dec/w"]
    assert load(path, lambda _: False) == {}
    into = {"net/enc/b": np.zeros(4), "else": np.zeros(1)}
    assert list(load(path, ["net/enc/b"], into)) == ["net/enc/b"]
    assert list(load(path, lambda name: name == "net/enc/b", into)) == ["net/enc/b"]
    assert into["net/enc/b"].tolist() == [0, 1, 2, 3]


def test_a_prefix_is_cut_off_before_names_change(path: Path) -> None:
    assert list(load(path, prefix="net/")) == ["enc/w", "enc/b", "dec/w"]
    assert list(load(path, ["net/dec/w"], prefix="net/")) == ["dec/w"]
    assert list(load(path, prefix="")) == list(MODEL)
    found = load(
        path, lambda name: "enc" in name, prefix="net/", rename={"enc/w": "W", "dec/w": "never asked"}
    )
    assert list(found) == ["W", "enc/b"]
    assert list(load(path, prefix="net/", rename=lambda name: name[:1] + name[-1])) == ["ew", "eb", "dw"]


def test_an_old_file_fits_a_model_that_was_renamed(path: Path) -> None:
    model: dict[str, Any] = {"steps": Counter(), "dec.w": np.zeros((4, 2), "f4"), "enc.w": np.zeros((4, 3)).T}
    model["enc.b"] = np.zeros(8)[::2]
    rename = {"net/enc/w": "enc.w", "net/enc/b": "enc.b", "net/dec/w": "dec.w", "note": None}
    found = load(path, into=model, rename=rename)
    assert list(found) == list(model)
    assert all(found[name] is model[name] for name in model)
    again = path.with_name("again.zarr.zip")
    save(again, model, durable=False)
    back = {new: old for old, new in rename.items() if new is not None}
    for name, value in load(again, rename=back).items():
        assert value.retrieve() == 7 if name == "steps" else value.tolist() == MODEL[name].tolist()
    ws = Workspace()
    load(path, into=ws, prefix="net/", rename=lambda name: name.replace("/", "."))
    assert ws.blob_names() == ["enc.w", "enc.b", "dec.w"]


def test_everything_that_differs_is_told_in_one_error(path: Path) -> None:
    good = np.zeros(4)
    into = {
        "enc.b": good,
        "enc/w": np.zeros((4, 3)),
        "dec/w": np.zeros((4, 2)),
        "layer_12": np.zeros(1),
    }
    with pytest.raises(MismatchError) as caught:
        load(path, into=into, prefix="net/", rename={"enc/b": "enc.b", "enc/x": "x", "note": "y"})
    for text in [
        "differ in 5 places",
        "'enc/x': to be renamed, but no such blob is stored below the prefix 'net/' (there is enc/",
        "'note': to be renamed, but no such",
        "'layer_12': no such blob is stored",
        "'net/enc/w' (as 'enc/w'): stored is float64 of shape (3, 4), the destination is float64 of shape (4, 3)",
        "'net/dec/w' (as 'dec/w'): stored is float32 of shape (4, 2), the destination is float64 of shape (4, 2)"
        ", which cast=True would convert it to",
    ]:
        assert text in str(caught.value)
    assert not good.any()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"rename": lambda _: "one"}, "'net/enc/w' and 'net/enc/b' would both become 'one'"),
        ({"rename": {"net/enc/w": "note"}}, "'net/enc/w' and 'note' would both become 'note'"),
        ({"rename": {"note": ""}}, "'note': a blob needs a name, found the empty text, after renaming"),
        ({"rename": {"nota": "x"}}, r"'nota': to be renamed, but no such blob is stored \(there is note\)"),
        ({"prefix": "ned/"}, "the prefix 'ned/': no stored name begins with it"),
        ({"prefix": "note"}, "'note': nothing is left of it without the prefix"),
        ({"names": ["note"], "prefix": "net/"}, "'note': asked for, but it does not begin with the prefix"),
        (
            {"names": ["steps"], "into": {}, "rename": {"steps": "n"}},
            r"'steps' \(as 'n'\): asked for, but not",
        ),
    ],
)
def test_names_that_lead_nowhere_or_collide_are_told(options: Any, text: str, path: Path) -> None:
    for strict in (True, False) if "into" not in options else (True,):
        with pytest.raises(MismatchError, match=text):
            load(path, strict=strict, **options)


@pytest.mark.parametrize(
    ("options", "error", "text"),
    [
        ({"names": 3}, TypeError, "names as an iterable of texts or a callable, found int"),
        ({"prefix": b"net/"}, TypeError, "prefix as text, found bytes"),
        ({"rename": "x"}, TypeError, "rename as a mapping or a callable, found str"),
        ({"rename": lambda _: 3}, TypeError, "new name of 'net/enc/w' as text or None, found int"),
        (
            {"cast": "any", "into": {}},
            ValueError,
            "cast as a bool or one of no, equiv, safe, same_kind, unsafe",
        ),
        ({"cast": True}, ValueError, "into= beside cast="),
    ],
)
def test_arguments_that_make_no_sense_are_refused(
    options: Any, error: type[Exception], text: str, path: Path
) -> None:
    with pytest.raises(error, match=text):
        load(path, **options)


# Not strict


def test_a_load_that_is_not_strict_tells_what_it_left_out(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    into = {"enc/b": np.zeros(4), "enc/c": np.ones(4)}
    reports: list[LoadReport] = []
    options: Any = {"into": into, "prefix": "net/", "strict": False}
    assert list(load(path, **options, report=reports.append)) == ["enc/b"]
    (report,) = reports
    assert report.path == str(path)
    assert report.loaded == (("net/enc/b", "enc/b"),)
    assert report.missing == ("enc/c",)
    assert report.unexpected == ("net/enc/w", "net/dec/w")
    assert into["enc/c"].all()
    assert not caplog.records
    load(path, **options)
    assert "1 names are missing: 'enc/c'; 2 blobs have no place: 'net/enc/w', 'net/dec/w'" in caplog.text
    caplog.clear()
    assert list(load(path, ["gone", "note"], strict=False)) == ["note"]
    assert "1 names are missing: 'gone'; 0 blobs have no place: none" in caplog.text
    caplog.clear()
    load(path, strict=False)
    load(path, report=reports.append)
    assert reports[1].missing == reports[1].unexpected == ()
    assert not caplog.records


def test_what_has_a_place_and_does_not_fit_is_an_error_though_not_strict(path: Path) -> None:
    for place in (np.zeros(5), np.zeros(4, "f4"), Counter()):
        with pytest.raises(MismatchError, match="'net/enc/b'"):
            load(path, into={"net/enc/b": place}, strict=False)


def test_a_report_can_prevent_a_load(path: Path) -> None:
    def refuse(report: LoadReport) -> None:
        raise KeyError(report.missing)

    into = {"net/enc/b": np.zeros(4), "gone": np.zeros(1)}
    with pytest.raises(KeyError, match="gone"):
        load(path, into=into, strict=False, report=refuse)
    assert not into["net/enc/b"].any()


# Another dtype


def test_arrays_of_another_dtype_are_filled_by_conversion(path: Path) -> None:
    into = {
        "net/enc/w": np.zeros((4, 3), "f4").T,
        "net/enc/b": np.zeros(8, ml_dtypes.bfloat16)[::-2],
        "net/dec/w": np.zeros((4, 2), ">f8"),
    }
    load(path, list(into), into, cast=True)
    for name, array in into.items():
        assert array.tolist() == MODEL[name].tolist()
    ints = {"net/enc/b": np.zeros(4, "i2")}
    with pytest.raises(MismatchError, match="int16, and the casting rule 'same_kind' does not allow that"):
        load(path, list(ints), ints, cast=True)
    with pytest.raises(MismatchError, match="'equiv' does not allow"):
        load(path, list(into), into, cast="equiv")
    load(path, list(ints), ints, cast="unsafe")
    assert ints["net/enc/b"].tolist() == [0, 1, 2, 3]
    with pytest.raises(MismatchError, match="read-only"):
        load(path, ["net/enc/b"], {"net/enc/b": np.broadcast_to(np.float32(0), 4)}, cast=True)


def test_single_elements_are_converted_too(tmp_path: Path) -> None:
    path = tmp_path / "x"
    save(path, {"n": np.float32(1.5), "s": np.array("größe", "U9")}, durable=False)
    into = {"n": np.zeros(()), "s": np.zeros((), "U12")}
    load(path, into=into, cast="safe")
    assert (into["n"], into["s"]) == (1.5, "größe")
    save(path, {"s": np.array("größe", "U12")}, durable=False, overwrite=True, chunks=TINY)
    with pytest.raises(MismatchError, match="in several chunks cannot be converted"):
        load(path, into={"s": np.zeros((), "U14")}, cast=True)


def test_the_dtype_of_a_blob_stays_when_conversion_was_asked_for(path: Path) -> None:
    ws, bound = Workspace(), np.zeros((6, 4), "f4")[::2]
    ws.feed("net/enc/b", np.zeros(4, "f4"))
    ws.bind("net/enc/w", bound)
    ws.feed("net/dec/w", np.zeros(3))
    load(path, into=ws, cast=True)
    assert ws.fetch("net/enc/b").dtype == np.float32
    assert ws.fetch("net/enc/b").tolist() == [0, 1, 2, 3]
    assert bound.tolist() == MODEL["net/enc/w"].tolist()
    assert ws.fetch("net/dec/w").shape == (4, 2)
    load(path, ["net/enc/b"], ws)
    assert ws.fetch("net/enc/b").dtype == np.float64


def test_a_conversion_needs_no_second_copy(place: Path) -> None:
    array = np.arange(4 << 20, dtype="f8")
    save(place, {"x": array}, durable=False, chunks=ChunkPolicy(1 << 20, 1 << 20))
    into = {"x": np.zeros(array.shape, "f4")}
    tracemalloc.start()
    load(place, into=into, cast=True)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 4 << 20
    assert np.array_equal(into["x"], array.astype("f4"))


@pytest.mark.parametrize("shape", [(1, 3, 40_000), (120_000,), (40_000, 3), (6, 20_000)])
@pytest.mark.parametrize("limit", [1000, 70_000])
def test_a_chunk_too_large_for_one_buffer_is_spread_in_pieces(
    shape: tuple[int, ...], limit: int, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(container, "_BUFFER", limit)
    array = np.arange(120_000.0).reshape(shape)
    save(place, {"x": array}, durable=False, chunks=ChunkPolicy(1 << 20, 1 << 20))
    for into in (np.zeros(shape, "f4"), np.zeros((*shape, 2), ">f8")[..., 1]):
        load(place, into={"x": into}, cast=True)
        assert np.array_equal(into, array)
    with open_database(place) as database:
        assert np.array_equal(
            database.read("x", slice(shape[0] // 3, shape[0] // 2)), array[shape[0] // 3 : shape[0] // 2]
        )
    damage(place, "x/c." + ".".join("0" * len(shape)))
    with pytest.raises(ChecksumError, match="'x', chunk 0"):
        load(place, into={"x": into}, cast=True)


def test_bytes_that_are_damaged_are_not_converted(path: Path) -> None:
    damage(path, "net=2fenc=2fb/c.0")
    into = {"net/enc/b": np.full(4, 5, "f4")}
    with pytest.raises(ChecksumError, match="'net/enc/b', chunk 0"):
        load(path, list(into), into, cast=True)
    assert into["net/enc/b"].tolist() == [5] * 4


# Some rows


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


# Destinations that share memory


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


def test_views_that_meet_themselves_are_told() -> None:
    base = np.zeros(12)
    assert covers_itself(np.lib.stride_tricks.sliding_window_view(base, 3, writeable=True))
    assert covers_itself(np.lib.stride_tricks.as_strided(base, (3, 2), (0, 8)))
    for fine in (base, base[::-2], base.reshape(3, 4).T[1:], base.reshape(2, 3, 2)[:, ::-1], base[:, None]):
        assert not covers_itself(fine)


# Watched


def test_progress_comes_to_its_end_and_never_goes_back(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[tuple[int, int]] = []
    load(path, progress=lambda *step: steps.append(step))
    total = steps[-1][1]
    with open_database(path) as database:
        assert total == sum(blob.nbytes for blob in database.info.blobs)
    assert steps[-1] == (total, total)
    monkeypatch.setattr(progress, "_FIRST", 1)
    monkeypatch.setattr(progress, "_MOST", 1)
    fine: list[int] = []
    into = {"net/enc/w": np.zeros((3, 4)), "net/dec/w": np.zeros((4, 2), "f4")}
    load(path, list(into), into, progress=lambda done, _: fine.append(done))
    assert fine == [32, 64, 96, 128]
    assert into["net/enc/w"].tolist() == MODEL["net/enc/w"].tolist()
    steps.clear()
    load(path, [], progress=lambda *step: steps.append(step))
    assert steps == [(0, 0)]


def test_an_exception_of_progress_ends_a_load(path: Path) -> None:
    def stop(_done: int, _total: int) -> None:
        raise InterruptedError("enough")

    ws = Workspace()
    with pytest.raises(InterruptedError, match="enough"):
        load(path, into=ws, progress=stop)
    assert ws.blob_names() == []


class Part:
    """A blob of ten chunks of 32 MiB."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def chunk_range(self) -> tuple[int, int]:
        return 0, 10

    def chunk_bytes(self) -> int:
        return 32 << 20

    def bytes_in(self, first: int, stop: int) -> int:
        return (stop - first) << 25

    def target(self, first: int, stop: int) -> Any:
        return (stop - first) * self.seconds


@pytest.mark.parametrize(("seconds", "calls", "lines"), [(0.001, 7, 0), (0.4, 10, 0), (4.0, 10, 3)])
def test_a_slow_load_is_seen_more_often_and_in_the_log(
    seconds: float, calls: int, lines: int, caplog: pytest.LogCaptureFixture
) -> None:
    now = [0.0]
    seen: list[int] = []

    def read(targets: Any) -> None:
        now[0] += sum(targets)

    caplog.set_level(logging.INFO, "jobcore.store")
    Meter("some/path", 10 << 25, lambda done, _: seen.append(done), lambda: now[0]).read(
        [Part(seconds)], read
    )
    assert len(seen) <= calls
    assert seen[-1] == 10 << 25
    assert all(two - one <= 256 << 20 for one, two in zip([0, *seen], seen, strict=False))
    assert [record.levelname for record in caplog.records] == ["INFO"] * lines
    assert lines == 0 or "some/path: loaded 100663296 of 335544320 bytes" in caplog.text


def test_a_load_that_only_the_log_watches(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "jobcore.store"):
        assert list(load(path)) == list(MODEL)


# Opened, and elsewhere


def test_opening_and_listing_needs_few_small_reads(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    sizes: list[int] = []
    for name in ("read", "pread", "preadv", "readv"):
        call = getattr(os, name)

        def count(*args: Any, call: Any = call) -> Any:
            found = call(*args)
            sizes.append(found if isinstance(found, int) else len(found))
            return found

        monkeypatch.setattr(os, name, count)
    assert [blob.name for blob in inspect(path).blobs] == list(MODEL)
    assert 1 <= len(sizes) <= 3
    assert sum(sizes) < 1 << 17


@pytest.mark.parametrize(
    "name", [name for name in jobcore.store.__all__ if name.startswith(("save", "write"))]
)
def test_what_every_way_of_saving_makes_is_loaded(name: str, tmp_path: Path) -> None:
    done = getattr(jobcore.store, name)(tmp_path / "x.zarr.zip", MODEL)
    if hasattr(done, "wait"):
        done.wait()
    into = {"net/enc/w": np.zeros((3, 4)), "steps": Counter()}
    load(tmp_path / "x.zarr.zip", list(into), into)
    assert into["net/enc/w"].tolist() == MODEL["net/enc/w"].tolist()
    assert into["steps"].retrieve() == 7
    assert load(tmp_path / "x.zarr.zip", ["note"]) == {"note": "text"}


ELSEWHERE = """
import sys

for name in ("torch", "jax", "tensorflow", "ml_dtypes", "zarr", "numcodecs", "my_training_code"):
    sys.modules[name] = None
import numpy as np
import jobcore

found = jobcore.load(sys.argv[1])
assert type(found["w"]) is np.ndarray and found["w"].dtype == np.float32, found
assert found["steps"].retrieve() == 3 and found["cfg"] == {"lr": 0.1}
assert found["rng"].random() == np.random.default_rng(5).random()
assert [blob.name for blob in jobcore.inspect(sys.argv[1]).blobs] == ["w", "steps", "cfg", "rng"]
assert jobcore.verify(sys.argv[1]).ok
"""


def test_a_file_is_read_where_nothing_of_the_training_is_installed(tmp_path: Path) -> None:
    class Device:
        """Stands for an array of another library, on a device."""

        def __array__(self, dtype: Any = None, copy: Any = None) -> np.ndarray[Any, Any]:
            return np.ones((2, 2), "f4")

    path = tmp_path / "x.zarr.zip"
    save(path, {"w": Device(), "steps": Counter(3), "cfg": {"lr": 0.1}, "rng": np.random.default_rng(5)})
    done = subprocess.run([sys.executable, "-c", ELSEWHERE, str(path)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_a_workspace_without_blobs_is_saved_and_loaded(tmp_path: Path) -> None:
    ws = Workspace()
    save(tmp_path / "x", {blob.name: blob for blob in ws.local_blobs()})
    assert load(tmp_path / "x", into=ws) == load(tmp_path / "x", into={}) == {}
    with pytest.raises(MismatchError, match="the prefix 'a/'"):
        load(tmp_path / "x", prefix="a/")


# Against plain Python

LETTERS = st.text("ab/", min_size=1, max_size=4)
DTYPES = ["u1", "i2", ">i4", "f4", "f8", ml_dtypes.bfloat16]
SHAPES = st.lists(st.integers(0, 7), max_size=3).map(tuple)


def plainly(
    blobs: dict[str, np.ndarray[Any, Any]], pick: Any, prefix: str, rename: dict[str, str | None]
) -> dict[str, np.ndarray[Any, Any]] | None:
    """The blobs of the file under the names wanted, or None where that is an error."""
    result: dict[str, np.ndarray[Any, Any]] = {}
    short = {name[len(prefix) :]: name for name in blobs if name.startswith(prefix)}
    if not rename.keys() <= short.keys() or (prefix and not short):
        return None
    for cut, name in short.items():
        if not pick(name):
            continue
        if not cut:
            return None
        wanted = rename.get(cut, cut)
        if wanted is None:
            continue
        if wanted in result or not wanted:
            return None
        result[wanted] = blobs[name]
    return result


@given(st.data())
@settings(max_examples=80, deadline=None)
def test_loads_are_those_of_a_plain_dict(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    path = tmp_path_factory.getbasetemp() / "plain.zarr.zip"
    names = data.draw(st.lists(LETTERS, unique=True, max_size=5))
    stored = {name: array(data) for name in names}
    save(path, stored, chunks=TINY, durable=False, overwrite=True)
    _, found, _ = slow_reader.read(path.read_bytes())
    blobs = {name: value for name, (_, value) in found.items()}
    prefix = data.draw(st.sampled_from(["", "", "a", "b/"]))
    rename = data.draw(st.dictionaries(st.sampled_from([*names, "a"]), st.none() | LETTERS, max_size=3))
    part = data.draw(st.none() | st.sets(st.sampled_from(names)) if names else st.none())
    expected = plainly(blobs, lambda name: part is None or name in part, prefix, rename)
    if expected is None:
        with pytest.raises(MismatchError):
            load(path, part and part.__contains__, rename=rename, prefix=prefix)
        return
    with open_database(path) as database:
        alike(
            database.load(part if part is None else part.__contains__, rename=rename, prefix=prefix), expected
        )
        into = {name: other(data, value) for name, value in expected.items()}
        with np.errstate(all="ignore"):
            database.load(
                None if part is None else part.__contains__, into, rename=rename, prefix=prefix, cast="unsafe"
            )
            alike(into, {name: value.astype(into[name].dtype) for name, value in expected.items()})
        for name, value in stored.items():
            if value.ndim:
                rows = slice(*data.draw(st.tuples(*[st.none() | st.integers(-9, 9)] * 2)))
                alike({name: database.read(name, rows)}, {name: value[rows]})


def array(data: st.DataObject) -> np.ndarray[Any, Any]:
    shape = data.draw(SHAPES)
    numbers = np.random.default_rng(data.draw(st.integers(0, 99))).integers(0, 100, shape)
    return np.asarray(numbers).astype(data.draw(st.sampled_from(DTYPES)))


def other(data: st.DataObject, value: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    """An array of the same shape, of any dtype and layout."""
    dtype = data.draw(st.sampled_from(DTYPES))
    if value.ndim and data.draw(st.booleans()):
        return np.zeros((2 * value.shape[0], *value.shape[1:]), dtype)[::2]
    return np.zeros(value.shape, dtype, order=data.draw(st.sampled_from("CF")))


def alike(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    for one, two in zip(found.values(), expected.values(), strict=True):
        assert (one.dtype, one.shape, one.tobytes()) == (two.dtype, two.shape, two.tobytes())
