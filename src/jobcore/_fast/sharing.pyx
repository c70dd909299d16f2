"""Which arrays lie inside the bytes of others, and whether those that are to be filled lie apart."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.object cimport PyObject
from libc.stdint cimport intptr_t, uint64_t, uintptr_t
from libc.stdlib cimport free, malloc
from libc.string cimport memset

cimport numpy as cnp

from jobcore._fast.sharing cimport jc_extent, jc_extent_plain, jc_extent_strided, jc_sort_extents

__all__ = ["find_shared", "fitting_arrays"]

cnp.import_array()

cdef enum:
    BATCH = 4096            # arrays that are looked at before another thread may have the GIL
    WITHOUT_GIL = 16384     # from that number on they are sorted without it


def find_shared(arrays):
    """Find the arrays that are views of others.

    An array is one if all its bytes lie between the first and the last of an array in C order without gaps, or if it is
    the same memory in the same layout as one that is given before it. The array that it is a view of is never a view
    itself.

    Parameters
    ----------
    arrays
        NumPy arrays of any dtype and layout. Those without elements are never views.

    Returns
    -------
    list of tuple of int, int and int
        For each view, in the order given: its number, the number of the array that it is a view of, and where its first
        element lies, in bytes from the first of that array. Where that array is not in C order, the two are the same
        elements, and the last number is 0.

    Raises
    ------
    TypeError
        Something is no array.

    Notes
    -----
    Thread safety: any number of threads at once. Arrays that overlap only in part are not found. The time is that of
    sorting addresses, a fraction of a microsecond for each array.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.zeros((3, 4))
    >>> find_shared([a[1], a, a.T, np.zeros(2)])
    [(0, 1, 32), (2, 1, 0)]
    """
    cdef tuple held = tuple(arrays)
    cdef size_t total = <size_t> len(held), n = 0, i
    cdef jc_extent *extents
    cdef object one
    if total < 2:
        check(held)
        return []
    extents = <jc_extent *> malloc(2 * total * sizeof(jc_extent))
    if extents is NULL:
        raise MemoryError
    try:
        for i in range(total):
            one = held[i]
            if not cnp.PyArray_Check(one):
                check(held)
            n += measure(<cnp.ndarray> one, i, &extents[n])
            if i % <size_t> BATCH == <size_t> BATCH - 1:
                with nogil:
                    pass
        if n < WITHOUT_GIL:
            jc_sort_extents(extents, extents + total, n)
        else:
            with nogil:
                jc_sort_extents(extents, extents + total, n)
        return views(held, extents, n, extents + total)
    finally:
        free(extents)


cdef int check(tuple held) except -1:
    for i, one in enumerate(held):
        if not cnp.PyArray_Check(one):
            raise TypeError(f"find_shared: expected arrays, found {type(one).__name__} as number {i}")
    return 0


cdef bint measure(cnp.ndarray array, size_t index, jc_extent *extent) noexcept:
    """Fill in what an array takes; False if that is nothing."""
    cdef uint64_t data = <uint64_t> <uintptr_t> cnp.PyArray_DATA(array)
    cdef uint64_t nbytes = <uint64_t> cnp.PyArray_NBYTES(array)
    if nbytes == 0:
        return False
    extent.index = index
    if cnp.PyArray_IS_C_CONTIGUOUS(array):
        return jc_extent_plain(extent, data, nbytes)
    return jc_extent_strided(
        extent,
        data,
        <uint64_t> cnp.PyArray_ITEMSIZE(array),
        cnp.PyArray_NDIM(array),
        <const intptr_t *> cnp.PyArray_DIMS(array),
        <const intptr_t *> cnp.PyArray_STRIDES(array),
    )


cdef list views(tuple held, const jc_extent *extents, size_t n, jc_extent *found):
    # Of the arrays in C order so far the one that ends last: if any holds the next array, it does.
    cdef const jc_extent *base = NULL
    cdef const jc_extent *other = NULL
    cdef const jc_extent *one
    cdef size_t i, count = 0, total = <size_t> len(held)
    cdef jc_extent *view
    for i in range(n):
        one = &extents[i]
        if base is not NULL and one.high <= base.high:
            count += note(found, count, total, one.index, base.index)
            found[one.index].low = <uint64_t> <uintptr_t> cnp.PyArray_DATA(<cnp.ndarray> held[one.index]) - base.low
        elif one.layout == 0:
            base = one
        elif other is not NULL and same(held, other, one):
            count += note(found, count, total, one.index, other.index)
        else:
            other = one
    if count == 0:
        return []
    result = []
    for i in range(total):
        view = &found[i]
        if view.layout:
            result.append((i, view.index, view.low))
    return result


cdef size_t note(jc_extent *found, size_t count, size_t total, size_t view, size_t base) noexcept:
    """Note a view in a list that is made when there is a first one, and count it."""
    if count == 0:
        memset(found, 0, total * sizeof(jc_extent))
    found[view].layout = 1
    found[view].index = base
    return 1


cdef bint same(tuple held, const jc_extent *one, const jc_extent *other) noexcept:
    """Whether two arrays are the same memory in the same layout, whatever their dtypes call it."""
    cdef cnp.ndarray a = <cnp.ndarray> held[one.index]
    cdef cnp.ndarray b = <cnp.ndarray> held[other.index]
    cdef int axis
    if one.low != other.low or one.high != other.high or one.layout != other.layout:
        return False
    if cnp.PyArray_NDIM(a) != cnp.PyArray_NDIM(b) or cnp.PyArray_ITEMSIZE(a) != cnp.PyArray_ITEMSIZE(b):
        return False
    for axis in range(cnp.PyArray_NDIM(a)):
        if cnp.PyArray_DIM(a, axis) != cnp.PyArray_DIM(b, axis):
            return False
        if cnp.PyArray_DIM(a, axis) > 1 and cnp.PyArray_STRIDE(a, axis) != cnp.PyArray_STRIDE(b, axis):
            return False
    return True


def fitting_arrays(dict into not None, list names not None, list spec not None, list forms not None):
    """Give the arrays of a mapping in the order of a table, if each is exactly what is stored.

    Parameters
    ----------
    into
        Name to array.
    names, spec
        Name of each blob of the table, and the index of its form.
    forms
        Distinct pairs of shape and data type.

    Returns
    -------
    list of ndarray or None
        ``None`` unless there is a plain, writable, C-contiguous array of its shape and data type for each blob and
        nothing else in the mapping, and no two of them share memory.

    Raises
    ------
    IndexError
        There is no such form.

    Notes
    -----
    Thread-safe. The time is that of a look-up in the mapping and of sorting addresses, a fraction of a microsecond for
    each array.

    Examples
    --------
    >>> import numpy as np
    >>> a = np.zeros((2, 3))
    >>> fitting_arrays({"x": a[0], "y": a[1]}, ["y", "x"], [0, 0], [((3,), a.dtype)])
    [array([0., 0., 0.]), array([0., 0., 0.])]
    >>> fitting_arrays({"x": a, "y": a[1]}, ["x", "y"], [1, 0], [((3,), a.dtype), ((2, 3), a.dtype)])
    """
    cdef Py_ssize_t total = len(names), i
    cdef size_t n = 0
    cdef jc_extent *extents
    cdef PyObject *found
    cdef cnp.ndarray array
    cdef list arrays = []
    if len(into) != total or len(spec) != total:
        return None
    extents = <jc_extent *> malloc(2 * (<size_t> total + 1) * sizeof(jc_extent))
    if extents is NULL:
        raise MemoryError
    try:
        for i in range(total):
            found = PyDict_GetItemWithError(into, names[i])
            if found is NULL or not cnp.PyArray_CheckExact(<object> found):
                return None
            array = <cnp.ndarray> <object> found
            if not fits(array, forms[spec[i]]):
                return None
            extents[n].index = <size_t> i
            n += jc_extent_plain(
                &extents[n],
                <uint64_t> <uintptr_t> cnp.PyArray_DATA(array),
                <uint64_t> cnp.PyArray_NBYTES(array),
            )
            arrays.append(array)
            if i % <Py_ssize_t> BATCH == <Py_ssize_t> BATCH - 1:
                with nogil:
                    pass
        with nogil:
            jc_sort_extents(extents, extents + total, n)
        return arrays if are_apart(extents, n) else None
    finally:
        free(extents)


cdef bint fits(cnp.ndarray array, tuple form) except -1:
    cdef tuple shape = form[0]
    cdef cnp.dtype dtype = form[1]
    cdef int axis
    if not cnp.PyArray_IS_C_CONTIGUOUS(array) or not cnp.PyArray_ISWRITEABLE(array):
        return False
    if cnp.PyArray_NDIM(array) != len(shape):
        return False
    for axis in range(cnp.PyArray_NDIM(array)):
        if cnp.PyArray_DIM(array, axis) != <Py_ssize_t> shape[axis]:
            return False
    return array.descr is dtype or cnp.PyArray_EquivTypes(array.descr, dtype)


cdef bint are_apart(const jc_extent *extents, size_t n) noexcept:
    """Whether no two ranges meet; they are sorted by where they begin."""
    cdef size_t i
    for i in range(1, n):
        if extents[i].low < extents[i - 1].high:
            return False
    return True
