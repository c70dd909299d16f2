"""What both checkpoint managers are: builders of tasks, and the host side of the commit protocol."""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any

from jobcore.checkpoint import steps
from jobcore.checkpoint.background import PendingCommit
from jobcore.checkpoint.core import ManagerCore, PartialLoad
from jobcore.checkpoint.lineage import Claim, EpochRecord, NodeEntry
from jobcore.checkpoint.log import CommitLog
from jobcore.checkpoint.paths import RunDirectory, check_epoch, node_names
from jobcore.checkpoint.pending import Pending, Run, result_of
from jobcore.checkpoint.reading import is_there
from jobcore.checkpoint.saves import SavePlan, commit_save
from jobcore.errors import CheckpointNotFoundError, NotRunError, SupersededError
from jobcore.graph import BlobReference
from jobcore.runtime import Session
from jobcore.store import BackgroundSaver
from jobcore.tasks import Node, Task, TaskGroup

__all__ = ["Manager"]

_log = logging.getLogger("jobcore.checkpoint")


class Manager(ManagerCore):
    """Builds the tasks that list, save and load the blobs of nodes, and commits epochs.

    Use `CheckpointManager` for one node and `MultiNodeCheckpointManager` for several; both have the
    methods described here.

    Parameters
    ----------
    db_prefix
        The run directory; made when it is not there.
    db_type
        The container: ``zarr.zip``, one file, or ``zarr``, a directory whose unchanged chunks are links.
    metadata_handler
        Told about epochs and asked which one to resume.
    include, exclude
        Names of blobs, or a predicate on the name, to choose what is saved. By default every blob that the node's
        workspace itself holds, except transient ones.
    background
        Whether what `save` returns only copies the blobs, so that training goes on while they are written.
    policies
        What becomes of single blobs, as for `jobcore.save`; a name that a node does not have is no error there.
    share
        Whether arrays that share memory are stored once, as for `jobcore.save`.

    Notes
    -----
    A save is two steps: the group that `save` returns writes one database per node, and `commit` publishes the
    record that makes the epoch exist. `JobRunner` does both. With `background`, `commit` waits until the databases are
    written, and `commit_in_background` does not. A manager may be used by one thread at a time.
    """

    def init(
        self,
        nodes: Sequence[str | Node] | None = None,
        retrieve_from_epoch: int | None = None,
        path_prefix: str | os.PathLike[str] | None = None,
        path_type: str | None = None,
        *,
        record: EpochRecord | None = None,
    ) -> Task | TaskGroup:
        """Begin a run of this manager, and return what lists the blobs.

        Fresh: the tasks check that every blob can be stored, by name, before anything is trained. Resuming: they read
        the names that the epoch holds.

        Parameters
        ----------
        nodes
            Names of the nodes to checkpoint.
        retrieve_from_epoch
            The epoch to resume.
        path_prefix, path_type
            As for `set_params`.
        record
            The record of that epoch, from a `History` of the same directory; without it the directory is read for it.

        Raises
        ------
        ValueError
            The nodes do not fit this manager.
        CheckpointNotFoundError
            There is no such epoch.
        """
        names = self._check_nodes(nodes)
        self._nodes = names
        self._move(path_prefix, path_type)
        self._replace(None)
        self._created = {}
        if retrieve_from_epoch is None:
            self._run = Run(uuid.uuid4().hex, None, self._directory)
            built = {node: steps.list_step(self._selection, self._policies) for node in names}
        else:
            record = self._record(retrieve_from_epoch, record)
            self._run = Run(record.run, record.ref, self._directory)
            self._run.newest.update(
                (node, self._directory.text(entry.file)) for node, entry in record.nodes.items()
            )
            built = {
                node: steps.stored_names_step(self._file(entry), entry)
                for node, entry in record.nodes.items()
            }
        group, self._names = self._group("checkpoint_init", built)
        return self._wrap(group)

    def begin(self, after: int | None = None) -> int:
        """Claim a generation for this run, so that it may save, and return its number.

        `save` does it when needed; calling it before the first epoch finds a directory that cannot be written before
        anything is trained. Left-overs of interrupted saves are removed.

        Parameters
        ----------
        after
            `History.newest` of the history that this run was begun by, to claim only if no other start did since.

        Raises
        ------
        SupersededError
            Another start has taken over, or this is a forked child of the process that called `init`.
        SaveError
            The run directory cannot be written.
        """
        return self._claimed("begin", after)[1].generation

    def blob_list(self, node: str | None = None) -> list[str]:
        """Return the names of the blobs that `init` listed, of one node or of all.

        Raises
        ------
        NotRunError
            What `init` returned has not run.
        """
        if not self._names:
            raise NotRunError(
                "expected init() to have run before blob_list()", hint="run what init() returns"
            )
        chosen = self._names if node is None else {node: self._names[node]}
        return list(dict.fromkeys(name for output in chosen.values() for name in result_of(output)["names"]))

    # -- saving

    def save(self, epoch: int, stop: Mapping[str, Any] | None = None) -> Task | TaskGroup:
        """Return what writes one database per node; `commit` must follow.

        It is the same for every epoch of a run, and saves the one that was asked for last.

        Parameters
        ----------
        epoch
            The epoch that has ended; 0 for the state after the init group.
        stop
            State of the stop conditions, kept in each database as well.

        Raises
        ------
        NotRunError
            `init` was not called.
        BuildError
            `epoch` is no integer of at least 0.
        SupersededError
            Another start of the run has taken over.
        SaveError
            The run directory cannot be written.
        """
        epoch = check_epoch("epoch", epoch)
        run, claim = self._claimed("save")
        directory, generation = run.directory, claim.generation
        targets = {
            node: directory.text(directory.database_name(node, epoch, generation)) for node in self._nodes
        }
        group = self._save_group(run)
        pending = Pending("checkpoint_save", epoch, targets, generation=claim.generation, stop=stop or {})
        self._replace(pending)
        run.saving = pending
        return group

    def commit(self, epoch: int, stop: Mapping[str, Any] | None = None) -> EpochRecord:
        """Publish the record of an epoch whose databases were written on every node.

        Parameters
        ----------
        epoch
            As given to `save`.
        stop
            State of the stop conditions after the epoch.

        Raises
        ------
        NotRunError
            What `save` returned has not run on every node.
        SupersededError
            Another start of the run has taken over.
        SaveError
            The record cannot be written.
        """
        return self._committer("commit", epoch, stop or {})()

    def commit_in_background(self, epoch: int, stop: Mapping[str, Any] | None = None) -> PendingCommit:
        """Publish the record of an epoch as soon as its databases are written, and return at once.

        Parameters
        ----------
        epoch, stop
            As for `commit`.

        Returns
        -------
        PendingCommit
            To wait for; it raises what `commit` would have raised.

        Raises
        ------
        NotRunError
            What `save` returned has not run on every node.
        """
        return PendingCommit(epoch, self._committer("commit_in_background", epoch, stop or {}))

    def _committer(self, method: str, epoch: int, stop: Mapping[str, Any]) -> Callable[[], EpochRecord]:
        run, pending = self._running(method), self._pending
        claim = run.claim
        if claim is None or pending is None or pending.action != "checkpoint_save" or pending.epoch != epoch:
            raise NotRunError(
                f"expected save({epoch}) to have run before {method}({epoch})",
                hint="run what save() returns first",
            )
        done = pending.results()
        missing = [node for node in self._nodes if node not in done]
        if missing:
            raise NotRunError(
                f"expected epoch {epoch} to be saved on every node, found it missing on {missing}"
            )

        return partial(commit_save, run, claim, pending, stop)

    def discard(self, epoch: int) -> None:
        """Remove what a failed save of `epoch` left behind; a committed epoch is never touched."""
        run, pending = self._running("discard"), self._pending
        if pending is not None and pending.epoch == epoch:
            pending.withdraw()
        if run.claim is not None:
            CommitLog(run.directory).discard(run.claim, epoch)

    def abandon_save(self) -> None:
        """Remove what the last save wrote, if it was not committed."""
        if self._pending is not None:
            self._pending.withdraw()

    def skipped_blobs(self) -> dict[str, tuple[tuple[str, str], ...]]:
        """Return, by node, (name, reason) of the blobs that the last save left out."""
        if self._pending is None or self._pending.action != "checkpoint_save":
            return {}
        return {
            node: tuple((name, reason) for name, reason in done["skipped"])
            for node, done in self._pending.results().items()
            if "skipped" in done
        }

    # -- loading

    def load(
        self,
        epoch: int,
        path_prefix: str | os.PathLike[str] | None = None,
        path_type: str | None = None,  # noqa: ARG002 - a member of the protocol that only handlers use
        *,
        record: EpochRecord | None = None,
    ) -> Task | TaskGroup:
        """Return what loads every blob of `epoch` on every node; all checksums are verified.

        Parameters
        ----------
        epoch
            The epoch.
        path_prefix
            Another run directory to read from, this time only.
        path_type
            Accepted for symmetry; without meaning here.
        record
            The record of the epoch, from a `History` of the same directory; without it the directory is read for it.

        Raises
        ------
        CheckpointNotFoundError
            There is no such epoch.
        MismatchError
            It was saved by other nodes.
        """
        return self._build_load("checkpoint_load", epoch, None, path_prefix, record)

    def load_blobs_from_checkpoint(
        self, blob_names: Iterable[str | BlobReference], epoch: int
    ) -> Task | TaskGroup:
        """Return what loads those of `blob_names` that `epoch` holds, on every node; others are left alone.

        `last_partial_load`, after `load_blobs_locally`, tells what was found where.
        """
        return self._build_load("checkpoint_partial_load", epoch, frozenset(map(str, blob_names)), None)

    def load_blobs_locally(
        self,
        nodes: Sequence[str | Node],
        blob_names: Iterable[str | BlobReference],
        epoch: int,
        session: Session,
    ) -> bool:
        """Load some blobs of some nodes, node by node, each into its own node's workspace.

        Returns
        -------
        bool
            False as soon as a node has no database for this epoch; what earlier nodes loaded stays. `last_partial_load`
            has the names found and missing of each node.

        Raises
        ------
        ReadError
            The record cannot be read now, or nobody can tell whether a database is there.
        TaskGroupError
            A load failed.
        """
        wanted = frozenset(map(str, blob_names))
        self.last_partial_load = {}
        self._replace(None)
        found: dict[str, PartialLoad] = {}
        timed = Pending("checkpoint_partial_load", epoch, {})
        try:
            record = self.history(epoch).get(epoch)
        except CheckpointNotFoundError as error:
            _log.warning("%s", error)
            return False
        for node in node_names(nodes):
            entry = record.nodes.get(node)
            if entry is None or not is_there(self._file(entry)):
                _log.warning("epoch %d has no database of node %r", epoch, node)
                return False
            step = steps.load_step(self._file(entry), entry, wanted, set())
            group, outputs = self._group("checkpoint_partial_load", {node: step})
            session.run(group)
            timed.paths[node] = self._directory.text(entry.file)
            timed.outputs.update(outputs)
            done = result_of(outputs[node])
            found[node] = PartialLoad(tuple(done["found"]), tuple(done["missing"]))
            self.last_partial_load = dict(found)
            self._pending = timed
        return True

    def abandon_load(self) -> Task | TaskGroup:
        """Return what removes the blobs that the last load made, for when it failed on some node."""
        built = {node: steps.remove_step(self._created.get(node, set())) for node in self._nodes}
        return self._wrap(self._group("abandon_load", built)[0])

    def check_db_exists(self, epoch: int) -> Task | TaskGroup:
        """Return what puts out, for each node, whether the epoch is complete and its database opens (a bool)."""
        try:
            nodes: Mapping[str, NodeEntry] = self.history(epoch).get(epoch).nodes
        except CheckpointNotFoundError:
            nodes = {}
        built = {
            node: steps.exists_step(self._file(nodes[node]) if node in nodes else None, nodes.get(node))
            for node in self._nodes
        }
        group, _ = self._group("check_db_exists", built)
        return self._wrap(group)

    # -- inside

    def _save_group(self, run: Run) -> Task | TaskGroup:
        """Return the tasks that save what `run` tells, which are built and compiled once."""
        key = (self._nodes, self.background, self.db_type)
        found = run.savers.get(key)
        if found is None:
            alone = len(self._nodes) == 1
            plan = SavePlan(self.db_type, self._selection, self._policies, self._share, alone)
            built = {node: plan.step(run, node, self._saver_of(node)) for node in self._nodes}
            found = run.savers[key] = self._wrap(self._group("checkpoint_save", built, outputs=False)[0])
        return found

    def _saver_of(self, node: str) -> BackgroundSaver | None:
        return self._savers.setdefault(node, BackgroundSaver()) if self.background else None

    def _replace(self, pending: Pending | None) -> None:
        if self._pending is not None:
            self._pending.withdraw()
        self._pending = pending

    def _claimed(self, method: str, after: int | None = None) -> tuple[Run, Claim]:
        """Return the run and its claim, taken now or checked to be still the newest."""
        run = self._running(method)
        if run.process != os.getpid():
            # Parent and child would write the same epochs of the same generation.
            raise SupersededError(
                f"expected process {run.process} to save to {run.directory.path}, found its child {os.getpid()}",
                hint="call init() in the child, or end it with os._exit() when its work is done",
            )
        if run.directory is not self._directory and run.directory != self._directory:
            # Epochs and generations of one directory mean nothing in another: there the run begins.
            run = self._run = Run(run.id, None, self._directory)
        log = CommitLog(run.directory)
        if run.claim is not None:
            log.check_current(run.claim)
            return run, run.claim
        run.claim = claim = log.claim(run.id, run.resumed_from, after)
        for name in log.sweep(claim):
            _log.info("removed %s, left over from an interrupted save", name)
        return run, claim

    def _build_load(
        self,
        action: str,
        epoch: int,
        names: frozenset[str] | None,
        path_prefix: str | os.PathLike[str] | None,
        given: EpochRecord | None = None,
    ) -> Task | TaskGroup:
        directory = RunDirectory.at(path_prefix, self.db_type) if path_prefix else self._directory
        record = self._record(epoch, given, directory)
        self._replace(None)
        self._created = {node: set() for node in record.nodes}
        targets = {node: directory.path / entry.file for node, entry in record.nodes.items()}
        built = {
            node: steps.load_step(targets[node], entry, names, self._created[node])
            for node, entry in record.nodes.items()
        }
        group, outputs = self._group(action, built)
        self._pending = Pending(action, epoch, {node: str(path) for node, path in targets.items()}, outputs)
        return self._wrap(group)
