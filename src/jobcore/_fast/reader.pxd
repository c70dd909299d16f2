"""The layout of a zip container, worked out from its table, and reading by it."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cimport numpy as cnp

from jobcore._fast.image cimport jc_buffer, jc_spec


cdef extern from "zip_layout.h" nogil:
    ctypedef struct jc_place:
        const jc_spec *spec
        uint64_t offset
        uint64_t first

    ctypedef struct jc_layout:
        jc_place *blobs
        size_t count
        jc_buffer keys
        const uint64_t *places
        const uint32_t *sums
        uint64_t chunks
        uint64_t wide
        uint64_t end

    ctypedef struct jc_wanted:
        size_t blob
        uint8_t *target

    ctypedef struct jc_scan:
        const jc_layout *l
        int fd
        int threads

    int JC_DIFFERS

    void jc_layout_free(jc_layout *l)
    int jc_layout_add(
        jc_layout *l, const uint8_t *name, size_t name_bytes, const jc_spec *spec, size_t key_bytes
    )
    int jc_layout_compare(jc_layout *l, const uint8_t *data, size_t n, size_t *at)
    int jc_scan_all(jc_scan *s, const jc_wanted *wanted, size_t count)
    void jc_scan_free(jc_scan *s)


@cython.final
cdef class ZipLayout:
    # Read-only once it is made, so that any number of threads may read by it.
    cdef jc_layout _layout
    cdef jc_spec *_specs
    cdef uint64_t *_places
    cdef uint32_t *_sums
    cdef object _held           # texts that native code points into
    cdef bint _ok
