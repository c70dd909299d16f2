"""Arrays of other libraries that show their memory as buffers, as plain NumPy arrays.

``numpy.asarray`` does the same: it makes a new data type for each array, which everything that is decided once for a
data type is then decided for anew, and looks at more of the value than its buffer.
"""

from cpython.buffer cimport PyObject_CheckBuffer
from cpython.memoryview cimport PyMemoryView_FromObject, PyMemoryView_GET_BUFFER

cimport numpy as cnp

__all__ = ["exported_array"]

cnp.import_array()


cdef extern from "arrays.h":
    object jc_borrowing_array(
        int type_number, int axes, const Py_ssize_t *dims, const Py_ssize_t *strides, void *data, bint writable,
        object base
    )


def exported_array(value):
    """Show the memory that an object exports as an array.

    Parameters
    ----------
    value
        Any object.

    Returns
    -------
    ndarray or None
        A view of the memory, whose base is a ``memoryview`` of `value`, read-only if that is; ``None`` where `value`
        exports no buffer, or none of plain numbers in the byte order of the machine: ``numpy.asarray`` may know more.

    Notes
    -----
    Thread safety: that of the exporter. The memory is held for as long as the array is.

    Examples
    --------
    >>> import array
    >>> from jobcore._fast.exported import exported_array
    >>> exported_array(array.array("d", [1, 2]))
    array([1., 2.])
    >>> exported_array(3)
    """
    return exported(value)


cdef object exported(object value):
    cdef object view
    cdef Py_buffer *buffer
    cdef int number
    if not PyObject_CheckBuffer(value):
        return None
    try:
        view = PyMemoryView_FromObject(value)
    except Exception:
        return None  # of a deleted array, say: NumPy tells the reason
    buffer = PyMemoryView_GET_BUFFER(view)
    # Rows that are pointed to are left to NumPy, and so is an address that would make it take memory of its own.
    if buffer.ndim > 32 or buffer.suboffsets is not NULL or buffer.format is NULL or buffer.buf is NULL:
        return None
    number = number_of(buffer.format, buffer.itemsize)
    if number < 0:
        return None
    return jc_borrowing_array(
        number, buffer.ndim, buffer.shape, buffer.strides, buffer.buf, not buffer.readonly, view
    )


cdef int number_of(const char *text, Py_ssize_t width) noexcept:
    """The number of NumPy's type for the format of a buffer; -1 where it is not one letter for one number."""
    cdef bint standard = text[0] == b"="
    cdef char kind
    cdef int number
    if standard or text[0] == b"@":
        text += 1
    kind = text[0]
    if kind == 0 or text[1] != 0:
        return -1
    if kind == b"?":
        number = cnp.NPY_BOOL
    elif kind == b"e":
        number = cnp.NPY_FLOAT16
    elif kind == b"f":
        number = cnp.NPY_FLOAT
    elif kind == b"d":
        number = cnp.NPY_DOUBLE
    elif kind == b"b":
        number = cnp.NPY_INT8
    elif kind == b"B":
        number = cnp.NPY_UINT8
    elif kind == b"h":
        number = cnp.NPY_INT16
    elif kind == b"H":
        number = cnp.NPY_UINT16
    elif kind == b"i":
        number = cnp.NPY_INT32
    elif kind == b"I":
        number = cnp.NPY_UINT32
    elif kind == b"q" or (kind == b"l" and not standard and width == 8):
        number = cnp.NPY_INT64
    elif kind == b"Q" or (kind == b"L" and not standard and width == 8):
        number = cnp.NPY_UINT64
    else:
        return -1
    return number if cnp.PyArray_DescrFromType(number).itemsize == width else -1
