"""`NetBuilder`: collects what is written as plain statements."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack

from jobcore.errors import BuildError
from jobcore.graph.control import Control
from jobcore.graph.names import FragmentRoot, NamePrefix, NameRoot, check_name
from jobcore.graph.net import Net
from jobcore.graph.step import ExecutionStep, Steppable, StepSource, to_execution_step
from jobcore.graph.where import built_at

__all__ = ["NetBuilder"]


class NetBuilder(NamePrefix):
    """Collects nets, steps and callables in the order in which they are written.

    Inside ``with NetBuilder() as builder:`` the calls of `ops` add to it. The end of the block freezes it;
    ``to_execution_step(builder)`` gives its content as a step.

    Parameters
    ----------
    name
        Goes behind the name of the builder around this one, and in front of the names of its nets.
    absolute
        Take `name` as it is, whatever builder is around.

    Raises
    ------
    ContextError
        From `NetBuilder.current`, when no builder is open.
    BuildError
        On a change after the end of the block.
    """

    def __init__(self, name: str | None = None, *, absolute: bool = False) -> None:
        around = None if absolute else NamePrefix.current(required=False)
        parts = [around.name if around is not None else "", check_name(name, "builder name") if name else ""]
        super().__init__("/".join(part for part in parts if part))
        self.built_at = built_at()
        self._children: list[Net | ExecutionStep | NetBuilder] = []
        self._net: Net | None = None
        self._frozen_by: str | None = None
        self._open = False
        self._step: ExecutionStep | None = None
        # The block that ended last in this one, for an Else directly after it.
        self._last_block: NetBuilder | None = None

    @property
    def children(self) -> tuple[Net | ExecutionStep | NetBuilder, ...]:
        """What was collected so far; callables appear as steps."""
        return tuple(self._children)

    @property
    def frozen(self) -> bool:
        """Whether the block has ended."""
        return self._frozen_by is not None

    def current_net(self, name: str | None = None) -> Net:
        """Return the net that the next op goes to; with a name, start a new one.

        A net that was added whole is finished: the ops after it go to a new one.
        """
        if self._net is None or name is not None:
            self._assert_open("an op")
            base = self.name if name is None else "/".join(part for part in (self.name, name) if part)
            net = Net.named(base or "net")
            self._children.append(net)
            self._net = net
        return self._net

    def add(self, child: Steppable) -> Steppable:
        """Append a net, step, builder, callable or list of those, and return it.

        Raises
        ------
        BuildError
            The builder is frozen, or `child` is something else, or the builder itself.
        """
        self._assert_open("an addition")
        if child is self:
            raise BuildError(f"{self!r} cannot be a part of itself")
        self._net = None
        if isinstance(child, (Net, NetBuilder)):
            self._children.append(child)
        else:
            self._children.append(to_execution_step(child, built_at=built_at()))
        return child

    def as_step(self) -> ExecutionStep:
        """Freeze the builder and return its content as one step; the same one each time.

        Raises
        ------
        BuildError
            The block is still open, or it ended with an exception.
        """
        if self._open:
            raise BuildError(f"{self!r} is still open", hint="convert it after the end of its with block")
        if self._frozen_by is not None and self._frozen_by.startswith("an exception"):
            raise BuildError(f"{self!r} cannot be run: its block ended with {self._frozen_by}")
        if self._step is None:
            self._frozen_by = self._frozen_by or "its conversion to a step"
            self._step = self._make_step(self.name or "net_builder")
        return self._step

    def _make_step(self, name: str) -> ExecutionStep:
        step = self._step_of(name, self._children)
        step.freeze(f"{self!r}")
        return step

    def _step_of(
        self,
        name: str,
        children: Sequence[Net | ExecutionStep | NetBuilder],
        *,
        own_workspace: bool = False,
        run_every_ms: float | None = None,
        control: Control | None = None,
    ) -> ExecutionStep:
        nets = [child for child in children if isinstance(child, Net)]
        only_nets = bool(nets) and len(nets) == len(children)
        return ExecutionStep(
            name,
            nets=nets if only_nets else None,
            substeps=None if only_nets else [to_execution_step(c, built_at=self.built_at) for c in children],
            built_at=self.built_at,
            own_workspace=own_workspace,
            run_every_ms=run_every_ms,
            control=control,
        )

    def _enter_context(self, inner: ExitStack) -> None:
        self._assert_open("its block")
        if self._open:
            raise BuildError(f"{self!r} is open already")
        if NameRoot.deciding() is None:
            inner.enter_context(FragmentRoot())
        self._open = True

    def _leave_context(self, error: BaseException | None) -> None:
        self._open = False
        self._frozen_by = "the end of its block" if error is None else f"an exception: {error!r}"

    def _assert_open(self, what: str) -> None:
        if self._frozen_by is not None:
            raise BuildError(f"{self!r} was frozen by {self._frozen_by}; {what} came too late")

    def __repr__(self) -> str:
        return f"NetBuilder(name={self.name!r}, children={len(self._children)})"


assert issubclass(NetBuilder, StepSource)
