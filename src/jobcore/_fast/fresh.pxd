"""Memory for the arrays of one load, and the arrays."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t

cimport numpy as cnp

from jobcore._fast.table cimport RootTable


cdef extern from "slab.h" nogil:
    ctypedef struct jc_slabs:
        pass

    void *jc_slabs_take(jc_slabs *s, size_t nbytes, size_t left)
    void jc_slabs_end(jc_slabs *s)
    size_t jc_part_bytes(size_t nbytes)
    void *jc_part_new(size_t nbytes, int zeros)
    void jc_part_free(void *data)
    void *jc_part_resize(void *data, size_t nbytes)
    void *jc_large_new(size_t nbytes)
    void jc_large_free(void *data)
    void *jc_large_resize(void *data, size_t nbytes)
    size_t JC_SLAB_LIMIT


cdef struct Form:
    int axes
    size_t nbytes
    cnp.npy_intp dims[64]


@cython.final
cdef class Rooms:
    # Guard: one thread makes it and takes the arrays; native threads fill the memory meanwhile.
    cdef RootTable table
    cdef uint8_t **data         # of each blob; NULL where it has no bytes
    cdef Form *forms
    cdef list _dtypes
    cdef list _held             # what was made, while native threads may fill it
    cdef Py_ssize_t _given      # blobs whose memory belongs to an array

    cdef int reserve(self) noexcept nogil
