"""A timer that adds up its measurements."""

cimport cython
from libc.stdint cimport int64_t
from posix.time cimport CLOCK_MONOTONIC, clock_gettime, timespec

from jobcore._fast.atomics cimport (
    jc_atomic_exchange,
    jc_atomic_fetch_add,
    jc_atomic_load,
    jc_atomic_replace,
)

from jobcore.errors import TimerStateError

__all__ = ["Timer"]

# No reading of the clock is negative. Zero would not do: it is a reading, the moment of boot.
cdef enum:
    STOPPED = -1


@cython.final
cdef class Timer:
    """Measures spans of time, in nanoseconds, and adds them up.

    A timer owns its state: it is a value like a counter, and lives as long as somebody holds it. It does
    not see changes of the system's date, and does not count while the machine sleeps.

    Parameters
    ----------
    name
        What is measured; part of the error texts.

    Raises
    ------
    TypeError
        If `name` is not a str.

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
        self._begin_ns = STOPPED
        self._name = "timer"

    def __init__(self, str name not None="timer"):
        self._name = name

    def begin(self):
        """Start a span.

        Raises
        ------
        TimerStateError
            If the timer is running; the span goes on unharmed.
        """
        if not self.try_begin():
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
        cdef int64_t span_ns = self.elapsed_ns()
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
        cdef int64_t span_ns = self.try_end()
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
        return jc_atomic_load(&self._begin_ns) != STOPPED

    @property
    def sum_ns(self):
        """Nanoseconds in all spans that ended."""
        return jc_atomic_load(&self._sum_ns)

    @property
    def count(self):
        """Number of spans that ended."""
        return jc_atomic_load(&self._count)

    def __repr__(self):
        state = "running" if self.running else "stopped"
        return f"<Timer {self._name!r} {state}, {self.count} spans, {self.sum_ns} ns>"

    cdef bint try_begin(self) noexcept nogil:
        return jc_atomic_replace(&self._begin_ns, STOPPED, _now_ns())

    cdef int64_t elapsed_ns(self) noexcept nogil:
        cdef int64_t begin_ns = jc_atomic_load(&self._begin_ns)
        if begin_ns == STOPPED:
            return -1
        return _now_ns() - begin_ns

    cdef int64_t try_end(self) noexcept nogil:
        # The clock is read after the span is taken: read before it, a span that another thread began in
        # between would come out negative.
        cdef int64_t begin_ns = jc_atomic_exchange(&self._begin_ns, STOPPED)
        if begin_ns == STOPPED:
            return -1
        cdef int64_t span_ns = _now_ns() - begin_ns
        jc_atomic_fetch_add(&self._sum_ns, span_ns)
        jc_atomic_fetch_add(&self._count, 1)
        return span_ns


cdef int64_t _now_ns() noexcept nogil:
    # It cannot fail: the clock is mandatory and the pointer good.
    cdef timespec now
    clock_gettime(CLOCK_MONOTONIC, &now)
    return <int64_t> now.tv_sec * 1_000_000_000 + now.tv_nsec


cdef object _not_running(str name, str method):
    return TimerStateError(
        f"Timer.{method}: expected timer {name!r} to be running, found it stopped",
        hint="begin() it first; another thread may have ended it",
    )
