"""Control flow as data: what a step does with its content beyond running it, and where a stop goes.

A *stop* is the op ``Stop``, or ``StopIf`` whose input is true. The rest of the net and of the steps around it is
left, outwards, up to and including the first step that *catches* it: a `Loop`, a `Guard`, a `While`, or a step
with ``num_iter`` or ``should_stop_blob``. A `When` lets it pass. What runs in a thread of its own (a concurrent
substep, an instance, a reporter), a set-up or exit block, and the body of a task catch it too: they end well.
"""

from __future__ import annotations

import math
import operator
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from jobcore.errors import BuildError
from jobcore.graph.names import check_name

if TYPE_CHECKING:
    from jobcore.graph.step import ExecutionStep

__all__ = [
    "LOCAL_REPORT",
    "LOCAL_SETUP",
    "REPORT_STEP",
    "TASK_INSTANCE_SETUP",
    "TASK_SETUP",
    "Control",
    "Guard",
    "Loop",
    "When",
    "While",
    "check_control",
    "check_flags",
    "positive_count",
    "positive_interval",
    "stop_comes_out",
]

# Keys of net attributes. Objects under the first three have `setup(net)`, `exit(net)` or both; the others are steps.
TASK_SETUP = "task_setup"
TASK_INSTANCE_SETUP = "task_instance_setup"
LOCAL_SETUP = "local_setup"
REPORT_STEP = "report_step"
LOCAL_REPORT = "local_report"

STOPS = frozenset({"Stop", "StopIf"})
"""The op types that stop."""


@dataclass(frozen=True, slots=True)
class Loop:
    """Repeat the content; looked at before each round.

    Attributes
    ----------
    count
        How often; 0 or less is never.
    count_blob
        A blob that tells, one integer; read once, when the loop begins.
    index_blob
        Is set to the number of rounds done, int64: to 0 when the loop begins, and after each whole round.
    """

    count: int | None = None
    count_blob: str | None = None
    index_blob: str | None = None

    def __post_init__(self) -> None:
        if self.count is not None and self.count_blob is not None:
            raise BuildError("expected a count or the blob of a count for a loop, found both")
        if self.count is not None:
            object.__setattr__(self, "count", _integer(self.count, "the count of a loop"))
        _check_blobs(self.count_blob, self.index_blob)

    @property
    def endless(self) -> bool:
        """Whether only a stop ends it."""
        return self.count is None and self.count_blob is None


@dataclass(frozen=True, slots=True)
class When:
    """Run the content once, or not: the branches of ``If``, ``Elif`` and ``Else``.

    The content runs when `taken` is not true and `condition` is; `taken` is set to true before it runs.

    Attributes
    ----------
    condition
        One boolean, or None: always.
    taken
        Shared by the branches of one chain: whether one of them has run. None for a chain of one.
    first
        Whether this is the first branch of its chain, which begins by setting `taken` to false.
    """

    condition: str | None = None
    taken: str | None = None
    first: bool = True

    def __post_init__(self) -> None:
        _check_blobs(self.condition, self.taken)
        if not self.first and self.taken is None:
            raise BuildError("expected the blob `taken` for a branch that is not the first, found None")


@dataclass(frozen=True, slots=True)
class Guard:
    """Run the content once, and catch a stop.

    Attributes
    ----------
    stopped
        Is set, after the content, to whether a stop left it.
    """

    stopped: str

    def __post_init__(self) -> None:
        _check_blobs(self.stopped)


@dataclass(frozen=True, slots=True)
class While:
    """Run the first substep, and as long as it leaves `condition` true, the second one and the first again.

    Attributes
    ----------
    condition
        One boolean.
    """

    condition: str

    def __post_init__(self) -> None:
        _check_blobs(self.condition)


Control: TypeAlias = "Loop | When | Guard | While"
"""What a step may do with its content."""


def check_flags(step: ExecutionStep, repeats: bool) -> None:
    """Look at the flags of a step that is being made; `repeats`: it was given a count or a stop blob.

    Raises
    ------
    BuildError
        They do not go together.
    """
    control = step.control
    if control is not None and not isinstance(control, (Loop, When, Guard, While)):
        raise BuildError(
            f"step {step.name!r}: expected Loop, When, Guard or While as control, found {control!r}"
        )
    if step.only_once and (step.num_iter is not None and repeats):
        raise BuildError(f"step {step.name!r}: expected num_iter or only_once, found both")
    given = [
        what
        for what, value in (
            ("num_iter or should_stop_blob", repeats),
            ("only_once", step.only_once),
            ("concurrent_substeps", step.concurrent_substeps),
            ("num_concurrent_instances", step.num_concurrent_instances > 1),
            ("run_every_ms", step.run_every_ms is not None),
        )
        if value
    ]
    if control is not None and given:
        raise BuildError(
            f"step {step.name!r}: expected control={control!r} alone, found {', '.join(given)} too",
            hint="put a step with these into the one with the control, or the other way round",
        )


def check_control(step: ExecutionStep) -> None:
    """Look at a finished step.

    Raises
    ------
    BuildError
        The parts do not fit the control, or nothing can end an endless loop.
    """
    control = step.control
    if isinstance(control, While) and (len(step.substeps) != 2 or any(s.run_every_ms for s in step.substeps)):
        raise BuildError(
            f"step {step.name!r}: expected two substeps for While, condition and body, found "
            f"{len(step.substeps)} substeps and {len(step.nets)} nets"
        )
    if isinstance(control, Loop) and control.endless and not _content_stops(step):
        raise BuildError(
            f"loop {step.name!r} built at {step.built_at or '?'} has no count, and nothing in it can stop it",
            hint="give a count, or write ops.stop_if(...) in it; a stop inside an inner loop, a stop_guard, or a "
            "concurrent part stays there",
        )


def stop_comes_out(step: ExecutionStep) -> bool:
    """Tell whether a stop somewhere in `step` leaves the step too."""
    if step.catches_stop or step.num_concurrent_instances > 1 or step.run_every_ms is not None:
        return False
    return _content_stops(step)


def _content_stops(step: ExecutionStep) -> bool:
    if step.num_concurrent_instances > 1:
        return False
    if any(op.type in STOPS for net in step.nets for op in net.ops):
        return True
    return not step.concurrent_substeps and any(map(stop_comes_out, step.substeps))


def positive_count(value: object, what: str) -> int:
    """Return `value` as an integer of at least 1.

    Raises
    ------
    BuildError
        It is none.
    """
    if isinstance(value, bool) or not hasattr(value, "__index__") or operator.index(value) < 1:
        raise BuildError(f"expected {what} to be an integer of at least 1, found {value!r}")
    return operator.index(value)


def positive_interval(value: object, what: str) -> float:
    """Return `value` as a number of time units above 0.

    Raises
    ------
    BuildError
        It is none.
    """
    if (
        isinstance(value, bool)
        or not isinstance(value, (int, float))
        or not math.isfinite(value)
        or value <= 0
    ):
        raise BuildError(f"expected {what} to be a number above 0, found {value!r}")
    return float(value)


def _integer(value: object, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise BuildError(f"expected {what} to be an integer, found {value!r}")
    return operator.index(value)


def _check_blobs(*names: str | None) -> None:
    for name in names:
        if name is not None:
            check_name(name, "blob name")
