"""Execution steps: the tree that says which nets and callables run, in what order and how often."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol, TypeAlias, runtime_checkable

from jobcore.errors import BuildError
from jobcore.graph.blobref import as_references
from jobcore.graph.context import Managed
from jobcore.graph.control import (
    Control,
    Guard,
    Loop,
    While,
    check_control,
    check_flags,
    positive_count,
    positive_interval,
)
from jobcore.graph.functions import check_step_function, function_name
from jobcore.graph.names import check_name
from jobcore.graph.net import Net
from jobcore.graph.where import built_at as here

if TYPE_CHECKING:
    from jobcore.workspace import Workspace

__all__ = ["ExecutionStep", "StepFunction", "Steppable", "execution_step", "to_execution_step"]

# Compiling and running go into a step by some frames for each level, and what calls them has frames of its own: further
# down the stack would end anywhere, in the middle of a run.
MAX_DEPTH = 100

StepFunction: TypeAlias = "Callable[[Workspace], object]"
"""A plain callable as a step: it gets the workspace; what it returns is ignored."""


@runtime_checkable
class StepSource(Protocol):
    """Something that turns itself into a step; `NetBuilder` does."""

    def as_step(self) -> ExecutionStep: ...


Steppable: TypeAlias = "ExecutionStep | Net | StepSource | StepFunction | Sequence[Steppable]"
"""All that `to_execution_step` accepts."""


class ExecutionStep:
    """Node of the tree of work: nets, or substeps, or one callable.

    Parameters
    ----------
    name
        For error messages and reports; need not be unique.
    nets
        Run in order.
    substeps
        Run in order, or all at once with `concurrent_substeps`. Each is frozen by this.
    function
        Called with the workspace.
    num_iter
        How often the content runs; 0 or less: never. Once by default. Not together with
        `should_stop_blob`.
    should_stop_blob
        Repeat until this blob, a boolean scalar, is true. It is looked at after each net and substep;
        empty counts as false.
    concurrent_substeps
        Each substep in a thread of its own; all are joined before the next iteration.
    built_at
        ``file:line`` to show in errors; the caller's statement by default.
    only_once
        With `should_stop_blob`: the blob may end the first round early, and there is no second one.
    own_workspace
        The content works on a new workspace below the present one, which goes when the step ends.
    num_concurrent_instances
        How many copies of the content run at once, each in a thread; all are joined before the next iteration.
    run_every_ms
        A reporter: the step runs beside the other substeps of its parent, in a thread of its own, once per so many
        milliseconds; and exactly once more when they have ended, after a failure too.
    control
        Control flow; not together with the other ways to repeat or to run at once.

    Attributes
    ----------
    name, concurrent_substeps, built_at, only_once, own_workspace, num_concurrent_instances, run_every_ms, control
        As given.
    nets, substeps
        Tuples; the unused ones are empty.
    function
        The callable or ``None``.
    num_iter
        The number of iterations, or ``None`` when a stop blob decides.
    should_stop_blob
        Full blob name or ``None``.

    Raises
    ------
    BuildError
        More than one of nets, substeps and function; flags that do not go together; a callable that cannot be
        called with one argument.

    Notes
    -----
    With none of nets, substeps and function the step is empty: it stays in the tree and does nothing.
    Thread safety: none while it is built. It is frozen once it is part of a plan, a task or another step.
    """

    def __init__(
        self,
        name: str,
        nets: Iterable[Net] | Net | None = None,
        substeps: Iterable[ExecutionStep] | ExecutionStep | None = None,
        function: StepFunction | None = None,
        num_iter: int | None = None,
        should_stop_blob: str | None = None,
        concurrent_substeps: bool = False,
        built_at: str | None = None,
        *,
        only_once: bool = False,
        own_workspace: bool = False,
        num_concurrent_instances: int = 1,
        run_every_ms: float | None = None,
        control: Control | None = None,
    ) -> None:
        self.name = check_name(name, "step name")
        self.built_at = here() if built_at is None else built_at
        self._frozen_by: str | None = None
        given = [
            what
            for what, value in (("nets", nets), ("substeps", substeps), ("function", function))
            if value is not None
        ]
        if len(given) > 1:
            raise BuildError(
                f"step {name!r}: expected nets, substeps or a function, found {' and '.join(given)}"
            )
        if num_iter is not None and should_stop_blob is not None:
            raise BuildError(f"step {name!r}: expected num_iter or should_stop_blob, found both")
        if num_iter is not None and (isinstance(num_iter, bool) or not hasattr(num_iter, "__index__")):
            raise BuildError(f"step {name!r}: expected an integer as num_iter, found {num_iter!r}")
        once = num_iter is None and should_stop_blob is None
        self.num_iter = 1 if once else None if num_iter is None else operator.index(num_iter)
        self.should_stop_blob = (
            None if should_stop_blob is None else str(as_references([should_stop_blob])[0])
        )
        self.concurrent_substeps = bool(concurrent_substeps)
        self.only_once = bool(only_once)
        self.own_workspace = bool(own_workspace)
        self.num_concurrent_instances = positive_count(
            num_concurrent_instances, f"step {name!r}: num_concurrent_instances"
        )
        self.run_every_ms = (
            None if run_every_ms is None else positive_interval(run_every_ms, f"step {name!r}: run_every_ms")
        )
        self.control = control
        self.catches_stop = not once or isinstance(control, (Loop, Guard, While))
        check_flags(self, repeats=not once)
        self.function = None if function is None else check_step_function(function, f"step {name!r}")
        self._nets: list[Net] = []
        self._substeps: list[ExecutionStep] = []
        self._depth = 1
        own_nets: Iterable[Net] = (nets,) if isinstance(nets, Net) else () if nets is None else nets
        for net in own_nets:
            self.add_net(net)
        if isinstance(substeps, ExecutionStep):
            substeps = (substeps,)
        for step in substeps or ():
            self.add_substep(step)

    def set_control(self, control: Control) -> None:
        """Replace the control by one of the same kind.

        Raises
        ------
        BuildError
            The step is frozen.
        """
        self._assert_open("a change of its control")
        assert type(control) is type(self.control)
        self.control = control

    @property
    def nets(self) -> tuple[Net, ...]:
        """The nets of this step itself."""
        return tuple(self._nets)

    @property
    def substeps(self) -> tuple[ExecutionStep, ...]:
        """The substeps."""
        return tuple(self._substeps)

    @property
    def empty(self) -> bool:
        """Whether there is nothing to run here."""
        return not self._nets and not self._substeps and self.function is None

    @property
    def frozen(self) -> bool:
        """Whether the step can no longer change."""
        return self._frozen_by is not None

    def add_net(self, net: Net) -> Net:
        """Append a net and return it.

        Raises
        ------
        BuildError
            The step is frozen, or holds substeps or a callable.
        """
        self._assert_open("a net")
        if not isinstance(net, Net):
            raise BuildError(f"step {self.name!r}: expected a Net, found {type(net).__name__}: {net!r}")
        if self._substeps or self.function is not None:
            raise BuildError(f"step {self.name!r}: a step with substeps or a function cannot take a net")
        self._nets.append(net)
        return net

    def add_substep(self, step: ExecutionStep) -> ExecutionStep:
        """Append a substep, also an empty one, freeze it and return it.

        Raises
        ------
        BuildError
            This step is frozen, is `step` itself, or holds nets or a callable; or more than 100 steps would be inside
            each other.
        """
        self._assert_open("a substep")
        if not isinstance(step, ExecutionStep):
            raise BuildError(
                f"step {self.name!r}: expected an ExecutionStep, found {type(step).__name__}: {step!r}",
                hint="convert it with to_execution_step",
            )
        if self._nets or self.function is not None:
            raise BuildError(f"step {self.name!r}: a step with nets or a function cannot take a substep")
        if step is self:
            raise BuildError(f"step {self.name!r}: a step cannot be a part of itself")
        if step._depth >= MAX_DEPTH:
            raise BuildError(
                f"step {self.name!r}: expected at most {MAX_DEPTH} steps and blocks inside each other, found one more: "
                f"{step.name!r} built at {step.built_at or '?'}",
                hint="write a loop or a callable that does the inner ones",
            )
        self._depth = max(self._depth, step._depth + 1)
        # Freezing the part also rules out cycles: a frozen step can never be given its own parent.
        step.freeze(f"step {self.name!r}")
        self._substeps.append(step)
        return step

    def freeze(self, by: str = "freeze()") -> None:
        """Refuse every later change of this step and of all nets and steps in it.

        Raises
        ------
        BuildError
            What the step holds does not fit its control.
        """
        if self._frozen_by is None:
            check_control(self)
            self._frozen_by = by
            for net in self._nets:
                net.freeze(by)
            for step in self._substeps:
                step.freeze(by)

    def all_nets(self) -> list[Net]:
        """Return the nets of the whole tree, depth first, each once."""
        found: dict[int, Net] = {id(net): net for net in self._nets}
        for step in self._substeps:
            found.update((id(net), net) for net in step.all_nets() if id(net) not in found)
        return list(found.values())

    def get_all_attributes(self, key: str) -> list[object]:
        """Return what is attached under `key` to any net of the tree, each object once."""
        found: dict[int, object] = {}
        for net in self.all_nets():
            for value in net.get_attributes(key):
                found.setdefault(id(value), value)
        return list(found.values())

    def _assert_open(self, what: str) -> None:
        if self._frozen_by is not None:
            raise BuildError(
                f"step {self.name!r} was frozen by {self._frozen_by}; {what} came too late",
                hint="finish a step before it is added to a task, a plan or another step",
            )

    def __repr__(self) -> str:
        content = (
            f"function={function_name(self.function)}"
            if self.function is not None
            else f"substeps={[s.name for s in self._substeps]}"
            if self._substeps
            else f"nets={[n.name for n in self._nets]}"
        )
        return f"ExecutionStep(name={self.name!r}, {content})"


def execution_step(
    name: str,
    steps_or_nets: Steppable,
    num_iter: int | None = None,
    should_stop_blob: str | None = None,
    concurrent_substeps: bool = False,
    *,
    only_once: bool = False,
    own_workspace: bool = False,
    num_concurrent_instances: int = 1,
    run_every_ms: float | None = None,
    control: Control | None = None,
) -> ExecutionStep:
    """Make a step of nets or of steps.

    Parameters
    ----------
    name
        The step's name.
    steps_or_nets
        One or a list. A list of nets only becomes the nets of the step; in any other list each item
        becomes a substep.
    num_iter, should_stop_blob, concurrent_substeps, only_once, own_workspace, num_concurrent_instances
    run_every_ms, control
        See `ExecutionStep`.

    Raises
    ------
    BuildError
        As `ExecutionStep` and `to_execution_step`. Nets alone cannot be concurrent: each is put into a
        substep then.
    """
    where = here()
    parts = list(steps_or_nets) if isinstance(steps_or_nets, (list, tuple)) else [steps_or_nets]
    nets = [part for part in parts if isinstance(part, Net)]
    only_nets = bool(nets) and len(nets) == len(parts) and not concurrent_substeps
    return ExecutionStep(
        name,
        nets=nets if only_nets else None,
        substeps=None if only_nets else [to_execution_step(part) for part in parts],
        num_iter=num_iter,
        should_stop_blob=should_stop_blob,
        concurrent_substeps=concurrent_substeps,
        built_at=where,
        only_once=only_once,
        own_workspace=own_workspace,
        num_concurrent_instances=num_concurrent_instances,
        run_every_ms=run_every_ms,
        control=control,
    )


def to_execution_step(
    source: Steppable, name: str | None = None, built_at: str | None = None
) -> ExecutionStep:
    """Return `source` as a step.

    Parameters
    ----------
    source
        A step (returned unchanged), a net, a net builder, a callable taking the workspace, or a list of
        those, which run one after another.
    name
        Name of the new step; by default that of the net, builder or function.
    built_at
        ``file:line`` for the new step; the caller's statement by default.

    Raises
    ------
    BuildError
        It is something else.
    """
    where = here() if built_at is None else built_at
    if isinstance(source, ExecutionStep):
        return source
    if isinstance(source, Net):
        return ExecutionStep(name or source.name, nets=[source], built_at=where)
    if isinstance(source, StepSource):
        return source.as_step()
    if isinstance(source, (list, tuple)):
        parts = list(source)
        if parts and all(isinstance(part, Net) for part in parts):
            return ExecutionStep(name or parts[0].name, nets=parts, built_at=where)
        return ExecutionStep(
            name or "sequence",
            substeps=[to_execution_step(part, built_at=where) for part in parts],
            built_at=where,
        )
    # Contexts can be called, as decorators; a task or a group given as a step is a mistake all the same.
    if callable(source) and not isinstance(source, Managed):
        return ExecutionStep(name or function_name(source), function=source, built_at=where)
    raise BuildError(
        "expected an ExecutionStep, a Net, a NetBuilder, a callable taking the workspace, or a list of "
        f"those, found {type(source).__name__}: {source!r}"
    )
