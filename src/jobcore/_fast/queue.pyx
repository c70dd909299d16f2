"""A queue of blobs between threads."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.number cimport PyNumber_Index
from cpython.ref cimport PyObject
from libc.stdint cimport INT64_MAX, int32_t, int64_t, uint32_t

cimport numpy as cnp

from jobcore._fast.arrays cimport copy_of, jc_has_references
from jobcore._fast.blob cimport KIND_EMPTY, KIND_OBJECT, KIND_RNG, KIND_STATE, KIND_TENSOR, Blob
from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.value cimport (
    drop_value,
    drop_values,
    fill_from,
    fill_tensor,
    jc_value,
    new_values,
    python_value,
    settle,
)

import threading

from jobcore._fast.blob_errors import describe, is_empty
from jobcore._fast.joining import concatenated
from jobcore._fast.queue_errors import (
    closed_to_writers,
    no_writer,
    nothing_left,
    took_too_long,
    wrong_count,
)
from jobcore.errors import BlobValueError, Cancelled

__all__ = ["BlobQueue"]

cnp.import_array()

if jc_queue_setup() != 0:
    raise MemoryError

# Values of these kinds may refer to other objects, and so be part of a cycle.
cdef uint32_t CYCLIC = 1 << <int> KIND_STATE | 1 << <int> KIND_RNG | 1 << <int> KIND_OBJECT

cdef enum:
    # Between two looks for signals, in the main thread.
    SIGNALS_NS = 25_000_000


@cython.final
cdef class BlobQueue:
    """A bounded queue of records, for any number of writers and readers in threads; first in, first out.

    A record is a row of `num_blobs` values, of any kind that a `Blob` can hold. What is put in is copied, unless it is
    moved, and what comes out belongs to the reader alone.

    A queue is closed by :meth:`close`, or when the last of its registered writers is done. From then on every put
    fails, also one that waits for room; what is in the queue still comes out, and then readers are told that it ended.

    Parameters
    ----------
    capacity
        The number of records at which writers wait, at least 1.
    num_blobs
        The number of values in a record, at least 1.
    field_names
        A name for each value, for statistics and errors.
    name
        What to call the queue in errors.
    classify
        As for `Blob`: the rule for values that need more than a table of types. Without it lists and dictionaries are
        kept as objects, and not copied.

    Raises
    ------
    BlobValueError
        A number is out of range, or the names are of another number or not all different.
    TypeError
        A number is no integer, or a name no str.
    MemoryError
        There is no room for that many records.

    Notes
    -----
    Thread safety: every method may be called from any thread. Waiting needs no GIL. In the main thread signals are
    handled meanwhile; a `flag` that goes up ends a wait within 50 ms. An order to stop, a signal or a timeout never
    loses a record.

    Fork: a child process finds the queue closed and empty.

    Examples
    --------
    >>> queue = BlobQueue(capacity=2, num_blobs=2)
    >>> queue.put([1.5, "a"])
    >>> queue.close()
    >>> queue.get()
    [array(1.5), 'a']
    """

    def __cinit__(self, capacity=1, num_blobs=1, field_names=None, name="queue", classify=None):
        cdef int64_t rows = at_least_one(capacity, "capacity"), width = at_least_one(num_blobs, "num_blobs")
        if not isinstance(name, str):
            raise TypeError(f"BlobQueue(): expected a str as name, found {describe(name)}")
        self._name = str(name)
        self._rule = classify
        if field_names is not None:
            self._field_names = tuple(field_names)
            if not all(isinstance(field, str) for field in self._field_names):
                raise TypeError("BlobQueue(): expected field_names of type str")
            if len(self._field_names) != width or len(set(self._field_names)) != width:
                raise BlobValueError(
                    f"BlobQueue(): expected {width} different field_names for num_blobs={width}, "
                    f"found {list(self._field_names)}"
                )
        self._queue = jc_queue_new(rows, width, CYCLIC)
        if self._queue is NULL:
            raise MemoryError(f"no room for a queue of {rows} records of {width} blobs")

    def __init__(self, capacity=1, num_blobs=1, field_names=None, name="queue", classify=None):
        pass

    def __dealloc__(self):
        if self._queue is not NULL:
            _strip(self, False)
            jc_queue_free(self._queue)

    def __repr__(self):
        state = "closed" if self.closed else "open"
        return f"<BlobQueue {self._name!r}: {len(self)} of {self._queue.capacity} records, {state}>"

    def put(self, values, timeout=None, *, move=False, CancelFlag flag=None):
        """Put a record in at the end, waiting for room.

        Parameters
        ----------
        values
            `num_blobs` values, each of them what `Blob.feed` takes, a `Blob`, which stands for its value, or any other
            object, which is kept as it is.
        timeout
            Seconds to wait at most, at least 0; None is no limit.
        move
            Do not copy what can be handed over: arrays that own their memory, which the caller must not use any more
            and finds read-only, and blobs that nobody else looks at, which are empty afterwards. All else is copied.
        flag
            Ends the wait when it goes up.

        Raises
        ------
        ClosedError
            The queue is closed, or was closed meanwhile.
        WaitTimeoutError
            There was no room in that time.
        Cancelled
            The flag went up during the wait.
        BlobValueError, BlobKindError
            The values are of another number, or one of them cannot be in a blob.
        ValueError
            `timeout` is negative or not a number.

        Notes
        -----
        When it fails, nothing has been put in, and nothing was moved.
        """
        cdef int64_t timeout_ns = timeout_ns_of(timeout)
        cdef Py_ssize_t i, width = self._queue.width
        cdef list row = list(values), moved = []
        cdef jc_value *taken
        cdef int answer
        if len(row) != width:
            raise wrong_count(self._name, "values", width, len(row), self._field_names)
        if self.closed:
            raise closed_to_writers(self._name, self.foreign)
        taken = new_values(width, 1)
        try:
            for i in range(width):
                self.take_in(i, row[i], move, &taken[i], moved)
            answer = self.move_row(JC_WRITERS, taken, timeout_ns, flag)
            if answer == JC_QUEUE_DONE:
                _hand_over(moved)
            elif answer == JC_QUEUE_CLOSED:
                raise closed_to_writers(self._name, self.foreign)
            else:
                raise took_too_long(self._name, "room for a record")
        finally:
            drop_values(taken, width)

    def get(self, timeout=None, *, num_records=1, CancelFlag flag=None):
        """Take the oldest record out, waiting for one.

        Parameters
        ----------
        timeout
            Seconds to wait at most, at least 0; None is no limit.
        num_records
            If more than 1: take that many records, or those that are left when the queue is closed, and join them
            along axis 0. All must be tensors of one dimension or more, equal in dtype and in the other dimensions.
        flag
            Ends the wait when it goes up.

        Returns
        -------
        list
            `num_blobs` values, which nobody else has. A tensor is a writable ndarray.

        Raises
        ------
        ClosedError
            The queue is closed and nothing is left.
        WaitTimeoutError
            Nothing, or not enough, came in that time.
        Cancelled
            The flag went up during the wait.
        BlobKindError, BlobValueError
            The records cannot be joined, or `num_records` is less than 1.
        ValueError
            `timeout` is negative or not a number.

        Notes
        -----
        When it fails, the records are still in the queue.
        """
        cdef list values = self._get(timeout, num_records, flag)
        if values is None:
            raise nothing_left(self._name, self.foreign)
        return values

    def try_get(self):
        """Take the oldest record out if there is one.

        Returns
        -------
        list or None
            As for :meth:`get`; None when the queue is empty and open.

        Raises
        ------
        ClosedError
            The queue is closed and nothing is left.
        """
        cdef Py_ssize_t i, width = self._queue.width
        cdef jc_value *row = new_values(width, 1)
        cdef int answer
        try:
            answer = jc_queue_try(self._queue, JC_READERS, row, True)
            if answer == JC_QUEUE_CLOSED:
                raise nothing_left(self._name, self.foreign)
            return [python_value(row + i) for i in range(width)] if answer == JC_QUEUE_DONE else None
        finally:
            drop_values(row, width)

    def get_into(self, blobs, timeout=None, *, num_records=1, CancelFlag flag=None):
        """Take the oldest record out into blobs, without a copy unless they are bound.

        Parameters
        ----------
        blobs
            `num_blobs` different blobs. One that gets an object becomes transient.
        timeout, num_records, flag
            As for :meth:`get`.

        Returns
        -------
        bool
            False when the queue is closed and nothing is left; the blobs are then as they were.

        Raises
        ------
        WaitTimeoutError, Cancelled, ValueError
            As for :meth:`get`.
        BlobKindError, BlobValueError
            The records cannot be joined, or a bound blob has no place for the value; the records are still in the
            queue.
        """
        cdef Py_ssize_t i, taken, width = self._queue.width
        cdef int64_t timeout_ns = timeout_ns_of(timeout)
        cdef int64_t count = at_least_one(num_records, "num_records")
        cdef list targets = list(blobs), joined
        cdef jc_value *rows
        if len(targets) != width:
            raise wrong_count(self._name, "blobs", width, len(targets), self._field_names)
        rows = new_values(width, count)
        try:
            taken = self.take_rows(rows, count, timeout_ns, flag)
            if taken == 0:
                return False
            try:
                if count == 1:
                    for i in range(width):
                        settle(rows + i, <Blob?> targets[i])
                else:
                    joined = self.joined(rows, taken)
                    for i in range(width):
                        (<Blob?> targets[i])._settle(KIND_TENSOR, joined[i], -1)
            except BaseException:
                self.put_back(rows, taken)
                raise
            return True
        finally:
            drop_values(rows, width * count)

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
        """The number of records at which writers wait."""
        return self._queue.capacity

    @property
    def num_blobs(self):
        """The number of values in a record."""
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
    def dequeued_bytes(self):
        """Bytes of tensors, bytes and strings taken out so far."""
        return sum(self.dequeued_bytes_by_field)

    @property
    def dequeued_bytes_by_field(self):
        """A tuple of the bytes taken out so far of each value of a record."""
        return tuple([self._read(&self._queue.bytes[i]) for i in range(self._queue.width)])

    @property
    def write_wait_ns(self):
        """Nanoseconds that writers have waited for room, all together."""
        return self._read(&self._queue.waited_ns[JC_WRITERS])

    @property
    def read_wait_ns(self):
        """Nanoseconds that readers have waited for records, all together."""
        return self._read(&self._queue.waited_ns[JC_READERS])

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

    cdef int64_t _read(self, const int64_t *cell) noexcept:
        cdef int64_t found
        if jc_queue_is_foreign(self._queue):
            return 0
        jc_queue_lock(self._queue)
        found = cell[0]
        jc_queue_unlock(self._queue)
        return found

    cdef int take_in(self, Py_ssize_t field, object value, bint move, jc_value *into, list moved) except -1:
        cdef cnp.ndarray array
        cdef Blob blob
        if cnp.PyArray_CheckExact(value):
            array = <cnp.ndarray> value
            if not jc_has_references(array) and cnp.PyArray_NDIM(array) > 0:
                if move and _owned(array):
                    moved.append((None, array))
                else:
                    array = copy_of(array)
                    cnp.PyArray_CLEARFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)
                fill_tensor(into, array)
                return 0
        elif type(value) is Blob:
            blob = <Blob> value
            blob.wait_for_gate(True)
            if blob._kind == KIND_EMPTY:
                raise is_empty(blob._name)
            if move and not blob._bound and (
                blob._kind not in (KIND_TENSOR, KIND_STATE) or (blob._exclusive() and blob._pins == 0)
            ):
                fill_from(into, blob)
                moved.append((blob, blob._held))
                return 0
        # The blob knows how to copy what it takes, and names itself in errors.
        blob = Blob(self.label(field), self._rule)
        blob.put(value, True)
        fill_from(into, blob)
        return 0

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

    cdef list joined(self, const jc_value *rows, Py_ssize_t count):
        cdef Py_ssize_t i, k, width = self._queue.width
        return [
            concatenated(self.label(i), [<object> rows[k * width + i].held for k in range(count)])
            for i in range(width)
        ]

    cdef list _get(self, object timeout, object num_records, CancelFlag flag):
        """The values of a record, or None at the end."""
        cdef int64_t timeout_ns = timeout_ns_of(timeout)
        cdef int64_t count = at_least_one(num_records, "num_records")
        cdef Py_ssize_t i, taken, width = self._queue.width
        cdef jc_value *rows = new_values(width, count)
        try:
            taken = self.take_rows(rows, count, timeout_ns, flag)
            if taken == 0:
                return None
            if count == 1:
                return [python_value(rows + i) for i in range(width)]
            try:
                return self.joined(rows, taken)
            except BaseException:
                self.put_back(rows, taken)
                raise
        finally:
            drop_values(rows, width * count)


cdef int64_t at_least_one(object value, str argument) except -1:
    try:
        number = PyNumber_Index(value)
    except TypeError:
        raise TypeError(f"BlobQueue: expected an integer as {argument}, found {type(value).__name__}") from None
    if not 1 <= number <= INT64_MAX:
        # The number itself may have more digits than Python prints.
        found = number if number.bit_length() <= 64 else f"an integer of {number.bit_length()} bits"
        raise BlobValueError(f"BlobQueue: expected {argument} of at least 1 and below 2**63, found {found}")
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


cdef bint _owned(cnp.ndarray array) noexcept:
    """Whether the memory can be handed over: all of it is the array's own, and it is no array inside of a blob."""
    return cnp.PyArray_CHKFLAGS(array, cnp.NPY_ARRAY_OWNDATA | cnp.NPY_ARRAY_WRITEABLE) and (
        cnp.PyArray_IS_C_CONTIGUOUS(array) or cnp.PyArray_IS_F_CONTIGUOUS(array)
    )


cdef int _hand_over(list moved) except -1:
    """Take from the sources what the queue has now."""
    cdef Blob blob
    for source, held in moved:
        if source is None:
            cnp.PyArray_CLEARFLAGS(<cnp.ndarray> held, cnp.NPY_ARRAY_WRITEABLE)
            continue
        blob = <Blob> source
        # Fed anew while the queue was full, it keeps that.
        if blob._held is held:
            blob.reset()
    return 0


cdef void _strip(BlobQueue queue, bint free_only) noexcept:
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


cdef PyTypeObject *_type = <PyTypeObject *> BlobQueue
cdef traverseproc _traverse_fields = _type.tp_traverse
cdef inquiry _clear_fields = _type.tp_clear


cdef int _traverse(PyObject *queue, visitproc visit, void *argument) noexcept:
    cdef int answer = _traverse_fields(queue, visit, argument)
    cdef jc_queue *inside = (<BlobQueue> queue)._queue
    return answer if answer != 0 or inside is NULL else jc_queue_visit(inside, visit, argument)


cdef int _clear(PyObject *queue) noexcept:
    _strip(<BlobQueue> queue, False)
    return _clear_fields(queue)


_type.tp_traverse = _traverse
_type.tp_clear = _clear
