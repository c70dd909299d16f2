"""Saving an epoch: the step that writes a node's database, and the commit that makes the epoch exist."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from jobcore.checkpoint.lineage import Claim, EpochRecord, NodeEntry
from jobcore.checkpoint.log import CommitLog
from jobcore.checkpoint.pending import Pending, Run, ended, saved
from jobcore.checkpoint.steps import Selection, Step, node_workspace
from jobcore.store import BackgroundSaver
from jobcore.store.policies import Policies, for_names
from jobcore.store.write import begin as begin_database
from jobcore.workspace import Workspace

__all__ = ["SavePlan", "commit_save"]

_SMALL = 4 << 20  # most bytes of a database that is forced to the disk together with its record


@dataclass(frozen=True, slots=True)
class SavePlan:
    """How databases are written, whatever the epoch.

    Attributes
    ----------
    db_type, selection, policies, share
        Of the manager.
    alone
        Whether there is one node: then a small database is forced to the disk together with the record.
    """

    db_type: str
    selection: Selection
    policies: Policies | None
    share: bool
    alone: bool

    def step(self, run: Run, node: str, saver: BackgroundSaver | None) -> Step:
        """Return what writes the node's blobs to a new database, which gets its name when the epoch is committed.

        Parameters
        ----------
        run
            Tells, each time the step runs, what is to be saved, and is told what was.
        saver
            Writes in the background, where given: then the step only copies the blobs.
        """

        def save(workspace: Workspace) -> None:
            start = time.perf_counter_ns()
            pending = run.saving
            assert pending is not None
            path = pending.paths[node]
            blobs, left = self.selection.split(node_workspace(workspace))
            options: dict[str, Any] = {
                "skipped": left,
                "policies": for_names(self.policies, blobs),
                "publish": False,
                **self._attributes(run, node, pending),
            }
            if saver is not None:
                pending.saves[node] = saver.save(path, blobs, **options)
                pending.done[node] = {"ns": time.perf_counter_ns() - start}
                return
            saving = begin_database(path, blobs, **options)
            # A large one takes much longer to be written than its record, and files in folders stay open until then.
            late = self.alone and self.db_type == "zarr.zip" and saving.needed <= _SMALL
            done = saving.write() if late else saving.finish()
            pending.held[node] = saving
            pending.done[node] = saved(path, done, time.perf_counter_ns() - start)

        return save

    def _attributes(self, run: Run, node: str, pending: Pending) -> dict[str, Any]:
        attributes: dict[str, Any] = {
            "db_type": self.db_type,
            "run": run.id,
            "node": node,
            "epoch": pending.epoch,
            "generation": pending.generation,
            "stop": dict(pending.stop),
            "share": self.share,
        }
        base = run.newest.get(node)
        if self.db_type == "zarr" and base is not None and os.path.isdir(base):  # noqa: PTH112 - Path raises for what may not be looked at
            attributes["base"] = base
        return attributes


def commit_save(run: Run, claim: Claim, pending: Pending, stop: Mapping[str, Any]) -> EpochRecord:
    """Publish the record of an epoch that was saved on every node, and the databases with it.

    Raises
    ------
    SupersededError
        Another start of the run has taken over.
    SaveError
        A database or the record cannot be written; all of them were removed.
    """
    try:
        # All are waited for, also when one has failed: none may go on writing when the epoch is tried again.
        failed = [error for save in pending.saves.values() if (error := ended(save)) is not None]
        if failed:
            raise failed[0]
        begin = time.perf_counter_ns()
        nodes = {
            node: NodeEntry(found["file"], found["bytes"], found["digest"], found["blobs"])
            for node, found in pending.results().items()
        }
        # Until this start has an epoch to go back to, a record is never named before its databases are safe.
        record = CommitLog(run.directory).commit(
            claim, pending.epoch, nodes, stop, databases=pending.unnamed(), apart=not run.committed
        )
    except BaseException:
        pending.withdraw()
        raise
    pending.named = run.committed = True
    pending.held.clear()
    pending.commit_ns = time.perf_counter_ns() - begin
    run.newest.update((node, run.directory.text(entry.file)) for node, entry in nodes.items())
    return record
