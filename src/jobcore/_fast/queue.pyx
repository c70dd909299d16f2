"""A queue of blobs between threads."""

cimport cython
from libc.stdint cimport int64_t

cimport numpy as cnp

from jobcore._fast.arrays cimport copy_of, jc_has_references
from jobcore._fast.blob cimport KIND_EMPTY, KIND_STATE, KIND_TENSOR, PIN_BYTES, Blob, add_queue_class
from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.queue_calls cimport (
    JC_QUEUE_CLOSED,
    JC_QUEUE_DONE,
    JC_READERS,
    JC_WRITERS,
    jc_queue_try,
)
from jobcore._fast.queue_core cimport QueueCore, at_least_one, timeout_ns_of
from jobcore._fast.value cimport (
    drop_values,
    fill_from,
    fill_tensor,
    jc_value,
    new_values,
    python_value,
    settle,
)

from jobcore._fast.blob_errors import is_empty
from jobcore._fast.joining import concatenated
from jobcore._fast.queue_errors import closed_to_writers, nothing_left, took_too_long, wrong_count

__all__ = ["BlobQueue"]

cnp.import_array()


cdef extern from "Python.h":
    # More bytes than any tensor has.
    Py_ssize_t NEVER "PY_SSIZE_T_MAX"


@cython.final
cdef class BlobQueue(QueueCore):
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
        self._rule = classify
        self.make(capacity, num_blobs, field_names, name, "records")

    def __init__(self, capacity=1, num_blobs=1, field_names=None, name="queue", classify=None):
        pass

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
            ``"large"``: copy also tensors of at most 16 KiB, as native programs do, which take no longer for it.
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
            `timeout` is negative or not a number; `move` is something else.

        Notes
        -----
        When it fails, nothing has been put in, and nothing was moved.
        """
        cdef int64_t timeout_ns = timeout_ns_of(timeout)
        cdef Py_ssize_t i, width = self._queue.width, above = moved_above(move)
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
                self.take_in(i, row[i], above, &taken[i], moved)
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

    cdef int take_in(self, Py_ssize_t field, object value, Py_ssize_t above, jc_value *into, list moved) except -1:
        cdef cnp.ndarray array
        cdef Blob blob
        if cnp.PyArray_CheckExact(value):
            array = <cnp.ndarray> value
            if not jc_has_references(array) and cnp.PyArray_NDIM(array) > 0:
                if cnp.PyArray_NBYTES(array) > above and _owned(array):
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
            if (
                above != NEVER
                and not blob._bound
                and (blob._kind != KIND_TENSOR or blob._nbytes > above)
                and (blob._kind not in (KIND_TENSOR, KIND_STATE) or (blob._exclusive() and blob._pins == 0))
            ):
                fill_from(into, blob)
                moved.append((blob, blob._held))
                return 0
        # The blob knows how to copy what it takes, and names itself in errors.
        blob = Blob(self.label(field), self._rule)
        blob.put(value, True)
        fill_from(into, blob)
        return 0

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


cdef Py_ssize_t moved_above(object move) except -2:
    """What a tensor must have more bytes than to be moved."""
    if type(move) is str and move == "large":
        return PIN_BYTES
    if move is True or move is False:
        return -1 if move else NEVER
    raise ValueError(f"expected True, False or 'large' for move, found {move!r:.80}")


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


add_queue_class(BlobQueue)
