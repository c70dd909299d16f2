"""A 128-bit hash of contents at the speed of memory: XXH3 with seed 0 and the default secret.

Two contents with the same hash are taken as equal: that goes wrong once in 2**128 pairs, if nobody works against it.
It does not protect against contents that were made to have the same hash.
"""

from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t

from jobcore._fast.buffers cimport WITHOUT_GIL_BYTES, in_range, kernel_number, take_buffer

__all__ = ["hash128", "hash128_with", "implementations"]


cdef extern from "hash128.h" nogil:
    ctypedef void (*jc_hash128_take)(uint64_t* lanes, unsigned int at, const uint8_t* p, size_t count) noexcept nogil

    ctypedef struct jc_hash128_kernel:
        const char* name
        jc_hash128_take take

    void jc_hash128_setup() noexcept
    size_t jc_hash128_count() noexcept
    const jc_hash128_kernel* jc_hash128_at(size_t i) noexcept
    void jc_hash128_by(
        jc_hash128_take take, const void* data, size_t n, uint64_t zeros, uint64_t* high, uint64_t* low
    ) noexcept
    void jc_hash128(const void* data, size_t n, uint64_t* high, uint64_t* low) noexcept
    void jc_hash128_padded(const void* data, size_t n, uint64_t zeros, uint64_t* high, uint64_t* low) noexcept


# More would take minutes, in which nothing could interrupt it.
cdef uint64_t MOST_ZEROS = <uint64_t> 1 << 40

# Here, and not at the first call: two threads could make that at once.
jc_hash128_setup()
cdef size_t _BEST = jc_hash128_count() - 1
cdef dict _NUMBERS = {jc_hash128_at(i).name.decode(): i for i in range(jc_hash128_count())}


cdef void hash128_of(const void* data, size_t n, uint64_t* high, uint64_t* low) noexcept nogil:
    jc_hash128(data, n, high, low)


cdef void hash128_padded(const void* data, size_t n, uint64_t zeros, uint64_t* high, uint64_t* low) noexcept nogil:
    jc_hash128_padded(data, n, zeros, high, low)


def hash128(data, zeros=0):
    """Return the hash of some bytes.

    Parameters
    ----------
    data
        Any object with a contiguous buffer, such as bytes or an array in C or Fortran order; its bytes are taken as
        they lie in memory.
    zeros
        As many zero bytes are taken to follow the data, ``0 <= zeros <= 2**40``: a chunk need not be padded to be
        hashed.

    Returns
    -------
    bytes
        The hash, 16 bytes, highest first; equal to ``xxhash.xxh3_128_digest(data)``.

    Raises
    ------
    BlobValueError
        If the buffer is not contiguous, or `zeros` is out of range.
    TypeError
        If `data` has no buffer, or `zeros` is not an integer.

    Notes
    -----
    Thread safety: any number of threads at once. From 16 KiB on the GIL is released, and the data should not be
    changed meanwhile: the hash would be that of no state of it.

    Source of the method: Collet, "xxHash fast digest algorithm", specification, section XXH3.

    Examples
    --------
    >>> hash128(b"a").hex()
    'a96faf705af16834e6c632b61e964e1f'
    >>> hash128(b"a", zeros=2) == hash128(b"a\\0\\0")
    True
    """
    return _hash(_BEST, "hash128", data, zeros)


def hash128_with(kernel, data, zeros=0):
    """Return the hash of some bytes, made by a chosen implementation: for tests and benchmarks.

    Parameters
    ----------
    kernel
        One of `implementations`.
    data, zeros
        As in `hash128`.

    Returns
    -------
    bytes
        The hash; the same with each implementation.

    Raises
    ------
    BlobValueError
        As `hash128`, or if this machine has no such implementation.
    TypeError
        As `hash128`, or if `kernel` is not a str.

    Notes
    -----
    Thread safety: as `hash128`.
    """
    return _hash(kernel_number(_NUMBERS, kernel, "hash128_with", "kernel"), "hash128_with", data, zeros)


def implementations():
    """Return what this machine can run.

    Returns
    -------
    tuple of str
        Names in order of preference, best last, the one in use: ``"portable"`` on every machine; ``"avx2"`` on
        x86-64; ``"neon"`` on 64-bit ARM.
    """
    return tuple(_NUMBERS)


cdef object _hash(size_t kernel, str where, object data, object zeros):
    cdef uint64_t padding = in_range(zeros, MOST_ZEROS, "2**40", where, "zeros")
    cdef jc_hash128_take take = jc_hash128_at(kernel).take
    cdef uint64_t high, low
    cdef uint8_t digest[16]
    cdef int i
    cdef Py_buffer view
    take_buffer(data, &view, PyBUF_ANY_CONTIGUOUS, where, "data")
    if view.len + padding < WITHOUT_GIL_BYTES:
        jc_hash128_by(take, view.buf, view.len, padding, &high, &low)
    else:
        with nogil:
            jc_hash128_by(take, view.buf, view.len, padding, &high, &low)
    PyBuffer_Release(&view)
    for i in range(8):
        digest[i] = (high >> (56 - 8 * i)) & 255
        digest[8 + i] = (low >> (56 - 8 * i)) & 255
    return PyBytes_FromStringAndSize(<const char*> digest, 16)
