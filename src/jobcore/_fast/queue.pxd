"""The queue as native code sees it.

:meth:`BlobQueue.push` and :meth:`BlobQueue.pop` move one row without the GIL, by swapping: afterwards the slot has
what the caller gave, and the caller what was in the slot. No reference count changes. What comes back of a push is
whatever an earlier pop left in the slot; it is the caller's now, to be used again or dropped with the GIL. Whoever
gives a tensor gives its memory too: nobody else may have a reference to the array.
"""

cimport cython
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.value cimport jc_value


cdef extern from "Python.h":
    ctypedef int (*visitproc)(PyObject *found, void *argument) noexcept


cdef extern from "queue.h" nogil:
    enum:
        JC_QUEUE_DONE
        # Of a push: it takes nothing any more. Of a pop: nothing is left, and nothing will come.
        JC_QUEUE_CLOSED
        JC_QUEUE_CANCELLED
        JC_QUEUE_TIMEOUT
        # A value may be part of a reference cycle (a state, a generator, an object): use `put` and `get` of Python.
        JC_QUEUE_NEEDS_GIL
        # Of jc_queue_try only.
        JC_QUEUE_WAIT

    enum:
        JC_READERS
        JC_WRITERS

    ctypedef struct jc_queue:
        int32_t sleepers[2]
        int64_t count
        int64_t rows[2]
        int64_t *bytes
        int64_t writers
        int64_t waited_ns[2]
        int64_t capacity
        int64_t width

    int jc_queue_setup() noexcept
    bint jc_queue_is_foreign(const jc_queue *q) noexcept
    bint jc_queue_is_closed(const jc_queue *q) noexcept
    int64_t jc_queue_now_ns() noexcept
    int64_t jc_queue_peek(const int64_t *cell) noexcept
    void jc_queue_lock(jc_queue *q) noexcept
    void jc_queue_unlock(jc_queue *q) noexcept
    jc_queue *jc_queue_new(int64_t capacity, int64_t width, uint32_t cyclic) noexcept
    void jc_queue_free(jc_queue *q) noexcept
    int jc_queue_try(jc_queue *q, int side, jc_value *row, bint has_gil) noexcept
    int jc_queue_wait(jc_queue *q, int side, int64_t timeout_ns, const int32_t *flag) noexcept
    int jc_queue_move(
        jc_queue *q, int side, jc_value *row, int64_t timeout_ns, const int32_t *flag
    ) noexcept
    void jc_queue_close(jc_queue *q) noexcept
    int jc_queue_add_writers(jc_queue *q, int64_t count) noexcept
    int64_t jc_queue_drop_writer(jc_queue *q) noexcept
    int jc_queue_put_back(jc_queue *q, jc_value *rows, int64_t n) noexcept
    int jc_queue_visit(jc_queue *q, visitproc look, void *argument) noexcept
    bint jc_queue_strip(jc_queue *q, int64_t *at, bint free_only, jc_value *found) noexcept


@cython.final
cdef class BlobQueue:
    # Set once, at creation.
    cdef str _name
    cdef tuple _field_names
    cdef tuple _labels
    cdef object _rule
    # Its own lock guards it; see queue.h.
    cdef jc_queue *_queue

    # Both move `num_blobs` values. A timeout below 0 is no limit, 0 does not wait; `flag` may be None.
    # JC_QUEUE_DONE, _CLOSED, _CANCELLED, _TIMEOUT or _NEEDS_GIL; unless DONE, `values` are as they were.
    cdef int push(self, jc_value *values, int64_t timeout_ns, CancelFlag flag) noexcept nogil
    cdef int pop(self, jc_value *values, int64_t timeout_ns, CancelFlag flag) noexcept nogil

    # With the GIL. Fills in a value with a reference of its own; a source that is moved is added to the list.
    cdef int take_in(self, Py_ssize_t field, object value, bint move, jc_value *into, list moved) except -1
    # As push and pop; waits without the GIL, and for a signal in the main thread. DONE, CLOSED or TIMEOUT.
    cdef int move_row(self, int side, jc_value *row, int64_t timeout_ns, CancelFlag flag) except -1
    # Fills in rows and returns their number, which is less than `count` when the queue has come to its end.
    cdef Py_ssize_t take_rows(
        self, jc_value *rows, Py_ssize_t count, int64_t timeout_ns, CancelFlag flag
    ) except -1
    cdef int put_back(self, jc_value *rows, Py_ssize_t count) except -1
    # One new array for each value of the rows, which keep theirs: that of all rows along axis 0.
    cdef list joined(self, const jc_value *rows, Py_ssize_t count)
    cdef str label(self, Py_ssize_t field)
    # The values of a record, or None at the end.
    cdef list _get(self, object timeout, object num_records, CancelFlag flag)
    cdef int64_t _read(self, const int64_t *cell) noexcept


# Seconds, or None, to nanoseconds, or -1.
cdef int64_t timeout_ns_of(object timeout) except? -2
cdef int64_t at_least_one(object value, str argument) except -1
