"""The queue of rows as native code sees it."""

cimport cython
from libc.stdint cimport int64_t

from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.queue_core cimport QueueCore
from jobcore._fast.value cimport jc_value


@cython.final
cdef class RebatchingQueue(QueueCore):
    # Each value in it is a tensor in C order, of the dtype and shape listed below.
    # A pair of dtype and shape for each value of a row; empty until the first row. Guard: the GIL.
    cdef list _specs

    cdef list _checked(self, object values, bint batch)
    cdef int _agree(self, list arrays, bint batch) except -1
    cdef int _enqueue(self, list arrays, Py_ssize_t count, bint batch, object timeout, CancelFlag flag) except -1
    # None at the end. The arrays go into the blobs if there are any.
    cdef list _dequeue(self, object num_elements, object timeout, CancelFlag flag, list blobs)
    cdef list _stacked(self, const jc_value *rows, Py_ssize_t count)
