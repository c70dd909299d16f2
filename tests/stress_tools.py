"""How long stress tests go on, and what ends one that hangs."""

from __future__ import annotations

import faulthandler
import itertools
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

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
