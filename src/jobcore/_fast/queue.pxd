"""The queue of blobs as native code sees it.

Others push and pop its rows by the methods of `QueueCore`, without the GIL.
"""

cimport cython

# For those who push and pop.
from jobcore._fast.queue_calls cimport (
    JC_QUEUE_CANCELLED,
    JC_QUEUE_CLOSED,
    JC_QUEUE_DONE,
    JC_QUEUE_NEEDS_GIL,
    JC_QUEUE_TIMEOUT,
)
from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.queue_core cimport QueueCore
from jobcore._fast.value cimport jc_value


@cython.final
cdef class BlobQueue(QueueCore):
    # Set once, at creation.
    cdef object _rule

    # With the GIL. Fills in a value with a reference of its own; a source that is moved, because it has more bytes than
    # `above`, is added to the list.
    cdef int take_in(self, Py_ssize_t field, object value, Py_ssize_t above, jc_value *into, list moved) except -1
    # One new array for each value of the rows, which keep theirs: that of all rows along axis 0.
    cdef list joined(self, const jc_value *rows, Py_ssize_t count)
    # The values of a record, or None at the end.
    cdef list _get(self, object timeout, object num_records, CancelFlag flag)
