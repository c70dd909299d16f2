"""Statistics: named 64-bit integers that any number of threads add to, and their export.

A registry holds them. `stat_registry()` is that of the process: the ops, queues and timers that are given none of their
own count there. A name is a path, such as ``reader/time_ns/sum``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Protocol, SupportsIndex

from jobcore._fast.counter import Counter
from jobcore.errors import BlobValueError

__all__ = ["StatRegistry", "Statistic", "Totals", "stat_registry"]

# What a number is called that is a level and no count: it is never set to 0.
_LEVELS = frozenset(["queue_balance"])


class Totals(Protocol):
    """What `StatRegistry.watch` reads: numbers that something counts by itself, such as the ``totals`` of a queue."""

    @property
    def ended(self) -> bool:
        """Whether the numbers are final."""
        ...

    def read(self) -> Mapping[str, int]:
        """Return the numbers since the beginning, by name."""
        ...


@dataclass(slots=True, eq=False)
class _Watched:
    """Totals, and how much of them a registry has given out and set to 0."""

    prefix: str
    totals: Totals
    taken: dict[str, int] = field(default_factory=dict)

    def numbers(self) -> dict[str, int]:
        return {
            (full := f"{self.prefix}/{name}"): value - (0 if name in _LEVELS else self.taken.get(full, 0))
            for name, value in self.totals.read().items()
        }


@dataclass(frozen=True, slots=True)
class Statistic:
    """One exported number.

    Attributes
    ----------
    name
        What it counts.
    value
        The number, within int64.
    time_ns
        When it was read, in nanoseconds since 1970.
    """

    name: str
    value: int
    time_ns: int


class StatRegistry:
    """Named 64-bit integers.

    Notes
    -----
    Thread safety: every method may be called from any thread. Each number is exact, also when it is exported with
    `reset` while others add to it, or while a queue that is watched is in use; numbers that belong together, such as a
    sum and a count, may be read between two additions.

    Examples
    --------
    >>> stats = StatRegistry()
    >>> stats.add("rows", 3)
    >>> stats.add("rows")
    >>> [(found.name, found.value) for found in stats.export()]
    [('rows', 4)]
    """

    def __init__(self) -> None:
        # Guards the making of new names, and what is watched; reading needs none, since a name never goes.
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}
        self._watched: list[_Watched] = []

    def counter(self, name: str) -> Counter:
        """Return the counter behind a name, which begins at 0; always the same one.

        Raises
        ------
        BlobValueError
            The name is empty, no text, or not valid Unicode.
        """
        found = self._counters.get(name)
        if found is None:
            if not isinstance(name, str) or not name:
                raise BlobValueError(f"expected the name of a statistic, found {name!r:.80}")
            try:
                name.encode()
            except UnicodeEncodeError as error:
                # The text of all numbers together could not be written or sent.
                raise BlobValueError(
                    f"the name {name!r:.80} is not valid Unicode text: {error.reason}"
                ) from error
            with self._lock:
                found = self._counters.setdefault(name, Counter())
        return found

    def add(self, name: str, amount: SupportsIndex = 1) -> None:
        """Add to a number; errors as for `counter` and ``Counter.add``."""
        self.counter(name).add(amount)

    def update(self, names: Iterable[str], values: Iterable[SupportsIndex]) -> None:
        """Add to many numbers, those of another registry for example.

        Raises
        ------
        BlobValueError
            There are not as many names as values, or one does not fit; nothing was added.
        """
        names, numbers = list(names), [value.__index__() for value in values]
        if len(names) != len(numbers):
            raise BlobValueError(
                f"expected as many values as names, found {len(names)} names, {len(numbers)} values"
            )
        wrong = [number for number in numbers if not -(2**63) <= number < 2**63]
        if wrong:
            raise BlobValueError(f"expected integers of 64 bits, found {wrong[0]}")
        for counter, number in zip([self.counter(name) for name in names], numbers, strict=True):
            counter.add(number)

    def watch(self, prefix: str, totals: Totals) -> None:
        """Have numbers that something counts by itself among those of this registry.

        Parameters
        ----------
        prefix
            Comes before their names, with a slash. What is watched under one prefix is added up, and added to what is
            counted under the same names.
        totals
            Read at each export, and not kept once they are final. For a queue its ``totals``: they cost the queue
            nothing. ``<prefix>/queue_balance`` is a level, which `reset` leaves as it is.

        Raises
        ------
        BlobValueError
            The prefix is empty or no text.
        """
        if not isinstance(prefix, str) or not prefix:
            raise BlobValueError(f"expected the name of what is watched, found {prefix!r:.80}")
        watched = _Watched(prefix, totals)
        for name in watched.numbers():
            self.counter(name)
        with self._lock:
            self._settle()
            self._watched.append(watched)

    def _settle(self) -> None:
        """Count what the ended ones have left, and forget them. With the lock."""
        # Asked first, and then read: so what is read is final.
        ended = [one for one in self._watched if one.totals.ended]
        for one in ended:
            for name, value in one.numbers().items():
                self._counters[name].add(value)
            self._watched.remove(one)

    def export(self, *, reset: bool = False) -> list[Statistic]:
        """Read all numbers.

        Parameters
        ----------
        reset
            Whether to set each to 0 in the same step, so that nothing is counted twice or never.

        Returns
        -------
        list of Statistic
            In the order in which the names were first used.
        """
        watched: dict[str, int] = {}
        with self._lock:
            self._settle()
            counters = list(self._counters.items())
            for one in self._watched:
                numbers = one.numbers()
                for name, value in numbers.items():
                    watched[name] = watched.get(name, 0) + value
                    if reset:
                        one.taken[name] = one.taken.get(name, 0) + value
        now_ns = time.time_ns()
        return [
            Statistic(name, (counter.reset() if reset else counter.retrieve()) + watched.get(name, 0), now_ns)
            for name, counter in counters
        ]

    def openmetrics(self) -> str:
        """Return all numbers as OpenMetrics 1.0 text, one gauge with the name as its label.

        Returns
        -------
        str
            What a scraper wants as the body of an answer of type ``application/openmetrics-text``.
        """
        lines = ["# TYPE jobcore_statistic gauge", "# HELP jobcore_statistic Numbers of a jobcore registry."]
        lines += [
            f'jobcore_statistic{{name="{_escaped(found.name)}"}} {found.value}' for found in self.export()
        ]
        return "\n".join([*lines, "# EOF", ""])

    def __len__(self) -> int:
        return len(self._counters)

    def __repr__(self) -> str:
        return f"<StatRegistry: {len(self)} statistics>"


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


_REGISTRY = StatRegistry()


def stat_registry() -> StatRegistry:
    """Return the registry of this process."""
    return _REGISTRY
