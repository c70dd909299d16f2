"""What a manager knows and tells, apart from saving and loading: settings, paths, history, handler, timings."""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, TypeAlias

from jobcore.checkpoint import steps
from jobcore.checkpoint.handler import MetadataHandler
from jobcore.checkpoint.history import History
from jobcore.checkpoint.lineage import EpochRecord, NodeEntry
from jobcore.checkpoint.log import CommitLog
from jobcore.checkpoint.paths import RunDirectory, db_name
from jobcore.checkpoint.pending import Pending, Run
from jobcore.errors import BuildError, CheckpointNotFoundError, MismatchError, NotRunError
from jobcore.graph import BlobReference
from jobcore.store import BackgroundSaver
from jobcore.store.policies import Policies, check_policies
from jobcore.tasks import Node, Task, TaskGroup, TaskOutput, WorkspaceType

__all__ = ["EpochState", "ManagerCore", "PartialLoad"]

_log = logging.getLogger("jobcore.checkpoint")

EpochState: TypeAlias = Literal["absent", "incomplete", "complete"]
Names: TypeAlias = Callable[[str], bool] | Iterable[str] | None


@dataclass(frozen=True, slots=True)
class PartialLoad:
    """What a partial load found on one node: names loaded, and names asked for that are not stored there."""

    found: tuple[str, ...]
    missing: tuple[str, ...]


class ManagerCore:
    """The part of a manager that neither saves nor loads; see `Manager`."""

    def __init__(
        self,
        db_prefix: str | os.PathLike[str],
        db_type: str = "zarr.zip",
        metadata_handler: MetadataHandler | None = None,
        *,
        include: Names = None,
        exclude: Names = None,
        background: bool = False,
        policies: Policies | None = None,
        share: bool = True,
    ) -> None:
        if not os.fspath(db_prefix):
            raise BuildError("expected the path of a run directory as db_prefix, found an empty string")
        self.db_prefix = os.fspath(db_prefix)
        self.db_type = db_type
        self.metadata_handler = metadata_handler if metadata_handler is not None else MetadataHandler()
        self.path_prefix: str | None = None
        self.path_type: str | None = None
        self.background = background
        self._savers: dict[str, BackgroundSaver] = {}
        self._selection = steps.Selection.of(include, exclude)
        check_policies(policies)
        self._policies = policies
        self._share = share
        self._directory = RunDirectory.at(db_prefix, db_type)
        self._nodes: tuple[str, ...] = ()
        self._run: Run | None = None
        self._names: dict[str, TaskOutput] = {}
        self._pending: Pending | None = None
        self._created: dict[str, set[str]] = {}
        self.last_partial_load: Mapping[str, PartialLoad] = {}

    # -- what the two kinds of manager differ in

    def _check_nodes(self, nodes: Sequence[str | Node] | None) -> tuple[str, ...]:
        raise NotImplementedError

    def _wrap(self, group: TaskGroup) -> Task | TaskGroup:
        raise NotImplementedError

    # -- settings

    def set_params(
        self,
        nodes: Sequence[str | Node] | None,
        path_prefix: str | os.PathLike[str] | None = None,
        path_type: str | None = None,
    ) -> None:
        """Remember the nodes and, when not empty, another directory to use instead of `db_prefix`.

        Parameters
        ----------
        nodes
            Names of the nodes to checkpoint.
        path_prefix
            Used in place of `db_prefix` for every save and load from now on.
        path_type
            Handed on to the metadata handler; this library gives it no meaning.
        """
        self._nodes = self._check_nodes(nodes)
        self._move(path_prefix, path_type)
        self.metadata_handler.set_params(
            db_prefix=self.db_prefix,
            db_type=self.db_type,
            node_names=list(self._nodes),
            path_prefix=self.path_prefix,
            path_type=self.path_type,
        )

    # -- what there is

    def history(self, epoch: int | None = None, *, tolerant: bool = False) -> History:
        """Read the run directory: epochs that exist, superseded ones, and records that are damaged.

        Parameters
        ----------
        epoch, tolerant
            Of which records it does not matter if they cannot be read now, as for `CommitLog.read`.

        Raises
        ------
        VersionError
            A newer version of this library wrote a claim or a record.
        ReadError
            The directory, a claim or a record cannot be read now.
        """
        return CommitLog(self._directory).read(epoch, tolerant=tolerant)

    def epoch_state(self, epoch: int) -> EpochState:
        """Tell whether an epoch is ``complete``, ``incomplete`` (databases without a record), or ``absent``.

        A database that this manager has saved, and nobody committed, is told as incomplete; nobody else sees it.

        Raises
        ------
        ReadError
            That cannot be told: the directory or a file in it cannot be read now.
        """
        history = self.history(epoch)
        if epoch in history.epochs:
            entries = history.get(epoch).nodes.values()
            return "complete" if all(steps.opens(self._file(e), e) for e in entries) else "incomplete"
        pending = self._pending
        if pending is not None and pending.epoch == epoch and pending.unnamed():
            return "incomplete"
        return "incomplete" if epoch in CommitLog(self._directory).database_epochs() else "absent"

    def get_ckpt_db_name(self, node_name: str | Node, epoch: int) -> str | None:
        """Return the stem ``<prefix>/<node>.<epoch>``, or None for a node that this manager does not know."""
        if str(node_name) not in self._nodes:
            return None
        return db_name(epoch, str(node_name), self.db_prefix, self.path_prefix)

    def get_ckpt_db_path(self, node_name: str | Node, epoch: int) -> Path:
        """Return the file of a node's database of a complete epoch.

        Raises
        ------
        CheckpointNotFoundError
            There is no such epoch, or it has no such node.
        """
        record = self.history(epoch).get(epoch)
        entry = record.nodes.get(str(node_name))
        if entry is None:
            raise CheckpointNotFoundError(
                f"expected a database of node {str(node_name)!r} in epoch {epoch}, found nodes {sorted(record.nodes)}"
            )
        return self._file(entry)

    # -- handler and timings

    def get_resume_from_epoch_id(
        self, user_epoch: int | Literal["latest"] | None = None
    ) -> int | Literal["latest"] | None:
        """Return the epoch to resume: the handler's answer."""
        return self.metadata_handler.last_epoch(user_epoch=user_epoch)

    def cp_accessible(self, epoch: int | None = None) -> bool:
        """Tell whether the handler lets `epoch` be saved now."""
        return self.metadata_handler.cp_accessible(epoch)

    def write_checkpoint_metadata(self, epoch: int) -> None:
        """Tell the handler that `epoch` is complete."""
        self.metadata_handler.write(epoch=epoch)

    def collect_checkpoint_stats(self, stats: dict[str, int]) -> None:
        """Add database path to nanoseconds for each node that the last timed save or load ran on."""
        if self._pending is None:
            _log.debug("no save or load to report")
            return
        for node, done in self._pending.results().items():
            stats[self._pending.paths[node]] = int(done["ns"]) + self._pending.commit_ns

    def report_checkpoint_stats(self, action: str) -> None:
        """Hand the timings of the last save or load to the handler."""
        stats: dict[str, int] = {}
        self.collect_checkpoint_stats(stats)
        self.metadata_handler.report(action, stats)

    # -- inside

    def _move(self, path_prefix: str | os.PathLike[str] | None, path_type: str | None) -> None:
        if path_prefix:
            # Resolved here and only here: a task may change the working directory.
            self._directory = RunDirectory.at(path_prefix, self.db_type)
            self.path_prefix = os.fspath(path_prefix)
        self.path_type = path_type or self.path_type

    def _file(self, entry: NodeEntry) -> Path:
        return self._directory.path / entry.file

    def _running(self, method: str) -> Run:
        if self._run is None:
            raise NotRunError(
                f"expected init() before {type(self).__name__}.{method}()",
                hint="call init(nodes) and run it first",
            )
        return self._run

    def _record(
        self, epoch: int, given: EpochRecord | None, directory: RunDirectory | None = None
    ) -> EpochRecord:
        record = given or CommitLog(directory or self._directory).read(epoch).get(epoch)
        if record.epoch != epoch:
            raise BuildError(f"expected the record of epoch {epoch}, found that of epoch {record.epoch}")
        nodes = self._nodes
        if set(record.nodes) != set(nodes):
            raise MismatchError(
                f"expected epoch {epoch} to hold the nodes {sorted(nodes)}, found {sorted(record.nodes)}",
                hint="resume with the nodes that saved it, or use load_blobs_locally for some of them",
            )
        return record

    def _group(
        self, name: str, built: Mapping[str, steps.Step], *, outputs: bool = True
    ) -> tuple[TaskGroup, dict[str, TaskOutput]]:
        # A group of its own, entered while the tasks are made: they must not land in whatever group is being built.
        wanted = [BlobReference(steps.RESULT)] if outputs else []
        with TaskGroup(WorkspaceType.PRIVATE) as group:
            tasks = {
                node: Task(step=step, node=node, name=name, outputs=wanted) for node, step in built.items()
            }
        return group, {node: task.outputs()[0] for node, task in tasks.items() if outputs}
