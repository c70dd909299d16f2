"""The 128-bit hash of contents as native code sees it: nothing here needs the GIL or can fail."""

from libc.stdint cimport uint64_t


cdef void hash128_of(const void* data, size_t n, uint64_t* high, uint64_t* low) noexcept nogil

# As if `zeros` more bytes stood after the data, all zero.
cdef void hash128_padded(const void* data, size_t n, uint64_t zeros, uint64_t* high, uint64_t* low) noexcept nogil
