"""Files of their own for chunks and documents, as the directory container has them."""

cimport cython
from libc.stdint cimport uint8_t, uint32_t, uint64_t


cdef extern from "chunk_file.h" nogil:
    size_t JC_FILE_BLOCK
    size_t JC_TRAILER

    ctypedef struct jc_chunk_file:
        int fd
        const uint8_t *data
        uint64_t from_ "from"
        uint64_t total
        uint64_t done
        uint32_t crc
        uint64_t high
        uint64_t low

    void jc_chunk_file_begin(jc_chunk_file *c, int fd, const uint8_t *data, uint64_t n, uint64_t zeros)
    int jc_chunk_file_write(jc_chunk_file *c, uint8_t *block, uint64_t most)
    int jc_new_file(int directory, const char *key, int mode)
    int jc_new_folder(int directory, const char *key)
    int jc_put_file(int directory, const char *key, int mode, const uint8_t *data, size_t n, int *fd)
    int jc_close_file(int fd)


@cython.final
cdef class ChunkFiles:
    # Set once. The descriptor is the caller's.
    cdef int _directory
    cdef int _mode
    # Guard: the GIL. Blocks of memory that no thread uses at the moment.
    cdef uint8_t *_blocks[16]
    cdef int _block_count

    cdef uint8_t *take_block(self) except NULL
    cdef void give_block(self, uint8_t *block) noexcept
    cdef int finish(self, int fd, bint keep, object key) except -2
    cdef tuple result(self, jc_chunk_file *file, int fd, bint keep, object key)
    cdef int feed(self, jc_chunk_file *file, uint8_t *block, uint8_t *room, object pieces, uint64_t nbytes) except -1
