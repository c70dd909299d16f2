"""The steps that managers put into tasks: they run on a node, next to its workspace.

Each is a closure over plain values. Results go out through one output blob in the task's own (private)
workspace, so that neither names nor timings enter the node's workspace.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from jobcore.checkpoint.lineage import NodeEntry
from jobcore.checkpoint.reading import ANOTHER_EPOCH, patiently
from jobcore.errors import CheckpointNotFoundError, FormatError
from jobcore.store import check_blobs, open_database
from jobcore.store.policies import Policies, for_names, skipped_names
from jobcore.workspace import Workspace

__all__ = [
    "RESULT",
    "Selection",
    "Step",
    "exists_step",
    "list_step",
    "load_step",
    "node_workspace",
    "opens",
    "remove_step",
    "stored_names_step",
]

Step = Callable[[Workspace], None]

# The blob that carries a step's result out of its private workspace. The prefix keeps it from meeting a user's blob.
RESULT = "jobcore.checkpoint/result"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which blobs of a node go into its checkpoint.

    Attributes
    ----------
    include, exclude
        Names, or a predicate on the name; None includes all, excludes none.
    """

    include: Callable[[str], bool] | frozenset[str] | None = None
    exclude: Callable[[str], bool] | frozenset[str] | None = None

    @classmethod
    def of(
        cls,
        include: Callable[[str], bool] | Iterable[str] | None,
        exclude: Callable[[str], bool] | Iterable[str] | None,
    ) -> Selection:
        """Normalise what a user gave."""
        return cls(_matcher("include", include), _matcher("exclude", exclude))

    def split(self, workspace: Workspace) -> tuple[dict[str, object], list[tuple[str, str]]]:
        """Return the blobs of `workspace` to store, and (name, reason) of those left out by choice."""
        chosen: dict[str, object] = {}
        left: list[tuple[str, str]] = []
        for blob in workspace.local_blobs():
            if blob.transient:
                left.append((blob.name, "transient"))
            elif self.include is not None and not _matches(self.include, blob.name):
                left.append((blob.name, "not included"))
            elif self.exclude is not None and _matches(self.exclude, blob.name):
                left.append((blob.name, "excluded"))
            else:
                chosen[blob.name] = blob
        return chosen, left


def list_step(selection: Selection, policies: Policies | None = None) -> Step:
    """Check that every blob to be saved can be stored, and put out their names."""

    def list_blobs(workspace: Workspace) -> None:
        blobs, _ = selection.split(node_workspace(workspace))
        own = for_names(policies, blobs)
        check_blobs(blobs, policies=own)
        left_out = skipped_names(own, blobs)
        workspace.feed(RESULT, {"names": [name for name in blobs if name not in left_out]})

    return list_blobs


def stored_names_step(path: Path, entry: NodeEntry) -> Step:
    """Put out the names that a committed database holds."""

    def list_stored(workspace: Workspace) -> None:
        workspace.feed(RESULT, {"names": patiently(path, names, instead=ANOTHER_EPOCH)})

    def names() -> list[str]:
        with open_database(path, digest=entry.digest) as database:
            return [blob.name for blob in database.info.blobs]

    return list_stored


def load_step(path: Path, entry: NodeEntry, names: frozenset[str] | None, created: set[str]) -> Step:
    """Load a database, or those of `names` that it holds, into the node's workspace.

    Parameters
    ----------
    created
        Filled with the names of the blobs that this load makes.
    """

    def load(workspace: Workspace) -> None:
        begin = time.perf_counter_ns()
        target = node_workspace(workspace)
        there = {blob.name for blob in target.local_blobs()}

        def read() -> tuple[list[str], list[str]]:
            with open_database(path, digest=entry.digest) as database:
                stored = [blob.name for blob in database.info.blobs]
                wanted = stored if names is None else [name for name in stored if name in names]
                try:
                    database.load(names=wanted, into=target)
                finally:
                    created.update(blob.name for blob in target.local_blobs() if blob.name not in there)
            return stored, wanted

        stored, wanted = patiently(path, read, instead=ANOTHER_EPOCH)
        missing = [] if names is None else sorted(names.difference(stored))
        workspace.feed(
            RESULT,
            {
                "found": wanted,
                "missing": missing,
                "bytes": entry.size_bytes,
                "ns": time.perf_counter_ns() - begin,
            },
        )

    return load


def remove_step(names: set[str]) -> Step:
    """Remove those of `names` that are there, and forget them."""

    def remove(workspace: Workspace) -> None:
        target = node_workspace(workspace)
        for name in names & {blob.name for blob in target.local_blobs()}:
            target.remove_blob(name)
        names.clear()

    return remove


def exists_step(path: Path | None, entry: NodeEntry | None) -> Step:
    """Put out whether the database of a committed epoch is there, with the index that the record names."""

    def exists(workspace: Workspace) -> None:
        found = path is not None and entry is not None and opens(path, entry)
        workspace.feed(RESULT, found)

    return exists


def opens(path: Path, entry: NodeEntry) -> bool:
    """Tell whether a database is there and has the index that its record names.

    Raises
    ------
    ReadError
        That cannot be told: it cannot be read now.
    """

    def read() -> bool:
        with open_database(path, digest=entry.digest):
            return True

    try:
        return patiently(path, read)
    except (FormatError, CheckpointNotFoundError):
        return False


def node_workspace(workspace: Workspace) -> Workspace:
    """Return the workspace of the node that a task of ours runs on."""
    # The managers' tasks are private, so their workspace is a child of the node's.
    parent = workspace.parent
    if parent is None:
        raise TypeError("expected the workspace of a private task, found one without a parent")
    return parent


def _matcher(
    argument: str, given: Callable[[str], bool] | Iterable[str] | None
) -> Callable[[str], bool] | frozenset[str] | None:
    if given is None or callable(given):
        return given
    if isinstance(given, str):
        raise TypeError(f"expected names or a predicate for {argument}, found the single string {given!r}")
    return frozenset(given)


def _matches(matcher: Callable[[str], bool] | frozenset[str], name: str) -> bool:
    return matcher(name) if callable(matcher) else name in matcher
