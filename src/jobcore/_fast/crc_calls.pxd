"""The Python functions of every CRC of 32 bits: crc.pyx and crc32c.pyx say for which polynomial.

Inline functions only. `where` is the name of the function in the errors.
"""

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_WRITABLE,
    PyBuffer_Release,
)
from libc.stdint cimport INT64_MAX, UINT32_MAX, uint8_t, uint32_t, uint64_t

from jobcore._fast.buffers cimport WITHOUT_GIL_BYTES, check_copy, in_range, take_buffer


cdef extern from "crc_base.h" nogil:
    ctypedef struct jc_crc_kind:
        size_t count

    ctypedef struct jc_crc_kernel:
        const char* name
        uint32_t (*update)(const jc_crc_kind* kind, uint32_t crc, const uint8_t* data, size_t n) noexcept nogil
        uint32_t (*copy)(
            const jc_crc_kind* kind, uint32_t crc, uint8_t* dst, const uint8_t* src, size_t n
        ) noexcept nogil

    const jc_crc_kernel* jc_crc_at(const jc_crc_kind* kind, size_t i) noexcept
    uint32_t jc_crc_join(const jc_crc_kind* kind, uint32_t first, uint32_t second, uint64_t second_bytes) noexcept


cdef inline dict kernel_numbers(const jc_crc_kind* kind):
    """Return the number of each kernel that this machine can run, by its name; best last."""
    return {jc_crc_at(kind, i).name.decode(): i for i in range(kind.count)}


cdef inline uint32_t as_crc(object value, str where, str argument) except? 0xFFFFFFFF:
    return in_range(value, UINT32_MAX, "2**32 - 1", where, argument)


cdef inline object checksum(const jc_crc_kind* kind, size_t kernel, str where, object data, object value):
    cdef uint32_t crc = as_crc(value, where, "value")
    cdef const jc_crc_kernel* chosen = jc_crc_at(kind, kernel)
    cdef Py_buffer view
    take_buffer(data, &view, PyBUF_ANY_CONTIGUOUS, where, "data")
    if view.len < WITHOUT_GIL_BYTES:
        crc = chosen.update(kind, crc, <const uint8_t*> view.buf, view.len)
    else:
        with nogil:
            crc = chosen.update(kind, crc, <const uint8_t*> view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


cdef inline object copy_checksum(
    const jc_crc_kind* kind, size_t kernel, str where, str instead, object dst, object src, object value
):
    cdef uint32_t crc = as_crc(value, where, "value")
    cdef const jc_crc_kernel* chosen = jc_crc_at(kind, kernel)
    cdef Py_buffer source, target
    take_buffer(src, &source, PyBUF_ANY_CONTIGUOUS, where, "src")
    try:
        take_buffer(dst, &target, PyBUF_ANY_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT, where, "dst")
        try:
            check_copy(&target, &source, where, instead)
            if source.len < WITHOUT_GIL_BYTES:
                crc = chosen.copy(kind, crc, <uint8_t*> target.buf, <const uint8_t*> source.buf, source.len)
            else:
                with nogil:
                    crc = chosen.copy(kind, crc, <uint8_t*> target.buf, <const uint8_t*> source.buf, source.len)
        finally:
            PyBuffer_Release(&target)
    finally:
        PyBuffer_Release(&source)
    return crc


cdef inline object combined(const jc_crc_kind* kind, str where, object crc1, object crc2, object len2):
    cdef uint32_t first = as_crc(crc1, where, "crc1"), second = as_crc(crc2, where, "crc2")
    cdef uint64_t size = in_range(len2, INT64_MAX, "2**63 - 1", where, "len2")
    return jc_crc_join(kind, first, second, size)
