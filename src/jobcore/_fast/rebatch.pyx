"""A queue of rows, put in by batches of one size and taken out by batches of another."""

cimport cython
from libc.stdint cimport int64_t
from libc.string cimport memcpy

cimport numpy as cnp

from jobcore._fast.arrays cimport jc_copied_by_numpy, jc_has_references
from jobcore._fast.blob cimport KIND_TENSOR, Blob, add_queue_class
from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.queue_calls cimport JC_QUEUE_CLOSED, JC_QUEUE_DONE, JC_WRITERS, jc_queue_now_ns
from jobcore._fast.queue_core cimport QueueCore, at_least_one, timeout_ns_of
from jobcore._fast.value cimport drop_value, drop_values, fill_tensor, jc_value, new_values

import numpy as np

from jobcore._fast.blob_errors import describe, holds_objects
from jobcore._fast.queue_errors import (
    closed_to_writers,
    nothing_left,
    took_too_long,
    uneven_batch,
    unlike_before,
    wrong_count,
)
from jobcore.errors import BlobKindError

__all__ = ["RebatchingQueue"]

cnp.import_array()


@cython.final
cdef class RebatchingQueue(QueueCore):
    """A bounded queue of rows of tensors, for any number of writers and readers in threads; first in, first out.

    A writer puts in a row, or a batch, which is cut into rows along axis 0. A reader takes as many rows as it wants,
    stacked along a new axis 0. All rows of a queue are alike: the first one says dtype and shape of each tensor.

    Parameters
    ----------
    capacity
        The number of rows at which writers wait, at least 1. A batch may have more: it goes in as room comes.
    num_blobs
        The number of tensors in a row, at least 1.
    name
        What to call the queue in errors.

    Raises
    ------
    BlobValueError, TypeError, MemoryError
        As for `BlobQueue`.

    Notes
    -----
    Thread safety: every method may be called from any thread. The rows of one writer keep their order; those of
    several may alternate. No row is ever dropped: a writer waits for room, and a reader that is interrupted leaves its
    rows in the queue.

    Fork: a child process finds the queue closed and empty.

    Examples
    --------
    >>> queue = RebatchingQueue(capacity=4)
    >>> queue.enqueue([[1, 2, 3]], batch=True)
    >>> queue.dequeue(2), len(queue)
    ([array([1, 2])], 1)
    """

    def __cinit__(self, capacity=1, num_blobs=1, name="rebatching queue"):
        self.make(capacity, num_blobs, None, name, "rows")
        self._specs = []

    def __init__(self, capacity=1, num_blobs=1, name="rebatching queue"):
        pass

    def enqueue(self, values, *, batch=False, timeout=None, CancelFlag flag=None):
        """Put a copy of a row, or of each row of a batch, in at the end, waiting for room.

        Parameters
        ----------
        values
            `num_blobs` tensors: arrays, blobs, or what ``numpy.asarray`` makes one of.
        batch
            Cut the tensors, which must be equally long, into rows along axis 0.
        timeout
            Seconds to wait at most for all rows, at least 0; None is no limit.
        flag
            Ends the wait when it goes up.

        Raises
        ------
        ClosedError
            The queue is closed, or was closed meanwhile; the text says how many rows had gone in by then.
        WaitTimeoutError
            There was no room in that time; the text says how many rows had gone in.
        Cancelled
            The flag went up during the wait.
        BlobKindError, BlobValueError
            A value is no tensor, or not like those of the rows before, or there is another number of values, or the
            tensors of a batch differ in length. Nothing was put in.
        ValueError
            `timeout` is negative or not a number.
        """
        cdef list arrays = self._checked(values, batch)
        cdef Py_ssize_t count = len(arrays[0]) if batch else 1
        if self.closed:
            raise closed_to_writers(self._name, self.foreign)
        self._agree(arrays, batch)
        self._enqueue(arrays, count, batch, timeout, flag)

    def dequeue(self, num_elements=1, *, timeout=None, CancelFlag flag=None):
        """Take out the oldest rows, waiting until there are as many as wanted.

        Parameters
        ----------
        num_elements
            How many, at least 1. If the queue is closed, those that are left.
        timeout
            Seconds to wait at most, at least 0; None is no limit.
        flag
            Ends the wait when it goes up.

        Returns
        -------
        list of numpy.ndarray
            `num_blobs` new arrays, of shape ``(rows, *shape of a row)``.

        Raises
        ------
        ClosedError
            The queue is closed and no row is left.
        WaitTimeoutError
            Not enough rows came in that time; those that came are still in the queue.
        Cancelled
            The flag went up during the wait; no row is lost.
        ValueError
            `num_elements` is less than 1, or `timeout` negative or not a number.
        """
        found = self._dequeue(num_elements, timeout, flag, None)
        if found is None:
            raise nothing_left(self._name, self.foreign)
        return found

    def dequeue_into(self, blobs, num_elements=1, *, timeout=None, CancelFlag flag=None):
        """Take out the oldest rows into blobs.

        Parameters
        ----------
        blobs
            `num_blobs` different blobs.
        num_elements, timeout, flag
            As for :meth:`dequeue`.

        Returns
        -------
        bool
            False when the queue is closed and no row is left; the blobs are then as they were.

        Raises
        ------
        WaitTimeoutError, Cancelled, ValueError
            As for :meth:`dequeue`.
        BlobValueError
            A bound blob has no place for the rows; they are still in the queue.
        """
        cdef list targets = list(blobs)
        if len(targets) != self._queue.width:
            raise wrong_count(self._name, "blobs", self._queue.width, len(targets), None)
        return self._dequeue(num_elements, timeout, flag, targets) is not None

    @property
    def enqueued_rows(self):
        """Rows put in so far."""
        return self.enqueued_records

    @property
    def dequeued_rows(self):
        """Rows taken out so far."""
        return self.dequeued_records

    cdef list _checked(self, object values, bint batch):
        """The values as arrays that nobody changes under our hands unless their owner does."""
        cdef list found = list(values)
        cdef Py_ssize_t i
        if len(found) != self._queue.width:
            raise wrong_count(self._name, "tensors", self._queue.width, len(found), None)
        for i in range(len(found)):
            label = self.label(i)
            value = found[i]
            if isinstance(value, Blob):
                if (<Blob> value)._kind != KIND_TENSOR:
                    raise BlobKindError(f"{label}: expected a tensor, found {value!r}")
                # Others may write into bound memory at any time.
                value = value.fetch() if value.bound else value.view()
            if isinstance(value, (str, bytes)):
                raise BlobKindError(f"{label}: expected a tensor, found {describe(value)}")
            array = np.asarray(value)
            if jc_has_references(array) and cnp.PyArray_TYPE(array) != cnp.NPY_VSTRING:
                raise holds_objects(label, array)
            if batch and array.ndim == 0:
                raise uneven_batch(self._name, "tensors of one dimension or more", describe(array))
            found[i] = array
        if batch and len({len(array) for array in found}) > 1:
            lengths = ", ".join(str(len(array)) for array in found)
            raise uneven_batch(self._name, "tensors of one length", f"lengths {lengths}")
        return found

    cdef int _agree(self, list arrays, bint batch) except -1:
        """Check the rows against those before them; the first ones say what rows are like."""
        cdef list specs = [(array.dtype, array.shape[1:] if batch else array.shape) for array in arrays]
        if batch and len(arrays[0]) == 0:
            return 0
        # No thread can come between the look and the note.
        if not self._specs:
            self._specs = specs
            return 0
        for i, (known, found) in enumerate(zip(self._specs, specs, strict=True)):
            if known != found:
                raise unlike_before(self.label(i), known, found)
        return 0

    cdef int _enqueue(self, list arrays, Py_ssize_t count, bint batch, object timeout, CancelFlag flag) except -1:
        cdef int64_t timeout_ns = timeout_ns_of(timeout)
        cdef int64_t end = -1 if timeout_ns < 0 else jc_queue_now_ns() + timeout_ns
        cdef Py_ssize_t i, k, width = self._queue.width
        cdef int answer
        cdef jc_value *row = new_values(width, 1)
        try:
            for k in range(count):
                for i in range(width):
                    # What an earlier reader left in the slot.
                    drop_value(row + i)
                    source = arrays[i][k, ...] if batch else arrays[i]
                    fill_tensor(row + i, cnp.PyArray_NewCopy(<cnp.ndarray> source, cnp.NPY_CORDER))
                if end >= 0:
                    timeout_ns = max(0, end - jc_queue_now_ns())
                answer = self.move_row(JC_WRITERS, row, timeout_ns, flag)
                if answer != JC_QUEUE_DONE:
                    so_far = f"; {k} of {count} rows had gone in" if batch else ""
                    if answer == JC_QUEUE_CLOSED:
                        raise closed_to_writers(self._name, self.foreign, so_far)
                    raise took_too_long(self._name, "room for a row", so_far)
        finally:
            drop_values(row, width)
        return 0

    cdef list _dequeue(self, object num_elements, object timeout, CancelFlag flag, list blobs):
        cdef int64_t timeout_ns = timeout_ns_of(timeout)
        cdef Py_ssize_t i, taken, width = self._queue.width
        cdef Py_ssize_t count = at_least_one(num_elements, "num_elements")
        cdef jc_value *rows = new_values(width, count)
        cdef list found
        try:
            taken = self.take_rows(rows, count, timeout_ns, flag)
            if taken == 0:
                return None
            try:
                found = self._stacked(rows, taken)
                if blobs is not None:
                    for i in range(width):
                        (<Blob?> blobs[i])._settle(KIND_TENSOR, found[i], -1)
            except BaseException:
                self.put_back(rows, taken)
                raise
            return found
        finally:
            drop_values(rows, width * count)

    cdef list _stacked(self, const jc_value *rows, Py_ssize_t count):
        cdef Py_ssize_t i, k, size, width = self._queue.width
        cdef list found = []
        cdef cnp.ndarray array
        for i in range(width):
            dtype, shape = self._specs[i]
            array = np.empty((count, *shape), dtype)
            if jc_copied_by_numpy(array):
                for k in range(count):
                    array[k] = <object> rows[k * width + i].held
            else:
                size = rows[i].nbytes
                for k in range(count):
                    memcpy(cnp.PyArray_BYTES(array) + k * size, rows[k * width + i].data, <size_t> size)
            found.append(array)
        return found


add_queue_class(RebatchingQueue)
