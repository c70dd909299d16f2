/* What the workspace needs of NumPy's C API beyond ``cimport numpy``: calls that steal a reference or hand out
   a borrowed one, which Cython's declarations cannot express. Every function here needs the GIL. */

#ifndef JOBCORE_ARRAYS_H
#define JOBCORE_ARRAYS_H

#include <Python.h>
#include <numpy/arrayobject.h>

/* New memory with the dtype and shape of `like`, in C order unless `like` is laid out in Fortran order only.
   Not for items of no size: NumPy would turn "S0" into "S1". */
static inline PyObject *jc_new_like(PyArrayObject *like)
{
    PyArray_Descr *descr = PyArray_DESCR(like);
    int fortran = PyArray_IS_F_CONTIGUOUS(like) && !PyArray_IS_C_CONTIGUOUS(like);

    Py_INCREF(descr); /* taken over by the call, also when it fails */
    return PyArray_NewFromDescr(&PyArray_Type, descr, PyArray_NDIM(like), PyArray_DIMS(like), NULL, NULL,
                                fortran ? NPY_ARRAY_F_CONTIGUOUS : 0, NULL);
}

/* New memory in C order. */
static inline PyObject *jc_new_array(PyArray_Descr *descr, int axes, const npy_intp *dims)
{
    Py_INCREF(descr); /* taken over by the call, also when it fails */
    return PyArray_NewFromDescr(&PyArray_Type, descr, axes, dims, NULL, NULL, 0, NULL);
}

/* A view of base class ndarray that cannot be written through. It holds a reference to `array`. */
static inline PyObject *jc_read_only_view(PyArrayObject *array)
{
    PyObject *view = PyArray_View(array, NULL, &PyArray_Type);

    if (view != NULL) {
        PyArray_CLEARFLAGS((PyArrayObject *)view, NPY_ARRAY_WRITEABLE);
    }
    return view;
}

/* An array of memory that `base` keeps. */
static inline PyObject *jc_borrowing_array(int type_number, int axes, const Py_ssize_t *dims,
                                           const Py_ssize_t *strides, void *data, int writable, PyObject *base)
{
    PyArray_Descr *descr = PyArray_DescrFromType(type_number);
    PyObject *array;

    if (descr == NULL) {
        return NULL;
    }
    array = PyArray_NewFromDescr(&PyArray_Type, descr, axes, (npy_intp *)dims, (npy_intp *)strides, data,
                                 writable ? NPY_ARRAY_WRITEABLE : 0, NULL);
    if (array != NULL) {
        Py_INCREF(base); /* taken over by the call, also when it fails */
        if (PyArray_SetBaseObject((PyArrayObject *)array, base) < 0) {
            Py_DECREF(array);
            return NULL;
        }
    }
    return array;
}

/* A new 0-d array with the dtype and value of a NumPy scalar. */
static inline PyObject *jc_from_scalar(PyObject *scalar)
{
    return PyArray_FromScalar(scalar, NULL);
}

/* Whether only NumPy knows how to copy the items: their bytes are not all there is to them, or there are none. */
static inline int jc_copied_by_numpy(PyArrayObject *array)
{
    return PyDataType_FLAGCHK(PyArray_DESCR(array), NPY_ITEM_REFCOUNT) || PyArray_ITEMSIZE(array) == 0;
}

/* Whether the items hold pointers (Python objects, variable-width strings), so that their bytes may not be copied. */
static inline int jc_has_references(PyArrayObject *array)
{
    return PyDataType_FLAGCHK(PyArray_DESCR(array), NPY_ITEM_REFCOUNT);
}

/* NumPy's number of the dtype if the items are what C calls numbers or booleans, in its layout, and the dtype tells nothing
   more; else -1. */
static inline int jc_plain_number(PyArrayObject *array)
{
    int number = PyArray_TYPE(array);
    int plain = number >= NPY_BOOL && number <= NPY_DOUBLE && PyArray_ISNOTSWAPPED(array) && PyArray_ISALIGNED(array) &&
                PyDataType_METADATA(PyArray_DESCR(array)) == NULL;
    return plain ? number : -1;
}

/* Equal as ``==`` on dtypes has it: the bytes of one may be taken for the other. */
static inline int jc_equal_dtype(PyArrayObject *a, PyArrayObject *b)
{
    return PyArray_DESCR(a) == PyArray_DESCR(b) || PyArray_EquivTypes(PyArray_DESCR(a), PyArray_DESCR(b));
}

/* Nobody can tell the dtypes apart: not by their name ("l" and "q" are equal), not by their metadata. */
static inline int jc_identical_dtype(PyArrayObject *a, PyArrayObject *b)
{
    PyArray_Descr *x = PyArray_DESCR(a), *y = PyArray_DESCR(b);

    return x == y || (x->type_num == y->type_num && PyDataType_METADATA(x) == PyDataType_METADATA(y) &&
                      PyArray_EquivTypes(x, y));
}

static inline int jc_equal_shape(PyArrayObject *a, PyArrayObject *b)
{
    return PyArray_NDIM(a) == PyArray_NDIM(b) &&
           PyArray_CompareLists(PyArray_DIMS(a), PyArray_DIMS(b), PyArray_NDIM(a));
}

/* Both in C order or both in Fortran order without gaps: items stand at equal offsets. Wants equal shapes. */
static inline int jc_equal_layout(PyArrayObject *a, PyArrayObject *b)
{
    return (PyArray_IS_C_CONTIGUOUS(a) && PyArray_IS_C_CONTIGUOUS(b)) ||
           (PyArray_IS_F_CONTIGUOUS(a) && PyArray_IS_F_CONTIGUOUS(b));
}

/* Whether a feed of `source` would make an array like `target`: C order unless `source` is in Fortran order only. */
static inline int jc_keeps_layout(PyArrayObject *source, PyArrayObject *target)
{
    if (PyArray_IS_C_CONTIGUOUS(source) || !PyArray_IS_F_CONTIGUOUS(source)) {
        return PyArray_IS_C_CONTIGUOUS(target);
    }
    return PyArray_IS_F_CONTIGUOUS(target);
}

#endif
