"""Arrays that lie inside the memory of others, as native code sees it: nothing here needs the GIL or can fail."""

from libc.stdint cimport intptr_t, uint64_t


cdef extern from "sharing.h" nogil:
    # What an array takes of the address space.
    ctypedef struct jc_extent:
        uint64_t low
        uint64_t high
        uint64_t layout
        size_t index

    bint jc_extent_plain(jc_extent *extent, uint64_t data, uint64_t nbytes) noexcept
    bint jc_extent_strided(
        jc_extent *extent,
        uint64_t data,
        uint64_t item_bytes,
        int axes,
        const intptr_t *shape,
        const intptr_t *strides,
    ) noexcept
    void jc_sort_extents(jc_extent *extents, jc_extent *spare, size_t n) noexcept
