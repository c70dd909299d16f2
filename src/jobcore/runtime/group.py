"""One run of a compiled group: workspaces, the crew of its tasks, outputs, and the one error that comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from jobcore.errors import BlobNotFoundError, Cancelled, ClosedError, TaskFailure, TaskGroupError
from jobcore.runtime.cancel import CancelToken, current_token, enter_token
from jobcore.runtime.compile import CompiledGroup, CompiledTask
from jobcore.runtime.context import StepContext
from jobcore.runtime.crew import Crew
from jobcore.runtime.execute import run_step
from jobcore.runtime.local_blocks import LocalBlocks
from jobcore.runtime.program import Place
from jobcore.runtime.roster import Roster
from jobcore.runtime.state import Outcome, Status
from jobcore.tasks import TaskOutput, WorkspaceType
from jobcore.tracing import active_trace, span
from jobcore.workspace import Workspace

__all__ = ["run_group"]


def run_group(group: CompiledGroup, workspace_of: Callable[[str], Workspace], roster: Roster) -> None:
    """Run all tasks of a group and wait until the last one has ended.

    Parameters
    ----------
    group
        What to run.
    workspace_of
        Gives the workspace of a node.
    roster
        Of the session.

    Raises
    ------
    TaskGroupError
        Tasks failed.
    Cancelled
        The caller's own group is being cancelled, or somebody cancelled the group's token.
    ClosedError
        The session was closed meanwhile.
    """
    outer = current_token()
    outer.check()
    token = CancelToken(outer)
    run = _GroupRun(group, workspace_of, roster, token)
    try:
        outcome = run.crew.run()
        if outcome.status is Status.SUCCESS and group.outputs:
            outcome = run.deliver(outcome)
        succeeded = outcome.status is Status.SUCCESS
    except BaseException as interruption:
        run.end()
        run.forget_outputs()
        failures = run.crew.failures()
        if failures:
            # The interruption comes out, and what failed before or because of it is not lost.
            failed = TaskGroupError(_message(group, failures), failures)
            failed.__context__ = interruption.__context__
            interruption.__context__ = failed
            del failed
        del failures
        raise
    finally:
        token.detach()
        run.release()
    if succeeded:
        return
    run.forget_outputs()
    try:
        if outcome.failures:
            raise TaskGroupError(_message(group, outcome.failures), outcome.failures)
        outer.check()
        if roster.closed:
            raise ClosedError(
                f"the session was closed while the tasks {[task.name for task in group.tasks]} ran",
                hint="wait for `run` to return before you close the session",
            )
        raise Cancelled(outcome.reason or "the group was cancelled")
    finally:
        # This frame is part of the error's traceback: a reference from here would close a circle.
        del outcome


class _GroupRun:
    """What the tasks of one run share."""

    __slots__ = ("_local", "_own", "_parents", "_roster", "_shared", "crew", "group")

    def __init__(
        self,
        group: CompiledGroup,
        workspace_of: Callable[[str], Workspace],
        roster: Roster,
        token: CancelToken,
    ) -> None:
        self.group = group
        self._roster = roster
        # Made here and not in the tasks' threads, where a failure would look like one of the task.
        self._shared = {node: workspace_of(node) for node in group.node_names}
        # Workspaces of private tasks with outputs, which are read when the whole group is done.
        self._own: dict[CompiledTask, Workspace] = {}
        for task in group.waiting:
            _declare(task, self._shared[task.node])
        # What the group makes for a node is seen by the node's tasks: in a private group, below the node's own.
        self._parents = self._shared
        self._local: LocalBlocks | None = None
        names = group.working_names
        if not group.nodes:
            self.crew = Crew(names, self._run, self._blame, token, roster)
            return
        self._parents = dict(self._shared)
        for node in group.nodes:
            if group.workspace_type is WorkspaceType.PRIVATE:
                self._parents[node.name] = Workspace(self._shared[node.name], f"{node.name}/group")
        local = self._local = LocalBlocks(group.nodes, self._parents, token, roster)
        self.crew = Crew(
            names, self._run, self._blame, token, roster, prepare=local.begin, conclude=local.finish
        )
        local.report = self.crew.note

    def end(self) -> None:
        """Run what an interruption kept from being run: the last reports, and local exit blocks."""
        if self._local is not None and self.crew.over:
            self._local.finish()

    def release(self) -> None:
        """Drop the private workspaces and everything that refers to this run."""
        self._own.clear()
        if not self.crew.working:
            self._local = None
        self.crew.release()

    def forget_outputs(self) -> None:
        """Clear all outputs, so that nobody takes those of an earlier run for this one's."""
        for _, output in self.group.outputs:
            output.clear()

    def deliver(self, outcome: Outcome) -> Outcome:
        """Copy all outputs, then hand them over: all or none."""
        failures: list[TaskFailure] = []
        values: list[tuple[TaskOutput, list[object]]] = []
        for task, output in self.group.outputs:
            workspace = self._own.get(task, self._shared[task.node])
            try:
                values.append((output, [_read(name, workspace, task) for name in output.names]))
            except Exception as error:  # noqa: BLE001 - reported as the task's failure, below
                place = f"output {', '.join(output.names)}"
                failures.append(TaskFailure(task.node, task.name, place, None, error))
        if failures:
            return Outcome(Status.FAILED, tuple(failures))
        for output, found in values:
            output.set_values(found)
        return outcome

    def _run(self, member: int, inline: bool) -> None:
        task = self.group.working[member]
        program = task.program
        assert program is not None
        enter_token(self.crew.token)
        context = StepContext(
            task.node, task.name, partial(self.crew.fail, member), self.crew.token, self._roster, inline
        )
        workspace = self._parents[task.node]
        if task.workspace_type is WorkspaceType.PRIVATE:
            workspace = Workspace(workspace, task.name)
            if task.has_outputs:
                # Kept until the group has ended; others go as soon as their task has.
                self._own[task] = workspace
        if active_trace() is None:
            run_step(program, workspace, context)
            return
        with span(task.name, "task", task.node):
            run_step(program, workspace, context)

    def _blame(self, member: int, error: BaseException) -> TaskFailure:
        task = self.group.working[member]
        place = task.program.place if task.program is not None else Place("", None)
        return TaskFailure(task.node, task.name, place.path, place.built_at, error)


def _declare(task: CompiledTask, workspace: Workspace) -> None:
    """Create the output blobs of a task without a step, for tasks with one to write to."""
    for output in task.outputs():
        for name in output.names:
            if not workspace.has_blob(name):
                # It carries a value to the caller, so it is no state of the node and belongs in no checkpoint.
                workspace.create_blob(name).transient = True


def _read(name: str, workspace: Workspace, task: CompiledTask) -> object:
    """Return a copy of a blob, or None when it is missing or empty."""
    if not workspace.has_blob(name):
        if task.num_instances > 1:
            # None would look like a value that nobody made, where there were several.
            raise BlobNotFoundError(
                f"expected a blob {name!r} that the task has, found none; what each of the {task.num_instances} "
                "instances makes is its own, and goes with it",
                hint="make the blob in ops.task_init and let the instances write into it, or make it in ops.task_exit",
            )
        return None
    blob = workspace.blob(name)
    return None if blob.kind == "empty" else blob.fetch()


def _message(group: CompiledGroup, failures: tuple[TaskFailure, ...]) -> str:
    names = {task.name for task in group.tasks}
    tasks = len({failure.task for failure in failures} & names)
    total = len(group.tasks)
    if tasks == 0:
        head = "what runs before, beside or after the tasks failed"
    else:
        head = f"{tasks} of {total} tasks failed" if total > 1 else "the task failed"
    if len(failures) == 1:
        return f"{head}: {failures[0].describe()}"
    return "\n".join([f"{head}:", *(f"  {failure.describe()}" for failure in failures)])
