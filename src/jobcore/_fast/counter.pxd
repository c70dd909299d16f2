"""The counter as native kernels see it: no method here needs the GIL or can fail."""

cimport cython
from libc.stdint cimport int64_t


@cython.final
cdef class Counter:
    # Guard: touched through atomics.h only; a plain read or write would race with threads outside the GIL.
    cdef int64_t _value

    cdef int64_t load(self) noexcept nogil
    cdef int64_t fetch_add(self, int64_t delta) noexcept nogil
    cdef int64_t exchange(self, int64_t value) noexcept nogil
