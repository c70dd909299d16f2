"""Doing many things in a few threads: the first error ends all and is raised."""

from __future__ import annotations

import contextvars
import os
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TypeVar

__all__ = ["THREADS", "Owner", "each", "giving_way", "is_ending", "start"]

THREADS = min(4, os.cpu_count() or 1)

_BATCH = 2048
_PAUSE_S = 1e-5  # without a pause the thread that lets the GIL go is the first to ask for it again

_Item = TypeVar("_Item")


def giving_way(items: Iterable[_Item]) -> Iterator[_Item]:
    """Let other threads run now and then while a long loop goes on: the interpreter itself makes them wait 5 ms.

    Parameters
    ----------
    items
        What the loop is over.

    Yields
    ------
    object
        The next one.
    """
    rest = iter(items)
    while batch := list(islice(rest, _BATCH)):
        yield from batch
        if len(batch) == _BATCH:
            time.sleep(_PAUSE_S)


def each(works: Iterable[Callable[[], None]], threads: int = THREADS) -> None:
    """Call everything, in the order given, from several threads at once.

    Parameters
    ----------
    works
        What to call; taken from the iterator by one thread at a time, when a thread is free for it.
    threads
        Number of threads, the caller's own included, unless that is the main one: it waits instead, since only there
        an interrupt can come between a call that opens something and the note of it.

    Raises
    ------
    BaseException
        The first error; nothing more is begun after it, and no thread is at work any more.
    """
    if threads < 2:
        for work in works:
            work()
        return
    crew = _Crew(iter(works))
    helpers: list[_Helper] = []
    waits = threading.current_thread() is threading.main_thread()
    try:
        for _ in range(threads if waits else threads - 1):
            helper = _Helper(crew)
            helpers.append(helper)
            if not helper.start():
                helpers.pop()
                break
        if waits and helpers:
            _join(helpers, crew)
        else:
            crew.run()
    finally:
        crew.stop()
        _join(helpers, crew)
    if crew.error is not None:
        raise crew.error


def _join(helpers: list[_Helper], crew: _Crew) -> None:
    # Also through an interrupt: what the threads work on is closed after this.
    interrupt: BaseException | None = None
    for helper in helpers:
        while not helper.ended:
            try:
                helper.wait(begins=interrupt is None and not crew.stopped)
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
                crew.stop()
    if interrupt is not None:
        raise interrupt


def start(thread: threading.Thread) -> bool:
    """Start a thread.

    Parameters
    ----------
    thread
        The thread.

    Returns
    -------
    bool
        False where there are no more threads to be had: whoever asked does the work too.
    """
    # In a finalizer at the very end a new thread never gets to run, and its start would be waited for without end.
    if sys.is_finalizing():
        return False
    try:
        thread.start()
    except RuntimeError:
        return False
    return True


def is_ending() -> bool:
    """Tell whether the interpreter has waited for its threads already, and would not wait for another one."""
    return sys.is_finalizing() or not threading.main_thread().is_alive()


class Owner:
    """Who is to do something, a thread or whoever began it: the first that asks, for good.

    Notes
    -----
    Thread-safe. One step of the interpreter decides, so no interrupt comes in between; who was interrupted asks again.
    """

    def __init__(self) -> None:
        self._first: dict[str, str] = {}

    def may_be(self, who: str) -> bool:
        """Tell whether it is `who`, which it is from now on if it was nobody."""
        return self._first.setdefault("", who) == who


class _Helper:
    """A thread that helps, or that never begins: an interrupt in the start of a thread leaves it open which."""

    def __init__(self, crew: _Crew) -> None:
        self._crew = crew
        self._owner = Owner()
        self._done = threading.Lock()  # held by the thread until it has ended
        self._done.acquire()
        self.ended = False
        # In the caller's context: NumPy keeps there what is to become of an overflow.
        run = contextvars.copy_context().run
        self._thread = threading.Thread(target=run, args=(self._run,), name="jobcore-store", daemon=True)

    def start(self) -> bool:
        return start(self._thread)

    def wait(self, *, begins: bool) -> None:
        """Wait until it has ended; where it need not begin any more, it does not."""
        if not begins and self._owner.may_be("caller"):
            self.ended = True
            return
        # It may be interrupted after it got the lock: so `ended`, set before, is what counts.
        self._done.acquire()
        self._thread.join()

    def _run(self) -> None:
        if not self._owner.may_be("thread"):
            return
        try:
            self._crew.run()
        finally:
            self.ended = True
            self._done.release()


class _Crew:
    def __init__(self, works: Iterator[Callable[[], None]]) -> None:
        self._works = works
        self._lock = threading.Lock()  # guards _works, stopped and error
        self.stopped = False
        self.error: BaseException | None = None

    def stop(self) -> None:
        self.stopped = True

    def run(self) -> None:
        try:
            while (work := self._next()) is not None:
                work()
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread, whatever it is
            with self._lock:
                self.stopped = True
                if self.error is None:
                    self.error = error

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            return None if self.stopped else next(self._works, None)
