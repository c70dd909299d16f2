"""What all queues have in common, for threads with and without the GIL."""

from cpython.exc cimport PyErr_CheckSignals
from cpython.number cimport PyNumber_Index
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t

from jobcore._fast.blob cimport KIND_OBJECT, KIND_QUEUE, KIND_RNG, KIND_STATE, process_marks
from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.queue_calls cimport (
    JC_QUEUE_CANCELLED,
    JC_QUEUE_CLOSED,
    JC_QUEUE_DONE,
    JC_QUEUE_TIMEOUT,
    JC_QUEUE_WAIT,
    JC_READERS,
    JC_WRITERS,
    jc_queue,
    jc_queue_add_writers,
    jc_queue_close,
    jc_queue_drop_writer,
    jc_queue_free,
    jc_queue_is_closed,
    jc_queue_is_foreign,
    jc_queue_lock,
    jc_queue_move,
    jc_queue_new,
    jc_queue_now_ns,
    jc_queue_peek,
    jc_queue_put_back,
    jc_queue_strip,
    jc_queue_totals_drop,
    jc_queue_totals_end,
    jc_queue_totals_new,
    jc_queue_try,
    jc_queue_unlock,
    jc_queue_visit,
    jc_queue_wait,
    visitproc,
)
from jobcore._fast.queue_totals cimport QueueTotals
from jobcore._fast.value cimport drop_value, jc_value

import threading

from jobcore._fast.blob_errors import describe
from jobcore._fast.queue_errors import (
    closed_to_writers,
    no_writer,
    too_small,
    took_too_long,
    wrong_names,
)
from jobcore.errors import Cancelled

__all__ = ["QueueCore"]

# Values of these kinds may refer to other objects, and so be part of a cycle.
cdef uint32_t CYCLIC = (
    1 << <int> KIND_STATE | 1 << <int> KIND_RNG | 1 << <int> KIND_OBJECT | 1 << <int> KIND_QUEUE
)

cdef enum:
    # Between two looks for signals, in the main thread.
    SIGNALS_NS = 25_000_000


cdef class QueueCore:
    """What all queues have in common: a bounded ring of rows of values, its ends, and its numbers.

    Notes
    -----
    It is made by its subclasses only. Thread safety: every method may be called from any thread.
    """

    def __cinit__(self, *args, **options):
        if type(self) is QueueCore:
            raise TypeError("expected one of the queues, BlobQueue or RebatchingQueue; this is only their base")

    def __dealloc__(self):
        if self._queue is NULL:
            return
        if self._totals is not NULL:
            jc_queue_totals_end(self._totals)
            jc_queue_totals_drop(self._totals)
        _strip(self, False)
        jc_queue_free(self._queue)

    def __repr__(self):
        state = "closed" if self.closed else "open"
        found = f"{len(self)} of {self._queue.capacity} {self._rows_are}"
        return f"<{type(self).__name__} {self._name!r}: {found}, {state}>"

    def close(self):
        """Close the queue at once: no put succeeds any more, and readers get what is left. May be called again."""
        jc_queue_close(self._queue)
        # What readers left in the slots is of no use any more.
        _strip(self, True)

    def register_writer(self, count=1):
        """Count writers that will call :meth:`writer_done`; the last one of them closes the queue.

        Parameters
        ----------
        count
            How many, at least 1. Register all before the first can be done.

        Raises
        ------
        ClosedError
            The queue is closed.
        BlobValueError
            `count` is less than 1.
        """
        if jc_queue_add_writers(self._queue, at_least_one(count, "count")) != JC_QUEUE_DONE:
            raise closed_to_writers(self._name, self.foreign)

    def writer_done(self):
        """Say that a registered writer puts nothing in any more; if it was the last one, the queue closes.

        Returns
        -------
        int
            How many writers are left.

        Raises
        ------
        ContextError
            No writer is registered that is not done.
        """
        cdef int64_t left = jc_queue_drop_writer(self._queue)
        if left < 0:
            raise no_writer(self._name)
        return left

    @property
    def closed(self):
        """Whether nothing can be put in any more."""
        return bool(jc_queue_is_closed(self._queue))

    @property
    def foreign(self):
        """Whether the queue belongs to the process that this one was forked from; it is closed and empty here."""
        return bool(jc_queue_is_foreign(self._queue))

    @property
    def name(self):
        """What the queue is called in errors."""
        return self._name

    @property
    def capacity(self):
        """The number of records, or rows, at which writers wait."""
        return self._queue.capacity

    @property
    def num_blobs(self):
        """The number of values in a record, or of tensors in a row."""
        return self._queue.width

    @property
    def field_names(self):
        """A tuple of the names of the values, or None."""
        return self._field_names

    @property
    def num_writers(self):
        """How many registered writers are not done."""
        return self._read(&self._queue.writers)

    def __len__(self):
        return 0 if jc_queue_is_foreign(self._queue) else jc_queue_peek(&self._queue.count)

    def __bool__(self):
        # By its length an empty queue would be false, and ``queue or default`` would drop it.
        return True

    @property
    def balance(self):
        """Records in the queue and writers that wait, less the readers that wait: below 0, the writers are too slow."""
        if jc_queue_is_foreign(self._queue):
            return 0
        jc_queue_lock(self._queue)
        cdef int64_t found = (
            self._queue.count + self._queue.sleepers[JC_WRITERS] - self._queue.sleepers[JC_READERS]
        )
        jc_queue_unlock(self._queue)
        return found

    @property
    def enqueued_records(self):
        """Records put in so far."""
        return self._read(&self._queue.rows[JC_WRITERS])

    @property
    def dequeued_records(self):
        """Records taken out so far."""
        return self._read(&self._queue.rows[JC_READERS])

    @property
    def enqueued_bytes(self):
        """Bytes of tensors, bytes and strings put in so far."""
        return sum([self._read(&self._queue.bytes[<int> JC_WRITERS][i]) for i in range(self._queue.width)])

    @property
    def dequeued_bytes(self):
        """Bytes of tensors, bytes and strings taken out so far."""
        return sum(self.dequeued_bytes_by_field)

    @property
    def dequeued_bytes_by_field(self):
        """A tuple of the bytes taken out so far of each value of a record."""
        return tuple([self._read(&self._queue.bytes[<int> JC_READERS][i]) for i in range(self._queue.width)])

    @property
    def write_wait_ns(self):
        """Nanoseconds that writers have waited for room, all together."""
        return self._waited(JC_WRITERS)

    @property
    def read_wait_ns(self):
        """Nanoseconds that readers have waited for records, all together."""
        return self._waited(JC_READERS)

    @property
    def totals(self):
        """A `QueueTotals` of this queue, which stays when the queue is gone."""
        return QueueTotals.of(self._totals, self._field_names)

    # For native code.

    cdef int push(self, jc_value *values, int64_t timeout_ns, CancelFlag flag) noexcept nogil:
        return jc_queue_move(
            self._queue, JC_WRITERS, values, timeout_ns, NULL if flag is None else &flag._set
        )

    cdef int pop(self, jc_value *values, int64_t timeout_ns, CancelFlag flag) noexcept nogil:
        return jc_queue_move(
            self._queue, JC_READERS, values, timeout_ns, NULL if flag is None else &flag._set
        )

    # With the GIL.

    cdef int make(
        self, object capacity, object num_blobs, object field_names, object name, str rows_are
    ) except -1:
        cdef int64_t rows = at_least_one(capacity, "capacity"), width = at_least_one(num_blobs, "num_blobs")
        if not isinstance(name, str):
            raise TypeError(f"expected a str as name, found {describe(name)}")
        self._name = str(name)
        self._rows_are = rows_are
        if field_names is not None:
            self._field_names = tuple(field_names)
            if not all(isinstance(field, str) for field in self._field_names):
                raise TypeError("expected field_names of type str")
            if len(self._field_names) != width or len(set(self._field_names)) != width:
                raise wrong_names(width, self._field_names)
        self._queue = jc_queue_new(rows, width, CYCLIC, process_marks())
        if self._queue is not NULL:
            self._totals = jc_queue_totals_new(self._queue)
        if self._totals is NULL:
            raise MemoryError(f"no room for a queue of {rows} {rows_are} of {width} blobs")
        return 0

    cdef int64_t _waited(self, int side) noexcept:
        return 0 if jc_queue_is_foreign(self._queue) else jc_queue_peek(&self._queue.waited_ns[side])

    cdef int64_t _read(self, const int64_t *cell) noexcept:
        cdef int64_t found
        if jc_queue_is_foreign(self._queue):
            return 0
        jc_queue_lock(self._queue)
        found = cell[0]
        jc_queue_unlock(self._queue)
        return found

    cdef int move_row(self, int side, jc_value *row, int64_t timeout_ns, CancelFlag flag) except -1:
        cdef int answer = jc_queue_try(self._queue, side, row, True)
        cdef const int32_t *cell = NULL if flag is None else &flag._set
        cdef int64_t begin, left, slice_ns
        cdef bint main
        if answer != JC_QUEUE_WAIT:
            return answer
        if timeout_ns == 0:
            return JC_QUEUE_TIMEOUT
        main = threading.get_ident() == threading.main_thread().ident
        begin = jc_queue_now_ns()
        left = timeout_ns
        while True:
            slice_ns = left
            if main and (left < 0 or left > SIGNALS_NS):
                slice_ns = SIGNALS_NS
            with nogil:
                answer = jc_queue_wait(self._queue, side, slice_ns, cell)
            if answer == JC_QUEUE_CANCELLED:
                raise Cancelled(flag._reason)
            # Before anything that may fail: somebody who was woken up for a row must look for it.
            answer = jc_queue_try(self._queue, side, row, True)
            if answer != JC_QUEUE_WAIT:
                return answer
            if main:
                PyErr_CheckSignals()
            if timeout_ns > 0:
                left = timeout_ns - (jc_queue_now_ns() - begin)
                if left <= 0:
                    return JC_QUEUE_TIMEOUT

    cdef Py_ssize_t take_rows(
        self, jc_value *rows, Py_ssize_t count, int64_t timeout_ns, CancelFlag flag
    ) except -1:
        cdef Py_ssize_t taken = 0
        cdef int64_t end = -1 if timeout_ns < 0 else jc_queue_now_ns() + timeout_ns
        cdef int answer
        try:
            while taken < count:
                answer = self.move_row(JC_READERS, rows + taken * self._queue.width, timeout_ns, flag)
                if answer == JC_QUEUE_CLOSED:
                    break
                if answer == JC_QUEUE_TIMEOUT:
                    raise took_too_long(self._name, "a record" if count == 1 else f"{count} records")
                taken += 1
                if end >= 0:
                    timeout_ns = max(0, end - jc_queue_now_ns())
        except BaseException:
            self.put_back(rows, taken)
            raise
        return taken

    cdef int put_back(self, jc_value *rows, Py_ssize_t count) except -1:
        if count > 0 and jc_queue_put_back(self._queue, rows, count) != 0:
            raise MemoryError(f"queue {self._name!r}: no room to put {count} records back")
        return 0

    cdef str label(self, Py_ssize_t field):
        return f"{self._name}[{field}]" if self._field_names is None else f"{self._name}/{self._field_names[field]}"

cdef int64_t at_least_one(object value, str argument) except -1:
    try:
        number = PyNumber_Index(value)
    except TypeError:
        raise TypeError(f"expected an integer as {argument}, found {type(value).__name__}") from None
    if not 1 <= number <= INT64_MAX:
        raise too_small(argument, number)
    return number


cdef int64_t timeout_ns_of(object timeout) except? -2:
    cdef double seconds
    if timeout is None:
        return -1
    seconds = timeout
    if not seconds >= 0:
        raise ValueError(f"expected a timeout of at least 0 seconds, or None for no limit, found {seconds}")
    # Longer than any process lives.
    return <int64_t> (seconds * 1e9) if seconds < 1e9 else -1


cdef void _strip(QueueCore queue, bint free_only) noexcept:
    """Drop the values that lie in the slots, only those of no record or all."""
    cdef jc_value value
    cdef int64_t at = 0
    while jc_queue_strip(queue._queue, &at, free_only, &value):
        drop_value(&value)


# A reference in a slot is no field that Cython knows of, so the garbage collector is shown it here.

cdef extern from "Python.h":
    ctypedef int (*traverseproc)(PyObject *self, visitproc visit, void *argument) noexcept
    ctypedef int (*inquiry)(PyObject *self) noexcept
    ctypedef struct PyTypeObject:
        traverseproc tp_traverse
        inquiry tp_clear


cdef PyTypeObject *_type = <PyTypeObject *> QueueCore
cdef traverseproc _traverse_fields = _type.tp_traverse
cdef inquiry _clear_fields = _type.tp_clear


cdef int _traverse(PyObject *queue, visitproc visit, void *argument) noexcept:
    cdef int answer = _traverse_fields(queue, visit, argument)
    cdef jc_queue *inside = (<QueueCore> queue)._queue
    return answer if answer != 0 or inside is NULL else jc_queue_visit(inside, visit, argument)


cdef int _clear(PyObject *queue) noexcept:
    _strip(<QueueCore> queue, False)
    return _clear_fields(queue)


_type.tp_traverse = _traverse
_type.tp_clear = _clear
