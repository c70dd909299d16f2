"""File descriptors that no interruption leaves open."""

cimport cython


@cython.final
cdef class Descriptor:
    # Guard: the GIL.
    cdef int _number

    cdef int _close(self) noexcept
