"""The table of a root document in native memory."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from "root_table.h" nogil:
    ctypedef struct jc_name:
        const uint8_t *text
        size_t nbytes

    const uint8_t *jc_text_end(const uint8_t *p, const uint8_t *end, int *plain)
    const uint8_t *jc_after(const uint8_t *p, const uint8_t *end, const char *text)
    const uint8_t *jc_find(const uint8_t *p, const uint8_t *end, const char *text)
    const uint8_t *jc_list_end(const uint8_t *p, const uint8_t *end, size_t *values)
    int jc_integers(const uint8_t *p, const uint8_t *stop, uint64_t limit, void *out, size_t count, int wide)
    int jc_table_fits(
        const uint32_t *spec, size_t blobs, const uint64_t *chunks, const uint64_t *sizes, size_t specs,
        const uint64_t *places, size_t count
    )


@cython.final
cdef class RootTable:
    # Read-only once it is made, so that any number of threads may use it.
    cdef list _names
    cdef bytes _specs
    cdef jc_name *texts
    cdef uint32_t *spec
    cdef uint64_t *places
    cdef uint32_t *sums
    cdef Py_ssize_t blobs
    cdef Py_ssize_t chunks
    cdef object _held           # what texts point into

    cdef int room(self, Py_ssize_t blobs, Py_ssize_t chunks) except -1
    cdef const uint8_t *take_names(self, const uint8_t *p, const uint8_t *end) except? NULL
    cdef bint take(self, const uint8_t *p, const uint8_t *end) except -1
