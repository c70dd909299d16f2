"""Commits in the background: the record of an epoch is published as soon as its databases are written."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from jobcore.checkpoint.lineage import EpochRecord
from jobcore.errors import SaveTimeoutError

__all__ = ["PendingCommit"]


class PendingCommit:
    """An epoch whose databases are still being written; made by `Manager.commit_in_background`.

    Attributes
    ----------
    epoch : int
        The epoch.
    ended : float
        When it ended, by `time.perf_counter`; 0 before.

    Notes
    -----
    Thread-safe. The end of the process waits for it.
    """

    def __init__(self, epoch: int, commit: Callable[[], EpochRecord]) -> None:
        self.epoch = epoch
        self._commit = commit
        self.ended = 0.0
        self._ended = threading.Event()
        self._record: EpochRecord | None = None
        self._error: BaseException | None = None
        threading.Thread(target=self._run, name=f"commit of epoch {epoch}").start()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    def wait(self, timeout: float | None = None) -> EpochRecord:
        """Wait until the epoch exists.

        Parameters
        ----------
        timeout
            In seconds; None waits for ever.

        Raises
        ------
        SaveTimeoutError
            It takes longer; it goes on.
        SaveError, SupersededError
            As `Manager.commit`; there is no such epoch.
        """
        if not self._ended.wait(timeout):
            raise SaveTimeoutError(
                f"expected epoch {self.epoch} to be committed within {timeout} s, found its databases unfinished",
                hint="it goes on: wait again, with more time",
            )
        if self._error is not None:
            raise self._error
        assert self._record is not None
        return self._record

    def _run(self) -> None:
        try:
            self._record = self._commit()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to whoever waits
            self._error = error
        finally:
            self.ended = time.perf_counter()
            self._ended.set()
