"""What is done while calls fail, and what must hold afterwards; see ``driver.py``."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import shutil
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest
from layer import Call

import jobcore
from jobcore import Job, JobRunner, LocalSession, MultiNodeCheckpointManager, Node, Workspace
from jobcore.checkpoint import CommitLog, EpochRecord, History, RunDirectory, reading
from jobcore.errors import FormatError, JobcoreError, SaveError, TaskGroupError
from jobcore.store import BlobPolicy, WriteResult, Zstd, open_database, write_database
from jobcore.store.layout import ChunkPolicy

FULL = re.compile(r"its data takes [1-9][\d,]+ bytes, and [\d,]+ bytes are free.*quota")
READING = {"open", "opendir", "read", "stat", "close"}
TEMPORARY = re.compile(r"\.(?P<final>.+)\.\d+\.[0-9a-f]{8}\.tmp")
CHUNKS = ChunkPolicy(target_bytes=1 << 20, max_bytes=1 << 20)

# A file that cannot be read is tried again as often as ever, but at once.
reading.PAUSES_S = (0.0,) * len(reading.PAUSES_S)


@dataclass(slots=True)
class Ended:
    """How a point ended.

    Attributes
    ----------
    code
        The errno that was told to the library, or 0.
    lasts
        Whether everything failed from there on, so that nothing could be tidied up.
    late
        Whether the call had succeeded.
    """

    code: int = 0
    lasts: bool = False
    late: bool = False
    error: BaseException | None = None
    died: bool = False
    calls: list[Call] = field(default_factory=list)

    def word(self) -> str:
        return "death" if self.died else "well" if self.error is None else "error"

    @property
    def may_be_done(self) -> bool:
        """Whether an error or a signal came after what it was about."""
        return self.late or isinstance(self.error, KeyboardInterrupt)

    @property
    def flipped(self) -> bool:
        """Whether what was written is not what was to be written."""
        return any(call.fault == "flip" and call.name in ("write", "pwrite") for call in self.calls)

    @property
    def removal_failed(self) -> bool:
        """Whether something could not be removed, or not be found in order to be removed."""
        gone = [call.begin for call in self.calls if call.name in ("unlink", "rmdir")]
        return any(
            call.name in ("unlink", "rmdir") or (gone and call.begin > gone[0]) for call in self.struck
        )

    @property
    def struck(self) -> list[Call]:
        """The calls that had the fault."""
        return [call for call in self.calls if call.fault != "-"]


def state(seed: int, scale: int) -> dict[str, Any]:
    """Blobs of every path of the writer: large, small, strided, of each kind, and empty; `scale` / 2 + 3 MiB."""
    rng = np.random.default_rng(seed)
    return {
        "weights": rng.normal(size=(scale * 512, 256)).astype("f4"),
        "block": rng.integers(0, 256, 1 << 20, np.uint8),
        "strided": rng.normal(size=(300, 500)).T,
        **{f"layer.{number}/bias": rng.normal(size=7 * number + 1) for number in range(20)},
        "nothing": np.empty((0, 3)),
        "scalar": np.float64(rng.normal()),
        "text": f"größe {seed}",
        "raw": rng.bytes(999),
        "settings": {"seed": seed, "list": [1, None, "x"]},
        "epochs": jobcore.Counter(seed),
        "rng": np.random.default_rng(seed),
    }


def bits(value: Any) -> Any:
    """Something that is equal exactly when two values are, bit for bit."""
    if isinstance(value, (np.ndarray, np.generic)):
        array = np.asarray(value)
        return array.dtype.str, array.shape, array.tobytes()
    if isinstance(value, jobcore.Counter):
        return value.retrieve()
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    return value


def assert_equal(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == list(expected)
    wrong = [name for name in expected if bits(found[name]) != bits(expected[name])]
    assert not wrong, f"other values in {wrong}"


def tree(folder: Path) -> dict[str, bytes | None]:
    """Every file below a folder with its bytes, and every folder."""
    return {
        str(path.relative_to(folder)): None if path.is_dir() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
    }


def names_in(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


class Scenario:
    """Something done in `folder`, after which the earlier files must be whole, and the new ones whole or absent."""

    #: Whether every call that must not fail makes the whole of it fail.
    strict = True
    #: Names of calls without which it may fail or not.
    lenient: frozenset[str] = frozenset()

    def __init__(self, folder: Path, container: str, durable: bool) -> None:
        self.folder = folder
        self.container = container
        self.durable = durable
        self.before: dict[str, bytes | None] = {}

    def prepare(self) -> None:
        """Make the earlier files."""
        raise NotImplementedError

    def act(self) -> None:
        """Do it."""
        raise NotImplementedError

    def check(self, ended: Ended) -> None:
        """See that what must hold does hold."""
        raise NotImplementedError

    def restore(self) -> None:
        """Go back to the earlier files."""
        for path in self.folder.iterdir():
            if path.name not in self.before:
                remove(path)
        now = tree(self.folder)
        for name, data in self.before.items():
            if now.get(name) != data or name not in now:
                place = self.folder / name
                if data is None:
                    place.mkdir(exist_ok=True)
                else:
                    place.unlink(missing_ok=True)
                    place.write_bytes(data)

    def check_tree(self, ended: Ended, *changed: str) -> None:
        """See that the earlier files are as they were, and nothing unexplained was added.

        `changed` are the top-level names that may differ.
        """
        now = tree(self.folder)
        for name, data in self.before.items():
            if name.split("/")[0] not in changed:
                assert name in now, f"{name} is gone"
                assert now[name] == data, f"{name} changed"
        added = {name.split("/")[0] for name in now} - {name.split("/")[0] for name in self.before}
        leftovers = ended.died or ended.lasts or ended.removal_failed
        surplus = [
            name for name in added - set(changed) if not (leftovers and TEMPORARY.fullmatch(name) is not None)
        ]
        assert not surplus, f"left behind: {sorted(surplus)}"


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink()


def check_error(ended: Ended, kind: type[BaseException], place: Path) -> None:
    """See that an error is one of ours, and says which call of the system failed and where."""
    error = ended.error
    if error is None or isinstance(error, KeyboardInterrupt):
        return
    assert isinstance(error, kind), f"expected {kind.__name__}, found {type(error).__name__}: {error}"
    assert isinstance(error, JobcoreError)
    assert str(place) in str(error)
    if "could not be read back" in str(error):
        return  # which names what verify() found, in words
    cause = error.__cause__
    assert isinstance(cause, OSError), f"its cause is {cause!r}"
    looked = {call.name for call in ended.struck} <= {"close", "stat", "read"}  # at what was there before
    if ended.code and not ended.late and not looked:
        assert cause.errno == ended.code, f"its cause has errno {cause.errno}"
    if ended.code in (errno.ENOSPC, errno.EDQUOT):
        assert FULL.search(str(error)), f"not told as a full disk: {error}"
    if isinstance(error, OSError):
        assert error.errno == cause.errno
        assert str(error.filename).startswith(str(place))


def check_parts(ended: Ended, folder: Path) -> None:
    """See that an error, or each part of a group of them, is one of ours and says where."""
    waiting = [ended.error]
    while waiting:
        error = waiting.pop()
        if isinstance(error, TaskGroupError):
            waiting += [failure.error for failure in error.failures]
        elif error is not None and not isinstance(error, KeyboardInterrupt):
            assert str(folder) in str(error), f"no path in: {error}"
            assert isinstance(error, JobcoreError) or reading(error, ended), f"not one of ours: {error!r}"


def reading(error: BaseException, ended: Ended) -> bool:
    """Whether an error is one that `CommitLog.read` lets through: a file that cannot be opened or read now."""
    names = {call.name for call in ended.struck[:1]}
    return isinstance(error, OSError) and error.filename is not None and names <= READING


class SaveNew(Scenario):
    """A database where there was none, large enough to be written block by block."""

    scale = 5
    options: ClassVar[dict[str, Any]] = {}

    def prepare(self) -> None:
        self.place = self.folder / f"new.{self.container}"
        self.earlier = self.folder / f"earlier.{self.container}"
        self.old, self.values = state(1, self.scale), state(2, self.scale)
        self.digest = self.write(self.earlier, self.old).digest
        self.before = tree(self.folder)

    def write(self, place: Path, values: dict[str, Any], **options: Any) -> WriteResult:
        return write_database(place, values, db_type=self.container, chunks=CHUNKS, **options)

    def act(self) -> None:
        self.write(self.place, self.values, durable=self.durable, **self.options)

    def check(self, ended: Ended) -> None:
        check_error(ended, SaveError, self.place)
        with open_database(self.earlier, digest=self.digest) as database:
            assert_equal(database.load(), self.old)
        self.check_tree(ended, self.place.name)
        self.check_new(ended)

    def check_new(self, ended: Ended) -> None:
        there = os.path.lexists(self.place)
        if ended.word() == "well":
            assert there, "it is not there"
        elif ended.word() == "error" and not (ended.may_be_done or ended.lasts):
            assert not there, "it is there after an error"
        if there and ended.flipped:
            self.check_flipped()
        elif there:
            assert_equal(jobcore.load(self.place), self.values)
            report = jobcore.verify(self.place)
            assert report.ok, report.faults

    def check_flipped(self) -> None:
        assert not jobcore.verify(self.place).ok
        with pytest.raises(FormatError, match=re.escape(str(self.place))) as caught:
            jobcore.load(self.place)
        assert caught.value.place


class SaveSmall(SaveNew):
    """One that is written by one call."""

    scale = 1


class SaveEncoded(SaveNew):
    """One whose chunks are encoded while others are written."""

    options: ClassVar[dict[str, Any]] = {"policies": {"*": BlobPolicy(codec=Zstd())}}


class SaveVerified(SaveNew):
    """One that is read back before it gets its name."""

    options: ClassVar[dict[str, Any]] = {"verify": True}

    def check(self, ended: Ended) -> None:
        super().check(ended)
        if ended.flipped:
            assert "could not be read back: " in str(ended.error), f"a flipped bit led to {ended.error!r}"

    def check_flipped(self) -> None:
        raise AssertionError("a flipped bit was not noticed")


class SaveOver(SaveNew):
    """A database in the place of another."""

    options: ClassVar[dict[str, Any]] = {"overwrite": True}

    def prepare(self) -> None:
        super().prepare()
        if self.container == "zarr":
            # A folder is exchanged for another, which not every file system can; the old one is removed as it may be.
            self.strict, self.lenient = False, frozenset({"renameat2"})
        self.replaced = state(3, self.scale)
        self.write(self.place, self.replaced)
        self.before = tree(self.folder)

    def check_new(self, ended: Ended) -> None:
        if ended.flipped and ended.word() == "well":
            self.check_flipped()
            return
        found = jobcore.load(self.place)
        new = found["text"] == self.values["text"]
        assert_equal(found, self.values if new else self.replaced)
        if ended.word() == "well":
            assert new, "it is the old one"
        elif ended.word() == "error" and not ended.may_be_done:
            # Only a failure after it got its name may leave the new one.
            renamed = [call for call in ended.calls if call.name.startswith("rename") and call.path2]
            assert not new or any(c.path2 == str(self.place) and c.result == 0 for c in renamed)


class SaveAsync(SaveNew):
    """One that is written in the background, while the blobs change already."""

    def act(self) -> None:
        # Read-only arrays that nobody can write are not copied, so only these are to be staged.
        values = {
            name: value.copy() if isinstance(value, np.ndarray) else value
            for name, value in self.values.items()
        }
        saver = jobcore.BackgroundSaver()
        pending = saver.save(self.place, values, db_type=self.container, durable=self.durable, chunks=CHUNKS)
        for value in values.values():
            if isinstance(value, np.ndarray):
                value.fill(77)
        pending.wait()


class SaveLinked(SaveNew):
    """One that shares the chunks that did not change with an earlier one: what cannot be shared is written."""

    strict = False

    def prepare(self) -> None:
        super().prepare()
        self.values = {**self.old, "text": "new", "block": self.values["block"], "raw": self.values["raw"]}
        self.options = {"base": self.earlier}


class Load(Scenario):
    """All blobs, as new values."""

    scale = 5

    def prepare(self) -> None:
        self.place = self.folder / f"some.{self.container}"
        self.values = state(1, self.scale)
        write_database(self.place, self.values, db_type=self.container, chunks=CHUNKS)
        self.before = tree(self.folder)

    def act(self) -> None:
        self.found: dict[str, Any] = {}
        self.found = jobcore.load(self.place)

    def check(self, ended: Ended) -> None:
        error = ended.error
        if ended.word() == "well" and not ended.died:
            self.check_loaded()
        elif error is not None:
            assert isinstance(error, FormatError), f"expected a FormatError, found {error!r}"
            assert str(self.place) in str(error)
            assert error.path.startswith(str(self.place))
            assert error.place
            # What cannot be looked at is taken for something else, and told as that.
            if ended.code and ended.struck[0].name != "stat":
                assert isinstance(error.__cause__, OSError), f"its cause is {error.__cause__!r}"
                assert error.__cause__.errno == ended.code
            self.check_untouched()
        self.check_tree(ended)

    def check_loaded(self) -> None:
        assert_equal(self.found, self.values)

    def check_untouched(self) -> None:
        assert self.found == {}


class LoadMapping(Load):
    """Into arrays that are there, some of them strided, a counter and a generator."""

    names = ("weights", "block", "strided", "layer.3/bias", "epochs", "rng")

    def act(self) -> None:
        old = state(2, self.scale)
        self.into = {name: old[name] for name in self.names}
        jobcore.load(self.place, self.names, into=self.into)

    def check_loaded(self) -> None:
        assert_equal(self.into, {name: self.values[name] for name in self.names})

    def check_untouched(self) -> None:
        # Arrays may hold anything; what is put in place at the end is as it was.
        old = state(2, self.scale)
        for name in ("epochs", "rng"):
            assert bits(self.into[name]) == bits(old[name]), f"{name} changed"


class LoadWorkspace(Load):
    """Into a workspace in which some of the blobs are: of the same shape, of another, bound, and of another kind."""

    there = ("weights", "strided", "text", "epochs")

    def act(self) -> None:
        self.old = state(2, self.scale)
        self.bound = self.old["block"]
        self.workspace = Workspace()
        for name in self.there:
            self.workspace.feed(name, self.old[name])
        self.workspace.feed("scalar", np.zeros(5))
        self.workspace.bind("block", self.bound)
        self.handle = self.workspace.counter("epochs")
        jobcore.load(self.place, into=self.workspace)

    def check_loaded(self) -> None:
        names = list(self.values)
        assert sorted(self.workspace.blob_names()) == sorted(names)
        assert_equal({name: self.workspace.fetch(name) for name in names}, self.values)
        assert bits(self.bound) == bits(self.values["block"])
        assert self.handle.retrieve() == 1

    def check_untouched(self) -> None:
        assert sorted(self.workspace.blob_names()) == sorted([*self.there, "scalar", "block"])
        for name in ("text", "epochs"):
            assert bits(self.workspace.fetch(name)) == bits(self.old[name]), f"{name} changed"
        assert bits(self.workspace.fetch("scalar")) == bits(np.zeros(5))
        for name in ("weights", "strided"):
            blob = self.workspace.blob(name)
            assert blob.kind == "empty" or bits(blob.fetch()) == bits(self.old[name]), f"{name} is torn"


class InRunDirectory(Scenario):
    """Something in a run directory of one node, whose epochs 0 and 1 are committed."""

    strict = False
    node = "trainer"

    def prepare(self) -> None:
        self.epochs = {epoch: state(epoch, 5) for epoch in range(3)}
        manager = self.manager()
        with LocalSession() as session:
            session.run(manager.init([self.node]))
            manager.begin()
            for epoch in range(2):
                self.save(manager, session, epoch)
        self.claim = manager.history().claims[-1]
        self.before = tree(self.folder)

    def manager(self) -> MultiNodeCheckpointManager:
        return MultiNodeCheckpointManager(self.folder, self.container)

    def log(self) -> CommitLog:
        return CommitLog(RunDirectory.at(self.folder, self.container))

    def save(self, manager: MultiNodeCheckpointManager, session: LocalSession, epoch: int) -> None:
        workspace = session.workspace(self.node)
        for name, value in self.epochs[epoch].items():
            workspace.feed(name, value)
        session.run(manager.save(epoch))
        manager.commit(epoch)

    def check(self, ended: Ended) -> None:
        check_parts(ended, self.folder)
        history = self.log().read()
        assert history.faults == () or ended.flipped, history.faults
        for record in (*history.superseded, *history.records):
            if record.epoch < 2 or not ended.flipped:
                self.check_epoch(record, self.epochs[record.epoch])
            else:
                self.check_flipped(record)
        assert history.epochs[:2] == (0, 1), f"epochs {history.epochs}"
        self.check_earlier()
        if not ended.flipped:
            self.check_more(ended, history)

    def check_earlier(self) -> None:
        """See that no file of the earlier epochs has changed."""
        now = tree(self.folder)
        changed = [name for name, data in self.before.items() if name not in now or now[name] != data]
        assert not changed, f"changed or gone: {changed}"

    def check_flipped(self, record: EpochRecord) -> None:
        """See that nothing wrong is loaded as if it were right: the flipped bit may lie elsewhere."""
        (entry,) = record.nodes.values()
        with (
            contextlib.suppress(FormatError),
            open_database(self.folder / entry.file, digest=entry.digest) as it,
        ):
            assert_equal(it.load(), self.epochs[record.epoch])

    def check_epoch(self, record: EpochRecord, values: dict[str, Any]) -> None:
        (entry,) = record.nodes.values()
        with open_database(self.folder / entry.file, digest=entry.digest) as database:
            assert_equal(database.load(), values)
        report = jobcore.verify(self.folder / entry.file)
        assert report.ok, report.faults

    def check_more(self, ended: Ended, history: History) -> None:
        raise NotImplementedError

    def leftovers(self, history: History) -> list[str]:
        """Files that are neither part of an epoch nor a claim."""
        known = {entry.file for record in history.records for entry in record.nodes.values()}
        known |= {f"epoch.{record.epoch}.{record.generation}.json" for record in history.records}
        known |= {f"generation.{claim.generation}.json" for claim in history.claims}
        return sorted(path.name for path in self.folder.iterdir() if path.name not in known)

    def check_swept(self) -> None:
        """See that the next start removes what was left behind, and saves the epoch."""
        manager = self.manager()
        with LocalSession() as session:
            session.run(manager.init([self.node], retrieve_from_epoch=1))
            manager.begin()
            left = self.leftovers(manager.history())
            assert not left, f"not swept: {left}"
            self.save(manager, session, 2)
        history = manager.history()
        assert history.epochs == (0, 1, 2)
        self.check_epoch(history.get(2), self.epochs[2])


class Epoch(InRunDirectory):
    """A start that loads epoch 1, claims a generation, and saves and commits epoch 2."""

    def act(self) -> None:
        self.last = self.manager()
        with LocalSession() as session:
            session.run(self.last.init([self.node], retrieve_from_epoch=1))
            session.run(self.last.load(1))
            self.last.begin()
            self.save(self.last, session, 2)

    def check_more(self, ended: Ended, history: History) -> None:
        there = 2 in history.epochs
        if ended.word() == "well":
            assert there, "epoch 2 is not there"
            left = self.leftovers(history)
            assert not left or ended.removal_failed, f"left behind: {left}"
        elif ended.word() == "error" and not (ended.may_be_done or ended.lasts):
            assert not there, "epoch 2 is there after an error"
        if ended.word() == "error" and not there and self.last._run is not None:
            self.last.discard(2)
            left = self.leftovers(history)
            tidy = not (ended.lasts or isinstance(ended.error, KeyboardInterrupt))
            assert not left or not tidy or ended.removal_failed, f"left behind after discard: {left}"
        if not there:
            self.check_swept()


class Run(InRunDirectory):
    """A job runner that resumes from the newest epoch, trains two more, and saves both."""

    durations = 3
    scale = 1

    def job(self, epochs: int) -> Job:
        with Job() as job, Node(self.node):

            @job.init_group.task
            def init(ws: Workspace) -> None:
                for name, value in state(0, self.scale).items():
                    ws.feed(name, value)

            @job.epoch_group.task
            def train(ws: Workspace) -> None:
                ws.feed("strided", ws.fetch("strided") + ws.fetch("rng").normal())
                ws.fetch("epochs").count_up()

            jobcore.epoch_limiter(job, epochs)
        return job

    def train(self, epochs: int) -> None:
        runner = JobRunner(self.job(epochs), self.manager(), resume_from_epoch="latest")
        with LocalSession() as session:
            runner.train(session)

    def prepare(self) -> None:
        self.train(self.durations)
        self.epochs = {
            record.epoch: jobcore.load(self.folder / record.nodes[self.node].file)
            for record in self.log().read().records
        }
        for path in list(self.folder.iterdir()):
            remove(path)
        self.train(1)
        self.before = tree(self.folder)

    def act(self) -> None:
        self.train(self.durations)

    def check(self, ended: Ended) -> None:
        # When epoch 1 is damaged, the run goes on from epoch 0, and when it cannot be read, it ends: what counts is how
        # it all ends.
        check_parts(ended, self.folder)
        self.check_earlier()
        self.check_records(ended, first=2)
        self.train(self.durations)
        self.check_records(ended, first=0)
        history = self.log().read()
        assert history.epochs[-1] == self.durations
        assert not [name for name in names_in(self.folder) if TEMPORARY.fullmatch(name)]

    def check_records(self, ended: Ended, first: int) -> None:
        history = self.log().read()
        assert history.faults == () or ended.flipped, history.faults
        for record in (*history.records, *history.superseded):
            if record.epoch < first:
                continue
            if ended.flipped:
                self.check_flipped(record)
            else:
                self.check_epoch(record, self.epochs[record.epoch])


class RunBackground(Run):
    """The same, each epoch being written while the next one trains."""

    scale = 5

    def manager(self) -> MultiNodeCheckpointManager:
        return MultiNodeCheckpointManager(self.folder, self.container, background=True)


class Leftovers(InRunDirectory):
    """A run directory with an epoch that was not committed, and files that were never finished."""

    def prepare(self) -> None:
        super().prepare()
        path = RunDirectory.at(self.folder, self.container).database(self.node, 2, 1)
        self.unrecorded = path.name
        write_database(
            path, self.epochs[2], db_type=self.container, node=self.node, epoch=2, generation=1, chunks=CHUNKS
        )
        for final in (path.name, "epoch.2.1.json", "generation.1.json"):
            (self.folder / f".{final}.4711.0a1b2c3d.tmp").write_bytes(b"unfinished")
        self.before = tree(self.folder)
        self.kept = {name for name in self.before if not name.startswith(".")} - {self.unrecorded}

    def check(self, ended: Ended) -> None:
        if ended.error is not None:
            assert isinstance(ended.error, SaveError)
        check_parts(ended, self.folder)
        there = names_in(self.folder)
        assert {name.split("/")[0] for name in self.kept if not name.startswith(self.unrecorded)} <= there
        history = self.log().read()
        assert history.faults == ()
        assert history.epochs == (0, 1)
        for record in history.records:
            self.check_epoch(record, self.epochs[record.epoch])
        if ended.died or ended.struck:  # what could not be read or removed stays, until the next time
            self.act()
        self.check_gone(names_in(self.folder))

    def check_gone(self, there: set[str]) -> None:
        raise NotImplementedError


class Discard(Leftovers):
    """What a failed save left behind is removed."""

    def act(self) -> None:
        self.log().discard(self.claim, 2)

    def check_gone(self, there: set[str]) -> None:
        assert self.unrecorded not in there


class Sweep(Leftovers):
    """What died with its process is removed by the next start."""

    def act(self) -> None:
        self.log().sweep(self.claim)

    def check_gone(self, there: set[str]) -> None:
        left = [name for name in there if TEMPORARY.fullmatch(name) or name == self.unrecorded]
        assert not left, f"not swept: {left}"


SCENARIOS: dict[str, type[Scenario]] = {
    "save": SaveNew,
    "save_encoded": SaveEncoded,
    "save_small": SaveSmall,
    "save_verified": SaveVerified,
    "overwrite": SaveOver,
    "save_async": SaveAsync,
    "save_linked": SaveLinked,
    "load": Load,
    "load_mapping": LoadMapping,
    "load_workspace": LoadWorkspace,
    "epoch": Epoch,
    "run": Run,
    "run_background": RunBackground,
    "discard": Discard,
    "sweep": Sweep,
}
