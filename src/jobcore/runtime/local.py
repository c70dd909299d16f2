"""The session that runs everything in this process."""

from __future__ import annotations

import threading

from jobcore.errors import SessionBusyError
from jobcore.graph.names import check_name
from jobcore.runtime.cancel import current_token
from jobcore.runtime.compile import CompiledGroup
from jobcore.runtime.grace import check_grace
from jobcore.runtime.group import run_group
from jobcore.runtime.roster import Roster
from jobcore.runtime.session import Session
from jobcore.tasks import Node
from jobcore.workspace import Workspace

__all__ = ["LocalSession"]


class LocalSession(Session):
    """Runs the tasks of all nodes in threads of this process, each node on a workspace of its own.

    Tasks of a group run at the same time, a single task in the calling thread. A private task works on a
    workspace of its own whose parent is the node's, and which goes when the run ends; a global one on the
    node's workspace itself.

    Parameters
    ----------
    workspace
        To be the workspace of node ``local``; by default a new one.

    Attributes
    ----------
    exit_grace_s
        Seconds that an exit block or last report may go on when the run has been told to stop, counted for each from
        the order or its own start, whichever is later; then it is told to stop too, and has failed. 60.0 by default;
        None for no limit. It counts for blocks that begin after it was set.
    straggler_grace_s
        Seconds that a run waits for tasks of an earlier one which was interrupted twice, and so could not wait
        for them itself. 10.0 by default.

    Raises
    ------
    TypeError
        `workspace` is no workspace, or an attribute is set to what is no number.
    ValueError
        An attribute is set to a negative number or NaN.

    Notes
    -----
    Thread safety: any thread may call any method. Runs of several threads overlap: each has its own cancel
    token and private workspaces, they share those of the nodes, and what that means for their order is the
    callers' affair. A step may run something in its own session; it is cancelled with the step. A step cannot
    close its own session.

    The first interruption of a waiting call (Ctrl-C, a signal handler that raises) cancels the group, waits for
    its tasks to end and is raised again. A second one comes out at once. Tasks may then still be running; the next
    run waits for them, so that two runs that follow each other never overlap.

    Examples
    --------
    >>> from jobcore import LocalSession
    >>> with LocalSession() as session:
    ...     session.run(lambda ws: ws.feed("x", 1))
    ...     session.workspace().fetch("x")
    array(1)
    """

    def __init__(self, workspace: Workspace | None = None) -> None:
        if workspace is not None and not isinstance(workspace, Workspace):
            raise TypeError(
                f"expected a Workspace for node 'local', found {type(workspace).__name__}: {workspace!r}"
            )
        self._roster = Roster(type(self).__name__)
        self._straggler_grace_s = 10.0
        # Guards _workspaces: two tasks that ask for one node get one workspace.
        self._lock = threading.RLock()
        self._workspaces: dict[str, Workspace] = {}
        if workspace is not None:
            self._workspaces["local"] = workspace

    @property
    def exit_grace_s(self) -> float | None:
        """Seconds that an exit block or last report may go on when the run has been told to stop; None: no limit."""
        return self._roster.exit_grace_s

    @exit_grace_s.setter
    def exit_grace_s(self, seconds: float | None) -> None:
        self._roster.exit_grace_s = None if seconds is None else check_grace(seconds, "exit_grace_s")

    @property
    def straggler_grace_s(self) -> float:
        """Seconds that a run waits for tasks of an earlier one that was interrupted twice."""
        return self._straggler_grace_s

    @straggler_grace_s.setter
    def straggler_grace_s(self, seconds: float) -> None:
        self._straggler_grace_s = check_grace(seconds, "straggler_grace_s")

    def workspace(self, node: str | Node = "local") -> Workspace:
        """Return the workspace of a node; made on first use.

        Parameters
        ----------
        node
            The node, or its name.

        Raises
        ------
        BuildError
            The name is no string, empty, or not valid Unicode.
        ClosedError
            The session is closed.
        """
        self._check_open("workspace")
        name = node.name if isinstance(node, Node) else check_name(node, "node name")
        return self._workspace_of(name)

    def is_open(self) -> bool:
        """Tell whether the session can still run something."""
        return not self._roster.closed

    def close(self) -> None:
        """Stop what runs and let go of the workspaces; may be repeated.

        Runs of other threads are cancelled and waited for; there `run` raises `ClosedError`. A workspace given to
        the constructor is left as it is.

        Raises
        ------
        SessionBusyError
            The call comes from a task of this session, which it would wait for. The session stays open.
        """
        if self._roster.holds(current_token()):
            raise SessionBusyError(
                f"{type(self).__name__}.close: expected a call from outside the session's tasks, found one from "
                "inside: it would wait for itself",
                hint="raise an exception in the task and close the session where `run` returns",
            )
        try:
            self._roster.close()
        finally:
            with self._lock:
                self._workspaces.clear()

    def _run(self, group: CompiledGroup) -> None:
        if self._roster.has_abandoned:
            self._wait_for_stragglers()
        run_group(group, self._workspace_of, self._roster)

    def _wait_for_stragglers(self) -> None:
        # A straggler of an interrupted run must not wait for itself here.
        current_token().check()
        left = self._roster.wait_for_abandoned(self.straggler_grace_s)
        if left:
            tasks = ", ".join(repr(name) for crew in left for name in crew.unfinished())
            raise SessionBusyError(
                f"{type(self).__name__}.run: expected the tasks of an earlier, interrupted run to have ended, found "
                f"still running after {self.straggler_grace_s:g} s: {tasks}",
                hint="let long steps call jobcore.check_cancelled() now and then",
            )

    def _workspace_of(self, node: str) -> Workspace:
        found = self._workspaces.get(node)
        if found is None:
            with self._lock:
                found = self._workspaces.setdefault(node, Workspace(name=node))
        return found

    def _check_open(self, method: str) -> None:
        self._roster.check_open(method)

    def __repr__(self) -> str:
        state = "open" if self.is_open() else "closed"
        return f"<{type(self).__name__} {state}, nodes: {', '.join(self._workspaces) or 'none yet'}>"
