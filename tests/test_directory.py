"""The directory container: what may be shared with an earlier database is, and nothing else ever happens to that."""

from __future__ import annotations

import errno
import os
import shutil
import stat
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest

import jobcore
from jobcore._fast.chunk_file import ChunkFiles
from jobcore.errors import ChecksumError, FormatError, SaveError
from jobcore.store import (
    ChunkPolicy,
    WriteResult,
    dirlinks,
    dirwriter,
    files,
    publishing,
    refusals,
    syncing,
    verify,
    write_database,
)
from jobcore.store.workers import THREADS
from slow_directory import crc32c
from store_cases import any_bits, same_bits

POLICY = ChunkPolicy(1 << 14, 1 << 14)


def state(changed: int = 0) -> dict[str, np.ndarray[Any, Any]]:
    """100 chunks of 16 KiB in ten blobs; the first `changed` of each blob's ten differ from those of state(0)."""
    made = {}
    for blob in range(10):
        array = np.random.default_rng(blob).integers(0, 2**32, (10, 1 << 12), "u4")
        array[:changed] += 1
        made[f"w{blob}"] = array
    return made


def save(path: Path, blobs: dict[str, Any], base: Path | None = None, **options: Any) -> WriteResult:
    return write_database(path, blobs, db_type="zarr", base=base, chunks=POLICY, **options)


def inodes(path: Path) -> dict[str, int]:
    return {str(p.relative_to(path)): p.stat().st_ino for p in path.rglob("*") if p.is_file()}


def shared(one: Path, other: Path) -> set[str]:
    """Files of `one` that are files of `other` too, under any name."""
    theirs = set(inodes(other).values())
    return {name for name, inode in inodes(one).items() if inode in theirs}


def holds(path: Path, blobs: dict[str, np.ndarray[Any, Any]]) -> bool:
    found = jobcore.load(path)
    return verify(path).ok and all(same_bits(found[name], array) for name, array in blobs.items())


# -- what is there


def test_a_chunk_is_a_file_of_its_bytes_and_their_checksum(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    jobcore.save(path, {"a/b": np.arange(6, dtype="<i2").reshape(2, 3), "n": np.float32(1)})
    assert sorted(inodes(path)) == ["a=2fb/c.0.0", "a=2fb/zarr.json", "n/c", "n/zarr.json", "zarr.json"]
    data = (path / "a=2fb" / "c.0.0").read_bytes()
    assert data[:-4] == np.arange(6, dtype="<i2").tobytes()
    assert int.from_bytes(data[-4:], "little") == crc32c(data[:-4])


def test_files_are_read_only_and_folders_are_not(tmp_path: Path) -> None:
    save(tmp_path / "x.zarr", state())
    modes = {stat.S_IMODE(p.stat().st_mode) & 0o222 for p in (tmp_path / "x.zarr").rglob("*") if p.is_file()}
    assert modes == {0}
    shutil.rmtree(tmp_path / "x.zarr")


def test_the_end_of_the_path_chooses_the_container(tmp_path: Path) -> None:
    for name, container in {"a.zarr": "zarr", "a.zarr.zip": "zarr.zip", "a": "zarr.zip"}.items():
        jobcore.save(tmp_path / name, {"w": 1})
        assert jobcore.inspect(tmp_path / name).container == container
    assert (tmp_path / "a.zarr").is_dir()
    assert jobcore.inspect(tmp_path / "a.zarr").format == 2
    assert jobcore.inspect(tmp_path / "a").format == 1


# -- sharing


def test_what_did_not_change_is_linked(tmp_path: Path) -> None:
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    first = save(one, state())
    second = save(two, state(), one)
    assert shared(two, one) == set(inodes(two)) - {"zarr.json"}
    assert second.digest == first.digest
    assert holds(two, state())


@pytest.mark.parametrize("turned", [lambda w: w.T, lambda w: w.T[None], lambda w: w[:, ::-1]])
def test_large_chunks_that_are_put_together_piece_by_piece_are_linked_too(
    tmp_path: Path, turned: Callable[[np.ndarray[Any, Any]], np.ndarray[Any, Any]]
) -> None:
    one, two, three = tmp_path / "1.zarr", tmp_path / "2.zarr", tmp_path / "3.zarr"
    w = np.random.default_rng(8).integers(0, 255, (3001, 1999), np.uint8)
    write_database(one, {"w": turned(w)}, db_type="zarr")
    write_database(two, {"w": turned(w)}, db_type="zarr", base=one)
    assert shared(two, one) == set(inodes(two)) - {"zarr.json"}
    write_database(three, {"w": np.ascontiguousarray(turned(w))}, db_type="zarr", base=two)
    assert shared(three, one) == set(inodes(three)) - {"zarr.json"}
    assert holds(three, {"w": turned(w)})
    w[1500, 1000] ^= 1
    four = tmp_path / "4.zarr"
    write_database(four, {"w": turned(w)}, db_type="zarr", base=three)
    assert shared(four, one) < set(inodes(four)) - {"zarr.json"}
    assert holds(four, {"w": turned(w)})


def test_an_epoch_in_which_little_changed_writes_little(tmp_path: Path) -> None:
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    save(one, state())
    later = state()
    for name in ("w0", "w3", "w5", "w7", "w9"):
        later[name][4] ^= 1
    size = save(two, later, one).size_bytes
    written = size - sum((two / name).stat().st_size for name in shared(two, one))
    assert len(shared(two, one)) == 95 + 10
    assert written <= 0.06 * size
    assert holds(two, later)
    assert holds(one, state())


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux counts what a process reads")
def test_the_earlier_database_is_not_read(tmp_path: Path) -> None:
    """Its hashes are in its root: of a chunk the checksum behind it is enough."""
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    size = save(one, state()).size_bytes

    def read_bytes() -> int:
        return int(Path("/proc/self/io").read_text().split("rchar:")[1].split()[0])

    before = read_bytes()
    save(two, state(), one)
    assert read_bytes() - before < 0.06 * size
    assert shared(two, one) == set(inodes(two)) - {"zarr.json"}


def test_chunks_are_known_by_their_content(tmp_path: Path) -> None:
    """Under another name, in another place, of another data type."""
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    save(one, state())
    moved = {"new": state()["w0"][::-1], "again": state()["w3"].view("f4"), "w1": state()["w1"]}
    save(two, moved, one)
    assert len(shared(two, one)) == 31
    assert holds(two, moved)


def test_equal_chunks_of_one_database_need_no_earlier_one(tmp_path: Path) -> None:
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    save(one, {"z": np.zeros(1 << 14, "u4")})
    save(two, {"z": np.zeros(1 << 14, "u4"), "y": np.zeros(1 << 15, "u4")}, one)
    assert holds(two, {"z": np.zeros(1 << 14, "u4"), "y": np.zeros(1 << 15, "u4")})


@pytest.mark.parametrize("gone", [0, 1, 2])
def test_no_epoch_needs_another(tmp_path: Path, gone: int) -> None:
    """Nor does it help to damage one: what replaces a file is another file."""
    epochs = [tmp_path / f"{n}.zarr" for n in range(3)]
    for number, path in enumerate(epochs):
        save(path, state(number), epochs[number - 1] if number else None)
    files.remove(epochs[gone])
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(p.name for p in epochs if p != epochs[gone])
    for number, path in enumerate(epochs):
        if number != gone:
            assert holds(path, state(number))


def test_a_chain_of_epochs_shares_what_the_first_wrote(tmp_path: Path) -> None:
    base: Path | None = None
    for number in range(5):
        path = tmp_path / f"{number}.zarr"
        save(path, {"fixed": state()["w0"], "moving": state(number)["w1"]}, base, durable=False)
        base = path
    assert (tmp_path / "4.zarr" / "fixed" / "c.3.0").stat().st_nlink == 5


# -- where nothing can be shared


def refuse_links(monkeypatch: pytest.MonkeyPatch, code: int) -> list[int]:
    calls: list[int] = []

    def link(*_: Any, **__: Any) -> None:
        calls.append(code)
        raise OSError(code, os.strerror(code))

    monkeypatch.setattr(dirlinks.os, "link", link)
    monkeypatch.setattr(refusals, "_warned", set())
    return calls


@pytest.mark.parametrize("code", [errno.EXDEV, errno.EPERM, errno.EOPNOTSUPP])
def test_where_there_are_no_links_all_is_written_and_that_is_said_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    save(tmp_path / "1.zarr", state())
    calls = refuse_links(monkeypatch, code)
    with pytest.warns(
        RuntimeWarning, match=r"no hard links to it .*; unchanged chunks are written anew"
    ) as told:
        save(tmp_path / "2.zarr", state(), tmp_path / "1.zarr")
    assert len(told) == 1
    assert len(calls) <= THREADS
    save(tmp_path / "3.zarr", state(), tmp_path / "1.zarr")
    assert not shared(tmp_path / "3.zarr", tmp_path / "1.zarr")
    assert holds(tmp_path / "2.zarr", state())


@pytest.mark.parametrize("code", [errno.EMLINK, errno.ENOENT, errno.EIO])
def test_a_file_that_cannot_be_linked_is_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    save(tmp_path / "1.zarr", state())
    calls = refuse_links(monkeypatch, code)
    save(tmp_path / "2.zarr", state(), tmp_path / "1.zarr")
    assert len(calls) == 110
    assert holds(tmp_path / "2.zarr", state())


def rewrite(path: Path, change: Callable[[bytes], bytes]) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(change(data))


@pytest.mark.parametrize(
    "change",
    [
        lambda data: data[:-5],
        lambda data: data + b"\0",
        lambda data: b"",
        lambda data: data[:-1] + bytes([data[-1] ^ 1]),
    ],
    ids=["short", "long", "empty", "other checksum"],
)
def test_a_chunk_that_was_changed_is_not_linked(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    save(one, state())
    rewrite(one / "w3" / "c.4.0", change)
    (one / "w5" / "c.0.0").unlink()
    rewrite(one / "w7" / "zarr.json", change)
    save(two, state(), one)
    mine = inodes(two)
    assert mine.keys() - shared(two, one) == {"zarr.json", "w3/c.4.0", "w5/c.0.0", "w7/zarr.json"}
    assert holds(two, state())


def test_a_link_in_the_place_of_a_chunk_is_not_followed(tmp_path: Path) -> None:
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    save(one, state())
    (one / "w3" / "c.4.0").rename(tmp_path / "elsewhere")
    (one / "w3" / "c.4.0").symlink_to(tmp_path / "elsewhere")
    save(two, state(), one)
    assert not (two / "w3" / "c.4.0").is_symlink()
    assert holds(two, state())
    assert not verify(one).ok


@pytest.mark.parametrize("what", ["missing", "zip", "no database", "bad root", "empty", "later version"])
def test_an_earlier_database_of_no_use_is_told_and_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(refusals, "_warned", set())
    base = tmp_path / "base.zarr"
    if what == "zip":
        write_database(base, state(), db_type="zarr.zip")
    elif what == "no database":
        base.mkdir()
        (base / "zarr.json").write_text("{}")
    elif what == "empty":
        base.mkdir()
    elif what != "missing":
        save(base, state())
        old, new = (b'"run":""', b'"run":"x"') if what == "bad root" else (b'"format":2', b'"format":3')
        rewrite(base / "zarr.json", lambda data: data.replace(old, new))
    with pytest.warns(RuntimeWarning, match="nothing can be shared with an earlier database"):
        save(tmp_path / "2.zarr", state(), base)
    assert holds(tmp_path / "2.zarr", state())


# -- damage of this container only


def test_what_does_not_belong_there_is_found(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    save(path, {"w": np.arange(3)})
    # The last ones are what other formats leave behind.
    strange = (
        ".DS_Store",
        "w/c.1",
        "w/.nfs1",
        "other/zarr.json",
        ".zgroup",
        "w/.zarray",
        "w/0",
        "manifest.ocdbt",
    )
    for place in strange:
        (path / place).parent.mkdir(exist_ok=True)
        (path / place).write_bytes(b"x")
        named = {fault.place for fault in verify(path).faults}
        assert named == {place.removesuffix("/zarr.json")}
        assert jobcore.load(path)["w"].tolist() == [0, 1, 2]
        files.remove(path / "other" if place.startswith("other") else path / place)
    assert verify(path).ok


def test_a_folder_or_a_pipe_in_the_place_of_a_chunk_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    save(path, {"w": np.arange(3)})
    for make in (Path.mkdir, os.mkfifo):
        (path / "w" / "c.0").unlink()
        make(path / "w" / "c.0")
        with pytest.raises(FormatError, match=r"blob 'w', chunk 0"):
            jobcore.load(path)
        assert {fault.blob for fault in verify(path).faults} == {"w"}
        files.remove(path / "w" / "c.0")
        (path / "w" / "c.0").touch()


def test_a_hash_that_is_not_that_of_the_chunk_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Otherwise a later epoch would be linked to bytes that it does not have."""

    class Wrong:
        def __init__(self, *place: int) -> None:
            self._files = ChunkFiles(*place)
            self.folder, self.file = self._files.folder, self._files.file

        def chunk(self, *data: Any) -> tuple[int, bytes, int]:
            found, digest, fd = self._files.chunk(*data)
            return found, bytes([digest[0] ^ 1]) + digest[1:], fd

    monkeypatch.setattr(dirwriter, "ChunkFiles", Wrong)
    save(tmp_path / "x.zarr", {"w": np.arange(3)})
    (fault,) = verify(tmp_path / "x.zarr").faults
    assert fault.blob == "w"
    assert "expected the hash" in fault.message


def test_the_root_proves_itself(tmp_path: Path) -> None:
    path = tmp_path / "x.zarr"
    digest = save(path, {"w": np.arange(3)}).digest
    root = path / "zarr.json"
    rewrite(root, lambda data: data.replace(b'"w"', b'"v"'))
    with pytest.raises(ChecksumError, match=f"root document: expected SHA-256 {digest[7:]}, found"):
        jobcore.load(path)
    rewrite(root, lambda data: b" " + data)
    with pytest.raises(FormatError, match="expected one that begins with its own SHA-256"):
        jobcore.load(path)


def test_a_directory_that_is_no_database_says_what_it_is(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "some" / "x").mkdir(parents=True)
    (tmp_path / "group").mkdir()
    (tmp_path / "group" / ".zgroup").touch()
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "generation.1.json").touch()
    expected = {
        "empty": "an empty dir",
        "some": "a directory",
        "group": "Zarr group",
        "run": "a run directory",
    }
    for name, text in expected.items():
        with pytest.raises(FormatError, match=f"expected a jobcore database .*found .*{text}"):
            jobcore.load(tmp_path / name)


# -- replacing


def test_a_directory_is_replaced_in_one_step(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "x.zarr"
    save(path, state())
    kept = tmp_path / "kept.zarr"
    save(kept, state(), path)
    save(path, state(1), path, overwrite=True)
    assert holds(path, state(1))
    assert holds(kept, state())
    assert sorted(p.name for p in tmp_path.iterdir()) == ["kept.zarr", "x.zarr"]
    monkeypatch.setattr(publishing, "_exclusive_rename", lambda: None)
    with pytest.raises(
        SaveError, match="cannot exchange two directories in one step; remove the old one first"
    ):
        save(path, state(2), overwrite=True)
    assert holds(path, state(1))
    assert len(list(tmp_path.iterdir())) == 2


def test_a_directory_that_is_no_database_is_never_replaced(tmp_path: Path) -> None:
    (tmp_path / "x.zarr").mkdir()
    (tmp_path / "x.zarr" / "mine").touch()
    with pytest.raises(SaveError, match=r"[Ii]s a directory"):
        save(tmp_path / "x.zarr", state(), overwrite=True)
    assert (tmp_path / "x.zarr" / "mine").exists()


def test_without_an_exclusive_rename_a_claim_keeps_others_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(publishing, "_exclusive_rename", lambda: None)
    monkeypatch.setattr(refusals, "_warned", {"claim"})
    save(tmp_path / "x.zarr", state())
    assert holds(tmp_path / "x.zarr", state())
    with pytest.raises(SaveError, match="exists"):
        save(tmp_path / "x.zarr", state(1))
    assert [p.name for p in tmp_path.iterdir()] == ["x.zarr"]


# -- durability


@pytest.mark.parametrize("few", [0, 1000], ids=["many files", "few files"])
@pytest.mark.parametrize("whole", [True, False], ids=["file system", "one by one"])
def test_everything_is_synced_before_it_gets_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, few: int, whole: bool
) -> None:
    """Also what was linked: the earlier database need not have been durable."""
    synced: set[int] = set()
    real = {name: getattr(syncing, name) for name in ("sync_file", "sync_directory", "sync_file_system")}

    def sync(name: str, place: str | int) -> None:
        synced.add(os.fstat(place).st_ino if isinstance(place, int) else Path(place).stat().st_ino)
        real[name](place)

    def sync_all(fd: int) -> bool:
        if not whole:
            return False
        (found,) = (p for p in tmp_path.iterdir() if p.stat().st_ino == os.fstat(fd).st_ino)
        synced.update(p.stat().st_ino for p in [found, *found.rglob("*")])
        real["sync_file_system"](fd)
        return True

    for name in ("sync_file", "sync_directory"):
        monkeypatch.setattr(syncing, name, lambda place, name=name: sync(name, place))
    monkeypatch.setattr(syncing, "sync_file_system", sync_all)
    monkeypatch.setattr(dirwriter, "_FEW", few)
    one, two = tmp_path / "1.zarr", tmp_path / "2.zarr"
    save(one, state(), durable=False)
    assert not synced
    publish = publishing.publish

    def published(temporary: str, final: str) -> None:
        place = Path(temporary)
        assert {p.stat().st_ino for p in [place, *place.rglob("*")]} <= synced
        publish(temporary, final)

    monkeypatch.setattr(publishing, "publish", published)
    save(two, state(1), one)
    assert tmp_path.stat().st_ino in synced
    assert shared(two, one)


def test_no_descriptor_is_left_open(tmp_path: Path) -> None:
    before = psutil.Process().num_fds()
    save(tmp_path / "1.zarr", state())
    save(tmp_path / "2.zarr", state(1), tmp_path / "1.zarr")
    jobcore.load(tmp_path / "2.zarr")
    verify(tmp_path / "2.zarr")
    assert psutil.Process().num_fds() == before


def test_a_reader_goes_on_with_the_directory_that_it_opened(tmp_path: Path) -> None:
    save(tmp_path / "x.zarr", state())
    with jobcore.store.open_database(tmp_path / "x.zarr") as database:
        (tmp_path / "x.zarr").rename(tmp_path / "moved.zarr")
        save(tmp_path / "x.zarr", state(1))
        assert same_bits(database.read("w3"), state()["w3"])


def test_a_copy_for_later_is_not_touched_by_changes(tmp_path: Path) -> None:
    padded = np.dtype({"names": ["late"], "formats": ["<i4"], "offsets": [12], "itemsize": 20})
    for number in range(3):
        blobs = {**state(), "turned": any_bits(np.dtype(">f4"), (300, 50)).T, "none": np.zeros((0, 2))}
        blobs |= {
            "0-d": np.float64(number),
            "fields": any_bits(padded, (70, 3))[::2],
            "large": np.zeros(1 << 20),
        }
        expected = {name: np.array(value) for name, value in blobs.items() if name != "fields"}
        fields = blobs["fields"].view("V20").tobytes()
        path = tmp_path / f"{number}.zarr"
        pending = jobcore.save_async(path, blobs, chunks=POLICY)
        for array in blobs.values():
            if isinstance(array, np.ndarray):
                array.view(f"V{array.itemsize}")[...] = bytes(array.itemsize)
        pending.wait()
        found = jobcore.load(path)
        assert verify(path).ok
        assert found["fields"].tobytes() == fields
        for name, array in expected.items():
            assert same_bits(found[name], array), name


def test_a_chunk_that_changes_while_it_is_saved_spoils_no_later_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who changes an array in time gets a torn epoch; but no other epoch may be linked to the torn chunk."""
    array = np.zeros(3 << 20, "u1")
    real = dirwriter.hash128

    def hashed(data: memoryview, zeros: int = 0) -> bytes:
        found = real(data, zeros)
        array[:5] = 1
        return found

    first, one, two = (tmp_path / f"{number}.zarr" for number in range(3))
    write_database(first, {"v": np.ones(3)}, db_type="zarr")
    monkeypatch.setattr(dirwriter, "hash128", hashed)
    write_database(one, {"w": array}, db_type="zarr", base=first)
    monkeypatch.undo()
    assert array[0] == 1
    assert verify(one).ok
    write_database(two, {"w": np.zeros(3 << 20, "u1")}, db_type="zarr", base=one)
    assert holds(two, {"w": np.zeros(3 << 20, "u1")})
