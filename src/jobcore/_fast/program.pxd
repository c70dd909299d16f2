"""Programs as native code sees them, and what a kernel of your own needs.

A kernel is a C function ``int kernel(jc_frame *frame, const jc_op *op, jc_slot *first, jc_slot *second)`` that runs
without the GIL. It is given the first two of its slots, inputs before outputs, and finds any others with
``jc_slot_of(frame, op, index)``. It looks at them with ``jc_reads`` and ``jc_writes``, which also make sure that nobody
has put something else into the blob, and answers ``JC_DONE``, or ``JC_DECLINE`` for whatever it is not made for: then
the Python kernel of the op runs. It must not touch Python, nor wait while ``frame.has_gil`` is set: it answers
``JC_WAIT`` instead and is called again without the GIL. A wait must end when ``jc_is_cancelled(frame)``, with
``JC_CANCELLED``.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int32_t

from jobcore._fast.kernel cimport (
    JC_BOOL,
    JC_CANCELLED,
    JC_COUNTER,
    JC_DECLINE,
    JC_DONE,
    JC_DOUBLE,
    JC_INT64,
    JC_NOTHING,
    JC_TIMER,
    JC_WAIT,
    jc_frame,
    jc_get_bool,
    jc_get_double,
    jc_get_int64,
    jc_is_cancelled,
    jc_kernel,
    jc_op,
    jc_reads,
    jc_set_bool,
    jc_set_double,
    jc_set_int64,
    jc_slot,
    jc_slot_of,
    jc_writes,
)


cdef inline object kernel_capsule(jc_kernel kernel):
    """What `register_op` wants as `native`."""
    return PyCapsule_New(<void *> kernel, "jobcore.kernel", NULL)


@cython.final
cdef class Program:
    # Set at creation and never changed; frames of any number of threads use them at once.
    cdef tuple _names
    cdef tuple _payloads
    # The arrays among the constants of its ops.
    cdef list _constants
    cdef jc_op *_ops
    cdef int32_t *_indices
    cdef Py_ssize_t _count
    cdef Py_ssize_t _registers
    # Of the rows of all its queue ops.
    cdef Py_ssize_t _values

    cdef Py_ssize_t read(self, Py_ssize_t i, tuple row, Py_ssize_t used) except -1
    cdef int set_constant(self, jc_op *op, object constant) except -1
