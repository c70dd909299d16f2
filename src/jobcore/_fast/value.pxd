"""Values that are moved between blobs, queues and Python. Inline functions only; they need the GIL.

A unit that cimports this must call ``numpy.import_array()`` itself.
"""

from cpython.mem cimport PyMem_Calloc, PyMem_Free
from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int32_t

cimport numpy as cnp

from jobcore._fast.arrays cimport copy_of, refcount_of
from jobcore._fast.blob cimport KIND_EMPTY, KIND_OBJECT, KIND_TENSOR, Blob, BlobKind


cdef extern from "Python.h":
    Py_ssize_t PY_SSIZE_T_MAX


cdef extern from "value.h" nogil:
    ctypedef struct jc_value:
        # One reference that whoever has the value owns; NULL for nothing.
        PyObject *held
        void *data
        Py_ssize_t nbytes
        int32_t kind
        int32_t scalar_type


cdef inline jc_value *new_values(Py_ssize_t width, Py_ssize_t count) except NULL:
    """Nothing, `width` times `count`; given back by :func:`drop_values`."""
    cdef jc_value *values = NULL
    if count <= PY_SSIZE_T_MAX // width:
        values = <jc_value *> PyMem_Calloc(<size_t> (width * count), sizeof(jc_value))
    if values is NULL:
        raise MemoryError
    return values


cdef inline void drop_value(jc_value *value) noexcept:
    """Let go of the reference. Code of the object's own may run, but finds nothing here any more."""
    cdef PyObject *held = value.held
    value.held = NULL
    value.data = NULL
    value.nbytes = 0
    value.kind = KIND_EMPTY
    Py_XDECREF(held)


cdef inline void drop_values(jc_value *values, Py_ssize_t count) noexcept:
    cdef Py_ssize_t i
    for i in range(count):
        drop_value(values + i)
    PyMem_Free(values)


cdef inline void fill_tensor(jc_value *value, cnp.ndarray array) noexcept:
    """Hold an array that is no scalar, by a new reference."""
    Py_INCREF(array)
    value.held = <PyObject *> array
    value.data = cnp.PyArray_DATA(array)
    value.nbytes = cnp.PyArray_NBYTES(array)
    value.kind = KIND_TENSOR
    value.scalar_type = -1


cdef inline void fill_from(jc_value *value, Blob blob) noexcept:
    """Hold what the blob holds, by a new reference."""
    Py_INCREF(blob._held)
    value.held = <PyObject *> blob._held
    value.data = blob._data
    value.nbytes = blob._nbytes
    value.kind = <int32_t> blob._kind
    value.scalar_type = blob._scalar_type


cdef inline object python_value(const jc_value *value):
    """The value for Python: an array that may be written, and that nobody else has."""
    if value.held is NULL:
        return None
    cdef cnp.ndarray array
    if value.kind != KIND_TENSOR:
        return <object> value.held
    # Of an array that was moved in, the one who moved it may still have a reference.
    if refcount_of(value.held) != 1:
        return copy_of(<cnp.ndarray> value.held)
    array = <cnp.ndarray> value.held
    cnp.PyArray_ENABLEFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)
    return array


cdef inline int settle(const jc_value *value, Blob blob) except -1:
    """Make the value that of the blob, which gets a reference of its own; the caller drops the other one."""
    cdef object held
    if value.kind == KIND_TENSOR and refcount_of(value.held) != 1:
        return blob._settle(KIND_TENSOR, copy_of(<cnp.ndarray> value.held), -1)
    held = <object> value.held
    return blob._settle(<BlobKind> value.kind, held, 1 if value.kind == KIND_OBJECT else -1)
