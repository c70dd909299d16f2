"""Build time: a job is five task groups and the conditions that end it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass

import numpy as np

from jobcore.checkpoint.paths import check_epoch, node_names
from jobcore.errors import BlobValueError, BuildError
from jobcore.graph import BlobReference, NameRoot
from jobcore.runtime import Session
from jobcore.tasks import Node, Task, TaskGroup, TaskOutput, WorkspaceType

__all__ = ["CompiledJob", "Job", "StopCondition", "epoch_limiter"]


@dataclass(frozen=True, slots=True)
class StopCondition:
    """One reason to end a job, looked at after every epoch.

    Attributes
    ----------
    name
        Identifies the condition in commit records, its parameters included: a job whose limit was raised does not
        take the old limit's stop for its own.
    output
        The task output that tells, a single boolean; None when `reached` does.
    reached
        Tells from the number of epochs that have ended; also asked before a resumed job runs anything.
    optional
        Whether an output without a value counts as false: a blob that tasks write only when they want to stop.
    """

    name: str
    output: TaskOutput | None = None
    reached: Callable[[int], bool] | None = None
    optional: bool = False

    def met(self, epoch: int) -> bool:
        """Tell whether the condition holds after `epoch`.

        Raises
        ------
        BlobValueError
            The output, or what `reached` returned, is not a single boolean.
        """
        if self.reached is not None:
            value: object = self.reached(epoch)
        else:
            assert self.output is not None
            value = self.output.fetch()
        if value is None and (self.optional or self.output is None):
            return False
        try:
            array = np.asarray(value)
        except ValueError:
            array = None
        if array is None or array.size != 1 or array.dtype.kind not in "biu":
            if array is None:
                found = f"a {type(value).__name__} of different things"
            else:
                found = "no value" if value is None else f"shape {array.shape} and dtype {array.dtype}"
            raise BlobValueError(
                f"expected a single boolean for the stop condition {self.name!r}, found {found}",
                hint="feed it in every epoch, and reduce an array with all() or any()",
            )
        # Of Python's own type: it goes into commit records.
        return bool(array.reshape(())[()])


class Job(NameRoot):
    """Five task groups, and the conditions that end the epochs.

    ==================  ==============================================================================
    ``setup_group``     runs at every start, before init or load: what cannot be restored (data sets,
                        models to bind, queues)
    ``init_group``      runs once, when a run starts from scratch: the state that checkpoints keep
    ``epoch_group``     runs once per epoch
    ``download_group``  runs after the last epoch
    ``exit_group``      runs last
    ==================  ==============================================================================

    The setup and init groups are global: what their tasks feed stays in the node's workspace. Tasks of the
    others are private unless they say otherwise: they update blobs of the node's workspace, and what they make
    anew goes when the group ends.

    Parameters
    ----------
    init_group, epoch_group, download_group, exit_group, setup_group
        Groups made elsewhere; missing ones are created.
    stop_conditions
        Outputs or blobs; the job ends after an epoch in which one of them is true.
    nodes_to_checkpoint
        Names of the nodes whose workspaces are saved. By default the nodes that the init group uses, or, when it
        uses none, those of the epoch group.

    Examples
    --------
    >>> import jobcore
    >>> with jobcore.Job() as job:
    ...     @job.init_group.task
    ...     def init(ws):
    ...         ws.feed("total", 0)
    ...     @job.epoch_group.task
    ...     def add(ws):
    ...         ws.feed("total", ws.fetch("total") + 1)
    ...     jobcore.epoch_limiter(job, 3)
    >>> with jobcore.LocalSession() as session:
    ...     jobcore.JobRunner(job).train(session)
    3

    Notes
    -----
    Names of blobs, nets and tasks depend on the job's own build only. Build a job in one thread.
    """

    def __init__(
        self,
        init_group: TaskGroup | None = None,
        epoch_group: TaskGroup | None = None,
        download_group: TaskGroup | None = None,
        exit_group: TaskGroup | None = None,
        stop_conditions: Sequence[BlobReference | TaskOutput | str] | None = None,
        nodes_to_checkpoint: Sequence[str | Node] | None = None,
        *,
        setup_group: TaskGroup | None = None,
    ) -> None:
        super().__init__()
        # The groups number their nets by the job's allocator: their blobs meet in one workspace.
        self.setup_group = setup_group or TaskGroup(WorkspaceType.GLOBAL, self.names)
        self.init_group = init_group or TaskGroup(WorkspaceType.GLOBAL, self.names)
        self.epoch_group = epoch_group or TaskGroup(names=self.names)
        self.download_group = download_group or TaskGroup(names=self.names)
        self.exit_group = exit_group or TaskGroup(names=self.names)
        self.stop_conditions: list[StopCondition] = []
        self._nodes_to_checkpoint = None if nodes_to_checkpoint is None else node_names(nodes_to_checkpoint)
        for condition in stop_conditions or ():
            self.add_stop_condition(condition)

    def nodes_to_checkpoint(self) -> list[str]:
        """Return the names of the nodes whose workspaces are saved."""
        if self._nodes_to_checkpoint:
            return list(self._nodes_to_checkpoint)
        return list(self.init_group.used_nodes()) or list(self.epoch_group.used_nodes())

    def add_stop_condition(self, output: BlobReference | TaskOutput | str) -> None:
        """End the job after an epoch in which `output` is true.

        Parameters
        ----------
        output
            An output of a task of the epoch group, which must have a value after each epoch; or a blob that tasks of
            the group write, by reference or name, which counts as false as long as none has. A single boolean.

        Raises
        ------
        BuildError
            `output` is neither.
        """
        optional = isinstance(output, str)
        if isinstance(output, str):
            name = str(output)
            output = Task(outputs=[output], group=self.epoch_group, name="stop_condition").outputs()[0]
        elif isinstance(output, TaskOutput):
            name = ", ".join(map(str, output.names))
        else:
            raise BuildError(
                f"expected a BlobReference or a TaskOutput as stop condition, found {type(output).__name__}",
                hint="use the name of a blob, or the output of the task that tells",
            )
        self.stop_conditions.append(StopCondition(self._unique(name), output=output, optional=optional))

    def stop_when(self, name: str, reached: Callable[[int], bool]) -> None:
        """End the job when ``reached(epoch)`` is true, where `epoch` is the number of epochs that have ended.

        Parameters
        ----------
        name
            Identifies the condition and its parameters in commit records.
        reached
            Called after every epoch, and before a resumed job runs anything.
        """
        self.stop_conditions.append(StopCondition(self._unique(name), reached=reached))

    def compile(self, session_class: type[Session]) -> CompiledJob:
        """Return a compiled job for sessions of `session_class`; this job stays as it is.

        Raises
        ------
        BuildError
            A group is described wrongly.
        """
        return CompiledJob(self, session_class)

    def _unique(self, name: str) -> str:
        taken = {condition.name for condition in self.stop_conditions}
        candidate, number = name, 1
        while candidate in taken:
            number += 1
            candidate = f"{name}#{number}"
        return candidate

    def _enter_context(self, inner: ExitStack) -> None:
        super()._enter_context(inner)
        inner.enter_context(self.epoch_group)


class CompiledJob:
    """A job whose groups are compiled for one kind of session; what `Job.compile` returns."""

    def __init__(self, job: Job, session_class: type[Session]) -> None:
        self._nodes = job.nodes_to_checkpoint()
        self.stop_conditions = list(job.stop_conditions)
        self.setup_group = session_class.compile(job.setup_group)
        self.init_group = session_class.compile(job.init_group)
        self.epoch_group = session_class.compile(job.epoch_group)
        self.download_group = session_class.compile(job.download_group)
        self.exit_group = session_class.compile(job.exit_group)
        groups = (self.setup_group, self.init_group, self.epoch_group, self.download_group, self.exit_group)
        used = {task.node for group in groups for task in group.tasks}
        unused = [node for node in self._nodes if node not in used]
        # A job without any task is for those who feed the workspaces of their session themselves.
        if used and unused:
            raise BuildError(
                f"expected tasks on each node to checkpoint, found none on {unused}: nothing would be saved of it",
                hint=f"this job has tasks on {sorted(used)}",
            )
        outputs = {id(output) for task in self.epoch_group.tasks for output in task.outputs()}
        for condition in self.stop_conditions:
            if condition.output is not None and id(condition.output) not in outputs:
                raise BuildError(
                    f"expected the stop condition {condition.name!r} to be an output of a task of the epoch group, "
                    "found another: nothing would set it after an epoch",
                    hint="give an output of job.epoch_group, or the name of a blob that one of its tasks writes",
                )

    def nodes_to_checkpoint(self) -> list[str]:
        """Return the names of the nodes whose workspaces are saved."""
        return list(self._nodes)


def epoch_limiter(job: Job, num_epochs: int) -> None:
    """End `job` when `num_epochs` epochs have ended, those before a resume included.

    Parameters
    ----------
    job
        The job.
    num_epochs
        At least 1. Raising it lets a finished run go on.

    Raises
    ------
    BuildError
        `num_epochs` is not a positive integer.
    """
    limit = check_epoch("num_epochs", num_epochs, least=1)
    job.stop_when(f"epoch_limiter({limit})", lambda epoch: epoch >= limit)
