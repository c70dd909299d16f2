"""Memory that is kept from save to save, as native code sees it."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t

from jobcore._fast.chunk cimport jc_file


cdef extern from "arena.h" nogil:
    size_t JC_HUGE
    size_t JC_ALIGN

    uint8_t *jc_arena_map(size_t size)
    int jc_write_arena(int fd, uint8_t *data, uint64_t size, uint64_t step, int threads, int direct,
                       jc_file *file)


@cython.final
cdef class Arena:
    # Guard: whoever owns it; a save has it for itself. NULL when closed.
    cdef uint8_t *_data
    cdef int _process           # a forked child does not have the memory
    cdef size_t _nbytes

    cdef uint8_t *open_data(self, str method) except NULL
