"""The commit log of a run directory: claims, records, and what they add up to.

Nothing here is ever replaced or rewritten. A claim and a record are each published, complete and synced, by a call
that fails when the name exists. See ``docs/reference/run-directory.md``.
"""

from __future__ import annotations

import contextlib
import datetime
import os
import platform
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, TypeVar

from jobcore._fast.descriptor import Descriptor
from jobcore.checkpoint import paths
from jobcore.checkpoint.folder import listing, newest, saving_to
from jobcore.checkpoint.history import History, LogFault
from jobcore.checkpoint.lineage import Claim, EpochRecord, EpochRef, NodeEntry, chain
from jobcore.checkpoint.paths import RunDirectory
from jobcore.checkpoint.reading import ANOTHER_EPOCH, patiently
from jobcore.checkpoint.sealed import open_sealed, seal
from jobcore.errors import (
    FormatError,
    ReadError,
    SaveError,
    SupersededError,
    VersionError,
)
from jobcore.store import files, names, open_database, publishing

__all__ = ["CommitLog"]

_T = TypeVar("_T")


class CommitLog:
    """Reader and writer of one run directory's claims and records.

    Parameters
    ----------
    directory
        Where they are.

    Notes
    -----
    Safe to use from many processes on one directory: every change is the creation of a file that must not
    exist.
    """

    def __init__(self, directory: RunDirectory) -> None:
        self.directory = directory

    def read(self, epoch: int | None = None, *, tolerant: bool = False) -> History:
        """Read all claims and records. A directory that does not exist is an empty history.

        Parameters
        ----------
        epoch
            The only epoch that matters: a record of another one that cannot be read now is a fault, like one that is
            damaged.
        tolerant
            Whether all that cannot be read now are faults. That will do for showing what there is; a run that went on
            from the latest epoch of such a history might supersede epochs that are whole.

        Raises
        ------
        VersionError
            A newer version of this library wrote one of them.
        ReadError
            The directory, or one of them, cannot be read now, which says nothing about what it holds.
        CheckpointNotFoundError
            It is no directory.
        """
        root = self.directory.path
        claims: list[Claim] = []
        records: list[EpochRecord] = []
        faults: list[LogFault] = []
        there = patiently(root, lambda: listing(root))
        for name in there:
            if (generation := paths.parse_claim(name)) is not None:
                claim = _read(root / name, Claim.from_json, faults, None, generation, tolerant)
                if claim is not None:
                    claims.append(claim)
            elif (found := paths.parse_record(name)) is not None:
                unneeded = tolerant or epoch not in (None, found[0])
                record = _read(root / name, EpochRecord.from_json, faults, *found, unneeded)
                if record is not None:
                    records.append(record)
        counted = chain(claims, records)
        kept = {record.ref for record in counted}
        return History(
            directory=root,
            records=counted,
            superseded=tuple(sorted((r for r in records if r.ref not in kept), key=lambda r: r.ref)),
            claims=tuple(sorted(claims, key=lambda c: c.generation)),
            faults=tuple(faults),
            newest=newest(there),
        )

    def database_epochs(self) -> frozenset[int]:
        """Return the epochs of which a database is there, with a record or without one.

        Raises
        ------
        ReadError
            The directory cannot be read now.
        """
        root = self.directory.path
        parsed = map(paths.parse_database, patiently(root, lambda: listing(root)))
        return frozenset(found[1] for found in parsed if found is not None)

    def claim(self, run: str, resumed_from: EpochRef | None, after: int | None = None) -> Claim:
        """Take the next free generation.

        From this moment all epochs after `resumed_from` that earlier generations wrote, or will yet write, do
        not count.

        Parameters
        ----------
        run
            The run that goes on, or begins.
        resumed_from
            The epoch that was loaded; None from scratch.
        after
            `History.newest` of the history by which `resumed_from` was chosen: a start that came in between is
            not superseded unseen. None supersedes whatever there is.

        Raises
        ------
        SupersededError
            Another start has claimed a generation later than `after`.
        SaveError
            The directory cannot be written.
        """
        root = self.directory.path
        with saving_to(root):
            root.mkdir(parents=True, exist_ok=True)
            generation = 1 + (newest(listing(root)) if after is None else after)
            while True:
                claim = Claim(generation, run, resumed_from, owner=_owner(), created=_now())
                try:
                    publishing.write_new_file(self.directory.claim(generation), _sealed(claim))
                except OSError as error:
                    taken = self.directory.claim(generation).exists()
                    # Whoever took the number may have swept our temporary file away. And where files are published
                    # by a claim file, one left over from a crash takes the number as well.
                    if not taken and not isinstance(error, FileExistsError):
                        raise
                    if taken and after is not None:
                        raise SupersededError(
                            f"expected generation {generation} to be free in {root}, found it claimed",
                            hint="another process has started this run meanwhile: let it go on, or start again",
                        ) from error
                    generation += 1
                    continue
                return claim

    def check_current(self, claim: Claim) -> None:
        """Make sure that no other start has taken over, as far as one look tells.

        It is for not writing in vain: `commit` looks again, and also whether the claim is still the one that was made.

        Raises
        ------
        SupersededError
            One has, by a later generation.
        SaveError
            The directory cannot be looked at.
        """
        with saving_to(self.directory.path):
            self._check_later(claim)

    def _check_current(self, claim: Claim) -> None:
        self._check_later(claim)
        # Another start has the same generation where the directory was emptied meanwhile.
        own = self.directory.text(paths.claim_name(claim.generation))
        if not _may_be(own, claim):
            raise self._superseded(claim, own)

    def _check_later(self, claim: Claim) -> None:
        later = self.directory.text(paths.claim_name(claim.generation + 1))
        if _is_there(later):
            raise self._superseded(claim, later)

    def _superseded(self, claim: Claim, found: str) -> SupersededError:
        return SupersededError(
            f"expected generation {claim.generation} to be the newest in {self.directory.path} and to be of "
            f"{claim.owner}, found {os.path.basename(found)} of another start",  # noqa: PTH119 - plain text
            hint="another process has resumed this run; let that one go on and stop this one",
        )

    def commit(
        self,
        claim: Claim,
        epoch: int,
        nodes: Mapping[str, NodeEntry],
        stop: Mapping[str, Any],
        *,
        databases: Sequence[publishing.Part] = (),
        apart: bool = False,
    ) -> EpochRecord:
        """Publish the record of an epoch: the moment at which it exists.

        Parameters
        ----------
        claim
            The right to do so.
        epoch, nodes, stop
            What is recorded.
        databases
            Those that have no names yet: they get them with the record.
        apart
            Whether those names are safe before the record gets its own.

        Raises
        ------
        SupersededError
            A later start has taken over.
        SaveError
            A node's database is not there as written, this epoch was committed already, or the directory cannot
            be written.
        """
        with saving_to(self.directory.path):
            return self._commit(claim, epoch, nodes, stop, databases, apart)

    def _commit(
        self,
        claim: Claim,
        epoch: int,
        nodes: Mapping[str, NodeEntry],
        stop: Mapping[str, Any],
        databases: Sequence[publishing.Part],
        apart: bool,
    ) -> EpochRecord:
        record = EpochRecord(
            epoch, claim.generation, claim.run, claim.resumed_from, dict(nodes), stop, _now()
        )
        path = self.directory.text(paths.record_name(epoch, claim.generation))

        def check() -> None:
            self._check_current(claim)
            self._check_sizes(nodes, {part.final for part in databases})

        file = publishing.NewFile(path, seal(record.to_json()))
        try:
            publishing.publish_together(
                [*databases, file], os.fspath(self.directory.path), before=check, apart=apart
            )
        except FileExistsError as error:
            raise SaveError(
                f"expected no record of epoch {epoch} yet, found {error.filename or path}",
                hint="a committed epoch is never written again; resume from an earlier epoch to redo it",
            ) from error
        except FileNotFoundError:
            # A later start has swept it away, if there is one.
            self._check_current(claim)
            raise
        return record

    def _check_sizes(self, nodes: Mapping[str, NodeEntry], unnamed: Collection[str]) -> None:
        for node, entry in nodes.items():
            path = self.directory.text(entry.file)
            if path in unnamed:
                continue
            try:
                size = files.tree_size(path)
            except FileNotFoundError:
                size = None
            if size != entry.size_bytes:
                raise SaveError(
                    f"expected {entry.size_bytes} bytes of node {node!r} in {path}, found {size}",
                    hint="something else changes files in the run directory",
                )

    def discard(self, claim: Claim, epoch: int) -> None:
        """Remove what a failed save of `epoch` left behind, so that the same epoch can be tried again.

        Raises
        ------
        SaveError
            The directory cannot be read or written.
        """
        with saving_to(self.directory.path):
            self._discard(claim, epoch)

    def _discard(self, claim: Claim, epoch: int) -> None:
        if self.directory.record(epoch, claim.generation).exists():
            return
        for name in listing(self.directory.path):
            found = paths.parse_database(name)
            if found is not None and found[1:] == (epoch, claim.generation):
                with contextlib.suppress(FileNotFoundError):
                    files.remove(self.directory.path / name)

    def sweep(self, claim: Claim) -> tuple[str, ...]:
        """Remove left-overs of interrupted saves of earlier generations, and return their names.

        Only unfinished files under temporary names, and databases of epochs that have no record at all, readable or
        not, of generations older than `claim`: newer ones are being written by a later start. What cannot be removed
        stays.

        Raises
        ------
        SaveError
            The directory cannot be read.
        """
        root = self.directory.path
        with saving_to(root):
            there = listing(root)
        recorded = {paths.parse_record(name) for name in there}
        removed = []
        for name in there:
            generation, database = paths.parse_temporary(name), paths.parse_database(name)
            if database is not None and database[1:] not in recorded and _holds(root / name, database):
                generation = database[2]
            # Of this generation nothing is being written yet, except by starts that wanted its number too.
            if generation is not None and generation <= claim.generation:
                with contextlib.suppress(OSError):
                    if not _is_foreign(root / name):
                        files.remove(root / name)
                        removed.append(name)
        return tuple(removed)


def _is_foreign(path: Path) -> bool:
    # Of what is left over, only a database is ever a directory.
    return ".zarr" not in path.name and path.is_dir()


def _is_there(path: str) -> bool:
    try:
        os.stat(path)  # noqa: PTH116 - plain text, for this is done twice in an epoch
    except (FileNotFoundError, NotADirectoryError):
        return False
    return True


def _may_be(path: str, claim: Claim) -> bool:
    """Tell whether a file is this claim, or was: one that is gone or damaged is nobody else's."""
    try:
        expected = _sealed(claim)
        # Nothing here makes an object of a file: this is done in each epoch.
        with Descriptor(path, os.O_RDONLY | os.O_CLOEXEC) as number:
            if os.read(number, len(expected) + 1) == expected:
                return True
        return Claim.from_json(open_sealed(Path(path)), path) == claim
    except (FormatError, OSError):
        return True


def _holds(path: Path, named: tuple[str, int, int]) -> bool:
    """Tell whether a file is the database that its name says; people give such names to files of their own."""
    try:
        with open_database(path) as database:
            info = database.info
    except (FormatError, OSError):
        return False
    return bool(info.node) and (names.escape(info.node), info.epoch, info.generation) == named


def _read(
    path: Path,
    convert: Callable[[Mapping[str, Any], str], _T],
    faults: list[LogFault],
    epoch: int | None,
    generation: int,
    tolerant: bool,
) -> _T | None:
    try:
        instead = "" if epoch is None else ANOTHER_EPOCH
        pauses = () if tolerant else None
        value = patiently(path, lambda: convert(open_sealed(path), str(path)), pauses, instead=instead)
    except VersionError:
        raise
    except ReadError as error:
        if not tolerant:
            raise
        faults.append(LogFault(str(path), error.message, epoch, generation, unread=True))
        return None
    except (FormatError, OSError) as error:
        faults.append(LogFault(str(path), str(error), epoch, generation))
        return None
    named = (getattr(value, "epoch", None), getattr(value, "generation", None))
    if named != (epoch, generation):
        # A record copied under another name would otherwise bring back an epoch that is not there.
        faults.append(LogFault(str(path), f"holds epoch and generation {named}", epoch, generation))
        return None
    return value


@lru_cache(maxsize=8)
def _sealed(claim: Claim) -> bytes:
    return seal(claim.to_json())


def _owner() -> str:
    return f"{platform.node()}:{os.getpid()}"


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="milliseconds")
