"""The two managers: for one node, and for several."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence

from jobcore.checkpoint.handler import MetadataHandler
from jobcore.checkpoint.manager import Manager
from jobcore.checkpoint.paths import node_names
from jobcore.errors import BuildError
from jobcore.store.policies import Policies
from jobcore.tasks import Node, Task, TaskGroup

__all__ = ["CheckpointManager", "MultiNodeCheckpointManager"]


class CheckpointManager(Manager):
    """Saves and loads the blobs of one node.

    Parameters
    ----------
    db_prefix
        The run directory; made when it is not there.
    node_name
        The node whose workspace is saved.
    db_type
        The container: ``zarr.zip``, one file, or ``zarr``, a directory whose unchanged chunks are links.
    metadata_handler
        Told about epochs and asked which one to resume.
    include, exclude
        Names of blobs, or a predicate on the name, to choose what is saved.
    background
        Whether an epoch is written while the next one trains; its blobs are copied first, which takes memory for one
        more state.
    policies
        What becomes of single blobs, as for `jobcore.save`: how they are cut and encoded, skipped, or stored as another
        name. A name that a node does not have is no error.
    share
        Whether arrays that share memory are stored once, as for `jobcore.save`.

    See Also
    --------
    MultiNodeCheckpointManager : the same for several nodes.
    """

    def __init__(
        self,
        db_prefix: str | os.PathLike[str],
        node_name: str | Node = "local",
        db_type: str = "zarr.zip",
        metadata_handler: MetadataHandler | None = None,
        *,
        include: Callable[[str], bool] | Iterable[str] | None = None,
        exclude: Callable[[str], bool] | Iterable[str] | None = None,
        background: bool = False,
        policies: Policies | None = None,
        share: bool = True,
    ) -> None:
        super().__init__(
            db_prefix,
            db_type,
            metadata_handler,
            include=include,
            exclude=exclude,
            background=background,
            policies=policies,
            share=share,
        )
        self.node_name = str(node_name)
        self._nodes = (self.node_name,)

    def _check_nodes(self, nodes: Sequence[str | Node] | None) -> tuple[str, ...]:
        given = (self.node_name,) if nodes is None else node_names(nodes)
        if given != (self.node_name,):
            raise BuildError(
                f"expected the one node {self.node_name!r}, found {list(given)}",
                hint="use MultiNodeCheckpointManager for several nodes",
            )
        return given

    def _wrap(self, group: TaskGroup) -> Task | TaskGroup:
        (task,) = group.tasks()
        return task


class MultiNodeCheckpointManager(Manager):
    """Saves and loads the blobs of several nodes; an epoch exists when all of them are saved.

    Parameters
    ----------
    db_prefix
        The run directory; made when it is not there.
    db_type
        The container: ``zarr.zip``, one file, or ``zarr``, a directory whose unchanged chunks are links.
    metadata_handler
        Told about epochs and asked which one to resume.
    include, exclude
        Names of blobs, or a predicate on the name, to choose what is saved.
    background
        Whether an epoch is written while the next one trains; its blobs are copied first, which takes memory for one
        more state.
    policies
        What becomes of single blobs, as for `jobcore.save`: how they are cut and encoded, skipped, or stored as another
        name. A name that a node does not have is no error.
    share
        Whether arrays that share memory are stored once, as for `jobcore.save`.

    See Also
    --------
    CheckpointManager : the same for one node.
    """

    def _check_nodes(self, nodes: Sequence[str | Node] | None) -> tuple[str, ...]:
        given = self._nodes if nodes is None else node_names(nodes)
        if not given:
            raise BuildError(
                "expected at least one node to checkpoint, found none",
                hint="put the tasks that make the state into job.init_group, or give nodes_to_checkpoint",
            )
        repeated = sorted({node for node in given if given.count(node) > 1})
        if repeated:
            raise BuildError(f"expected each node once, found {repeated} more than once")
        return given

    def _wrap(self, group: TaskGroup) -> Task | TaskGroup:
        return group
