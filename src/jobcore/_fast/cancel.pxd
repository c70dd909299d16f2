"""The order to stop, as native code sees it."""

cimport cython
from libc.stdint cimport int32_t


@cython.final
cdef class CancelFlag:
    # Guard: written by an atomic store, from 0 to 1 and never back, and read by atomic loads. Whoever holds the flag
    # may hand out its address.
    cdef int32_t _set
    # Guard: the GIL; set before `_set` and never again.
    cdef str _reason

    cpdef bint is_set(self) noexcept nogil
