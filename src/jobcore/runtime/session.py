"""What every session offers, whatever it runs on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self

from jobcore.runtime.compile import CompiledGroup, Runnable, compile_cached
from jobcore.tasks import Node, TaskOutput, TaskOutputList, WorkspaceType
from jobcore.workspace import Workspace

__all__ = ["Session"]


class Session(ABC):
    """Runs task groups, and keeps one workspace per node from one run to the next.

    Use it in a ``with`` block: the end closes it, after an exception too.

    Notes
    -----
    Subclasses say what they mean for threads; see `LocalSession`.
    """

    @classmethod
    def compile(cls, runnable: Runnable, workspace_type: WorkspaceType | str | None = None) -> CompiledGroup:
        """Compile a runnable for sessions of this class, and freeze it.

        Once per object, workspace type and, for what has no node of its own, current node: what is compiled
        is kept as long as the object lives. Callables and lists are compiled each time.

        Parameters
        ----------
        runnable
            A task group, a compiled group, a task, a plan, a step, a net, a net builder, a callable taking
            the workspace, or a list of steps, nets and callables, which become one task and run in sequence.
        workspace_type
            For a group without a type; checked against one that has it. What is no group is GLOBAL by
            default: the blobs that it makes stay in the node's workspace.

        Raises
        ------
        BuildError
            It is nothing that can be run, or described wrongly.
        """
        return compile_cached(cls, runnable, workspace_type)

    def run(self, runnable: Runnable, workspace_type: WorkspaceType | str | None = None) -> None:
        """Run a runnable to its end.

        Parameters
        ----------
        runnable, workspace_type
            As for `compile`.

        Raises
        ------
        TaskGroupError
            One or more tasks failed; it tells node, task, step and line of each failure. The other tasks were
            cancelled, and all have ended.
        BuildError
            As `compile`; nothing was run.
        ClosedError
            The session is closed, or was closed meanwhile.
        Cancelled
            The call came from a task whose own group is being cancelled.
        KeyboardInterrupt, SystemExit
            Raised into the calling thread while it ran or waited: the tasks were cancelled and have ended.
        """
        self._check_open("run")
        self._run(self.compile(runnable, workspace_type))

    def fetch_output(self, output: TaskOutput | TaskOutputList) -> object:
        """Return the value of an output, or the list of values of a list of outputs.

        Raises
        ------
        NotRunError
            Its task has not run, or its group did not succeed.
        ClosedError
            The session is closed.
        TypeError
            It is no output.
        """
        self._check_open("fetch_output")
        if isinstance(output, TaskOutputList):
            return [single.fetch() for single in output.outputs]
        if not isinstance(output, TaskOutput):
            raise TypeError(
                f"{type(self).__name__}.fetch_output: expected a TaskOutput or a TaskOutputList, found "
                f"{type(output).__name__}: {output!r}"
            )
        return output.fetch()

    @abstractmethod
    def workspace(self, node: str | Node = "local") -> Workspace:
        """Return the workspace of a node; made on first use.

        Raises
        ------
        BuildError
            The name is no string, empty, or not valid Unicode.
        ClosedError
            The session is closed.
        """

    @abstractmethod
    def close(self) -> None:
        """Stop what runs and let go of the workspaces; may be repeated."""

    @abstractmethod
    def is_open(self) -> bool:
        """Tell whether the session can still run something."""

    @abstractmethod
    def _run(self, group: CompiledGroup) -> None:
        """Run a compiled group to its end."""

    @abstractmethod
    def _check_open(self, method: str) -> None:
        """Raise `ClosedError` naming class and method when the session is closed."""

    def __enter__(self) -> Self:
        """Return the session itself.

        Raises
        ------
        ClosedError
            It is closed.
        """
        self._check_open("__enter__")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
