"""A timer that adds up its measurements."""

cimport cython
from libc.stdint cimport int64_t

from jobcore._fast.atomics cimport jc_atomic_load
from jobcore._fast.timer cimport JC_STOPPED, jc_timer_begin, jc_timer_end, jc_timer_get

from jobcore.errors import TimerStateError

__all__ = ["Timer"]


@cython.final
cdef class Timer:
    """Measures spans of time, in nanoseconds, and adds them up.

    A timer owns its state: it is a value like a counter, and lives as long as somebody holds it. It does
    not see changes of the system's date, and does not count while the machine sleeps.

    Parameters
    ----------
    name
        What is measured; part of the error texts.
    totals
        A counter of nanoseconds and one of spans that every end is added to as well, for what several timers
        measure together.

    Raises
    ------
    TypeError
        If `name` is not a str, or `totals` are not two counters.

    Notes
    -----
    Thread safety: all methods are atomic, with and without the GIL. Of threads that race to begin or to
    end one span exactly one succeeds, the others get `TimerStateError`. `sum_ns` and `count` are each
    exact; read while another thread is inside `end`, they may differ by that one span.

    Examples
    --------
    >>> timer = Timer("load")
    >>> timer.begin()
    >>> span_ns = timer.end()
    >>> timer.sum_ns == span_ns, timer.count
    (True, 1)
    """

    def __cinit__(self):
        # Here and not in __init__: a zero-filled timer would count as running since boot.
        self._state.begin_ns = JC_STOPPED
        self._name = "timer"

    def __init__(self, str name not None="timer", totals=None):
        self._name = name
        if totals is not None and self._sum is None:
            self._sum, self._spans = totals
            if self._sum is None or self._spans is None:
                self._sum = self._spans = None
                raise TypeError(f"expected two counters as totals of a timer, found {totals!r}")
            self._state.more_ns = &self._sum._value
            self._state.more_count = &self._spans._value

    def begin(self):
        """Start a span.

        Raises
        ------
        TimerStateError
            If the timer is running; the span goes on unharmed.
        """
        if not jc_timer_begin(&self._state):
            raise TimerStateError(
                f"Timer.begin: expected timer {self._name!r} to be stopped, found it running",
                hint="end() it first; spans that overlap need a timer each",
            )

    def get(self):
        """Return the length of the running span so far.

        Returns
        -------
        int
            Nanoseconds since `begin`.

        Raises
        ------
        TimerStateError
            If the timer is stopped.
        """
        cdef int64_t span_ns = jc_timer_get(&self._state)
        if span_ns < 0:
            raise _not_running(self._name, "get")
        return span_ns

    def end(self):
        """Stop, and add the span to `sum_ns` and 1 to `count`.

        Returns
        -------
        int
            Nanoseconds since `begin`.

        Raises
        ------
        TimerStateError
            If the timer is stopped; the totals stay as they were.
        """
        cdef int64_t span_ns = jc_timer_end(&self._state)
        if span_ns < 0:
            raise _not_running(self._name, "end")
        return span_ns

    @property
    def name(self):
        """What is measured."""
        return self._name

    @property
    def running(self):
        """Whether a span has begun and not ended."""
        return jc_atomic_load(&self._state.begin_ns) != JC_STOPPED

    @property
    def sum_ns(self):
        """Nanoseconds in all spans that ended."""
        return jc_atomic_load(&self._state.sum_ns)

    @property
    def count(self):
        """Number of spans that ended."""
        return jc_atomic_load(&self._state.count)

    def __repr__(self):
        state = "running" if self.running else "stopped"
        return f"<Timer {self._name!r} {state}, {self.count} spans, {self.sum_ns} ns>"

    cdef bint try_begin(self) noexcept nogil:
        return jc_timer_begin(&self._state)

    cdef int64_t elapsed_ns(self) noexcept nogil:
        return jc_timer_get(&self._state)

    cdef int64_t try_end(self) noexcept nogil:
        return jc_timer_end(&self._state)


cdef object _not_running(str name, str method):
    return TimerStateError(
        f"Timer.{method}: expected timer {name!r} to be running, found it stopped",
        hint="begin() it first; another thread may have ended it",
    )
