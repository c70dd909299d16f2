"""Memory for the arrays of one load, and the arrays."""

cimport cython
from cpython.dict cimport PyDict_SetDefault
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport SIZE_MAX, uint8_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy, memset

cimport numpy as cnp

from jobcore._fast.fresh cimport (
    JC_SLAB_LIMIT,
    Form,
    jc_large_free,
    jc_large_new,
    jc_large_resize,
    jc_part_bytes,
    jc_part_free,
    jc_part_new,
    jc_part_resize,
    jc_slabs,
    jc_slabs_end,
    jc_slabs_take,
)
from jobcore._fast.table cimport RootTable

from jobcore.errors import BlobValueError

__all__ = ["Rooms"]

cnp.import_array()


cdef extern from "arrays.h":
    object jc_new_array(cnp.dtype dtype, int axes, const cnp.npy_intp *dims)


# What the next array gets as its memory. Guard: the GIL, which is not let go between the two.
cdef void *next_data = NULL
cdef size_t next_bytes = 0


cdef void *handed_over(size_t nbytes) noexcept nogil:
    """The memory that waits for an array of this size, or NULL."""
    global next_data
    cdef void *data = next_data
    if data is NULL or nbytes != next_bytes:
        return NULL
    next_data = NULL
    return data


cdef void *take_small(void *context, size_t nbytes) noexcept nogil:
    cdef void *data = handed_over(nbytes)
    return data if data is not NULL else jc_part_new(nbytes, 0)


cdef void *zeros_small(void *context, size_t count, size_t nbytes) noexcept nogil:
    cdef void *data = NULL
    if nbytes and count > SIZE_MAX // nbytes:
        return NULL
    # NumPy wants zeros for texts, but a thread may be filling this memory already, and will fill all of it.
    data = handed_over(count * nbytes)
    return data if data is not NULL else jc_part_new(count * nbytes, 1)


cdef void *resize_small(void *context, void *data, size_t nbytes) noexcept nogil:
    return jc_part_resize(data, nbytes)


cdef void free_small(void *context, void *data, size_t nbytes) noexcept nogil:
    jc_part_free(data)


cdef void *take_large(void *context, size_t nbytes) noexcept nogil:
    cdef void *data = handed_over(nbytes)
    return data if data is not NULL else jc_large_new(nbytes)


cdef void *zeros_large(void *context, size_t count, size_t nbytes) noexcept nogil:
    return NULL if nbytes and count > SIZE_MAX // nbytes else take_large(context, count * nbytes)


cdef void *resize_large(void *context, void *data, size_t nbytes) noexcept nogil:
    return jc_large_resize(data, nbytes)


cdef void free_large(void *context, void *data, size_t nbytes) noexcept nogil:
    jc_large_free(data)


# An array keeps the handler that its memory came by, so a large part needs nothing that tells it from a small one.
cdef cnp.PyDataMem_Handler handlers[2]
memset(handlers, 0, sizeof(handlers))
memcpy(handlers[0].name, <const char *> b"jobcore_slab", 13)
handlers[0].version = 1
handlers[0].allocator.malloc = take_small
handlers[0].allocator.calloc = zeros_small
handlers[0].allocator.realloc = resize_small
handlers[0].allocator.free = free_small
memcpy(handlers[1].name, <const char *> b"jobcore_slab_large", 19)
handlers[1].version = 1
handlers[1].allocator.malloc = take_large
handlers[1].allocator.calloc = zeros_large
handlers[1].allocator.realloc = resize_large
handlers[1].allocator.free = free_large
cdef object SMALL = PyCapsule_New(&handlers[0], "mem_handler", NULL)
cdef object LARGE = PyCapsule_New(&handlers[1], "mem_handler", NULL)


@cython.final
cdef class Rooms:
    """Memory for all blobs of a table, and arrays of it.

    The memory is there before the arrays are, so that native threads can fill it while they are made. Arrays own
    their parts of it, as those of ``numpy.empty`` do. Small ones share slabs of about 1 MiB, of which each keeps the
    whole; others share slabs of huge pages, but what belongs to an array that is gone is given back at once.

    Parameters
    ----------
    forms
        Shape and data type that each spec stands for.
    table
        The columns.

    Raises
    ------
    ValueError
        No array can have such a shape.
    BlobValueError
        There is no such spec.
    MemoryError
        There is not enough.

    Notes
    -----
    One thread uses it, and keeps it until no native thread fills the memory any more.
    """

    def __cinit__(self, list forms not None, RootTable table not None):
        cdef Py_ssize_t count = len(forms), i, k
        cdef Form *form
        cdef tuple shape
        self.table = table
        self._dtypes = []
        self.forms = <Form *> calloc(<size_t> count + 1, sizeof(Form))
        self.data = <uint8_t **> calloc(<size_t> table.blobs + 1, sizeof(uint8_t *))
        if self.forms is NULL or self.data is NULL:
            raise MemoryError
        for i in range(count):
            shape, dtype = forms[i]
            form = &self.forms[i]
            if len(shape) > 64:
                raise ValueError(f"an array has at most 64 axes, found {len(shape)}")
            form.axes = <int> len(shape)
            form.nbytes = <size_t> (<cnp.dtype?> dtype).itemsize
            for k in range(form.axes):
                form.dims[k] = shape[k]
                if form.dims[k] and form.nbytes > <size_t> ((<Py_ssize_t> 1 << 62) // form.dims[k]):
                    raise ValueError("the array would be larger than memory can be")
                form.nbytes *= <size_t> form.dims[k]
            self._dtypes.append(dtype)
        for i in range(table.blobs):
            if <Py_ssize_t> table.spec[i] >= count:
                raise BlobValueError(f"expected the index of one of {count} specs, found {table.spec[i]}")
        with nogil:
            count = self.reserve()
        if count:
            raise MemoryError

    def __init__(self, forms, table):
        pass

    def __dealloc__(self):
        cdef Py_ssize_t i
        if self.data is not NULL:
            for i in range(self._given, self.table.blobs):
                # Where making it failed there is no memory yet, and maybe no form that the table means.
                if self.data[i] is NULL:
                    continue
                if self.forms[self.table.spec[i]].nbytes < JC_SLAB_LIMIT:
                    jc_part_free(self.data[i])
                else:
                    jc_large_free(self.data[i])
        free(self.data)
        free(self.forms)

    cdef int reserve(self) noexcept nogil:
        cdef jc_slabs slabs[2]
        cdef size_t left[2]
        cdef size_t nbytes
        cdef Py_ssize_t i
        cdef int large, failed = 0
        memset(slabs, 0, sizeof(slabs))
        left[0] = left[1] = 0
        for i in range(self.table.blobs):
            nbytes = self.forms[self.table.spec[i]].nbytes
            if nbytes:
                left[nbytes >= JC_SLAB_LIMIT] += jc_part_bytes(nbytes)
        for i in range(self.table.blobs):
            nbytes = self.forms[self.table.spec[i]].nbytes
            if nbytes == 0:
                continue
            large = nbytes >= JC_SLAB_LIMIT
            self.data[i] = <uint8_t *> jc_slabs_take(&slabs[large], nbytes, left[large])
            if self.data[i] is NULL:
                failed = 1
                break
            left[large] -= jc_part_bytes(nbytes)
        jc_slabs_end(&slabs[0])
        jc_slabs_end(&slabs[1])
        return failed

    def arrays(self):
        """Make the arrays, once.

        Returns
        -------
        dict of str to ndarray
            One for each name of the table, C-contiguous, of any content.

        Raises
        ------
        BlobValueError
            They were made already, or a name comes twice.
        ValueError, MemoryError
            An array cannot be made.
        """
        global next_data, next_bytes
        cdef dict made = {}
        cdef list names = self.table._names
        cdef Py_ssize_t i
        cdef Form *form
        cdef bint large, now_large = False
        if self._held is not None:
            raise BlobValueError("expected arrays to be made once, found that they were")
        self._held = [made]
        before = cnp.PyDataMem_SetHandler(SMALL)
        try:
            for i in range(self.table.blobs):
                form = &self.forms[self.table.spec[i]]
                large = form.nbytes >= JC_SLAB_LIMIT
                if large != now_large:
                    cnp.PyDataMem_SetHandler(LARGE if large else SMALL)
                    now_large = large
                next_data, next_bytes = self.data[i], form.nbytes
                try:
                    array = jc_new_array(self._dtypes[self.table.spec[i]], form.axes, form.dims)
                finally:
                    # Whoever has taken the memory frees it, also where there is no array after all.
                    self._given += self.data[i] is NULL or next_data is NULL
                if self._given != i + 1:
                    raise ValueError(f"no array of this type takes {form.nbytes} bytes")
                if <object> PyDict_SetDefault(made, names[i], array) is not array:
                    self._held.append(array)
                    raise BlobValueError(f"expected each name once, found {names[i]!r:.80} again")
        finally:
            next_data = NULL
            cnp.PyDataMem_SetHandler(before)
        return made
