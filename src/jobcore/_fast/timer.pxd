"""The timer as native kernels see it: no method here needs the GIL or can fail."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class Timer:
    cdef str _name
    # Guard of the three: touched through atomics.h only. `_begin_ns` decides every race: whoever changes it
    # from or to "stopped" owns that start or that end, and only the owner of an end adds to the totals.
    cdef int64_t _begin_ns
    cdef int64_t _sum_ns
    cdef int64_t _count

    # False if it is running already.
    cdef bint try_begin(self) noexcept nogil
    # Nanoseconds since the start, -1 if it is stopped.
    cdef int64_t elapsed_ns(self) noexcept nogil
    # Stops and adds to the totals: nanoseconds since the start, -1 if it is stopped.
    cdef int64_t try_end(self) noexcept nogil
