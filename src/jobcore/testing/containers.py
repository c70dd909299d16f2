"""The suite that every container passes, whatever it is made of."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from jobcore._fast.counter import Counter
from jobcore.errors import (
    CheckpointNotFoundError,
    ChecksumError,
    ClosedError,
    FormatError,
    JobcoreError,
    MismatchError,
    SaveError,
    UnsupportedBlobError,
)
from jobcore.store import (
    BlobPolicy,
    Blosc,
    ChunkPolicy,
    WriteResult,
    Zstd,
    inspect,
    load,
    open_database,
    verify,
    write_database,
)
from jobcore.testing.values import NAMES, any_bits, arrays, kinds, same

__all__ = ["ContainerConformance"]

_TINY = ChunkPolicy(24, 40)
#: Bytes apart of the places that are damaged: prime, so that in time each place of each record is hit.
_STRIDE = 61


class ContainerConformance:
    """Tests of one container.

    Make a class that derives from this one, with a name that pytest collects, and set :attr:`db_type`. Each test takes
    pytest's `tmp_path`. Failures are ``AssertionError`` with a text of their own, so that nothing need be rewritten.

    Attributes
    ----------
    db_type
        Name of the container.
    suffix
        What the path of a database ends in.

    Examples
    --------
    >>> class TestDirectory(ContainerConformance):
    ...     db_type = "zarr"
    ...     suffix = ".zarr"
    """

    db_type: str
    suffix: str

    # -- what a test is made of

    def save(self, path: Path, blobs: Mapping[str, object], **options: Any) -> WriteResult:
        """Write a database of this container."""
        return write_database(path, blobs, db_type=self.db_type, **options)

    def small(self, folder: Path, *, encoded: bool = False) -> tuple[Path, dict[str, object]]:
        """Write a database of a few blobs in a few chunks, some of them encoded; give its path and its values."""
        folder.mkdir(exist_ok=True)
        path = folder / f"small{self.suffix}"
        blobs: dict[str, object] = {
            "w": any_bits(np.dtype("<f4"), (25, 3), 1),
            "Bias/b": any_bits(np.dtype(">i2"), (7,), 2),
            "steps": 5,
            "title": "größe",
            "none": np.zeros((0, 3)),
        }
        policies = {"w": BlobPolicy(codec=Zstd()), "Bias/b": BlobPolicy(codec=Blosc())} if encoded else None
        self.save(path, blobs, chunks=ChunkPolicy(96, 128), user={"lr": 0.5}, policies=policies)
        return path, {**blobs, "steps": np.asarray(5)}

    def parts(self, path: Path) -> list[Path]:
        """Give the files that a database consists of."""
        return sorted(p for p in path.rglob("*") if p.is_file()) if path.is_dir() else [path]

    # -- round trips

    def test_values_of_every_kind_come_back(self, tmp_path: Path) -> None:
        """Kinds, and their order."""
        path, values = tmp_path / f"x{self.suffix}", kinds()
        self.save(path, values)
        _expect_equal(load(path), {**values, "most": np.asarray(values["most"])})
        _expect(list(load(path)) == list(values), "the order of the blobs is kept")
        _expect_whole(path)

    def test_arrays_come_back_bit_for_bit(self, tmp_path: Path) -> None:
        """Data types, byte orders and layouts, in one chunk and in many."""
        values = dict(arrays())
        for number, chunks in enumerate((ChunkPolicy(), _TINY)):
            path = tmp_path / f"{number}{self.suffix}"
            self.save(path, values, chunks=chunks, durable=False)
            _expect_equal(load(path), values)
            _expect_whole(path)

    def test_names_are_any_text(self, tmp_path: Path) -> None:
        """Names that are special to file systems, that differ by case only, or that are very long."""
        path = tmp_path / f"x{self.suffix}"
        values: dict[str, object] = {name: np.asarray(number) for number, name in enumerate(NAMES)}
        self.save(path, values)
        _expect_equal(load(path), values)
        _expect_whole(path)

    def test_chunks_of_any_size_hold_the_same(self, tmp_path: Path) -> None:
        """Chunk policies, and arrays that need more than one write."""
        values = {"a": any_bits(np.dtype("f8"), (61, 5)), "b": any_bits(np.dtype("u1"), (1 << 20, 3))}
        for size in (1 << 13, 100_000, 1 << 19, 1 << 26):
            path = tmp_path / f"{size}{self.suffix}"
            self.save(path, values, chunks=ChunkPolicy(size // 2, size), durable=False)
            _expect_equal(load(path), values)
            _expect_whole(path)

    def test_encoded_blobs_come_back(self, tmp_path: Path) -> None:
        """Codecs of every sort, beside blobs that are stored as they are; less is stored where it can be."""
        values = dict(arrays())
        codecs: list[Zstd | Blosc] = [Zstd(), Blosc(), Blosc("lz4", 5, "shuffle")]
        for number, codec in enumerate(codecs):
            policies = {name: BlobPolicy(_TINY, codec) for name in list(values)[number % 2 :: 2]}
            path = tmp_path / f"{number}{self.suffix}"
            self.save(path, values, policies=policies, durable=False)
            _expect_equal(load(path), values)
            _expect_whole(path)
        flat = {"zeros": np.zeros((1 << 20, 3)), "bytes": any_bits(np.dtype("u1"), (1 << 20,))}
        path = tmp_path / f"flat{self.suffix}"
        self.save(path, flat, policies={"*": BlobPolicy(codec=Zstd())}, durable=False)
        _expect_equal(load(path), flat)
        zeros = np.empty_like(flat["zeros"])
        _expect_equal(load(path, ["zeros"], {"zeros": zeros}), {"zeros": flat["zeros"]})
        with open_database(path) as database:
            _expect_equal({"rows": database.read("bytes", slice(7, 99))}, {"rows": flat["bytes"][7:99]})
        _expect(inspect(path).size_bytes < 2 << 20, "zeros take little room")

    def test_arrays_that_share_memory_do_so_after_a_load(self, tmp_path: Path) -> None:
        """Views of every sort are stored once, told by `inspect`, and loaded as views, alone or into other arrays."""
        for number, codec in enumerate((None, Zstd())):
            path = tmp_path / f"{number}{self.suffix}"
            w = any_bits(np.dtype("<i4"), (40, 6), 1)
            values = {
                "turned": w.T,
                "w": w,
                "tied": w,
                "rows": w[7:9],
                "backwards": w[::-3, ::2],
                "b": w[0].copy(),
            }
            self.save(path, values, chunks=_TINY, policies={"w": BlobPolicy(_TINY, codec)})
            _expect_equal(load(path), values)
            _expect_whole(path)
            told = {blob.name: blob.alias_of for blob in inspect(path).blobs}
            views = {"turned", "tied", "rows", "backwards"}
            _expect(told == {name: "w" if name in views else None for name in values}, f"found views: {told}")
            found = load(path)
            found["w"][8, 0] ^= 1
            changed = w.copy()
            changed[8, 0] ^= 1
            _expect_equal(
                {name: found[name] for name in ("turned", "tied", "rows")},
                {"turned": changed.T, "tied": changed, "rows": changed[7:9]},
                "after a change of their base",
            )
            _expect_equal(load(path, ["backwards"]), {"backwards": w[::-3, ::2]}, "loaded alone")
            into = {name: np.zeros_like(value) for name, value in values.items()}
            load(path, into=into)
            _expect_equal(into, values, "into arrays that share nothing")
            self.save(path, values, share=False, overwrite=True)
            _expect_equal(load(path), values, "stored singly")
            _expect(not any(blob.alias_of for blob in inspect(path).blobs), "share=False stores no views")

    def test_no_blob_at_all_is_a_database(self, tmp_path: Path) -> None:
        """An empty database is whole."""
        path = tmp_path / f"x{self.suffix}"
        written = self.save(path, {})
        _expect(load(path) == {}, "an empty database loads")
        _expect(inspect(path).digest == written.digest, "its digest is the one that was given")
        _expect_whole(path)

    def test_what_was_said_of_the_database_comes_back(self, tmp_path: Path) -> None:
        """Metadata, size and digest."""
        path = tmp_path / f"x{self.suffix}"
        said = {"run": "r", "node": "trainer:0", "epoch": 3, "generation": 2, "user": {"a": [1, None]}}
        written = self.save(path, {"w": np.eye(3)}, stop={"met": True}, skipped=[("x", "transient")], **said)
        info = inspect(path)
        _expect({key: getattr(info, key) for key in said} == said, f"metadata are kept, found {info}")
        _expect(info.stop == {"met": True} and info.skipped == (("x", "transient"),), "and so is the rest")
        _expect(info.container == self.db_type, f"the container says its name, found {info.container!r}")
        size = sum(part.stat().st_size for part in self.parts(path))
        _expect(
            written.size_bytes == info.size_bytes == size, f"its size is {size}, found {written} and {info}"
        )

    def test_equal_input_gives_equal_bytes(self, tmp_path: Path) -> None:
        """The digest depends on nothing but what was saved."""
        values = {"w": any_bits(np.dtype("f4"), (100, 7)), "s": {"a": 1}}
        digests = {self.save(tmp_path / f"{n}{self.suffix}", values).digest for n in range(3)}
        other = self.save(tmp_path / f"other{self.suffix}", {**values, "s": {"a": 2}}).digest
        _expect(
            len(digests) == 1 and other not in digests, f"expected one digest, found {digests} and {other}"
        )

    # -- loading

    def test_arrays_are_filled_in_place(self, tmp_path: Path) -> None:
        """Destinations of any layout, and counters."""
        path, values = self.small(tmp_path)
        wide = np.zeros((50, 6), "<f4")
        into = {"w": wide[::2, ::2], "Bias/b": np.zeros(7, ">i2")}
        load(path, names=list(into), into=into)
        _expect_equal(into, {name: values[name] for name in into})
        _expect(not wide[1::2].any() and not wide[:, 1::2].any(), "nothing else is touched")
        counter = Counter(3)
        self.save(path, {"n": counter}, overwrite=True)
        counter.count_up()
        load(path, into={"n": counter})
        _expect(counter.retrieve() == 3, "a counter is set in place")

    def test_some_blobs_can_be_loaded_and_missing_ones_are_named(self, tmp_path: Path) -> None:
        """Names in any order; those that are not there are told together."""
        path, values = self.small(tmp_path)
        found = load(path, ["title", "w"])
        _expect_equal(found, {name: values[name] for name in ("title", "w")})
        message = str(_raised(MismatchError, lambda: load(path, ["w", "gone", "lost"])))
        _expect("'gone'" in message and "'lost'" in message, f"expected both names, found: {message}")

    def test_several_threads_load_from_one_database(self, tmp_path: Path) -> None:
        """And after `close` it is an error that says so."""
        path = tmp_path / f"x{self.suffix}"
        values = {str(n): any_bits(np.dtype("i4"), (300, 1000), n) for n in range(4)}
        self.save(path, values, chunks=ChunkPolicy(1 << 18, 1 << 19), durable=False)
        with open_database(path) as database, ThreadPoolExecutor(4) as pool:
            for found in pool.map(lambda _: database.load(), range(8)):
                _expect_equal(found, values)
        _raised(ClosedError, database.load)

    def test_a_database_can_be_moved(self, tmp_path: Path) -> None:
        """Nothing in it depends on where it lies."""
        path, values = self.small(tmp_path)
        moved = path.rename(tmp_path / "moved")
        _expect_equal(load(moved), values)
        _expect_whole(moved)

    # -- saving

    def test_nothing_is_replaced_unless_asked_for(self, tmp_path: Path) -> None:
        """And what replaces it, does so as a whole."""
        path, values = self.small(tmp_path)
        _raised(SaveError, lambda: self.save(path, {"w": 1}))
        _expect_equal(load(path), values)
        self.save(path, {"w": "new"}, overwrite=True)
        _expect(load(path) == {"w": "new"}, "the new database is in its place")
        _expect_whole(path)
        _expect_alone(path)

    def test_a_save_that_fails_leaves_nothing(self, tmp_path: Path) -> None:
        """Values that cannot be stored are named before anything is written; a missing directory is told."""
        path = tmp_path / f"x{self.suffix}"
        message = str(_raised(UnsupportedBlobError, lambda: self.save(path, {"bad": object(), "w": 1})))
        _expect("'bad'" in message, f"expected the name of the blob, found: {message}")
        _raised(SaveError, lambda: self.save(tmp_path / "no" / f"x{self.suffix}", {"w": 1}))
        _expect(not list(tmp_path.iterdir()), "nothing is left behind")

    def test_what_was_written_can_be_read_back_before_it_is_published(self, tmp_path: Path) -> None:
        """The option `verify`."""
        path = tmp_path / f"x{self.suffix}"
        self.save(path, kinds(), verify=True)
        _expect_whole(path)
        _expect_alone(path)

    # -- damage

    def test_a_database_with_another_digest_is_refused(self, tmp_path: Path) -> None:
        """One that was exchanged for another is whole, but not the one that was asked for."""
        path, values = self.small(tmp_path)
        digest = self.save(tmp_path / f"other{self.suffix}", values).digest
        _raised(ChecksumError, lambda: open_database(path, digest=digest))
        _expect(not verify(path, digest=digest).ok, "verify finds another digest")
        _expect(verify(path, digest=inspect(path).digest).ok, "and its own one good")

    def test_every_damaged_byte_is_found(self, tmp_path: Path) -> None:
        """A flipped bit anywhere is a fault; a load gives the right values or an error, never wrong ones."""
        for encoded in (False, True):
            self._damage_bytes(*self.small(tmp_path / str(encoded), encoded=encoded))

    def _damage_bytes(self, path: Path, values: dict[str, object]) -> None:
        for part in self.parts(path):
            whole = part.read_bytes()
            places = {*range(0, len(whole), _STRIDE), len(whole) - 1}
            for at in sorted(places):
                with _changed(part, whole[:at] + bytes([whole[at] ^ 1 << at % 8]) + whole[at + 1 :]):
                    self._expect_damaged(path, values, f"{part.name}, byte {at} of {len(whole)}")

    def test_a_file_that_is_cut_short_or_longer_is_found(self, tmp_path: Path) -> None:
        """Of every file of the database."""
        path, values = self.small(tmp_path, encoded=True)
        for part in self.parts(path):
            whole = part.read_bytes()
            for data in (whole[:-1], whole[: len(whole) // 2], b"", whole + b"\0", whole + whole):
                with _changed(part, data):
                    self._expect_damaged(
                        path, values, f"{part.name} of {len(data)} and not {len(whole)} bytes"
                    )

    def test_a_file_that_is_missing_is_found(self, tmp_path: Path) -> None:
        """A chunk that is not there must never be read as zeros."""
        path, values = self.small(tmp_path)
        for part in self.parts(path):
            hidden = part.rename(tmp_path / "hidden")
            self._expect_damaged(path, values, f"{part.name} missing")
            hidden.rename(part)
        _expect_whole(path)

    def test_damage_is_told_by_the_name_of_the_blob(self, tmp_path: Path) -> None:
        """And all other blobs still load."""
        path, values = self.small(tmp_path)
        for name in ("w", "Bias/b"):
            array = values[name]
            assert isinstance(array, np.ndarray)
            wanted = array.tobytes()[-14:]
            (part,) = [part for part in self.parts(path) if wanted in part.read_bytes()]
            whole = part.read_bytes()
            at = whole.index(wanted) + 3
            with _changed(part, whole[:at] + bytes([whole[at] ^ 255]) + whole[at + 1 :]):
                hurt = {fault.blob for fault in verify(path).faults}
                _expect(hurt == {name}, f"expected faults of {name!r} only, found {hurt}")
                message = str(_raised(ChecksumError, partial(load, path, [name])))
                _expect(repr(name) in message, f"expected {name!r} in the error, found: {message}")
                others = {other: value for other, value in values.items() if other != name}
                _expect_equal(load(path, list(others)), others)

    def _expect_damaged(self, path: Path, values: dict[str, object], what: str) -> None:
        try:
            _expect(bool(verify(path).faults), f"{what}: expected a fault, found none")
        except CheckpointNotFoundError:
            _expect(not path.exists(), f"{what}: expected faults of what is there, found it called missing")
        with contextlib.suppress(FormatError, CheckpointNotFoundError):
            _expect_equal(load(path), values, what)


def _expect(good: bool, what: str) -> None:
    if not good:
        raise AssertionError(what)


def _expect_equal(found: Mapping[str, object], expected: Mapping[str, object], what: str = "") -> None:
    _expect(
        found.keys() == expected.keys(), f"{what} expected the blobs {list(expected)}, found {list(found)}"
    )
    for name, value in expected.items():
        if not same(found[name], value):
            text = f"expected {value!r:.300}, found {found[name]!r:.300}"
            raise AssertionError(f"{what} {name!r:.80}: {text}")


def _expect_whole(path: Path) -> None:
    faults = verify(path).faults
    _expect(not faults, f"expected a whole database, found: {'; '.join(map(str, faults))}")


def _expect_alone(path: Path) -> None:
    beside = [other.name for other in path.parent.iterdir() if other != path]
    _expect(not beside, f"expected nothing beside the database, found {beside}")


def _raised(kind: type[JobcoreError], call: Callable[[], object]) -> JobcoreError:
    try:
        call()
    except kind as error:
        return error
    raise AssertionError(f"expected {kind.__name__}, found no error")


@contextlib.contextmanager
def _changed(part: Path, data: bytes) -> Iterator[None]:
    """Put other bytes into a file, for a time; as a new file, since the old one may be shared or read-only."""
    whole = part.read_bytes()
    part.unlink()
    part.write_bytes(data)
    try:
        yield
    finally:
        part.unlink()
        part.write_bytes(whole)
