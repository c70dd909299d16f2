"""What a save, an epoch and a run came to."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal

__all__ = ["EpochResult", "RunResult", "SaveResult"]


@dataclass(frozen=True, slots=True)
class SaveResult:
    """The outcome of one save; no save ends without one.

    Attributes
    ----------
    epoch
        The epoch.
    status
        ``saved``: committed and durable. ``pending``: copied, and being written in the background; the result gets
        another in its place when that has ended. ``skipped``: not tried, see `reason`. ``failed``: tried, see `error`;
        earlier epochs are untouched.
    stage
        For a failure, what failed: ``write`` (a database), ``commit`` (the record), or ``handler``: the metadata
        handler, asked whether to save. ``handler`` on a *saved* epoch says that it failed after the data were complete.
    size_bytes, seconds
        Bytes of all nodes' databases, and wall time.
    skipped_blobs
        Node name to (blob name, reason) pairs of what the checkpoint leaves out.
    """

    epoch: int
    status: Literal["saved", "pending", "skipped", "failed"]
    reason: str = ""
    stage: Literal["", "write", "commit", "handler"] = ""
    error: BaseException | None = None
    size_bytes: int = 0
    seconds: float = 0.0
    skipped_blobs: dict[str, tuple[tuple[str, str], ...]] = field(default_factory=dict)

    @property
    def saved(self) -> bool:
        """Whether the epoch exists now."""
        return self.status == "saved"


@dataclass(frozen=True, slots=True)
class EpochResult:
    """One epoch that ran: its number, wall time of the epoch group, and its save (None without a manager)."""

    epoch: int
    seconds: float
    save: SaveResult | None


@dataclass(slots=True)
class RunResult:
    """What a run has come to; filled while it goes on, so that it is there after a failure too.

    Attributes
    ----------
    status
        ``running``, ``completed``, ``failed`` or ``interrupted``.
    resumed_from
        The epoch that was loaded; None for a start from scratch.
    last_epoch
        The last epoch that ended, in this run or before it; None when none has.
    initial_save
        The save of epoch 0.
    epochs
        The epochs that this run ran.
    damaged
        Epochs passed over while resuming, each with what was wrong.
    """

    status: Literal["running", "completed", "failed", "interrupted"] = "running"
    resumed_from: int | None = None
    last_epoch: int | None = None
    initial_save: SaveResult | None = None
    epochs: list[EpochResult] = field(default_factory=list)
    damaged: list[tuple[int, str]] = field(default_factory=list)

    def settle(self, save: SaveResult) -> None:
        """Put the outcome of a save in the place of its pending one."""
        if self.initial_save is not None and self.initial_save.epoch == save.epoch:
            self.initial_save = save
        for at, done in enumerate(self.epochs):
            if done.epoch == save.epoch:
                self.epochs[at] = replace(done, save=save)

    @property
    def saves(self) -> list[SaveResult]:
        """All saves in order."""
        first = [] if self.initial_save is None else [self.initial_save]
        return first + [e.save for e in self.epochs if e.save is not None]

    @property
    def failed_saves(self) -> list[SaveResult]:
        """The saves that failed."""
        return [save for save in self.saves if save.status == "failed"]
