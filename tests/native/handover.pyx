"""Threads without the GIL that put rows into a queue and take them out, through its native interface."""

from cpython.ref cimport Py_INCREF, Py_XDECREF, PyObject
from libc.stdint cimport int64_t

cimport numpy as cnp

from jobcore._fast.blob cimport KIND_TENSOR
from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.queue cimport JC_QUEUE_DONE, BlobQueue
from jobcore._fast.value cimport jc_value

cnp.import_array()


cdef int fresh(jc_value *value) except -1:
    """An int64 of its own."""
    array = cnp.PyArray_SimpleNew(0, NULL, cnp.NPY_INT64)
    Py_INCREF(array)
    value.held = <PyObject *> array
    value.data = cnp.PyArray_DATA(array)
    value.nbytes = 8
    value.kind = KIND_TENSOR
    value.scalar_type = cnp.NPY_INT64
    return 0


def produce(BlobQueue queue not None, int64_t first, int64_t count, int64_t timeout_ns=-1, CancelFlag flag=None):
    """Put in `first`, `first + 1` and so on, in memory that comes back; return the answer and how many went in."""
    cdef jc_value value
    cdef int64_t i, done = 0
    cdef int answer = JC_QUEUE_DONE
    fresh(&value)
    with nogil:
        for i in range(count):
            if value.held is NULL:
                # The slot was empty: the queue has kept the one before for itself.
                with gil:
                    fresh(&value)
            (<int64_t *> value.data)[0] = first + i
            answer = queue.push(&value, timeout_ns, flag)
            if answer != JC_QUEUE_DONE:
                break
            done += 1
    Py_XDECREF(value.held)
    return answer, done


def consume(BlobQueue queue not None, int64_t most=2**62, int64_t timeout_ns=-1, CancelFlag flag=None):
    """Take out until the end, or `most`; return the last answer, how many came, and their sum."""
    cdef jc_value value
    cdef int64_t done = 0, total = 0
    cdef int answer = JC_QUEUE_DONE
    fresh(&value)
    with nogil:
        while done < most:
            answer = queue.pop(&value, timeout_ns, flag)
            if answer != JC_QUEUE_DONE:
                break
            total += (<int64_t *> value.data)[0]
            done += 1
    Py_XDECREF(value.held)
    return answer, done, total
