"""A 128-bit hash of contents at the speed of memory: XXH3 with seed 0 and the default secret.

Two contents with the same hash are taken as equal: that goes wrong once in 2**128 pairs, if nobody works against it.
It does not protect against contents that were made to have the same hash.
"""

cimport cython
from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from libc.stdint cimport uint8_t, uint64_t
from libc.string cimport memcpy

from jobcore._fast.buffers cimport WITHOUT_GIL_BYTES, in_range, kernel_number, take_buffer
from jobcore._fast.hash128 cimport jc_hash128_stream

from jobcore.errors import BlobValueError

__all__ = ["Hash128", "hash128", "hash128_with", "implementations"]


cdef extern from "hash128.h" nogil:
    size_t JC_HASH128_SHORT
    size_t JC_HASH128_STRIPE

    ctypedef void (*jc_hash128_take)(uint64_t* lanes, unsigned int at, const uint8_t* p, size_t count) noexcept nogil

    ctypedef struct jc_hash128_kernel:
        const char* name
        jc_hash128_take take

    void jc_hash128_begin(jc_hash128_stream* s, jc_hash128_take take, uint64_t total) noexcept
    void jc_hash128_more(jc_hash128_stream* s, const uint8_t* p, size_t n) noexcept
    void jc_hash128_end(jc_hash128_stream* s, uint64_t* high, uint64_t* low) noexcept
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
cdef uint64_t MOST_BYTES = <uint64_t> 1 << 60

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


@cython.final
cdef class Hash128:
    """The hash of a content that comes in pieces.

    Parameters
    ----------
    total
        Bytes of all pieces together, ``0 <= total <= 2**60``.

    Raises
    ------
    BlobValueError
        `total` is out of range.
    TypeError
        `total` is not an integer.

    Notes
    -----
    Thread safety: one thread at a time.

    Examples
    --------
    >>> pieces = Hash128(3)
    >>> pieces.update(b"a")
    >>> pieces.update(b"bc")
    >>> pieces.digest() == hash128(b"abc")
    True
    """

    def __cinit__(self, total):
        self._total = in_range(total, MOST_BYTES, "2**60", "Hash128", "total")
        self._left, self._held = self._total, 0
        if self._total > JC_HASH128_SHORT:
            jc_hash128_begin(&self._stream, jc_hash128_at(_BEST).take, self._total)

    def __init__(self, total):
        pass

    def update(self, data):
        """Add the next piece.

        Parameters
        ----------
        data
            Contiguous bytes, as for `hash128`.

        Raises
        ------
        BlobValueError
            The buffer is not contiguous, or there are more bytes than were said.
        """
        cdef Py_buffer view
        cdef size_t size
        take_buffer(data, &view, PyBUF_ANY_CONTIGUOUS, "Hash128.update", "data")
        try:
            size = <size_t> view.len
            if size > self._left:
                raise BlobValueError(f"expected {self._total} bytes, found {size - self._left} more")
            self._left -= size
            if size < WITHOUT_GIL_BYTES:
                self._add(<const uint8_t*> view.buf, size)
            else:
                with nogil:
                    self._add(<const uint8_t*> view.buf, size)
        finally:
            PyBuffer_Release(&view)

    cdef void _add(self, const uint8_t* p, size_t n) noexcept nogil:
        # Only whole stripes go on, but of a short content all is kept: up to that length there are no stripes.
        cdef size_t room = JC_HASH128_SHORT if self._total <= JC_HASH128_SHORT else JC_HASH128_STRIPE
        cdef size_t step
        if self._held or self._total <= JC_HASH128_SHORT:
            step = min(n, room - self._held)
            memcpy(self._bytes + self._held, p, step)
            self._held = self._held + step
            p += step
            n -= step
            if self._held < room or self._total <= JC_HASH128_SHORT:
                return
            jc_hash128_more(&self._stream, self._bytes, room)
            self._held = 0
        step = n - n % room
        if step:
            jc_hash128_more(&self._stream, p, step)
        self._held = n - step
        memcpy(self._bytes, p + step, self._held)

    def digest(self):
        """Give the hash, once all pieces were added.

        Returns
        -------
        bytes
            As `hash128` of all of it.

        Raises
        ------
        BlobValueError
            Bytes are missing.
        """
        cdef uint64_t high, low
        cdef jc_hash128_stream stream
        if self._left:
            raise BlobValueError(f"expected {self._total} bytes, found {self._total - self._left}")
        if self._total <= JC_HASH128_SHORT:
            jc_hash128(self._bytes, self._total, &high, &low)
        else:
            # A copy, so that it may be asked for again.
            stream = self._stream
            if self._held:
                jc_hash128_more(&stream, self._bytes, self._held)
            jc_hash128_end(&stream, &high, &low)
        return _digest(high, low)


cdef object _hash(size_t kernel, str where, object data, object zeros):
    cdef uint64_t padding = in_range(zeros, MOST_ZEROS, "2**40", where, "zeros")
    cdef jc_hash128_take take = jc_hash128_at(kernel).take
    cdef uint64_t high, low
    cdef Py_buffer view
    take_buffer(data, &view, PyBUF_ANY_CONTIGUOUS, where, "data")
    if view.len + padding < WITHOUT_GIL_BYTES:
        jc_hash128_by(take, view.buf, view.len, padding, &high, &low)
    else:
        with nogil:
            jc_hash128_by(take, view.buf, view.len, padding, &high, &low)
    PyBuffer_Release(&view)
    return _digest(high, low)


cdef bytes _digest(uint64_t high, uint64_t low):
    cdef uint8_t digest[16]
    cdef int i
    for i in range(8):
        digest[i] = (high >> (56 - 8 * i)) & 255
        digest[8 + i] = (low >> (56 - 8 * i)) & 255
    return PyBytes_FromStringAndSize(<const char*> digest, 16)
