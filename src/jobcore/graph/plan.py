"""A plan: top-level steps that run one after another on one workspace."""

from __future__ import annotations

from jobcore.errors import BuildError
from jobcore.graph.names import check_name
from jobcore.graph.net import Net
from jobcore.graph.step import ExecutionStep, Steppable, to_execution_step
from jobcore.graph.where import built_at

__all__ = ["Plan"]


class Plan:
    """Named list of steps, with the nets that they use.

    Parameters
    ----------
    name_or_step
        A name, or the first step, after which the plan is named.

    Notes
    -----
    Thread safety: none while it is built.
    """

    def __init__(self, name_or_step: str | Steppable) -> None:
        self.built_at = built_at()
        self._steps: list[ExecutionStep] = []
        self._nets: dict[str, Net] = {}
        self._frozen_by: str | None = None
        if isinstance(name_or_step, str):
            self.name = check_name(name_or_step, "plan name")
        else:
            step = to_execution_step(name_or_step, built_at=self.built_at)
            self.name = step.name
            self.add_step(step)

    @property
    def steps(self) -> tuple[ExecutionStep, ...]:
        """The top-level steps in order."""
        return tuple(self._steps)

    @property
    def nets(self) -> tuple[Net, ...]:
        """All nets of the steps, in order of first use."""
        return tuple(self._nets.values())

    def add_step(self, step: Steppable) -> ExecutionStep:
        """Append a step, also an empty one, freeze it and return it.

        Raises
        ------
        BuildError
            The plan is frozen, or another net of one of the same names is part of it already; the plan
            is as before then.
        """
        if self._frozen_by is not None:
            raise BuildError(f"plan {self.name!r} was frozen by {self._frozen_by}; a step came too late")
        step = to_execution_step(step)
        self._nets = merge_nets(self._nets, step, f"plan {self.name!r}")
        step.freeze(f"plan {self.name!r}")
        self._steps.append(step)
        return step

    def freeze(self, by: str = "freeze()") -> None:
        """Refuse every later change."""
        self._frozen_by = self._frozen_by or by

    def __repr__(self) -> str:
        return f"Plan(name={self.name!r}, steps={[step.name for step in self._steps]})"


def merge_nets(nets: dict[str, Net], step: ExecutionStep, what: str) -> dict[str, Net]:
    """Return `nets` with those of `step`.

    Raises
    ------
    BuildError
        Two different nets have one name: their automatic blob names would be the same.
    """
    merged = dict(nets)
    for net in step.all_nets():
        other = merged.setdefault(net.name, net)
        if other is not net:
            raise BuildError(
                f"{what} has two different nets named {net.name!r}, built at {other.built_at or '?'} and "
                f"at {net.built_at or '?'}",
                hint="name them differently, or build them inside one job, task group or NetBuilder, "
                "which number equal names",
            )
    return merged
