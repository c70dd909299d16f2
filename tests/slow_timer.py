"""The timer in plain Python: what `Timer` must do, for one thread, on a clock that the caller reads."""

from __future__ import annotations

from jobcore.errors import TimerStateError


class SlowTimer:
    def __init__(self, name: str = "timer") -> None:
        self.name = name
        self.sum_ns = 0
        self.count = 0
        self._begun_ns: int | None = None

    @property
    def running(self) -> bool:
        return self._begun_ns is not None

    def begin(self, now_ns: int) -> None:
        if self._begun_ns is not None:
            raise TimerStateError("running")
        self._begun_ns = now_ns

    def get(self, now_ns: int) -> int:
        if self._begun_ns is None:
            raise TimerStateError("stopped")
        return now_ns - self._begun_ns

    def end(self, now_ns: int) -> int:
        span_ns = self.get(now_ns)
        self._begun_ns = None
        self.sum_ns += span_ns
        self.count += 1
        return span_ns
