"""Job files, processes and a terminal for the tests of the command line."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from click.testing import CliRunner, Result

import jobcore
from jobcore.cli.app import app

COMMAND = [sys.executable, "-X", "dev", "-W", "error", "-m", "jobcore.cli"]

JOB = '''
"""A random walk whose every step depends on the state before it."""

import time

import numpy as np

import jobcore


def build_job(epochs: int = 3, size: int = 10, pause: float = 0.0, seed: int = 0, words: str | None = None):
    with jobcore.Job() as job:

        @job.init_group.task
        def init(ws):
            ws.feed("weights", np.zeros(size))
            ws.feed("rng", np.random.default_rng(seed))
            ws.feed("[bold]blob[/bold]", np.arange(3, dtype=np.int16))

        @job.epoch_group.task(outputs=["loss"])
        def train(ws):
            if words:
                print(words)
            jobcore.sleep(pause)
            weights = ws.fetch("weights") + ws.fetch("rng").normal(size=size)
            ws.feed("weights", weights)
            ws.feed("loss", float(np.square(weights).mean()))

        jobcore.epoch_limiter(job, epochs)
    return job
'''


def environment(**changes: str | None) -> dict[str, str]:
    """Return the environment of a child process, where None takes a variable away."""
    # The package of this process, also when its path is relative: children work in another directory.
    paths = [str(Path(jobcore.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    found = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths)), "PYTHONUNBUFFERED": ""}
    found.update({name: value for name, value in changes.items() if value is not None})
    return {name: value for name, value in found.items() if changes.get(name, "") is not None}


def start(*arguments: object, cwd: Path, **changes: str | None) -> subprocess.Popen[str]:
    """Start the command in a process of its own, with pipes."""
    return subprocess.Popen(
        [*COMMAND, *map(str, arguments)],
        cwd=cwd,
        env=environment(**changes),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def jc(*arguments: object, status: int = 0) -> Result:
    """Run a command in this process, and expect an exit status."""
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    assert result.exit_code == status, result.output
    return result


def weights(database: str) -> bytes:
    return jobcore.load(database)["weights"].tobytes()


def flip(path: str | Path, at: int) -> None:
    data = bytearray(Path(path).read_bytes())
    data[at] ^= 1
    Path(path).write_bytes(data)


def flip_in_blob(path: str, name: str) -> None:
    flip(path, Path(path).read_bytes().index(jobcore.load(path)[name].tobytes()))


class Screen:
    """What a terminal of endless height shows: just the control sequences that a live display needs."""

    _TOKEN = re.compile(r"\x1b\[(?P<n>[\d;?]*)(?P<f>[A-Za-z])|(?P<c>[\r\n])|(?P<t>[^\x1b\r\n]+)")

    def __init__(self) -> None:
        self.lines = [""]
        self.row = self.column = 0
        self.cursor_shown = True

    def feed(self, text: str) -> None:
        position = 0
        for match in self._TOKEN.finditer(text):
            assert match.start() == position, f"a control sequence not known here: {text[position:][:20]!r}"
            position = match.end()
            if match["t"] is not None:
                line = self.lines[self.row].ljust(self.column)
                self.lines[self.row] = (
                    line[: self.column] + match["t"] + line[self.column + len(match["t"]) :]
                )
                self.column += len(match["t"])
            elif match["c"] == "\r":
                self.column = 0
            elif match["c"] == "\n":
                self.row += 1
                self.lines += [""] * (self.row + 1 - len(self.lines))
            else:
                self._control(match["n"], match["f"])

    def _control(self, number: str, letter: str) -> None:
        if letter == "A":
            self.row -= int(number or 1)
            assert self.row >= 0
        elif letter == "K":
            assert number == "2"
            self.lines[self.row] = ""
        elif letter in "hl" and number == "?25":
            self.cursor_shown = letter == "h"
        else:
            assert letter == "m", f"a control sequence not known here: {number}{letter}"

    def text(self) -> list[str]:
        """Return the lines that are not empty."""
        return [line.rstrip() for line in self.lines if line.strip()]


class Terminal:
    """A process on a pseudo-terminal.

    Attributes
    ----------
    output
        Everything that it has written, with all control sequences.
    """

    def __init__(self, process: subprocess.Popen[bytes], descriptor: int) -> None:
        self.process = process
        self.output = ""
        self._descriptor = descriptor
        self._rest = b""

    def read(self) -> bool:
        """Read what there is, waiting for something; False at the end."""
        try:
            data = os.read(self._descriptor, 1 << 16)
        except OSError:  # Linux says EIO when the other side is closed
            data = b""
        data = self._rest + data if data else data
        whole = data.decode(errors="ignore") if data else ""
        self._rest = data[len(whole.encode()) :] if data else b""
        self.output += whole
        return bool(data)

    def until(self, done: Callable[[str], object]) -> None:
        """Read until `done` of the output is true; the end before that is an error."""
        while not done(self.output):
            assert self.read(), f"the process ended first:\n{self.output}"

    def type(self, text: str) -> None:
        """Type on the keyboard; a control character does what it does in a terminal."""
        os.write(self._descriptor, text.encode())

    def hang_up(self) -> None:
        """Take the terminal away."""
        os.close(self._descriptor)
        self._descriptor = os.open(os.devnull, os.O_RDWR)

    def finish(self) -> int:
        """Read to the end and return the exit status."""
        while self.read():
            pass
        return self.process.wait()

    def screen(self) -> Screen:
        """Return what stands on the screen."""
        screen = Screen()
        screen.feed(self.output)
        return screen


@contextmanager
def terminal(
    *arguments: object,
    cwd: Path,
    columns: int = 100,
    stdout: int | None = None,
    stderr: int | None = None,
    hangup: bool = True,
    **changes: str | None,
) -> Iterator[Terminal]:
    """Run the command on a pseudo-terminal of its own, so that Ctrl-C typed there reaches it.

    With `hangup` false the process does not mind that its terminal goes away, as after ``disown`` or ``nohup``.
    """
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 30, columns, 0, 0))
    settings: Mapping[str, str | None] = {"TERM": "xterm", "NO_COLOR": None, **changes}
    process = subprocess.Popen(
        # A session of its own takes the terminal for its controlling one when it opens it by name.
        [
            sys.executable,
            "-c",
            _TAKE_TERMINAL,
            os.ttyname(slave),
            str(int(hangup)),
            *COMMAND,
            *map(str, arguments),
        ],
        cwd=cwd,
        env=environment(COLUMNS=None, LINES=None, FORCE_COLOR=None, **settings),
        stdin=slave,
        stdout=slave if stdout is None else stdout,
        stderr=slave if stderr is None else stderr,
        start_new_session=True,
    )
    os.close(slave)
    found = Terminal(process, master)
    try:
        yield found
    finally:
        found.hang_up()
        os.close(found._descriptor)
        if process.poll() is None:
            process.kill()
        process.wait()


_TAKE_TERMINAL = """
import os, signal, sys
os.close(os.open(sys.argv[1], os.O_RDWR))
if sys.argv[2] == "0":
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
os.execv(sys.argv[3], sys.argv[3:])
"""

# Two tasks at once; one is deaf to being cancelled until the file `go` appears.
DEAF = """
import time
from pathlib import Path

from click.testing import CliRunner, Result

import jobcore
from jobcore.cli.app import app


def build_job(epochs: int = 9):
    with jobcore.Job() as job:

        @job.init_group.task
        def init(ws):
            ws.feed("n", 0)

        @job.epoch_group.task
        def hears(ws):
            ws.feed("n", ws.fetch("n") + 1)
            jobcore.sleep(0.01 if ws.fetch("n") < 3 else 600)

        @job.epoch_group.task
        def deaf(ws):
            if ws.fetch("n") >= 2:
                print("deaf task runs", flush=True)
                while not Path("go").exists():
                    time.sleep(0.01)

        jobcore.epoch_limiter(job, epochs)
    return job
"""
