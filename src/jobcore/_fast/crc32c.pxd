"""CRC-32C as native code sees it: nothing here needs the GIL or can fail.

It starts as 0, and what is returned for one piece of data is given as ``crc`` with the next. The fastest kernel of the
machine is taken.
"""

from libc.stdint cimport uint32_t, uint64_t


cdef uint32_t crc32c_update(uint32_t crc, const void* data, size_t n) noexcept nogil

# Copies, and returns the checksum of the bytes that it wrote, which no other thread may touch meanwhile; each byte is
# read from `src` once. A large copy goes past the caches. The two may not overlap.
cdef uint32_t crc32c_copy(uint32_t crc, void* dst, const void* src, size_t n) noexcept nogil

# The checksum of two pieces joined, from those of each: pieces may be done in any order, by any thread.
cdef uint32_t crc32c_join(uint32_t first, uint32_t second, uint64_t second_bytes) noexcept nogil
