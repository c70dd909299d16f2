"""Doing many things in a few threads: the first error ends all and is raised."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Iterator

__all__ = ["THREADS", "each"]

THREADS = min(4, os.cpu_count() or 1)


def each(works: Iterable[Callable[[], None]], threads: int = THREADS) -> None:
    """Call everything, in the order given, from several threads at once.

    Parameters
    ----------
    works
        What to call; taken from the iterator by one thread at a time, when a thread is free for it.
    threads
        Number of threads, the caller's own included.

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
    helpers: list[threading.Thread] = []
    try:
        for _ in range(threads - 1):
            helper = threading.Thread(target=crew.run, name="jobcore-store", daemon=True)
            try:
                helper.start()
            except RuntimeError:  # no more threads to be had: fewer do it too
                break
            helpers.append(helper)
        crew.run()
    finally:
        crew.stop()
        _join(helpers)
    if crew.error is not None:
        raise crew.error


def _join(helpers: list[threading.Thread]) -> None:
    # Also through an interrupt: what the threads work on is closed after this.
    interrupt: BaseException | None = None
    for helper in helpers:
        while helper.is_alive():
            try:
                helper.join()
            except BaseException as error:  # noqa: BLE001 - raised below
                interrupt = error
    if interrupt is not None:
        raise interrupt


class _Crew:
    def __init__(self, works: Iterator[Callable[[], None]]) -> None:
        self._works = works
        self._lock = threading.Lock()  # guards _works, _stopped and error
        self._stopped = False
        self.error: BaseException | None = None

    def stop(self) -> None:
        self._stopped = True

    def run(self) -> None:
        try:
            while (work := self._next()) is not None:
                work()
        except BaseException as error:  # noqa: BLE001 - raised by the caller's thread, whatever it is
            with self._lock:
                self._stopped = True
                if self.error is None:
                    self.error = error

    def _next(self) -> Callable[[], None] | None:
        with self._lock:
            return None if self._stopped else next(self._works, None)
