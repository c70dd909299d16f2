"""Images of zip containers: planned and laid out by native code, into a stream of blocks or into an arena."""

cimport cython
from libc.stdint cimport int64_t, uint8_t, uint32_t, uint64_t

cimport numpy as cnp

from jobcore._fast.chunk cimport jc_writer


cdef extern from "zip_sink.h" nogil:
    ctypedef struct jc_buffer:
        uint8_t *data
        size_t used

    ctypedef struct jc_spec:
        const uint8_t *head
        const uint8_t *tail
        size_t head_bytes
        size_t tail_bytes
        uint64_t chunks
        uint64_t chunk_bytes
        uint64_t bytes
        uint32_t axes
        uint32_t number

    ctypedef struct jc_entry:
        uint8_t *key
        size_t key_bytes
        uint64_t size

    ctypedef struct jc_image:
        jc_writer *stream
        uint8_t *memory
        size_t memory_bytes
        uint64_t wide
        uint64_t end
        uint64_t entries
        uint64_t open_left
        jc_buffer batch
        jc_buffer central

    ctypedef struct jc_blob:
        const uint8_t *name
        const uint8_t *data
        const jc_spec *spec
        size_t name_bytes
        size_t key_bytes
        uint8_t key[200]

    size_t JC_MAX_KEY
    uint64_t JC_LARGE

    size_t jc_escape(uint8_t *out, const uint8_t *name, size_t n)
    void jc_image_free(jc_image *m)
    int jc_image_flush(jc_image *m)
    int jc_image_append(jc_image *m, const uint8_t *data, size_t n)
    int jc_image_blobs(jc_image *m, const jc_blob *blobs, size_t count)
    int jc_image_begin(jc_image *m, const jc_entry *e)
    int jc_image_piece(jc_image *m, const uint8_t *data, uint64_t n)
    int jc_image_finish_chunk(jc_image *m)
    int jc_image_copy(jc_image *m, int threads, uint64_t most, int *left)
    void jc_chunk_key(jc_entry *e, size_t node_bytes, const jc_spec *spec, uint64_t chunk)
    int jc_image_name(jc_image *m, const uint8_t *name, size_t name_bytes, const jc_spec *spec)
    int jc_image_chunk(
        jc_image *m, jc_entry *e, size_t node_bytes, const jc_spec *spec, const uint8_t *data, uint64_t chunk
    )
    int jc_image_document(
        jc_image *m, jc_entry *e, size_t node_bytes, const uint8_t *name, size_t name_bytes, const jc_spec *spec
    )
    int jc_image_root(
        jc_image *m, const uint8_t *head, size_t head_bytes, const uint8_t *specs, size_t specs_bytes,
        const uint8_t *more, size_t more_bytes, const uint8_t *tail, size_t tail_bytes
    )
    int jc_image_encoded(
        jc_image *m, jc_entry *e, size_t node_bytes, const jc_spec *spec, uint64_t chunk, const uint8_t *data,
        uint64_t n
    )


cdef inline bint covers(const jc_spec *spec) noexcept:
    """Whether the chunks of a spec hold its array, and no chunk too many."""
    if spec.bytes == 0:
        return spec.chunks == 0
    # Divided, not multiplied: the numbers may come from a damaged file.
    return 0 < spec.chunk_bytes and spec.chunks == (spec.bytes - 1) // spec.chunk_bytes + 1


@cython.final
cdef class ZipImage:
    # Guard: used by one thread at a time, the one that makes the database.
    cdef jc_image _image
    cdef jc_spec *_specs
    cdef Py_ssize_t _spec_count
    cdef object _held           # documents and sinks that native code points into
    cdef object _long_key
    cdef int _failed            # errno of the failure after which the image is of no use

    cdef int check(self, int failed) except -1
    cdef int add_large(self, const jc_blob *blob) except -1
    cdef bint take(self, jc_blob *blob, str name, cnp.ndarray array, Py_ssize_t index, list held) except -1
    cdef size_t make_key(self, str name, const uint8_t *text, size_t n, uint8_t *out) except 0
    cdef jc_spec *spec_at(self, Py_ssize_t index) except NULL
