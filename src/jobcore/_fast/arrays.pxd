"""Copying arrays. A unit that cimports this must call ``numpy.import_array()`` itself.

Everything here needs the GIL to be called; the copies of :data:`RELEASE_BYTES` and more let it go while they run,
so whoever calls them keeps both arrays alive and out of other threads' hands.
"""

cimport numpy as cnp
from cpython.ref cimport PyObject
from libc.string cimport memmove


cdef extern from "arrays.h":
    object jc_new_like(cnp.ndarray like)
    object jc_read_only_view(cnp.ndarray array)
    object jc_from_scalar(object scalar)
    bint jc_copied_by_numpy(cnp.ndarray array) noexcept
    bint jc_has_references(cnp.ndarray array) noexcept
    int jc_plain_number(cnp.ndarray array) noexcept
    bint jc_equal_dtype(cnp.ndarray a, cnp.ndarray b) noexcept
    bint jc_identical_dtype(cnp.ndarray a, cnp.ndarray b) noexcept
    bint jc_equal_shape(cnp.ndarray a, cnp.ndarray b) noexcept
    bint jc_equal_layout(cnp.ndarray a, cnp.ndarray b) noexcept
    bint jc_keeps_layout(cnp.ndarray source, cnp.ndarray target) noexcept
    # On a pointer, because passing an object to a function adds the very reference that is to be counted.
    Py_ssize_t refcount_of "Py_REFCNT"(PyObject *value) noexcept


# From this size on, letting the GIL go (and waiting to get it back) is small beside the copy itself.
cdef enum:
    RELEASE_BYTES = 262144


cdef inline bint copies_under_gil(cnp.ndarray target, cnp.ndarray source) noexcept:
    """Whether :func:`fill` is one step to all other threads: a plain copy of few bytes, GIL held throughout.

    NumPy's own strided copies let the GIL go whenever they like.
    """
    return cnp.PyArray_NBYTES(target) < RELEASE_BYTES and jc_equal_layout(target, source)


cdef inline int fill(cnp.ndarray target, cnp.ndarray source) except -1:
    """Copy `source` into `target` of equal shape and equal dtype; the two may overlap."""
    cdef size_t nbytes = <size_t> cnp.PyArray_NBYTES(target)
    cdef void *into = cnp.PyArray_DATA(target)
    cdef void *start = cnp.PyArray_DATA(source)
    if not jc_equal_layout(target, source):
        cnp.PyArray_CopyInto(target, source)
    elif nbytes < RELEASE_BYTES:
        memmove(into, start, nbytes)
    else:
        with nogil:
            memmove(into, start, nbytes)
    return 0


cdef inline cnp.ndarray copy_of(cnp.ndarray source):
    """A plain ndarray that owns its memory: in C order, or in Fortran order where `source` is in that only."""
    cdef cnp.ndarray fresh
    if jc_copied_by_numpy(source):
        if cnp.PyArray_IS_F_CONTIGUOUS(source) and not cnp.PyArray_IS_C_CONTIGUOUS(source):
            return cnp.PyArray_NewCopy(source, cnp.NPY_FORTRANORDER)
        return cnp.PyArray_NewCopy(source, cnp.NPY_CORDER)
    fresh = jc_new_like(source)
    fill(fresh, source)
    return fresh
