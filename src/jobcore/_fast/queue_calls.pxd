"""Declarations of ``queue.h`` and the headers beside it, for the units of this layer."""

from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, uint32_t

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
        int64_t *bytes[2]
        int64_t writers
        int64_t waited_ns[2]
        int64_t capacity
        int64_t width

    bint jc_queue_is_foreign(const jc_queue *q) noexcept
    bint jc_queue_is_closed(const jc_queue *q) noexcept
    int64_t jc_queue_peek(const int64_t *cell) noexcept
    void jc_queue_lock(jc_queue *q) noexcept
    void jc_queue_unlock(jc_queue *q) noexcept
    jc_queue *jc_queue_new(int64_t capacity, int64_t width, uint32_t cyclic, const int32_t *marks) noexcept
    void jc_queue_free(jc_queue *q) noexcept
    int jc_queue_try(jc_queue *q, int side, jc_value *row, bint has_gil) noexcept
    int jc_queue_put_back(jc_queue *q, jc_value *rows, int64_t n) noexcept
    int jc_queue_visit(jc_queue *q, visitproc look, void *argument) noexcept
    bint jc_queue_strip(jc_queue *q, int64_t *at, bint free_only, jc_value *found) noexcept


cdef extern from "queue_wait.h" nogil:
    int64_t jc_queue_now_ns() noexcept
    int jc_queue_wait(jc_queue *q, int side, int64_t timeout_ns, const int32_t *flag) noexcept
    int jc_queue_move(
        jc_queue *q, int side, jc_value *row, int64_t timeout_ns, const int32_t *flag
    ) noexcept
    void jc_queue_close(jc_queue *q) noexcept
    int jc_queue_add_writers(jc_queue *q, int64_t count) noexcept
    int64_t jc_queue_drop_writer(jc_queue *q) noexcept


cdef extern from "queue_totals.h" nogil:
    ctypedef struct jc_queue_totals:
        int64_t references
        jc_queue *queue
        int64_t width
        int64_t balance
        int64_t rows[2]
        int64_t waited_ns[2]
        int64_t *bytes[2]

    jc_queue_totals *jc_queue_totals_new(jc_queue *q) noexcept
    void jc_queue_totals_drop(jc_queue_totals *t) noexcept
    void jc_queue_totals_read(jc_queue_totals *t) noexcept
    void jc_queue_totals_end(jc_queue_totals *t) noexcept
