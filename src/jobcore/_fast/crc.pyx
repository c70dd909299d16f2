"""CRC-32, the checksum of zip and zlib, at the speed of memory.

It finds damage that happens by itself: every burst of up to 32 bits, and all but one in 2**32 of other changes. It
does not protect against a change made on purpose.
"""

from cpython.buffer cimport (
    PyBUF_ANY_CONTIGUOUS,
    PyBUF_FORMAT,
    PyBUF_WRITABLE,
    PyBuffer_Release,
    PyObject_CheckBuffer,
    PyObject_GetBuffer,
)
from cpython.number cimport PyNumber_Index
from libc.stdint cimport INT64_MAX, UINT32_MAX, uint8_t, uint32_t, uint64_t, uintptr_t
from libc.string cimport strchr

from jobcore.errors import BlobValueError

__all__ = [
    "copy_crc32",
    "copy_crc32_with",
    "crc32",
    "crc32_combine",
    "crc32_with",
    "implementation",
    "implementations",
]


cdef extern from "crc32.h" nogil:
    ctypedef struct jc_crc32_kernel:
        const char* name
        uint32_t (*update)(uint32_t crc, const uint8_t* data, size_t n) noexcept nogil
        uint32_t (*copy)(uint32_t crc, uint8_t* dst, const uint8_t* src, size_t n) noexcept nogil

    void jc_crc32_setup() noexcept
    size_t jc_crc32_count() noexcept
    const jc_crc32_kernel* jc_crc32_at(size_t i) noexcept
    uint32_t jc_crc32_update(uint32_t crc, const void* data, size_t n) noexcept
    uint32_t jc_crc32_copy(uint32_t crc, void* dst, const void* src, size_t n) noexcept
    uint32_t jc_crc32_join(uint32_t first, uint32_t second, uint64_t second_bytes) noexcept


# Less is done before another thread could make use of the GIL, and to get the GIL back may take 5 ms.
cdef enum:
    WITHOUT_GIL_BYTES = 16384

# Here, and not at the first call: two threads could make that at once.
jc_crc32_setup()
cdef dict _NUMBERS = {jc_crc32_at(i).name.decode(): i for i in range(jc_crc32_count())}


cdef uint32_t crc32_update(uint32_t crc, const void* data, size_t n) noexcept nogil:
    return jc_crc32_update(crc, data, n)


cdef uint32_t crc32_copy(uint32_t crc, void* dst, const void* src, size_t n) noexcept nogil:
    return jc_crc32_copy(crc, dst, src, n)


cdef uint32_t crc32_join(uint32_t first, uint32_t second, uint64_t second_bytes) noexcept nogil:
    return jc_crc32_join(first, second, second_bytes)


def crc32(data, value=0):
    """Return the checksum of some bytes.

    Parameters
    ----------
    data
        Any object with a contiguous buffer, such as bytes or an array in C or Fortran order; its bytes are taken as
        they lie in memory.
    value
        The checksum of what came before, ``0 <= value < 2**32``: pieces can be given one after the other.

    Returns
    -------
    int
        The checksum, ``0 <= crc < 2**32``; equal to ``zlib.crc32(data, value)``.

    Raises
    ------
    BlobValueError
        If the buffer is not contiguous, or `value` is out of range.
    TypeError
        If `data` has no buffer, or `value` is not an integer.

    Notes
    -----
    Thread safety: any number of threads at once. From 16 KiB on the GIL is released, and the data should not be
    changed meanwhile: the checksum would be that of no state of it.

    The method is carry-less multiplication where the processor has it; see `implementation`.

    Examples
    --------
    >>> crc32(b"123456789") == crc32(b"56789", crc32(b"1234")) == 0xCBF43926
    True
    """
    return _checksum(jc_crc32_at(jc_crc32_count() - 1), "crc32", data, value)


def crc32_with(name, data, value=0):
    """Return the checksum of some bytes, made by a chosen implementation: for tests and benchmarks.

    Parameters
    ----------
    name
        One of `implementations`.
    data, value
        As in `crc32`.

    Returns
    -------
    int
        The checksum; the same with each implementation.

    Raises
    ------
    BlobValueError
        If this machine has no such implementation, the buffer is not contiguous, or `value` is out of range.
    TypeError
        If `name` is not a str, `data` has no buffer, or `value` is not an integer.

    Notes
    -----
    Thread safety: as `crc32`.
    """
    return _checksum(_chosen(name, "crc32_with"), "crc32_with", data, value)


def copy_crc32(dst, src, value=0):
    """Copy bytes and return their checksum, in one pass over the memory.

    Parameters
    ----------
    dst
        Any object with a contiguous, writable buffer of the size of `src` that does not overlap it.
    src, value
        As `data` and `value` in `crc32`.

    Returns
    -------
    int
        The checksum of the bytes that were written, ``0 <= crc < 2**32``.

    Raises
    ------
    BlobValueError
        If a buffer is not contiguous, `dst` is read-only or holds Python objects, the sizes differ, the two overlap,
        or `value` is out of range; nothing is copied.
    TypeError
        If `dst` or `src` has no buffer, or `value` is not an integer; nothing is copied.

    Notes
    -----
    Thread safety: any number of threads at once, on different `dst`. From 16 KiB on the GIL is released. If another
    thread changes `src` meanwhile, `dst` gets some mix of old and new bytes, and its right checksum all the same.

    From 32 KiB on the copy goes past the caches: into memory that is not in them it is faster than a plain one.
    """
    return _copy(jc_crc32_at(jc_crc32_count() - 1), "copy_crc32", dst, src, value)


def copy_crc32_with(name, dst, src, value=0):
    """Copy bytes and return their checksum by a chosen implementation: for tests and benchmarks.

    Parameters
    ----------
    name
        One of `implementations`.
    dst, src, value
        As in `copy_crc32`.

    Returns
    -------
    int
        The checksum; the same with each implementation.

    Raises
    ------
    BlobValueError
        As `copy_crc32`, or if this machine has no such implementation; nothing is copied.
    TypeError
        As `copy_crc32`, or if `name` is not a str; nothing is copied.

    Notes
    -----
    Thread safety: as `copy_crc32`.
    """
    return _copy(_chosen(name, "copy_crc32_with"), "copy_crc32_with", dst, src, value)


def crc32_combine(crc1, crc2, len2):
    """Return the checksum of two pieces of data joined, from the checksums of both.

    Parameters
    ----------
    crc1, crc2
        Checksums of the first and of the second piece, ``0 <= crc < 2**32``, each computed from `value` 0.
    len2
        Size of the second piece in bytes, ``0 <= len2 < 2**63``.

    Returns
    -------
    int
        The checksum of the first piece followed by the second.

    Raises
    ------
    BlobValueError
        If an argument is out of range.
    TypeError
        If an argument is not an integer.

    Notes
    -----
    Thread safety: any number of threads at once.

    Takes time in the logarithm of `len2`: the first checksum is multiplied by ``x**(8 * len2)`` modulo the polynomial.

    Examples
    --------
    >>> crc32_combine(crc32(b"check"), crc32(b"point"), 5) == crc32(b"checkpoint")
    True
    """
    cdef uint32_t first = _as_crc(crc1, "crc32_combine", "crc1")
    cdef uint32_t second = _as_crc(crc2, "crc32_combine", "crc2")
    cdef uint64_t size = _in_range(len2, INT64_MAX, "2**63 - 1", "crc32_combine", "len2")
    return jc_crc32_join(first, second, size)


def implementation():
    """Return the name of the implementation in use: the last of `implementations`.

    Returns
    -------
    str
        Its name.
    """
    return jc_crc32_at(jc_crc32_count() - 1).name.decode()


def implementations():
    """Return what this machine can run.

    Returns
    -------
    tuple of str
        Names in order of preference, best last: ``"table"`` on every machine; ``"pclmulqdq"``, ``"vpclmulqdq-256"``
        and ``"vpclmulqdq-512"`` on x86-64; ``"armv8-crc32"`` and ``"armv8-pmull"`` on 64-bit ARM.
    """
    return tuple(_NUMBERS)


cdef const jc_crc32_kernel* _chosen(object name, str where) except NULL:
    if not isinstance(name, str):
        raise TypeError(f"{where}: expected a str as name, found {type(name).__name__}")
    number = _NUMBERS.get(name)
    if number is None:
        raise BlobValueError(
            f"{where}: expected as name one of {', '.join(_NUMBERS)}, found {name!r}",
            hint="the others need a processor that has the instructions",
        )
    return jc_crc32_at(number)


cdef object _checksum(const jc_crc32_kernel* kernel, str where, object data, object value):
    cdef uint32_t crc = _as_crc(value, where, "value")
    cdef Py_buffer view
    _take_buffer(data, &view, PyBUF_ANY_CONTIGUOUS, where, "data")
    if view.len < WITHOUT_GIL_BYTES:
        crc = kernel.update(crc, <const uint8_t*> view.buf, view.len)
    else:
        with nogil:
            crc = kernel.update(crc, <const uint8_t*> view.buf, view.len)
    PyBuffer_Release(&view)
    return crc


cdef object _copy(const jc_crc32_kernel* kernel, str where, object dst, object src, object value):
    cdef uint32_t crc = _as_crc(value, where, "value")
    cdef Py_buffer source, target
    _take_buffer(src, &source, PyBUF_ANY_CONTIGUOUS, where, "src")
    try:
        _take_buffer(dst, &target, PyBUF_ANY_CONTIGUOUS | PyBUF_WRITABLE | PyBUF_FORMAT, where, "dst")
        try:
            _check_copy(&target, &source, where)
            if source.len < WITHOUT_GIL_BYTES:
                crc = kernel.copy(crc, <uint8_t*> target.buf, <const uint8_t*> source.buf, source.len)
            else:
                with nogil:
                    crc = kernel.copy(crc, <uint8_t*> target.buf, <const uint8_t*> source.buf, source.len)
        finally:
            PyBuffer_Release(&target)
    finally:
        PyBuffer_Release(&source)
    return crc


cdef int _check_copy(const Py_buffer* target, const Py_buffer* source, str where) except -1:
    if target.format is not NULL and strchr(target.format, b"O") is not NULL:
        # Bytes written over references would be followed as pointers.
        raise BlobValueError(f"{where}: expected plain memory as dst, found a buffer of Python objects")
    if target.len != source.len:
        raise BlobValueError(
            f"{where}: expected dst of as many bytes as src, found {target.len} for {source.len}"
        )
    cdef uintptr_t to = <uintptr_t> target.buf, taken = <uintptr_t> source.buf
    cdef size_t n = source.len
    # An empty buffer may have any address, inside the other one too.
    if n > 0 and (to - taken if to >= taken else taken - to) < n:
        raise BlobValueError(
            f"{where}: expected dst and src apart in memory, found that they overlap",
            hint="bytes already in place need no copy: crc32(src) is enough",
        )
    return 0


cdef int _take_buffer(object data, Py_buffer* view, int flags, str where, str argument) except -1:
    cdef bint writable = flags & PyBUF_WRITABLE
    if not PyObject_CheckBuffer(data):
        raise TypeError(
            f"{where}: expected an object with a buffer as {argument}, such as bytes or an array, "
            f"found {type(data).__name__}"
        )
    try:
        PyObject_GetBuffer(data, view, flags)
    except (BufferError, ValueError) as error:
        # Both are in use: memoryview raises the first, NumPy the second.
        raise BlobValueError(
            f"{where}: expected {'writable ' if writable else ''}contiguous memory as {argument}, "
            f"found {type(data).__name__}: {error}",
            hint="an array without gaps can be written to as array.view('u1')" if writable
            else "numpy.ascontiguousarray makes a copy without gaps",
        ) from error
    return 0


cdef uint32_t _as_crc(object value, str where, str argument) except? 0xFFFFFFFF:
    return _in_range(value, UINT32_MAX, "2**32 - 1", where, argument)


cdef uint64_t _in_range(object value, uint64_t highest, str text, str where, str argument) except? 0xFFFFFFFF:
    try:
        number = PyNumber_Index(value)
    except TypeError:
        raise TypeError(f"{where}: expected an integer as {argument}, found {type(value).__name__}") from None
    if not 0 <= number <= highest:
        # The size is told and not the number: Python refuses to print one of more than 4,300 digits.
        raise BlobValueError(
            f"{where}: expected {argument} within 0 to {text}, "
            f"found {'a negative' if number < 0 else 'an'} integer of {number.bit_length()} bits"
        )
    return number
