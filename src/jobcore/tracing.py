"""Traces: what ran when, in which thread and on which node, for a viewer such as Perfetto or Chrome's.

Nothing is recorded, and next to nothing is spent, as long as no trace is open.
"""

from __future__ import annotations

import json
import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from jobcore._telling import told

__all__ = ["Span", "SpanStack", "Trace", "active_trace", "span"]


@dataclass(frozen=True, slots=True)
class Span:
    """Something that took some time.

    Attributes
    ----------
    name
        What it was.
    category
        ``task``, ``step``, ``save`` or the caller's own.
    node
        Of the job; ``""`` for what belongs to none.
    thread_id, thread
        Identifier and name of the thread.
    start_ns
        By ``time.perf_counter_ns``.
    duration_ns
        Nanoseconds.
    args
        What else is known, an ``error`` among it.
    """

    name: str
    category: str
    node: str
    thread_id: int
    thread: str
    start_ns: int
    duration_ns: int
    args: dict[str, Any]


class Trace:
    """Records spans from the beginning of its ``with`` block to the end.

    Parameters
    ----------
    path
        Where to write it at the end of the block, as Chrome trace events (JSON); by default nowhere.
    limit
        How many spans at most, which keeps a long run from filling the memory; `dropped` counts the others.

    Attributes
    ----------
    dropped
        How many spans there was no room for.

    Raises
    ------
    RuntimeError
        On entering: another trace is open. There is one for the whole process.

    Notes
    -----
    Thread safety: spans come from any thread.

    Examples
    --------
    >>> with Trace() as trace:
    ...     with span("load", "mine"):
    ...         pass
    >>> [found.name for found in trace.spans()]
    ['load']
    """

    def __init__(self, path: str | os.PathLike[str] | None = None, *, limit: int = 1_000_000) -> None:
        self._path = None if path is None else Path(path)
        self._limit = limit
        # Appends are one step under the interpreter lock, so no other guard is needed.
        self._spans: list[Span] = []
        self.dropped = 0

    def add(self, found: Span) -> None:
        """Record a span."""
        if len(self._spans) < self._limit:
            self._spans.append(found)
        else:
            self.dropped += 1

    def spans(self) -> list[Span]:
        """Return what was recorded, in the order in which it ended."""
        return list(self._spans)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the trace as Chrome trace events: open it in Perfetto, or in chrome://tracing.

        Each node is a process of its own there.

        Raises
        ------
        OSError
            The file could not be written; what was there before is still there.
        """
        final = Path(path)
        temporary = final.with_name(f".{final.name}.{os.getpid()}.tmp")
        try:
            temporary.write_text(json.dumps(self.chrome_trace()), encoding="utf-8")
            temporary.replace(final)
        finally:
            temporary.unlink(missing_ok=True)

    def chrome_trace(self) -> dict[str, Any]:
        """Return the trace as the object that `save` writes as JSON."""
        nodes: dict[str, int] = {}
        threads: dict[tuple[int, int], str] = {}
        events: list[dict[str, Any]] = []
        for found in self._spans:
            process = nodes.setdefault(found.node, len(nodes) + 1)
            threads[process, found.thread_id] = found.thread
            events.append(
                {
                    "name": found.name,
                    "cat": found.category,
                    "ph": "X",
                    "ts": found.start_ns / 1000,
                    "dur": found.duration_ns / 1000,
                    "pid": process,
                    "tid": found.thread_id,
                    "args": {name: str(value) for name, value in found.args.items()},
                }
            )
        names = [
            {
                "name": "process_name",
                "ph": "M",
                "pid": process,
                "args": {"name": f"node {node}" if node else "jobcore"},
            }
            for node, process in nodes.items()
        ]
        names += [
            {"name": "thread_name", "ph": "M", "pid": process, "tid": thread, "args": {"name": name}}
            for (process, thread), name in threads.items()
        ]
        return {
            "traceEvents": names + events,
            "displayTimeUnit": "ms",
            "otherData": {"dropped": self.dropped},
        }

    def __enter__(self) -> Self:
        global _active
        with _lock:
            if _active is not None:
                raise RuntimeError("expected no open trace, found one; a process has one at a time")
            _active = self
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        global _active
        with _lock:
            _active = None
        if self._path is None:
            return
        try:
            self.save(self._path)
        except OSError as failed:
            if error is None:
                raise
            # What ended the block is more: an interruption must not come out as an error of a file.
            error.add_note(f"its trace could not be written: {failed}")

    def __repr__(self) -> str:
        return f"<Trace: {len(self._spans)} spans>"


# Guards the change of _active; reading it needs no guard.
_lock = threading.Lock()
_active: Trace | None = None


def active_trace() -> Trace | None:
    """Return the trace that is open, if one is."""
    return _active


@contextmanager
def span(name: str, category: str = "", node: str = "", **args: Any) -> Iterator[None]:
    """Record what the ``with`` block does as a span of the open trace; without one it costs nothing to speak of.

    Parameters
    ----------
    name, category, node, args
        As in `Span`. An exception that leaves the block is noted as ``error``.
    """
    trace = _active
    if trace is None:
        yield
        return
    start_ns = time.perf_counter_ns()
    try:
        yield
    except BaseException as error:
        args["error"] = told(error)[:200]
        raise
    finally:
        trace.add(_ended(name, category, node, start_ns, args))


def _ended(name: str, category: str, node: str, start_ns: int, args: dict[str, Any]) -> Span:
    thread = threading.current_thread()
    return Span(
        name,
        category,
        node,
        thread.native_id or 0,
        thread.name,
        start_ns,
        time.perf_counter_ns() - start_ns,
        args,
    )


class SpanStack:
    """Spans that begin and end by marks, of which some may never come: those inside end with the one around.

    Parameters
    ----------
    trace
        Where they go.
    node
        Of all of them.
    """

    __slots__ = ("_node", "_open", "_trace")

    def __init__(self, trace: Trace, node: str) -> None:
        self._trace = trace
        self._node = node
        self._open: list[tuple[object, str, int]] = []

    def begin(self, key: object, name: str) -> None:
        """Begin the span of `key`."""
        self._open.append((key, name, time.perf_counter_ns()))

    def end(self, key: object = None, error: BaseException | None = None) -> None:
        """End the span of `key` and those inside it; all of them by default."""
        if key is not None and all(found is not key for found, _, _ in self._open):
            return
        while self._open:
            found, name, start_ns = self._open.pop()
            args = {} if error is None else {"error": told(error)[:200]}
            self._trace.add(_ended(name, "step", self._node, start_ns, args))
            if found is key:
                break
