"""What native functions take: memory given as a buffer, integers within a range, the name of a kernel.

Inline functions only. Their errors name the function that was called, `where`, and its argument.
"""

from cpython.buffer cimport PyBUF_WRITABLE, PyObject_CheckBuffer, PyObject_GetBuffer
from cpython.number cimport PyNumber_Index
from libc.stdint cimport uint64_t, uintptr_t
from libc.string cimport strchr


cdef enum:
    # Less is done before another thread could make use of the GIL, and to get the GIL back may take 5 ms.
    WITHOUT_GIL_BYTES = 16384


cdef inline object bad_value(str text, str hint=None):
    """Return the error, for the caller to raise. A declaration file has no imports of its own."""
    from jobcore.errors import BlobValueError

    return BlobValueError(text, hint=hint)


cdef inline int take_buffer(object data, Py_buffer* view, int flags, str where, str argument) except -1:
    """Fill `view`, which the caller releases."""
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
        raise bad_value(
            f"{where}: expected {'writable ' if writable else ''}contiguous memory as {argument}, "
            f"found {type(data).__name__}: {error}",
            "an array without gaps can be written to as array.view('u1')" if writable
            else "numpy.ascontiguousarray makes a copy without gaps",
        ) from error
    return 0


cdef inline int check_copy(const Py_buffer* target, const Py_buffer* source, str where, str instead) except -1:
    """Refuse to copy where that would do harm; `instead` is the function that needs no copy."""
    if target.format is not NULL and strchr(target.format, b"O") is not NULL:
        # Bytes written over references would be followed as pointers.
        raise bad_value(f"{where}: expected plain memory as dst, found a buffer of Python objects")
    if target.len != source.len:
        raise bad_value(
            f"{where}: expected dst of as many bytes as src, found {target.len} for {source.len}"
        )
    cdef uintptr_t to = <uintptr_t> target.buf, taken = <uintptr_t> source.buf
    cdef size_t n = source.len
    # An empty buffer may have any address, inside the other one too.
    if n > 0 and (to - taken if to >= taken else taken - to) < n:
        raise bad_value(
            f"{where}: expected dst and src apart in memory, found that they overlap",
            f"bytes already in place need no copy: {instead}(src) is enough",
        )
    return 0


cdef inline uint64_t in_range(
    object value, uint64_t highest, str text, str where, str argument
) except? 0xFFFFFFFF:
    """Return an integer that is at least 0 and at most `highest`, which the error writes as `text`."""
    try:
        number = PyNumber_Index(value)
    except TypeError:
        raise TypeError(f"{where}: expected an integer as {argument}, found {type(value).__name__}") from None
    if not 0 <= number <= highest:
        # The size is told and not the number: Python refuses to print one of more than 4,300 digits.
        raise bad_value(
            f"{where}: expected {argument} within 0 to {text}, "
            f"found {'a negative' if number < 0 else 'an'} integer of {number.bit_length()} bits"
        )
    return number


cdef inline size_t kernel_number(dict numbers, object name, str where, str argument) except? 0xFFFFFFFF:
    """Return the number of the kernel called `name`."""
    if not isinstance(name, str):
        raise TypeError(f"{where}: expected a str as {argument}, found {type(name).__name__}")
    number = numbers.get(name)
    if number is None:
        raise bad_value(
            f"{where}: expected as {argument} one of {', '.join(numbers)}, found {name!r}",
            "the others need a processor that has the instructions",
        )
    return number
