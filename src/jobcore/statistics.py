"""Statistics: named 64-bit integers that any number of threads add to, and their export.

A registry holds them. `stat_registry()` is that of the process: the ops, queues and timers that are given none of their
own count there. A name is a path, such as ``reader/time_ns/sum``.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterable
from dataclasses import dataclass
from typing import SupportsIndex

from jobcore._fast.counter import Counter
from jobcore.errors import BlobValueError

__all__ = ["StatRegistry", "Statistic", "stat_registry"]


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
    `reset` while others add to it; numbers that belong together, such as a sum and a count, may be read between two
    additions.

    Examples
    --------
    >>> stats = StatRegistry()
    >>> stats.add("rows", 3)
    >>> stats.add("rows")
    >>> [(found.name, found.value) for found in stats.export()]
    [('rows', 4)]
    """

    def __init__(self) -> None:
        # Guards the making of new names; reading needs none, since a name never goes.
        self._lock = threading.Lock()
        self._counters: dict[str, Counter] = {}

    def counter(self, name: str) -> Counter:
        """Return the counter behind a name, which begins at 0; always the same one.

        Raises
        ------
        BlobValueError
            The name is empty or no text.
        """
        found = self._counters.get(name)
        if found is None:
            if not isinstance(name, str) or not name:
                raise BlobValueError(f"expected the name of a statistic, found {name!r:.80}")
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
        counters = list(self._counters.items())
        now_ns = time.time_ns()
        return [
            Statistic(name, counter.reset() if reset else counter.retrieve(), now_ns)
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
