"""What all queues have in common, as native code sees it.

:meth:`QueueCore.push` and :meth:`QueueCore.pop` move one row without the GIL, by swapping: afterwards the slot has
what the caller gave, and the caller what was in the slot. No reference count changes. What comes back of a push is
whatever an earlier pop left in the slot; it is the caller's now, to be used again or dropped with the GIL. Whoever
gives a tensor gives its memory too: nobody else may have a reference to the array.
"""

from libc.stdint cimport int64_t

from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.queue_calls cimport jc_queue, jc_queue_totals
from jobcore._fast.value cimport jc_value


cdef class QueueCore:
    # Set once, at creation.
    cdef str _name
    cdef str _rows_are
    cdef tuple _field_names
    # Its own lock guards it; see queue.h.
    cdef jc_queue *_queue
    # Guard: the GIL.
    cdef jc_queue_totals *_totals

    # Both move `num_blobs` values. A timeout below 0 is no limit, 0 does not wait; `flag` may be None.
    # JC_QUEUE_DONE, _CLOSED, _CANCELLED, _TIMEOUT or _NEEDS_GIL; unless DONE, `values` are as they were.
    cdef int push(self, jc_value *values, int64_t timeout_ns, CancelFlag flag) noexcept nogil
    cdef int pop(self, jc_value *values, int64_t timeout_ns, CancelFlag flag) noexcept nogil

    # With the GIL. Called once, by __cinit__ of a subclass; `rows_are` is what its rows are called.
    cdef int make(
        self, object capacity, object num_blobs, object field_names, object name, str rows_are
    ) except -1
    # As push and pop; waits without the GIL, and for a signal in the main thread. DONE, CLOSED or TIMEOUT.
    cdef int move_row(self, int side, jc_value *row, int64_t timeout_ns, CancelFlag flag) except -1
    # Fills in rows and returns their number, which is less than `count` when the queue has come to its end.
    cdef Py_ssize_t take_rows(
        self, jc_value *rows, Py_ssize_t count, int64_t timeout_ns, CancelFlag flag
    ) except -1
    cdef int put_back(self, jc_value *rows, Py_ssize_t count) except -1
    cdef str label(self, Py_ssize_t field)
    cdef int64_t _waited(self, int side) noexcept
    cdef int64_t _read(self, const int64_t *cell) noexcept


# Seconds, or None, to nanoseconds, or -1.
cdef int64_t timeout_ns_of(object timeout) except? -2
cdef int64_t at_least_one(object value, str argument) except -1
