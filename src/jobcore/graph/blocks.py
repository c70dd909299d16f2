"""Blocks of a `NetBuilder`: loops, branches, guards, and what runs before, beside and after a task.

A block is a builder of its own. It joins the builder around it when its ``with`` block has ended well, as one
step or as an attribute of a net, and not at all when the block raised.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass, replace

from jobcore.errors import BuildError
from jobcore.graph.blobref import BlobReference, as_references
from jobcore.graph.builder import NetBuilder
from jobcore.graph.context import _stacks
from jobcore.graph.control import Control, Guard, Loop, When, While, positive_interval
from jobcore.graph.names import NameRoot, check_name, scoped
from jobcore.graph.net import Net
from jobcore.graph.step import ExecutionStep

__all__ = [
    "Block",
    "BranchBlock",
    "ConditionBlock",
    "GuardBlock",
    "LoopBlock",
    "ReporterBlock",
    "SetupBlock",
    "WhileBlock",
    "else_of_last",
]


class Block(NetBuilder):
    """Part of the builder that is open when it is made.

    Parameters
    ----------
    kind
        What to call it in errors; also its name when it has none.
    name
        Goes behind the name of the builder around it.

    Raises
    ------
    ContextError
        No builder is open.
    """

    def __init__(self, kind: str, name: str | None = None) -> None:
        self._around = NetBuilder.current()
        base = kind if name is None else check_name(name, f"{kind} name")
        full = "/".join(part for part in (self._around.name, base) if part)
        root = NameRoot.deciding()
        super().__init__(full if root is None else root.names.unique(full, kind="block"), absolute=True)
        self._kind = kind
        self._around._assert_open(f"{kind} block")

    def _blob(self, name: str) -> BlobReference:
        """Return a blob of this block's own."""
        return BlobReference(scoped(f"{self.name}/{name}"))

    def _enter_context(self, inner: ExitStack) -> None:
        # This block is on the stack already; the one below it must be the one that it belongs to.
        stack = _stacks()[NetBuilder]
        if len(stack) < 2 or stack[-2].target is not self._around:
            raise BuildError(
                f"{self!r} belongs to {self._around!r}, and is opened in another one",
                hint="open a block where it is made",
            )
        super()._enter_context(inner)

    def _leave_context(self, error: BaseException | None) -> None:
        super()._leave_context(error)
        if error is None:
            try:
                self._join(self._around)
            except BaseException as failure:
                self._frozen_by = f"an exception: {failure!r}"
                raise

    def _join(self, around: NetBuilder) -> None:
        """Become part of the builder around, all at once."""
        around.add(self.as_step())
        around._last_block = self

    def _control(self) -> Control | None:
        return None

    def _make_step(self, name: str) -> ExecutionStep:
        step = self._step_of(name, self._children, control=self._control())
        step.freeze(f"{self!r}")
        return step

    @property
    def _ended(self) -> bool:
        return self._step is not None

    def __repr__(self) -> str:
        return f"{self._kind} block {self.name!r} built at {self.built_at or '?'}"


class LoopBlock(Block):
    """A block that is repeated; made by ``ops.loop``."""

    def __init__(self, iters: int | str | None = None, name: str | None = None) -> None:
        super().__init__("loop", name)
        if isinstance(iters, str):
            self._loop = Loop(count_blob=str(as_references([iters])[0]))
        else:
            self._loop = Loop(count=iters)

    def iter(self) -> BlobReference:
        """Return the blob that holds the number of the round, from 0, int64.

        After the loop it holds the number of whole rounds. Writing into it does not change the loop.

        Raises
        ------
        BuildError
            The block has ended, and the blob was not asked for in it.
        """
        if self._loop.index_blob is None:
            self._assert_open("iter()")
            self._loop = replace(self._loop, index_blob=str(self._blob("iter")))
        assert self._loop.index_blob is not None
        return BlobReference(self._loop.index_blob)

    def _control(self) -> Control:
        return self._loop


class GuardBlock(Block):
    """A block that runs once and catches a stop; made by ``ops.stop_guard``."""

    def __init__(self, has_stopped_blob: str | None = None, name: str | None = None) -> None:
        super().__init__("stop_guard", name)
        self._stopped = (
            self._blob("has_stopped") if has_stopped_blob is None else as_references([has_stopped_blob])[0]
        )

    def has_stopped(self) -> BlobReference:
        """Return the blob that tells whether a stop left the block, bool.

        Raises
        ------
        BuildError
            The block has not ended.
        """
        if not self._ended:
            raise BuildError(f"{self!r} has not ended; only then it is known whether it was stopped")
        return self._stopped

    def _control(self) -> Control:
        return Guard(str(self._stopped))


@dataclass(slots=True)
class _Chain:
    """The branches that exclude each other: If, Elif and Else."""

    around: NetBuilder
    nets: bool
    first: ExecutionStep | None = None
    taken: BlobReference | None = None
    closed: bool = False


class BranchBlock(Block):
    """One branch; made by ``ops.If``, ``ops.IfNet``, and the methods of another branch."""

    def __init__(
        self,
        kind: str,
        condition: str | None,
        name: str | None = None,
        chain: _Chain | None = None,
        nets: bool = False,
    ) -> None:
        if condition is not None and not isinstance(condition, str):
            raise BuildError(
                f"expected a blob as the condition of {kind}, found {type(condition).__name__}: {condition!r}",
                hint="decide with Python's own `if`, or make the value a blob with ops.Const",
            )
        super().__init__(kind, name)
        self._condition = None if condition is None else str(as_references([condition])[0])
        self._chain = chain or _Chain(self._around, nets)

    def Elif(self, condition: str, name: str | None = None) -> BranchBlock:
        """Return the block that runs when this and the branches before it did not, and `condition` is true.

        Raises
        ------
        BuildError
            This branch has not ended, or the chain has an Else, or another builder is open.
        """
        return self._next("Elif", condition, name)

    def Else(self, name: str | None = None) -> BranchBlock:
        """Return the block that runs when no branch of the chain did; errors as for `Elif`."""
        return self._next("Else", None, name)

    def _next(self, kind: str, condition: str | None, name: str | None) -> BranchBlock:
        chain = self._chain
        if not self._ended or chain.first is None:
            raise BuildError(f"{self!r} has not ended well; {kind} belongs after its block")
        if chain.closed:
            raise BuildError(f"{kind} after the Else of {self!r}: it would never run")
        if NetBuilder.current() is not chain.around:
            raise BuildError(
                f"{kind} of {self!r} is opened in another builder",
                hint="write it on the level of the If that it belongs to",
            )
        if chain.taken is None:
            chain.taken = BlobReference(scoped(f"{chain.first.name}/taken"))
            control = chain.first.control
            assert isinstance(control, When)
            chain.first.set_control(replace(control, taken=str(chain.taken)))
        return BranchBlock(kind, condition, name, chain)

    def _control(self) -> Control:
        first = self._chain.first is None
        return When(self._condition, None if first else str(self._chain.taken), first)

    def _make_step(self, name: str) -> ExecutionStep:
        # Not frozen yet: an Elif or Else that follows gives the first branch its `taken`.
        return self._step_of(name, self._children, own_workspace=self._chain.nets, control=self._control())

    def _join(self, around: NetBuilder) -> None:
        super()._join(around)
        if self._chain.first is None:
            self._chain.first = self._step
        self._chain.closed = self._condition is None


class WhileBlock(Block):
    """Condition and body of ``ops.WhileNet``."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("WhileNet", name)
        self._condition: ConditionBlock | None = None

    def _join(self, around: NetBuilder) -> None:
        if self._condition is None:
            raise BuildError(f"{self!r} has no condition", hint="begin it with `with ops.Condition():`")
        super()._join(around)

    def _make_step(self, name: str) -> ExecutionStep:
        assert self._condition is not None
        condition = self._condition.as_step()
        rest = [child for child in self._children if child is not condition]
        body = self._step_of(f"{name}/body", rest)
        step = ExecutionStep(
            name,
            substeps=[condition, body],
            built_at=self.built_at,
            own_workspace=True,
            control=While(self._condition.result()),
        )
        step.freeze(f"{self!r}")
        return step


class ConditionBlock(Block):
    """The condition of a WhileNet; made by ``ops.Condition``."""

    def __init__(self, name: str | None = None) -> None:
        super().__init__("Condition", name)
        around = self._around
        if not isinstance(around, WhileBlock):
            raise BuildError(f"{self!r} is not directly in a WhileNet block")
        if around._condition is not None:
            raise BuildError(f"{around!r} has a condition already")
        if around._children:
            raise BuildError(f"{self!r} comes after the body of {around!r}: it must come first")

    def result(self) -> str:
        """Return the blob that the last op of the block makes."""
        last = self._children[-1] if self._children else None
        outputs = last.ops[-1].outputs if isinstance(last, Net) and last.ops else ()
        if len(outputs) != 1:
            raise BuildError(
                f"{self!r}: expected an op with one output, a boolean, at the end",
                hint="end it with a comparison, or with ops.Copy(condition)",
            )
        return outputs[0]

    def _join(self, around: NetBuilder) -> None:
        self.result()
        super()._join(around)
        assert isinstance(around, WhileBlock)
        around._condition = self


class SetupBlock(Block):
    """Runs before or after a task, an instance or all tasks of a node; made by ``ops.task_init`` and others.

    It is attached to the current net, as an object with `setup` and `exit`.
    """

    def __init__(self, kind: str, key: str, *, before: bool, name: str | None = None) -> None:
        super().__init__(kind, name)
        self._key = key
        self._before = before

    def setup(self, net: Net) -> ExecutionStep | None:  # noqa: ARG002 - the protocol of set-up objects
        """Return what to run before."""
        return self.as_step() if self._before else None

    def exit(self, net: Net) -> ExecutionStep | None:  # noqa: ARG002 - the protocol of set-up objects
        """Return what to run after."""
        return None if self._before else self.as_step()

    def _join(self, around: NetBuilder) -> None:
        self.as_step()
        around.current_net().add_attribute(self._key, self)


class ReporterBlock(Block):
    """Runs again and again beside a task or the tasks of a node; made by ``ops.task_reporter`` and others."""

    def __init__(self, kind: str, key: str, interval_ms: float, name: str | None = None) -> None:
        super().__init__(kind, name)
        self._key = key
        self._interval_ms = positive_interval(interval_ms, f"interval_ms of {kind}")

    def _make_step(self, name: str) -> ExecutionStep:
        step = self._step_of(name, self._children, run_every_ms=self._interval_ms)
        step.freeze(f"{self!r}")
        return step

    def _join(self, around: NetBuilder) -> None:
        around.current_net().add_attribute(self._key, self.as_step())


def else_of_last(name: str | None = None) -> BranchBlock:
    """Return the Else block of the branch that ended just before.

    Raises
    ------
    BuildError
        Something else stands between, or there is none.
    """
    around = NetBuilder.current()
    last = around._last_block
    if not isinstance(last, BranchBlock) or not around._children or around._children[-1] is not last._step:
        raise BuildError(
            "expected ops.Else directly after the block of ops.IfNet, found none there",
            hint="move it, or use the Else of the handle: `with branch.Else():`",
        )
    return last.Else(name)
