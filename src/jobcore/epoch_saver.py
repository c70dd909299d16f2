"""What a job runner does to save an epoch: ask the handler, save, commit, tell, and count failures."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from jobcore.checkpoint import EpochRecord, Manager, PendingCommit, SaveFailurePolicy, SaveResult
from jobcore.checkpoint.paths import check_epoch
from jobcore.errors import TaskGroupError
from jobcore.events import Observers, RunEvent
from jobcore.runtime import Session

__all__ = ["CheckpointWarning", "EpochSaver", "tell_handler"]


class CheckpointWarning(UserWarning):
    """A checkpoint could not be written, or a damaged one was passed over; training goes on."""


@dataclass(slots=True)
class _Background:
    """A save that is being written: when it began, and what commits it."""

    begun: float
    commit: PendingCommit


class EpochSaver:
    """Saves the epochs of one run, one after the other.

    Parameters
    ----------
    manager
        Builds the tasks and commits.
    policy
        What a failed save does to the run.
    emit
        Takes the events.
    settled
        Called with the outcome of a save that was pending.
    """

    def __init__(
        self,
        manager: Manager,
        policy: SaveFailurePolicy,
        emit: Observers,
        settled: Callable[[SaveResult], None],
    ) -> None:
        self._manager = manager
        self._policy = policy
        self._emit = emit
        self._settled = settled
        self._failures = 0
        self._background: _Background | None = None

    def save(self, epoch: int, session: Session, stop: Mapping[str, Any] | None) -> SaveResult:
        """Save an epoch, and wait until it exists."""
        result = self._begin(check_epoch("epoch", epoch), session, stop or {})
        return self.settle() or result

    def begin(self, epoch: int, session: Session, stop: Mapping[str, Any] | None) -> SaveResult:
        """Save an epoch; the result is pending when it goes on in the background."""
        if self._emit.wanted:
            self._emit(RunEvent("group_started", epoch, "save"))
        return self._begin(check_epoch("epoch", epoch), session, stop or {})

    def settle(self) -> SaveResult | None:
        """Wait for the save in the background, and give what came of it; None when there is none."""
        background, self._background = self._background, None
        if background is None:
            return None
        commit = background.commit
        try:
            record = commit.wait()
        except BaseException as error:
            if not commit.done:
                # Interrupted while waiting: it goes on, and the end of the run waits for it.
                self._background = background
                raise
            if not _is_environments(error):
                raise
            result = self._failed(commit.epoch, "write", error, commit.ended - background.begun)
        else:
            result = self._saved(record, commit.ended - background.begun)
        self._report(result)
        self._settled(result)
        return result

    def drain(self, error: BaseException) -> None:
        """Let the save in the background end before the run does, which ends by `error`."""
        try:
            self.settle()
        except Exception as failure:  # noqa: BLE001 - the error that is on its way says more; this one goes with it
            error.add_note(f"and the save in the background failed: {failure}")

    def apply_policy(self, save: SaveResult | None, *, last: bool = False) -> None:
        """Raise the error of a failed save where the policy ends the run."""
        if save is None or save.status != "failed" or not self._policy.ends_run(self._failures, last=last):
            return
        assert save.error is not None
        save.error.add_note(f"{self._failures} save(s) in a row have failed; the run ends by {self._policy}")
        raise save.error

    def _begin(self, epoch: int, session: Session, stop: Mapping[str, Any]) -> SaveResult:
        self.settle()
        result = self._try(epoch, session, stop)
        if result.status == "pending":
            self._emit(RunEvent("save_staged", epoch, "save", result.seconds))
        else:
            self._report(result)
        return result

    def _try(self, epoch: int, session: Session, stop: Mapping[str, Any]) -> SaveResult:
        manager, begun = self._manager, time.perf_counter()
        try:
            accessible = manager.cp_accessible(epoch)
        except Exception as error:  # noqa: BLE001 - a handler is foreign code; the policy says what its failure does
            return SaveResult(epoch, "failed", stage="handler", error=error)
        if not accessible:
            return SaveResult(epoch, "skipped", reason="the metadata handler said not to save now")
        stage: Literal["write", "commit"] = "write"
        try:
            session.run(manager.save(epoch, stop))
            stage = "commit"
            if manager.background:
                seconds = time.perf_counter() - begun
                self._background = _Background(begun, manager.commit_in_background(epoch, stop))
                return SaveResult(epoch, "pending", seconds=seconds)
            record = manager.commit(epoch, stop)
        except BaseException as error:
            if not isinstance(error, TaskGroupError | OSError) or not _is_environments(error):
                manager.abandon_save()
                raise
            return self._failed(epoch, stage, error, time.perf_counter() - begun)
        return self._saved(record, time.perf_counter() - begun)

    def _saved(self, record: EpochRecord, seconds: float) -> SaveResult:
        skipped = self._manager.skipped_blobs()
        failed = tell_handler(self._manager, "checkpoint_save", record.epoch)
        return SaveResult(
            record.epoch,
            "saved",
            stage="handler" if failed else "",
            error=failed,
            size_bytes=record.size_bytes,
            seconds=seconds,
            skipped_blobs=skipped,
        )

    def _failed(
        self, epoch: int, stage: Literal["write", "commit"], error: BaseException, seconds: float
    ) -> SaveResult:
        try:
            self._manager.discard(epoch)
        except OSError as failure:
            warnings.warn(
                f"left-overs of epoch {epoch} stay behind: {failure}", CheckpointWarning, stacklevel=4
            )
        return SaveResult(epoch, "failed", stage=stage, error=error, seconds=seconds)

    def _report(self, result: SaveResult) -> None:
        self._failures = self._failures + 1 if result.status == "failed" else 0
        if result.status != "saved" or result.error is not None:
            warnings.warn(_describe(result), CheckpointWarning, stacklevel=4)
        if not self._emit.wanted:
            return
        message = result.reason or (str(result.error) if result.error else "")
        self._emit(
            RunEvent(
                "save_finished",
                result.epoch,
                "save",
                result.seconds,
                result.size_bytes,
                result.status,
                message,
            )
        )


def tell_handler(manager: Manager, action: str, epoch: int | None = None) -> Exception | None:
    """Tell the handler of a manager about an epoch that was saved, or of what was loaded; give what it raised."""
    # The data are complete at this point: what a handler raises is its own failure, never the checkpoint's.
    try:
        if epoch is not None:
            manager.write_checkpoint_metadata(epoch)
        manager.report_checkpoint_stats(action)
    except Exception as error:  # noqa: BLE001 - a handler is foreign code; its error is kept and reported
        if epoch is None:
            warnings.warn(
                f"metadata handler: {type(error).__name__}: {error}", CheckpointWarning, stacklevel=2
            )
        return error
    return None


def _is_environments(error: BaseException) -> bool:
    """Tell whether the environment made a save fail, and not the program."""
    if isinstance(error, TaskGroupError):
        return all(isinstance(failure.error, OSError) for failure in error.failures)
    return isinstance(error, OSError)


def _describe(result: SaveResult) -> str:
    if result.status == "saved":
        return f"epoch {result.epoch} is saved, but the metadata handler failed: {result.error!r}"
    if result.status == "skipped":
        return f"epoch {result.epoch} was not saved: {result.reason}"
    return f"epoch {result.epoch} could not be saved ({result.stage}): {result.error}"
