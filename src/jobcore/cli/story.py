"""What a run's events come to, as text: a pure state machine, events in and lines out.

It knows neither terminals nor threads. The displays print its lines and draw its snapshot.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from jobcore.cli.text import clean, count, rate, seconds, size, value
from jobcore.events import RunEvent

__all__ = ["Snapshot", "Story", "epoch_limit"]

_LIMITER = re.compile(r"epoch_limiter\((\d+)\)(?:#\d+)?")
_FIRST_SIGN_S = 10.0
_LAST_SIGN_S = 600.0
_RECENT = 10
_DOING = {"load": "loading epoch {}", "save": "saving epoch {}"}


def epoch_limit(conditions: Iterable[str]) -> int | None:
    """Return the number of epochs after which a job ends at the latest, or None when its conditions do not tell.

    Parameters
    ----------
    conditions
        Names of the job's stop conditions; those that ``epoch_limiter`` adds carry the number.
    """
    found = [int(match[1]) for name in conditions if (match := _LIMITER.fullmatch(name))]
    return min(found, default=None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What a live display shows at one moment.

    Attributes
    ----------
    stage, stage_s
        What is being done, and for how long.
    done, total
        Epochs that have ended, those before a resume included, and how many there will be.
    elapsed_s, left_s
        Since the run began, and until it will have ended; None when that cannot be told.
    last
        Seconds and outputs of the last epoch.
    saved
        Bytes and rate of the saves.
    """

    stage: str
    stage_s: float
    done: int
    total: int | None
    elapsed_s: float
    left_s: float | None
    last: str
    saved: str


class Story:
    """Turns the events of one run into lines, and keeps what a live display shows.

    Parameters
    ----------
    job, directory
        The job file and the run directory, as the user wrote them.
    clock
        Seconds from any origin.

    Attributes
    ----------
    total : int or None
        Number of the last epoch, once the job is known and if it tells.
    silent : frozenset of str
        Groups without tasks, of which nothing is told.
    begun : bool
        Whether this run has claimed the directory, so that going on means resuming from the latest epoch.
    stopping : bool
        Set when the user has interrupted the run. A plain attribute, for a signal handler may take no lock.
    """

    def __init__(self, job: str, directory: str, *, clock: Callable[[], float] = time.monotonic) -> None:
        self.job = clean(job)
        self.directory = clean(directory)
        self.total: int | None = None
        self.silent: frozenset[str] = frozenset()
        self.begun = False
        self.stopping = False
        self._clock = clock
        self._began = clock()
        self._stage = ""
        self._stage_began = self._next_sign = self._began
        self._steady = False
        self._pending = ""
        self._epoch: int | None = None
        self._done = 0
        self._last = ""
        self._durations: deque[float] = deque(maxlen=_RECENT)
        self._saves = self._saved_bytes = self._failed = 0
        self._saved_epoch: int | None = None
        self._saved = ""
        self._finished: RunEvent | None = None
        self.begin_stage(f"reading {self.job}")

    def begin_stage(self, text: str, *, steady: bool = False) -> None:
        """Note that something begins that may take long; `steady` asks for a sign of life at even intervals."""
        self._stage = text
        self._stage_began = self._clock()
        self._next_sign = self._stage_began + _FIRST_SIGN_S
        self._steady = steady

    def tell(self, event: RunEvent) -> list[str]:
        """Take an event and return the lines that it completes, most often one or none.

        An epoch and its save share a line, which comes when the save is over.
        """
        teller = getattr(self, f"_on_{event.kind}", None)
        return [] if teller is None else teller(event)

    def sign_of_life(self) -> str | None:
        """Return a line when the present stage has been silent for long, else None."""
        now = self._clock()
        if now < self._next_sign:
            return None
        elapsed = now - self._stage_began
        # Every 10 s while bytes move, else after 10, 20, 40 ... s: an epoch of a day is no news every 10 s.
        self._next_sign = now + (
            _FIRST_SIGN_S if self._steady else min(max(elapsed, _FIRST_SIGN_S), _LAST_SIGN_S)
        )
        return f"{self.stage}: {elapsed:.0f} s so far"

    def ending(self) -> str:
        """Return the last line of a run that was completed: what was reached, and where the checkpoints are."""
        event = self._finished
        if event is None or event.epoch is None:
            return f"ended; checkpoints in {self.directory}"
        line = f"completed: {self.where(event.epoch)} in {seconds(event.seconds)}"
        if self._failed:
            newest = "none" if self._saved_epoch is None else f"epoch {self._saved_epoch}"
            line += f"; {count(self._failed, 'save')} failed, newest saved: {newest}"
        return f"{line}; checkpoints in {self.directory}"

    def where(self, epoch: int | None) -> str:
        """Return ``epoch 3/15``, or ``epoch 3`` when nobody knows of how many, or there have been more already."""
        known = self.total is not None and (epoch or 0) <= self.total
        return f"epoch {epoch}/{self.total}" if known else f"epoch {epoch}"

    @property
    def stage(self) -> str:
        """What is being done."""
        return "stopping the running tasks (Ctrl-C again does not wait)" if self.stopping else self._stage

    @property
    def reached(self) -> str:
        """Where a run stands that does not end well: ``in epoch 4/15``, ``while saving epoch 4``."""
        if self._stage.startswith("after "):
            return self._stage
        doing = self._stage.startswith(("reading", "starting", "loading", "saving"))
        return f"{'while' if doing else 'in'} {self._stage}"

    def snapshot(self) -> Snapshot:
        """Return what a live display shows now."""
        now = self._clock()
        left: float | None = None
        if self.total is not None and self._durations:
            mean = sum(self._durations) / len(self._durations)
            spent = now - self._stage_began if self._epoch is not None and self._epoch > self._done else 0.0
            left = max(mean * (self.total - self._done) - min(spent, mean), 0.0)
        return Snapshot(
            stage=self.stage,
            stage_s=now - self._stage_began,
            done=self._done,
            total=self.total,
            elapsed_s=now - self._began,
            left_s=left,
            last=self._last,
            saved=self._saved,
        )

    # -- one method a kind of event, found by its name

    def _on_run_started(self, _event: RunEvent) -> list[str]:
        self.begin_stage("starting")
        return [f"run: {self.job}, checkpoints in {self.directory}"]

    def _on_group_started(self, event: RunEvent) -> list[str]:
        self.begun = self.begun or event.group == "save"
        text = _DOING.get(event.group, event.group).format(event.epoch)
        text += f" ({size(event.size_bytes)})" if event.size_bytes else ""
        self.begin_stage(text, steady=event.group in _DOING)
        return []

    def _on_group_finished(self, event: RunEvent) -> list[str]:
        # What a load came to is told by `resumed`, or by the warning of a damaged epoch.
        if event.group in self.silent or event.group == "load":
            return []
        return [f"{event.group}: {seconds(event.seconds)}"]

    def _on_resumed(self, event: RunEvent) -> list[str]:
        self._done = event.epoch or 0
        self._saved_epoch = event.epoch
        return [f"resumed from {self.where(event.epoch)}: loaded {_bytes_in(event)}"]

    def _on_epoch_started(self, event: RunEvent) -> list[str]:
        self.begun = True
        self._epoch = event.epoch
        self.begin_stage(self.where(event.epoch))
        return []

    def _on_epoch_finished(self, event: RunEvent) -> list[str]:
        outputs = [f"{clean(label)} {value(found)}" for label, found in (event.outputs or {}).items()]
        self._last = ", ".join([seconds(event.seconds), *outputs])
        self._pending = f"{self.where(event.epoch)}: {self._last}"
        self._done = event.epoch or 0
        self._durations.append(event.seconds)
        return []

    def _on_save_staged(self, event: RunEvent) -> list[str]:
        # The line of the epoch waits for what comes of its save.
        self.begin_stage(f"after {self.where(event.epoch)}")
        return []

    def _on_save_finished(self, event: RunEvent) -> list[str]:
        head = f"{self._pending}; " if self._pending else f"{self.where(event.epoch)}: "
        self._pending = ""
        self.begin_stage(f"after {self.where(event.epoch)}")
        if event.status != "saved":
            # The warning before this line says why.
            self._failed += event.status == "failed"
            return [f"{head}not saved ({clean(event.status)})"]
        if self._durations and event.epoch:
            self._durations[-1] += event.seconds
        self._saves += 1
        self._saved_bytes += event.size_bytes
        self._saved_epoch = event.epoch
        speed = rate(event.size_bytes, event.seconds)
        self._saved = (
            f"{size(self._saved_bytes)} in {count(self._saves, 'checkpoint')}, the last {_bytes_in(event)}"
        )
        self._saved += f" ({speed})" if speed else ""
        return [f"{head}saved {_bytes_in(event)}"]

    def _on_stopped(self, event: RunEvent) -> list[str]:
        return [f"stopped at {self.where(event.epoch)}: {clean(event.message)}"]

    def _on_run_finished(self, event: RunEvent) -> list[str]:
        self._finished = event
        # An epoch that ended and whose save did not: its numbers are told nevertheless.
        pending, self._pending = self._pending, ""
        return [f"{pending}; not saved"] if pending else []


def _bytes_in(event: RunEvent) -> str:
    return f"{size(event.size_bytes)} in {seconds(event.seconds)}"
