"""Chunks of a file: written through aligned blocks, read in parallel, checksummed on the way."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t


cdef extern from "chunk_io.h" nogil:
    ctypedef struct jc_file:
        int direct
        int refused

    ctypedef struct jc_writer:
        jc_file file
        int error
        int64_t end

    ctypedef struct jc_chunk:
        int64_t offset
        uint64_t size
        uint8_t *target
        uint64_t room
        uint32_t crc
        int error
        uint64_t failed_at

    int JC_END_OF_FILE

    jc_writer *jc_writer_new(int fd, size_t block_bytes, int block_count, int threads, int direct)
    int jc_allocate(int fd, uint64_t size, int *refused)
    void jc_writer_free(jc_writer *writer)
    int jc_writer_append(jc_writer *writer, const uint8_t *data, size_t n, uint32_t *crc)
    int jc_writer_reserve(jc_writer *writer, size_t n)
    int jc_writer_fill(jc_writer *writer, int64_t offset, const uint8_t *data, size_t n)
    int jc_writer_finish(jc_writer *writer)
    int jc_read_chunks(int fd, jc_chunk *chunks, size_t count, int threads, int fresh)


@cython.final
cdef class BlockWriter:
    # Guard: used by one thread at a time, the one that writes the database; NULL when closed.
    cdef jc_writer *_writer
    # What the last writer said; read by one thread, as above.
    cdef bint _direct
    cdef int _refused

    cdef jc_writer *open_writer(self, str method) except NULL
