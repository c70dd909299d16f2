"""The timer as native kernels see it: its state, and functions on it that need no GIL and cannot fail."""

cimport cython
from libc.stdint cimport int64_t

from jobcore._fast.counter cimport Counter


cdef extern from "timer.h" nogil:
    ctypedef struct jc_timer:
        int64_t begin_ns
        int64_t sum_ns
        int64_t count
        int64_t *more_ns
        int64_t *more_count

    int64_t JC_STOPPED
    bint jc_timer_begin(jc_timer *timer)
    int64_t jc_timer_get(const jc_timer *timer)
    int64_t jc_timer_end(jc_timer *timer)


@cython.final
cdef class Timer:
    cdef str _name
    # Guard: touched through timer.h and atomics.h only.
    cdef jc_timer _state
    # Hold what `_state` points to; set once, at creation.
    cdef Counter _sum
    cdef Counter _spans

    # False if it is running already.
    cdef bint try_begin(self) noexcept nogil
    # Nanoseconds since the start, -1 if it is stopped.
    cdef int64_t elapsed_ns(self) noexcept nogil
    # Stops and adds to the totals: nanoseconds since the start, -1 if it is stopped.
    cdef int64_t try_end(self) noexcept nogil
