"""Waiting for a lock so that a signal never goes unnoticed."""

from __future__ import annotations

import threading
import time

__all__ = ["SIGNAL_CHECK_S", "wait_for"]

SIGNAL_CHECK_S = 0.5
"""Seconds after which the main thread looks up from a wait."""


def wait_for(lock: threading.Lock, timeout: float | None = None) -> bool:
    """Acquire a lock that another thread is going to release.

    A bare ``lock.acquire()`` is interrupted by a signal, but not by one that comes in the few instructions between
    the interpreter's last look for signals and the system call that waits: Ctrl-C would then do nothing until the lock
    is released. So the main thread, which alone handles signals, looks up now and then.

    Parameters
    ----------
    lock
        A lock that is held.
    timeout
        Seconds to wait at most; 0 or less only tries. None is no limit.

    Returns
    -------
    bool
        Whether the lock was acquired.
    """
    if threading.get_ident() != threading.main_thread().ident:
        return lock.acquire(timeout=-1 if timeout is None else min(max(timeout, 0.0), threading.TIMEOUT_MAX))
    end = None if timeout is None else time.monotonic() + timeout
    while True:
        left = SIGNAL_CHECK_S if end is None else max(end - time.monotonic(), 0.0)
        if lock.acquire(timeout=min(left, SIGNAL_CHECK_S)):
            return True
        if left == 0.0:
            return False
