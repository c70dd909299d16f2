"""The layout of a zip container, worked out from its table, and reading by it."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cimport numpy as cnp

from jobcore._fast.fresh cimport Rooms
from jobcore._fast.image cimport jc_buffer, jc_spec
from jobcore._fast.table cimport RootTable, jc_name


cdef extern from "zip_scan.h" nogil:
    ctypedef struct jc_place:
        const jc_spec *spec
        const uint64_t *sizes
        uint64_t offset
        uint64_t first

    ctypedef struct jc_layout:
        jc_place *blobs
        size_t count
        jc_buffer keys
        const uint64_t *places
        const uint32_t *sums
        uint64_t chunks
        const uint8_t *encoded
        const uint64_t *sizes
        uint64_t sized
        uint64_t wide
        uint64_t end

    ctypedef struct jc_long_key:
        size_t blob
        const uint8_t *text
        size_t nbytes

    ctypedef struct jc_wanted:
        size_t blob
        uint8_t *target

    ctypedef struct jc_scan:
        const jc_layout *l
        int fd
        int threads
        int fresh
        const jc_wanted *wanted
        size_t count
        int error

    ctypedef struct jc_job:
        jc_layout *l
        const jc_name *names
        const uint32_t *spec
        const jc_spec *specs
        size_t count
        const jc_long_key *keys
        size_t key_count
        const uint8_t *index
        size_t index_bytes
        int fd
        uint8_t **targets
        int failed
        size_t root_at
        int small
        jc_scan scan

    int JC_DIFFERS

    void jc_layout_free(jc_layout *l)
    void jc_job_make(jc_job *job)
    void jc_job_begin(jc_job *job)
    void jc_job_finish(jc_job *job)
    void jc_job_free(jc_job *job)
    int jc_scan_all(jc_scan *s)


@cython.final
cdef class ZipLayout:
    # Guard: its maker, until `finish` was called. Read-only then, so that any number of threads may read by it.
    cdef jc_layout _layout
    cdef jc_job _job
    cdef jc_spec *_specs
    cdef jc_long_key *_keys
    cdef uint8_t *_encoded
    cdef uint64_t *_sizes
    cdef RootTable _table
    cdef object _held           # texts and memory that native code points into
    cdef bint _ok
    cdef bint _begun

    cdef bint holds(self, Rooms rooms) noexcept
    cdef list long_keys(self, object long_key)
    cdef int take_sizes(self, list sizes, list encoded) except -1
