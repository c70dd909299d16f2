"""``jobcore run``: runs the job that a Python file defines, with checkpoints, and goes on where it stopped."""

from __future__ import annotations

import contextlib
import shlex
import signal
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any, Literal

import click

from jobcore.checkpoint import CommitLog, MultiNodeCheckpointManager, RunDirectory, SaveFailurePolicy
from jobcore.cli.common import CommandError
from jobcore.cli.display import Display, open_display, warnings_as_lines
from jobcore.cli.failure import FULL_TRACEBACK_HINT, explain
from jobcore.cli.jobfile import JobFile, JobFileError, SettingError, open_job_file, parse_settings
from jobcore.cli.story import Story, epoch_limit
from jobcore.cli.text import clean, count
from jobcore.errors import JobcoreError, SupersededError, TaskGroupError

__all__ = ["run_command"]

_INTERRUPTED = 130
_Resume = int | Literal["latest"] | None


class _ResumeType(click.ParamType):
    """``latest``, the number of an epoch, or ``none``."""

    name = "latest|N|none"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        if value in ("latest", "none") or (isinstance(value, str) and value.isascii() and value.isdigit()):
            return value
        return self.fail(f"expected latest, the number of an epoch, or none, found {value!r}", param, ctx)


class _PolicyType(click.ParamType):
    """``warn``, ``raise``, or a number of failures."""

    name = "warn|raise|N"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> SaveFailurePolicy:
        if value == "warn":
            return SaveFailurePolicy.warn()
        if value == "raise":
            return SaveFailurePolicy.raise_at_once()
        if isinstance(value, str) and value.isascii() and value.isdigit() and int(value) > 0:
            return SaveFailurePolicy.raise_after(int(value))
        return self.fail(f"expected warn, raise, or a number of at least 1, found {value!r}", param, ctx)


@dataclass(frozen=True, slots=True)
class _Order:
    """What the user asked for."""

    file: str
    directory: str
    directory_given: bool
    resume: str
    settings: dict[str, str]
    policy: SaveFailurePolicy
    policy_given: str
    plain: bool
    traceback: bool

    @property
    def resume_from_epoch(self) -> _Resume:
        """As `JobRunner` takes it."""
        return {"latest": "latest", "none": None}.get(self.resume, int(self.resume) if self.resume.isdigit() else None)  # type: ignore[return-value]  # the dictionary holds both words

    def command(self, *, going_on: bool) -> str:
        """Return the command that goes on with the run, or that does the same again."""
        words = ["jobcore", "run", self.file]
        words += ["--dir", self.directory] if self.directory_given else []
        words += ["--resume", self.resume] if self.resume != "latest" and not going_on else []
        for key, text in self.settings.items():
            words += ["--set", f"{key}={text}"]
        words += ["--on-save-failure", self.policy_given] if self.policy_given else []
        words += ["--plain"] if self.plain else []
        return shlex.join(words)
