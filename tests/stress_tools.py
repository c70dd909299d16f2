"""Rounds of stress tests: how many, in which process, and what ends one that hangs.

A module of such tests has a function ``play(rng, end)``, which is one round; `end` is what happens in it.
"""

from __future__ import annotations

import faulthandler
import importlib
import itertools
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random

LONG_SECONDS = float(os.environ.get("JOBCORE_STRESS_SECONDS", "0"))
"""For a long run of ``pytest --exhaustive -s``: how long each exhaustive test of the stress suite goes on."""

HANG_SECONDS = 120
"""A round that takes longer hangs, on the slowest machine too: all stacks are written, and the process ends."""


def seeds(first: int, count: int, long: bool = False) -> Iterator[int]:
    """Give `count` numbers from `first` on; in a long run others each time, until the time is up."""
    if not (long and LONG_SECONDS):
        yield from range(first, first + count)
        return
    end = time.monotonic() + LONG_SECONDS
    for seed in itertools.count(time.time_ns()):
        if time.monotonic() > end:
            return
        yield seed


@contextmanager
def watched() -> Iterator[None]:
    """Let no hang go on for ever."""
    faulthandler.dump_traceback_later(HANG_SECONDS, exit=True)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()


def rounds(module: str, end: str, first: int, count: int, long: bool = False) -> None:
    """Play rounds of a module; those with interruptions in a process of their own, where no other code is hit."""
    if end != "interrupt":
        _play(module, end, first, count, long)
        return
    done = subprocess.run(
        [
            sys.executable,
            "-X",
            "dev",
            "-c",
            f"import stress_tools as t; t.interrupted({module!r}, {first}, {count}, {long})",
        ],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    )
    # An interruption that hits a callback of the interpreter's own is reported there and goes on to nobody.
    assert done.returncode == 0, done.stderr
    assert done.stdout == "all ended\n"
    assert "Exception in thread" not in done.stderr


def interrupted(module: str, first: int, count: int, long: bool) -> None:
    """Play with interruptions, which the rounds send as SIGUSR1."""

    def press(number: int, frame: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGUSR1, press)
    _play(module, "interrupt", first, count, long)
    print("all ended")


def _play(module: str, end: str, first: int, count: int, long: bool) -> None:
    play = importlib.import_module(module).play
    for seed in seeds(first, count, long):
        with watched():
            try:
                play(Random(f"{end} {seed}"), end)
            except BaseException as error:
                error.add_note(f"round {seed} of {end!r}")
                raise
