"""The 128-bit hash of contents as native code sees it: its functions neither need the GIL nor can they fail."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t


cdef extern from "hash128.h" nogil:
    ctypedef struct jc_hash128_stream:
        uint64_t done


cdef void hash128_of(const void* data, size_t n, uint64_t* high, uint64_t* low) noexcept nogil

# As if `zeros` more bytes stood after the data, all zero.
cdef void hash128_padded(const void* data, size_t n, uint64_t zeros, uint64_t* high, uint64_t* low) noexcept nogil


@cython.final
cdef class Hash128:
    # Guard: one thread at a time.
    cdef jc_hash128_stream _stream
    cdef uint64_t _total
    cdef uint64_t _left
    # What waits for a whole stripe, or all of a short content.
    cdef uint8_t _bytes[256]
    cdef size_t _held

    cdef void _add(self, const uint8_t* p, size_t n) noexcept nogil
