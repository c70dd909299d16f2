"""What to do when a checkpoint cannot be written: a small value, decided apart from the runner."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["SaveFailurePolicy"]


@dataclass(frozen=True, slots=True)
class SaveFailurePolicy:
    """What a failed save does to the run.

    Parameters
    ----------
    max_consecutive
        How many saves in a row may fail; the next failure is raised. ``None`` for any number.
    raise_at_end
        Whether the run ends in the error when its last epoch could not be saved.

    Notes
    -----
    Every failure is a warning and appears in the run's result, whatever the policy. It concerns what the
    environment does (disk, rights, handler); errors in the program, such as a blob that cannot be stored, and
    a run that another process has taken over are always raised.
    """

    max_consecutive: int | None
    raise_at_end: bool = True

    def __post_init__(self) -> None:
        if self.max_consecutive is not None and self.max_consecutive < 0:
            raise ValueError(f"expected max_consecutive of at least 0 or None, found {self.max_consecutive}")

    @classmethod
    def warn(cls) -> SaveFailurePolicy:
        """Go on whatever happens; only warn."""
        return cls(None, raise_at_end=False)

    @classmethod
    def raise_at_once(cls) -> SaveFailurePolicy:
        """End the run at the first failure."""
        return cls(0)

    @classmethod
    def raise_after(cls, failures: int) -> SaveFailurePolicy:
        """End the run when `failures` saves in a row have failed, or the last one of the run."""
        if failures < 1:
            raise ValueError(f"expected at least 1 failure, found {failures}")
        return cls(failures - 1)

    def ends_run(self, consecutive: int, *, last: bool = False) -> bool:
        """Tell whether the run ends now, after `consecutive` failures; `last` at the end of the run."""
        if last and consecutive and self.raise_at_end:
            return True
        return self.max_consecutive is not None and consecutive > self.max_consecutive
