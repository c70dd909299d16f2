"""What the claims and records of a run directory add up to, as values."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from jobcore.checkpoint.lineage import Claim, EpochRecord
from jobcore.errors import CheckpointNotFoundError

__all__ = ["History", "LogFault"]


@dataclass(frozen=True, slots=True)
class LogFault:
    """A claim or record that is damaged; `epoch` is None for a claim.

    With `unread` it could not be read when it was looked at, and may be whole.
    """

    path: str
    message: str
    epoch: int | None
    generation: int
    unread: bool = False


@dataclass(frozen=True, slots=True)
class History:
    """What a run directory holds at one moment.

    Attributes
    ----------
    records
        The records that count, by ascending epoch.
    superseded
        Records of epochs that a later start has left behind.
    claims
        All readable claims by ascending generation.
    faults
        Claims and records that could not be read.
    newest
        The largest generation that any file belongs to, 0 when there is none.
    """

    directory: Path
    records: tuple[EpochRecord, ...]
    superseded: tuple[EpochRecord, ...]
    claims: tuple[Claim, ...]
    faults: tuple[LogFault, ...]
    newest: int

    @property
    def epochs(self) -> tuple[int, ...]:
        """The epochs that exist, ascending."""
        return tuple(record.epoch for record in self.records)

    def latest(self) -> EpochRecord | None:
        """Return the record of the newest epoch, or None."""
        return self.records[-1] if self.records else None

    def get(self, epoch: int) -> EpochRecord:
        """Return the record of `epoch`.

        Raises
        ------
        CheckpointNotFoundError
            With the epochs that there are, and why this one does not count if its record is there.
        """
        for record in self.records:
            if record.epoch == epoch:
                return record
        there = ", ".join(map(str, self.epochs)) or "none"
        reasons = [f"{f.path}: {f.message}" for f in self.faults if f.epoch == epoch]
        reasons += [
            f"the record of generation {r.generation} was superseded when a later start resumed from an earlier epoch"
            for r in self.superseded
            if r.epoch == epoch
        ]
        why = f"; {'; '.join(reasons)}" if reasons else ""
        raise CheckpointNotFoundError(
            f"expected a complete epoch {epoch} in {self.directory}, found epochs: {there}{why}",
            hint='resume_from_epoch="latest" takes the newest one',
        )
