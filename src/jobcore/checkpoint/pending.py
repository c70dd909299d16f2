"""One start of a run, and what its last task group has put out so far."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from jobcore.checkpoint.lineage import Claim, EpochRef
from jobcore.checkpoint.paths import RunDirectory
from jobcore.errors import NotRunError
from jobcore.store import PendingSave, WriteResult
from jobcore.store.background import unpublished
from jobcore.store.saving import Saving
from jobcore.tasks import Task, TaskGroup, TaskOutput

__all__ = ["Pending", "Run", "ended", "result_of", "saved"]


@dataclass(slots=True)
class Run:
    """What one start of a run knows: made anew by every `init`, so a manager can serve many runs."""

    id: str
    resumed_from: EpochRef | None
    directory: RunDirectory
    claim: Claim | None = None
    committed: bool = False  # whether this start has committed an epoch
    process: int = field(default_factory=os.getpid)
    newest: dict[str, str] = field(default_factory=dict)  # of each node, the last database that was committed
    saving: Pending | None = None  # what the tasks that save are to save
    savers: dict[object, Task | TaskGroup] = field(default_factory=dict)  # those tasks, built once


@dataclass(slots=True)
class Pending:
    """What the tasks of the last group that was built put out, by node."""

    action: str
    epoch: int
    paths: dict[str, str]
    outputs: dict[str, TaskOutput] = field(default_factory=dict)
    generation: int = 0
    stop: Mapping[str, Any] = field(default_factory=dict)
    done: dict[str, dict[str, Any]] = field(default_factory=dict)  # of tasks that save
    saves: dict[str, PendingSave] = field(default_factory=dict)  # those in the background
    held: dict[str, Saving] = field(
        default_factory=dict
    )  # of the others, what is written and has no name yet
    named: bool = False
    commit_ns: int = 0

    def results(self) -> dict[str, dict[str, Any]]:
        """Return what the tasks that have run put out; a task that has not run is left out."""
        found = dict(self.done)
        for node, output in self.outputs.items():
            with contextlib.suppress(NotRunError):
                found[node] = result_of(output)
        for node, save in self.saves.items():
            if node in found and save.done and save.error is None:
                found[node] = saved(self.paths[node], save.wait(), found[node]["ns"])
        return found

    def unnamed(self) -> list[Saving]:
        """Return the databases that have no names yet."""
        return [] if self.named else [*self.held.values(), *map(unpublished, self.saves.values())]

    def withdraw(self) -> None:
        """Remove the databases that have no names; when they are still being written, wait for that."""
        for save in self.saves.values():
            ended(save)
        for saving in self.unnamed():
            saving.withdraw()
        self.held.clear()


def ended(save: PendingSave) -> BaseException | None:
    """Wait for a save, and return what it failed with."""
    try:
        save.wait()
    except Exception:  # noqa: BLE001 - whatever it was, it is the property
        return save.error
    return None


def saved(path: str, done: WriteResult, ns: int) -> dict[str, Any]:
    """Return what a task that saved has to tell."""
    return {
        "file": os.path.basename(path),  # noqa: PTH119 - plain text
        "bytes": done.size_bytes,
        "digest": done.digest,
        "blobs": done.blobs,
        "skipped": [tuple(pair) for pair in done.skipped],
        "ns": ns,
    }


def result_of(output: TaskOutput) -> dict[str, Any]:
    """Return what a step of ours put out.

    Raises
    ------
    NotRunError
        Its task has not run.
    """
    value = output.fetch()
    if not isinstance(value, dict):
        raise NotRunError(f"expected the result of a checkpoint task, found {value!r}")
    return value
