"""``jobcore run``: runs the job that a Python file defines, with checkpoints, and goes on where it stopped."""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Literal

import click

from jobcore.checkpoint import CommitLog, MultiNodeCheckpointManager, RunDirectory, SaveFailurePolicy
from jobcore.cli.common import end
from jobcore.cli.display import Display, open_display, warnings_as_lines
from jobcore.cli.failure import FULL_TRACEBACK_HINT, explain
from jobcore.cli.jobfile import JobFileError, SettingError, open_job_file, parse_settings
from jobcore.cli.story import Story, epoch_limit
from jobcore.cli.text import clean
from jobcore.errors import JobcoreError, SupersededError, TaskGroupError
from jobcore.runtime import LocalSession, Terminated, terminable

__all__ = ["run_command"]

_INTERRUPTED = 130
_GROUPS = ("setup", "init", "download", "exit")
_DB_TYPES = ("zarr.zip", "zarr")


def _words(*words: str, least: int) -> Callable[[click.Context, click.Parameter, str | None], str | None]:
    """Return the check of an option that takes one of `words` or a number from `least` on; the text is its value."""

    def check(ctx: click.Context, param: click.Parameter, text: str | None) -> str | None:
        if text is None or text in words or (text.isascii() and text.isdigit() and int(text) >= least):
            return text
        expected = f"{', '.join(words)}, or a number of at least {least}"
        raise click.BadParameter(f"expected {expected}, found {text!r}", ctx, param)

    return check


@dataclass(frozen=True, slots=True)
class _Order:
    """What the user asked for; `directory` and `on_save_failure` are None where the default will do."""

    file: str
    directory: str | None
    db_type: str
    resume: str
    settings: dict[str, str]
    on_save_failure: str | None
    plain: bool

    @property
    def run(self) -> str:
        """The run directory."""
        return self.directory or os.path.join("runs", Path(self.file).stem)  # noqa: PTH118 - to be shown as text

    @property
    def resume_from_epoch(self) -> int | Literal["latest"] | None:
        """As `JobRunner` takes it."""
        if self.resume == "latest":
            return "latest"
        return None if self.resume == "none" else int(self.resume)

    @property
    def policy(self) -> SaveFailurePolicy | None:
        """As `JobRunner` takes it."""
        match self.on_save_failure:
            case None:
                return None
            case "warn":
                return SaveFailurePolicy.warn()
            case "raise":
                return SaveFailurePolicy.raise_at_once()
            case failures:
                return SaveFailurePolicy.raise_after(int(failures))

    def command(self, *, going_on: bool) -> str:
        """Return the command that goes on with this run once it has begun, or that starts the same again."""
        words = ["jobcore", "run", self.file]
        words += ["--dir", self.directory] if self.directory else []
        words += ["--db-type", self.db_type] if self.db_type != _DB_TYPES[0] else []
        words += ["--resume", self.resume] if self.resume != "latest" and not going_on else []
        words += [word for key, text in self.settings.items() for word in ("--set", f"{key}={text}")]
        words += ["--on-save-failure", self.on_save_failure] if self.on_save_failure else []
        words += ["--plain"] if self.plain else []
        return shlex.join(words)


_EXAMPLES = """\b
Examples:
  jobcore run examples/digits.py
  jobcore run examples/digits.py --dir runs/wide --set hidden=128 --set rate=0.05
  jobcore run examples/digits.py --set epochs=30        go on to epoch 30
  jobcore run examples/digits.py --resume 3             go on from epoch 3
"""


@click.command("run", epilog=_EXAMPLES, short_help="Run a job, or go on with it.")
@click.argument("file", type=click.Path())
@click.option(
    "--dir",
    "directory",
    metavar="RUN",
    type=click.Path(),
    help="The run directory, for checkpoints.  [default: runs/<name of FILE>]",
)
@click.option(
    "--db-type",
    type=click.Choice(_DB_TYPES),
    default=_DB_TYPES[0],
    show_default=True,
    help="Save each checkpoint as one file, or as a directory that shares what has not changed with the epoch before.",
)
@click.option(
    "--resume",
    metavar="latest|N|none",
    callback=_words("latest", "none", least=0),
    default="latest",
    show_default=True,
    help="Go on from the newest undamaged epoch, or from epoch N; none starts from scratch.",
)
@click.option(
    "--set",
    "settings",
    metavar="KEY=VALUE",
    multiple=True,
    help="Give a parameter of build_job a value. May be repeated.",
)
@click.option(
    "--on-save-failure",
    metavar="warn|raise|N",
    callback=_words("warn", "raise", least=1),
    help="What failed saves do: only warn, end the run at once, or when N in a row have failed.  [default: 3]",
)
@click.option("--plain", is_flag=True, help="Print plain lines on a terminal too.")
@click.option("--traceback", "full", is_flag=True, help="After a failure show the full traceback.")
def run_command(
    file: str,
    directory: str | None,
    db_type: str,
    resume: str,
    settings: tuple[str, ...],
    on_save_failure: str | None,
    plain: bool,
    full: bool,
) -> None:
    """Run the job that FILE defines, saving a checkpoint after every epoch.

    FILE is a Python file with a function build_job(...) that returns a Job. The same command again goes on from the
    last complete epoch, whatever ended the run.

    The exit status is 0 when the job is completed, 1 when it failed, 2 when the command was used wrongly, 130 after
    Ctrl-C, 143 after SIGTERM.
    """
    try:
        order = _Order(file, directory, db_type, resume, parse_settings(settings), on_save_failure, plain)
    except SettingError as error:
        raise click.UsageError(str(error)) from None
    if os.path.isfile(os.path.expanduser(order.run)):  # noqa: PTH111, PTH113 - Path raises for what may not be looked at
        raise click.UsageError(
            f"--dir: expected a directory for checkpoints, found the file {clean(order.run)}"
        )
    story = Story(file, order.run)
    interrupts = _Interrupts()
    try:
        with (
            open_display(story, plain=plain) as display,
            warnings_as_lines(display),
            interrupts.heard(display),
        ):
            _train(order, story, display)
            # Within the display, which outlives a broken pipe: a run that was completed ends with status 0.
            display.line(story.ending())
    except (JobFileError, SettingError) as error:
        raise click.UsageError(str(error)) from None
    except KeyboardInterrupt:
        with _leaving_at_once(when=interrupts.count > 1):
            end([f"interrupted {story.reached}", *_advice(order, story)], _INTERRUPTED)
    except Terminated as stop:
        end([f"ended by {stop.signal} {story.reached}", *_advice(order, story)], int(str(stop.code)))
    except SystemExit as stop:
        status = stop.code if isinstance(stop.code, int) and stop.code else 1
        told = f"error: the job called sys.exit({stop.code!r}) {story.reached}"
        end([told, *_advice(order, story)], status)
    except Exception as error:  # noqa: BLE001 - the job's own code may raise anything; all of it is told
        end(_failure(error, order, story, full=full))


def _train(order: _Order, story: Story, display: Display) -> None:
    from jobcore.runner import JobRunner

    with open_job_file(order.file) as job_file:
        job = job_file.build(job_file.values(order.settings))
        story.total = epoch_limit(condition.name for condition in job.stop_conditions)
        story.silent = frozenset(name for name in _GROUPS if not getattr(job, f"{name}_group").tasks())
        manager = MultiNodeCheckpointManager(order.run, order.db_type)
        runner = JobRunner(
            job,
            manager,
            resume_from_epoch=order.resume_from_epoch,
            on_save_failure=order.policy,
            observers=[display],
        )
        with LocalSession() as session, terminable():
            runner.train(session)


def _failure(error: Exception, order: _Order, story: Story, *, full: bool) -> list[str]:
    lines = explain(error, full=full)
    if not full and (isinstance(error, TaskGroupError) or not isinstance(error, JobcoreError)):
        lines.append(FULL_TRACEBACK_HINT)
    # What keeps a run from beginning is for the user to mend. And where somebody else has gone on with the run, the
    # same command would take it from them again.
    if isinstance(error, SupersededError) or (isinstance(error, JobcoreError) and not story.begun):
        return lines
    return [*lines, f"stopped {story.reached}", *_advice(order, story)]


def _advice(order: _Order, story: Story) -> list[str]:
    """Return what is safe, and how to go on; read from the directory, which knows better than any display."""
    newest = None
    with contextlib.suppress(JobcoreError, OSError):
        newest = CommitLog(RunDirectory.at(order.run, order.db_type)).read(tolerant=True).latest()
    command = order.command(going_on=story.begun)
    if newest is None:
        return ["no epoch is complete yet", f"to start again: {command}"]
    if story.begun:
        return [
            f"epoch {newest.epoch} is complete and safe in {clean(order.run)}",
            f"to go on from it: {command}",
        ]
    return [
        f"nothing has changed: epoch {newest.epoch} is the newest in {clean(order.run)}",
        f"to try again: {command}",
    ]


class _Interrupts:
    """Counts Ctrl-C, and shows at once that it was heard, since the running steps may take a while to end."""

    def __init__(self) -> None:
        self.count = 0

    @contextlib.contextmanager
    def heard(self, display: Display) -> Iterator[None]:
        """Hear Ctrl-C within the block."""
        main = threading.current_thread() is threading.main_thread()
        # A process that was started with SIGINT ignored, such as by nohup, keeps ignoring it.
        if not main or signal.getsignal(signal.SIGINT) is not signal.default_int_handler:
            yield
            return

        def interrupt(number: int, frame: FrameType | None) -> None:
            self.count += 1
            display.interrupt()
            signal.default_int_handler(number, frame)

        signal.signal(signal.SIGINT, interrupt)
        try:
            yield
        finally:
            # Who has pressed it twice may press it again; that must not cut off the last lines, which say what is safe.
            signal.signal(signal.SIGINT, signal.SIG_IGN if self.count > 1 else signal.default_int_handler)


@contextlib.contextmanager
def _leaving_at_once(*, when: bool) -> Iterator[None]:
    """End the process after the block, if `when`, without waiting for threads.

    The second Ctrl-C means that the tasks take too long to hear the first one; the interpreter would wait for them in
    silence. What is complete is on disk.
    """
    try:
        yield
    finally:
        if when:
            sys.stderr.flush()
            os._exit(_INTERRUPTED)
