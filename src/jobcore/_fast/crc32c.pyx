"""CRC-32C, the checksum of Zarr's ``crc32c`` codec, of iSCSI and of ext4, at the speed of memory.

As CRC-32 it finds damage that happens by itself, and does not protect against a change made on purpose.
"""

from libc.stdint cimport uint32_t, uint64_t

from jobcore._fast.buffers cimport kernel_number
from jobcore._fast.crc_calls cimport checksum, combined, copy_checksum, jc_crc_kind, kernel_numbers

__all__ = [
    "copy_crc32c",
    "copy_crc32c_with",
    "crc32c",
    "crc32c_combine",
    "crc32c_with",
    "implementation",
    "implementations",
]


cdef extern from "crc32c.h" nogil:
    void jc_crc32c_setup() noexcept
    const jc_crc_kind* jc_crc32c_kind() noexcept
    uint32_t jc_crc32c_update(uint32_t crc, const void* data, size_t n) noexcept
    uint32_t jc_crc32c_copy(uint32_t crc, void* dst, const void* src, size_t n) noexcept
    uint32_t jc_crc32c_join(uint32_t first, uint32_t second, uint64_t second_bytes) noexcept


# Here, and not at the first call: two threads could make that at once.
jc_crc32c_setup()
cdef const jc_crc_kind* _KIND = jc_crc32c_kind()
cdef size_t _BEST = _KIND.count - 1
cdef dict _NUMBERS = kernel_numbers(_KIND)


cdef uint32_t crc32c_update(uint32_t crc, const void* data, size_t n) noexcept nogil:
    return jc_crc32c_update(crc, data, n)


cdef uint32_t crc32c_copy(uint32_t crc, void* dst, const void* src, size_t n) noexcept nogil:
    return jc_crc32c_copy(crc, dst, src, n)


cdef uint32_t crc32c_join(uint32_t first, uint32_t second, uint64_t second_bytes) noexcept nogil:
    return jc_crc32c_join(first, second, second_bytes)


def crc32c(data, value=0):
    """Return the checksum of some bytes.

    Parameters
    ----------
    data
        Any object with a contiguous buffer, such as bytes or an array in C or Fortran order; its bytes are taken as
        they lie in memory.
    value
        The checksum of what came before, ``0 <= crc < 2**32``: pieces can be given one after the other.

    Returns
    -------
    int
        The checksum, ``0 <= crc < 2**32``. Zarr's codec appends it to a chunk as four bytes, lowest first.

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

    Examples
    --------
    >>> crc32c(b"123456789") == crc32c(b"56789", crc32c(b"1234")) == 0xE3069283
    True
    """
    return checksum(_KIND, _BEST, "crc32c", data, value)


def crc32c_with(name, data, value=0):
    """Return the checksum of some bytes, made by a chosen implementation: for tests and benchmarks.

    Parameters
    ----------
    name
        One of `implementations`.
    data, value
        As in `crc32c`.

    Returns
    -------
    int
        The checksum; the same with each implementation.

    Raises
    ------
    BlobValueError
        As `crc32c`, or if this machine has no such implementation.
    TypeError
        As `crc32c`, or if `name` is not a str.

    Notes
    -----
    Thread safety: as `crc32c`.
    """
    cdef size_t kernel = kernel_number(_NUMBERS, name, "crc32c_with", "name")
    return checksum(_KIND, kernel, "crc32c_with", data, value)


def copy_crc32c(dst, src, value=0):
    """Copy bytes and return their checksum, in one pass over the memory.

    Parameters
    ----------
    dst
        Any object with a contiguous, writable buffer of the size of `src` that does not overlap it.
    src, value
        As `data` and `value` in `crc32c`.

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
    return copy_checksum(_KIND, _BEST, "copy_crc32c", "crc32c", dst, src, value)


def copy_crc32c_with(name, dst, src, value=0):
    """Copy bytes and return their checksum by a chosen implementation: for tests and benchmarks.

    Parameters
    ----------
    name
        One of `implementations`.
    dst, src, value
        As in `copy_crc32c`.

    Returns
    -------
    int
        The checksum; the same with each implementation.

    Raises
    ------
    BlobValueError
        As `copy_crc32c`, or if this machine has no such implementation; nothing is copied.
    TypeError
        As `copy_crc32c`, or if `name` is not a str; nothing is copied.

    Notes
    -----
    Thread safety: as `copy_crc32c`.
    """
    cdef size_t kernel = kernel_number(_NUMBERS, name, "copy_crc32c_with", "kernel")
    return copy_checksum(_KIND, kernel, "copy_crc32c_with", "crc32c", dst, src, value)


def crc32c_combine(crc1, crc2, len2):
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

    Takes time in the logarithm of `len2`, as `jobcore._fast.crc.crc32_combine`.

    Examples
    --------
    >>> crc32c_combine(crc32c(b"check"), crc32c(b"point"), 5) == crc32c(b"checkpoint")
    True
    """
    return combined(_KIND, "crc32c_combine", crc1, crc2, len2)


def implementation():
    """Return the name of the implementation in use: the last of `implementations`.

    Returns
    -------
    str
        Its name.
    """
    return implementations()[_BEST]


def implementations():
    """Return what this machine can run.

    Returns
    -------
    tuple of str
        Names in order of preference, best last: ``"table"`` on every machine; ``"pclmulqdq"``,
        ``"vpclmulqdq-256"`` and ``"vpclmulqdq-512"`` on x86-64; ``"armv8-crc32c"`` and ``"armv8-pmull"`` on 64-bit
        ARM.
    """
    return tuple(_NUMBERS)
