"""Loops over the native methods of counters and timers, run by many threads at once without the GIL."""

from libc.stdint cimport int64_t

from jobcore._fast.counter cimport Counter
from jobcore._fast.timer cimport Timer


def add(Counter counter not None, int64_t delta, int64_t times):
    """Add `delta` that many times."""
    cdef int64_t _i
    with nogil:
        for _i in range(times):
            counter.fetch_add(delta)


def exchange(Counter counter not None, int64_t first, int64_t times):
    """Put in `first`, `first + 1` and so on; return the sum of what came out."""
    cdef int64_t i, total = 0
    with nogil:
        for i in range(times):
            total += counter.exchange(first + i)
    return total


def spans(Timer timer not None, int64_t times):
    """Try to begin and to end in turn; return spans begun, spans ended, their sum and the shortest."""
    cdef int64_t _i, span_ns, begun = 0, ended = 0, sum_ns = 0, shortest_ns = 2**62
    with nogil:
        for _i in range(times):
            begun += timer.try_begin()
            timer.elapsed_ns()
            span_ns = timer.try_end()
            if span_ns >= 0:
                ended += 1
                sum_ns += span_ns
                shortest_ns = min(shortest_ns, span_ns)
    return begun, ended, sum_ns, shortest_ns
