"""No damage is silent: each byte, each length, each entry; and what a hostile file says is never believed."""

from __future__ import annotations

import copy
import json
import os
import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobcore import Counter
from jobcore.errors import ChecksumError, FormatError, JobcoreError, VersionError
from jobcore.store import inspect, load, open_database, save, verify, zipformat
from jobcore.store.verification import VerifyReport
from jobcore.store.zipreader import ZipReader
from store_cases import TINY, build, parts_of

STATE = {"w": np.arange(12, dtype="f4").reshape(3, 4), "é": "text", "n": Counter(3), "none": np.zeros(0)}


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    place = tmp_path_factory.mktemp("whole") / "x"
    save(place, STATE, chunks=TINY, user={"a": 1})
    return place.read_bytes()


@pytest.fixture
def path(tmp_path: Path, whole: bytes) -> Path:
    place = tmp_path / "x"
    place.write_bytes(whole)
    return place


def regions(data: bytes) -> list[tuple[int, int, str, str | None]]:
    """Begin, end, key and blob of each part of a database."""
    tail = zipformat.parse_tail(data, len(data), "x")
    assert tail is not None
    entries = zipformat.parse_directory(data[tail.start :], tail, "x")
    ends = [*(entry.offset for entry in entries[1:]), tail.start]
    owners = {"w": "w", "=c3=a9": "é", "n": "n", "none": "none"}
    parts = [
        (entry.offset, end, entry.key, owners.get(entry.key.partition("/")[0]))
        for entry, end in zip(entries, ends, strict=True)
    ]
    begin, end, _, _ = parts.pop()
    return [*parts, (begin, end, "root", None), (tail.start, len(data), "index", None)]


def test_a_flip_of_any_byte_is_noticed_and_the_blob_or_part_is_named(path: Path, whole: bytes) -> None:
    rng = random.Random(0)
    parts = regions(whole)
    assert parts[0][0] == 0
    assert [end for _, end, _, _ in parts[:-1]] == [begin for begin, _, _, _ in parts[1:]]
    for begin, end, key, blob in parts:
        for at in range(begin, end):
            data = bytearray(whole)
            data[at] ^= 1 << rng.randrange(8)
            path.write_bytes(data)
            report = verify(path)
            assert not report.ok
            found = {(fault.place, fault.blob) for fault in report.faults}
            if key == "index":
                # A file that does not end as a database any more is called so as a whole.
                assert found & {("index", None), ("file", None)}, at
            else:
                assert found == {(key, blob)}, at
            with pytest.raises(FormatError) as caught:
                load(path)
            assert blob is None or repr(blob) in str(caught.value)
            assert str(path) in str(caught.value)


def test_a_flip_in_a_large_payload_is_noticed(tmp_path: Path) -> None:
    save(tmp_path / "x", {"before": 1, "big": np.ones(100_000), "after": 2})
    data = bytearray((tmp_path / "x").read_bytes())
    for at in (700, 300_000, 800_000):
        data[at] ^= 1
        (tmp_path / "x").write_bytes(data)
        with pytest.raises(ChecksumError, match="'big', chunk 0"):
            load(tmp_path / "x", ["big"])
        (fault,) = verify(tmp_path / "x").faults
        assert (fault.place, fault.blob) == ("big/c.0", "big")
        assert load(tmp_path / "x", ["before", "after"])["after"] == 2
        data[at] ^= 1


def test_a_file_cut_at_any_length_is_noticed(path: Path, whole: bytes) -> None:
    for size in range(len(whole)):
        path.write_bytes(whole[:size])
        assert not verify(path).ok
        with pytest.raises(FormatError, match="expected a jobcore database"):
            load(path)
    path.write_bytes(whole[:1000])
    with pytest.raises(FormatError, match="a truncated file of 1,000 bytes"):
        inspect(path)


@pytest.mark.parametrize("extra", [b"\0", b"x" * 70_000])
def test_bytes_added_or_taken_away_are_noticed(extra: bytes, path: Path, whole: bytes) -> None:
    for data in (extra + whole, whole + extra, whole[:1000] + extra + whole[1000:], whole[:64] + whole[128:]):
        path.write_bytes(data)
        assert not verify(path).ok
        with pytest.raises(FormatError):
            load(path)
    path.write_bytes(whole + b"xyz")
    with pytest.raises(FormatError, match="3 bytes added after its end"):
        load(path)


Entries = list[tuple[str, bytes]]


def swap(entries: Entries, one: int, other: int) -> Entries:
    entries[one], entries[other] = entries[other], entries[one]
    return entries


def replace(entries: Entries, at: int, key: str | None = None, data: bytes | None = None) -> Entries:
    entries[at] = (key or entries[at][0], entries[at][1] if data is None else data)
    return entries


@pytest.mark.parametrize(
    ("change", "place", "blob", "message"),
    [
        (lambda e: e[1:], "w/c.0.0", "w", "found none"),
        (lambda e: [e[0], *e], "w/c.0.0", "w", "expected once, found 2 times"),
        (lambda e: [e[0], e[0], *e[2:]], "w/c.1.0", "w", "found none"),
        (lambda e: swap(e, 0, 1), "w/c.0.0", "w", "as the table says|in the entry at"),
        (lambda e: [*e[:3], *e[4:]], "w/zarr.json", "w", "its document"),
        (lambda e: [*e, ("more/c.0", b"1")], "more/c.0", "more", "the table has no such entry"),
        (lambda e: [*e, ("w/c.9.0", b"1")], "w/c.9.0", "w", "the table has no such entry"),
        (lambda e: [*e, ("?", b"1")], "?", None, "the table has no such entry"),
        (lambda e: replace(e, 0, data=bytes(16)), "w/c.0.0", "w", "CRC-32"),
        (lambda e: replace(e, 0, data=e[0][1] + b"0"), "w/c.0.0", "w", "found 17 in the entry"),
        (
            lambda e: replace(e, 3, data=e[3][1].replace(b"float32", b"uint32")),
            "w/zarr.json",
            "w",
            "contradicts",
        ),
        (
            lambda e: replace(e, 3, data=e[3][1].replace(b"[3,4]", b"[4,3]")),
            "w/zarr.json",
            "w",
            "contradicts",
        ),
        (
            lambda e: replace(e, 3, data=e[3][1].replace(b'"name":"w"', b'"name":"v"')),
            "w/zarr.json",
            "w",
            "contradicts",
        ),
        (
            lambda e: replace(e, 3, data=e[3][1].replace(b'"dtype":"<f4"', b'"dtype":"<i4"')),
            "w/zarr.json",
            "w",
            "contradicts",
        ),
        (lambda e: replace(e, 3, data=b"{"), "w/zarr.json", "w", "contradicts"),
        (lambda e: replace(e, 3, data=b"[" * 100_000), "w/zarr.json", "w", "contradicts"),
        (lambda e: replace(e, 3, data=b"[]"), "w/zarr.json", "w", "contradicts"),
    ],
)
def test_entries_that_are_not_those_of_the_table_are_noticed(
    change: Callable[[Entries], Entries], place: str, blob: str | None, message: str, path: Path
) -> None:
    entries, root = parts_of(path)
    build(path, change(list(entries)), root)
    report = verify(path)
    assert (place, blob) in {(fault.place, fault.blob) for fault in report.faults}, report
    assert any(part in fault.message for part in message.split("|") for fault in report.faults)
    with pytest.raises(FormatError):
        load(path)


def test_entries_in_another_order_are_noticed(path: Path) -> None:
    entries, root = parts_of(path)
    build(path, swap(entries, -1, -2), root)
    assert not verify(path).ok


def test_documents_of_another_writer_are_read(path: Path) -> None:
    entries, root = parts_of(path)
    table, end = root["attributes"]["jobcore"]["blobs"], 0
    place = []
    for at, (key, data) in enumerate(entries):
        if key.endswith("zarr.json"):
            document = json.loads(data)
            document["attributes"]["more"] = [1]
            document["storage_transformers"] = []
            entries[at] = (key, json.dumps(dict(reversed(document.items())), indent=1).encode())
        start = end + zipformat.header_bytes(key, end, len(entries[at][1]))
        if not key.endswith("zarr.json"):
            place.append(start)
        end = start + len(entries[at][1])
    table["place"] = place
    root["attributes"]["jobcore"]["later"] = {"x": 1}
    build(path, entries, root)
    assert verify(path).ok
    assert load(path)["w"].tolist() == STATE["w"].tolist()  # type: ignore[attr-defined]  # it is an array


def test_another_version_is_refused_with_both_numbers(path: Path, whole: bytes) -> None:
    entries, root = parts_of(path)
    root["attributes"]["jobcore"]["format"] = 2
    build(path, entries, root)
    for act in (load, inspect, open_database):
        with pytest.raises(
            VersionError, match=r"expected format version 1 or 3, found 2.*pip install -U jobcore"
        ):
            act(path)
    path.write_bytes(whole.replace(b"jobcore 1 sha256=", b"jobcore 2 sha256="))
    with pytest.raises(VersionError, match="found 2"):
        load(path)
    assert not verify(path).ok
    path.write_bytes(whole.replace(b"jobcore 1 sha256=", b"jobcore 3 sha256="))
    with pytest.raises(FormatError, match="expected format version 3, as the file ends with, found 1"):
        load(path)
    assert not verify(path).ok


def change_table(change: Callable[[dict[str, Any]], Any]) -> Callable[[Any], Any]:
    def apply(root: Any) -> Any:
        change(root["attributes"]["jobcore"]["blobs"])
        return root

    return apply


def change_header(**members: Any) -> Callable[[Any], Any]:
    def apply(root: Any) -> Any:
        root["attributes"]["jobcore"].update(members)
        return root

    return apply


@pytest.mark.parametrize(
    "change",
    [
        lambda root: b"",
        lambda root: b"{",
        lambda root: b"\xff\xfe",
        lambda root: b"[" * 200_000,
        lambda root: [],
        lambda root: {"attributes": {}},
        lambda root: {"attributes": {"jobcore": []}},
        change_header(format=True),
        change_header(format="1"),
        change_header(format=None),
        change_header(run=1),
        change_header(node=None),
        change_header(epoch="1"),
        change_header(skipped=[["a"]]),
        change_header(skipped={}),
        change_header(blobs=None),
        change_table(lambda t: t.pop("place")),
        change_table(lambda t: t.update(name={})),
        change_table(lambda t: t["name"].append("w")),
        change_table(lambda t: t["name"].__setitem__(1, "w")),
        change_table(lambda t: t["name"].__setitem__(0, "")),
        change_table(lambda t: t["name"].__setitem__(0, "\ud800")),
        change_table(lambda t: t["name"].__setitem__(0, 3)),
        change_table(lambda t: t["spec"].__setitem__(0, 99)),
        change_table(lambda t: t["spec"].__setitem__(0, -1)),
        change_table(lambda t: t["spec"].__setitem__(0, "0")),
        change_table(lambda t: t["spec"].pop()),
        change_table(lambda t: t["place"].pop()),
        change_table(lambda t: t["place"].reverse()),
        change_table(lambda t: t["place"].__setitem__(0, -64)),
        change_table(lambda t: t["place"].__setitem__(-1, 2**70)),
        change_table(lambda t: t["place"].__setitem__(1, t["place"][0])),
        change_table(lambda t: t["crc32"].__setitem__(0, 2**32)),
        change_table(lambda t: t["crc32"].__setitem__(0, t["crc32"][0] ^ 1)),
        change_table(lambda t: t["specs"][0].__setitem__(2, [3, 2**40])),
        change_table(lambda t: t["specs"][0].__setitem__(2, [2**40, 4])),
        change_table(lambda t: t["specs"][0].__setitem__(5, 3)),
        change_table(lambda t: t["specs"][0].__setitem__(3, "int64")),
        change_table(lambda t: t["specs"][0].__setitem__(1, "<f8")),
        change_table(lambda t: t["specs"][0].__setitem__(1, "|O")),
        change_table(lambda t: t["specs"][0].__setitem__(0, "string")),
        change_table(lambda t: t["specs"][0].__setitem__(0, "thing")),
        change_table(lambda t: t["specs"][1].__setitem__(0, "state")),
        change_table(lambda t: t["specs"][1].__setitem__(0, "rng")),
        change_table(lambda t: t["specs"][1].__setitem__(0, "counter")),
        change_table(lambda t: t["specs"][2].__setitem__(0, "string")),
    ],
)
def test_a_table_that_breaks_a_rule_is_an_error(change: Callable[[Any], Any], path: Path) -> None:
    entries, root = parts_of(path)
    build(path, entries, change(root))
    with pytest.raises(FormatError, match=str(path)):
        load(path)
    assert not verify(path).ok


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(data=st.data())
def test_any_change_of_the_root_is_an_error_or_changes_no_value(
    data: st.DataObject, whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "fuzz"
    path.write_bytes(whole)
    entries, root = parts_of(path)
    node = copy.deepcopy(root)
    at: Any = node
    # Walk down to some value, and put another in its place.
    while True:
        keys = list(at) if isinstance(at, dict) else list(range(len(at)))
        key = data.draw(st.sampled_from(keys))
        if not isinstance(at[key], dict | list) or not at[key] or data.draw(st.integers(0, 3)) == 0:
            break
        at = at[key]
    at[key] = data.draw(JSON)
    build(path, entries, node)
    try:
        found = load(path)
    except JobcoreError:
        verify(path)
    else:
        assert list(found) == list(STATE)
        assert found["w"].tolist() == STATE["w"].tolist()  # type: ignore[attr-defined]  # it is an array
        assert found["n"].retrieve() == 3


@given(changes=st.lists(st.tuples(st.integers(0, 10**6), st.integers(1, 255)), min_size=1, max_size=4))
def test_any_change_of_the_index_is_an_error_even_with_a_true_digest(
    changes: list[tuple[int, int]], whole: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    import hashlib

    tail = zipformat.parse_tail(whole, len(whole), "x")
    assert tail is not None
    index = bytearray(whole[tail.start : -64])
    for at, mask in changes:
        index[at % (len(index) - 17)] ^= mask
    if bytes(index) == whole[tail.start : -64]:
        return
    digest = hashlib.sha256(index[:-17]).hexdigest().encode()
    path = tmp_path_factory.getbasetemp() / "index"
    path.write_bytes(whole[: tail.start] + index + digest)
    assert not verify(path).ok
    with pytest.raises(FormatError):
        load(path)


@given(data=st.binary(max_size=300))
def test_any_bytes_are_an_error_and_nothing_else(
    data: bytes, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.getbasetemp() / "any"
    path.write_bytes(data)
    assert not verify(path).ok
    with pytest.raises(FormatError):
        load(path)


@pytest.mark.parametrize("sizes", [(2**40, 2**63), (2**64 - 1, 2**64 - 1), (0, 2**64 - 1)])
def test_an_end_record_of_enormous_numbers_is_an_error(
    sizes: tuple[int, int], path: Path, whole: bytes
) -> None:
    start, size = sizes
    end64 = zipformat._END64.pack(b"PK\x06\x06", 44, 0x032D, 45, 0, 0, 2**64 - 1, 2**64 - 1, size, start)
    locator = zipformat._LOCATOR.pack(b"PK\x06\x07", 0, 0, 1)
    end = zipformat._END.pack(b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0xFFFFFFFF, 81)
    path.write_bytes(whole[:-103] + end64 + locator + end + b"jobcore 1 sha256=" + b"0" * 64)
    with pytest.raises(FormatError, match="index"):
        load(path)
    assert not verify(path).ok


def test_a_sparse_file_that_claims_an_enormous_index_is_an_error(path: Path) -> None:
    size = 1 << 43
    end64 = zipformat._END64.pack(b"PK\x06\x06", 44, 0x032D, 45, 0, 0, 2**33, 2**33, size, 0)
    locator = zipformat._LOCATOR.pack(b"PK\x06\x07", 0, size, 1)
    end = zipformat._END.pack(b"PK\x05\x06", 0, 0, 0xFFFF, 0xFFFF, 0xFFFFFFFF, 0, 81)
    with path.open("r+b") as file:
        file.truncate(size)
        file.seek(size)
        file.write(end64 + locator + end + b"jobcore 1 sha256=" + b"0" * 64)
    with pytest.raises(FormatError, match="memory"):
        load(path)
    assert not verify(path).ok


def test_a_disk_that_cannot_be_read_is_damage(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    calls: list[int] = []

    def failing(fd: int, buffers: Any, offset: int) -> int:
        calls.append(offset)
        if len(calls) > 1:
            raise OSError(5, "Input/output error")
        return preadv(fd, buffers, offset)

    monkeypatch.setattr(os, "preadv", failing)
    monkeypatch.setattr(ZipReader, "_read_whole", lambda *_, **__: False)  # native code cannot read it either
    report = verify(path)
    assert [fault.place for fault in report.faults] == ["file"]
    assert "could not be read: Input/output error" in report.faults[0].message


def test_short_reads_are_continued(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    preadv = os.preadv
    monkeypatch.setattr(os, "preadv", lambda fd, bufs, at: preadv(fd, [bufs[0][:7]], at))
    assert load(path)["w"].tolist() == STATE["w"].tolist()  # type: ignore[attr-defined]  # it is an array


def test_a_report_tells_what_it_looked_at(path: Path, whole: bytes) -> None:
    report = verify(path)
    assert report == VerifyReport(str(path), True, (), len(STATE), len(whole))
    path.write_bytes(b"")
    assert (verify(path).blobs, verify(path).size_bytes) == (0, 0)


def test_several_damages_are_all_reported(path: Path, whole: bytes) -> None:
    data = bytearray(whole)
    parts = regions(whole)
    for begin, end, _, _ in parts[:-2]:
        data[(begin + end) // 2] ^= 1
    path.write_bytes(data)
    faults = verify(path).faults
    assert [fault.place for fault in faults] == [key for _, _, key, _ in parts[:-2]]
    assert str(faults[0]) == faults[0].message


def test_blobs_are_named_even_when_the_table_is_lost(path: Path, whole: bytes) -> None:
    parts = regions(whole)
    data = bytearray(whole)
    data[parts[0][1] - 1] ^= 1
    data[parts[-2][1] - 1] ^= 1
    path.write_bytes(data)
    faults = verify(path).faults
    assert [(fault.place, fault.blob) for fault in faults] == [("root", None), ("w/c.0.0", "w")]


def test_the_check_of_an_index_does_not_hide_other_damage(path: Path, whole: bytes) -> None:
    data = bytearray(whole)
    data[-1] = ord("x")
    data[regions(whole)[0][1] - 1] ^= 1
    path.write_bytes(data)
    faults = verify(path).faults
    assert [(fault.place, fault.blob) for fault in faults] == [("index", None), ("w/c.0.0", "w")]
