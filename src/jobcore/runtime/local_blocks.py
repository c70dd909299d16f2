"""What runs before, beside and after all tasks of a node, in one run of a group."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable
from functools import partial

from jobcore.errors import Cancelled, TaskFailure
from jobcore.runtime.cancel import CancelToken, enter_token
from jobcore.runtime.context import StepContext
from jobcore.runtime.execute import run_step
from jobcore.runtime.program import NodeProgram, Place
from jobcore.runtime.reporters import Reporters
from jobcore.runtime.roster import Roster
from jobcore.runtime.shield import drain, run_shielded
from jobcore.workspace import Workspace

__all__ = ["LocalBlocks"]


class LocalBlocks:
    """The local blocks of all nodes, in one run.

    Parameters
    ----------
    nodes
        Those nodes that have any.
    workspaces
        Where they run, by node.
    token
        Of the run.
    roster
        Of the session.

    Notes
    -----
    `begin` is called by the thread that called the session, `finish` by any.
    """

    __slots__ = ("_caller", "_endings", "_nodes", "_roster", "_token", "_workspaces", "report")

    def __init__(
        self,
        nodes: tuple[NodeProgram, ...],
        workspaces: dict[str, Workspace],
        token: CancelToken,
        roster: Roster,
    ) -> None:
        self._nodes = nodes
        self._workspaces = workspaces
        self._token = token
        self._roster = roster
        self._caller = threading.get_ident()
        # What is left to do when the tasks have ended, in order.
        self._endings: deque[Callable[[], object]] = deque()
        self.report: Callable[[TaskFailure], None] = _nobody

    def begin(self) -> None:
        """Run the local init of each node, and start its reporters.

        A failure is reported, and the rest is left out.

        Raises
        ------
        KeyboardInterrupt, SystemExit
            Raised into the calling thread meanwhile.
        """
        enter_token(self._token)
        try:
            for node in self._nodes:
                self._token.check()
                # From here on it has begun: what it may have left half done is for its exit.
                self._endings.append(partial(self._exit, node))
                self._init(node)
        except Cancelled:
            # Reported, or the order of somebody outside. No task begins: their crew looks at the token.
            node = self._nodes[len(self._endings) - 1] if self._endings else self._nodes[0]
            self._context(node, "local_init").stop(Place("", None), "the local init did not run to its end")
            return
        for node in self._nodes:
            if node.reporters:
                context = self._context(node, "local_reporter")
                reporters = Reporters(node.reporters, self._workspaces[node.name], context, run_step)
                # Before it starts, so that no interruption leaves it running; before the exit of its node.
                self._endings.appendleft(reporters.finish)
                reporters.start()

    def finish(self) -> None:
        """Run the last reports and the local exit of each node that has begun; what is done is not done again.

        Raises
        ------
        KeyboardInterrupt, SystemExit
            Raised into the calling thread meanwhile; everything was run.
        """
        drain(self._endings)

    def _init(self, node: NodeProgram) -> None:
        context = self._context(node, "local_init")
        for block in node.init:
            run_step(block, self._workspaces[node.name], context)

    def _exit(self, node: NodeProgram) -> None:
        run_shielded(node.exit, self._workspaces[node.name], self._context(node, "local_exit"), run_step)

    def _context(self, node: NodeProgram, what: str) -> StepContext:
        inline = threading.get_ident() == self._caller
        return StepContext(node.name, f"{node.name}/{what}", self.report, self._token, self._roster, inline)


def _nobody(failure: TaskFailure) -> None:
    raise RuntimeError(f"nobody hears of {failure}")
