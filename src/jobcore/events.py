"""What a run tells those who watch it."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Literal, TypeAlias

__all__ = ["Observer", "RunEvent"]

_Kind: TypeAlias = Literal[
    "run_started",
    "resumed",
    "checkpoint_damaged",
    "group_started",
    "group_finished",
    "epoch_started",
    "epoch_finished",
    "save_staged",
    "save_finished",
    "stopped",
    "run_finished",
]


@dataclass(frozen=True, slots=True)
class RunEvent:
    """One thing that happened in a run.

    Attributes
    ----------
    kind
        What happened.
    epoch
        The epoch that it concerns, None where there is none.
    group
        For group events: ``setup``, ``init``, ``load``, ``epoch``, ``save``, ``upload``, ``download``, ``exit``.
    seconds
        Wall time of what has finished.
    size_bytes
        Bytes saved or loaded.
    status
        For ``save_finished``: ``saved``, ``skipped`` or ``failed``; for ``run_finished`` the run's status.
    message
        More, for people.
    outputs
        For ``epoch_finished``: label of each output of the epoch group to its value.
    """

    kind: _Kind
    epoch: int | None = None
    group: str = ""
    seconds: float = 0.0
    size_bytes: int = 0
    status: str = ""
    message: str = ""
    outputs: dict[str, object] | None = None


Observer: TypeAlias = Callable[[RunEvent], None]


class Observers:
    """Passes events on; an observer that raises is dropped with a warning, since a display must not end a run."""

    def __init__(self, observers: Iterable[Observer]) -> None:
        self._observers = list(observers)

    @property
    def wanted(self) -> bool:
        """Whether anybody gets events: if not, none need be made where they are many."""
        return bool(self._observers)

    def __call__(self, event: RunEvent) -> None:
        for observer in list(self._observers):
            try:
                observer(event)
            except Exception as error:  # noqa: BLE001 - whatever a display raises, the training goes on
                self._observers.remove(observer)
                warnings.warn(
                    f"observer {observer!r} raised {type(error).__name__}: {error}; it gets no further events",
                    RuntimeWarning,
                    stacklevel=2,
                )
