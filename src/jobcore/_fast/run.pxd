"""One run of a program, as the program starts it."""

cimport cython

from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.frame cimport Frame
from jobcore._fast.kernel cimport jc_op
from jobcore._fast.workspace cimport BlobTable
from libc.stdint cimport int64_t

# What an instruction of the code JC_CODE_CALL is, as its constant.
cdef enum:
    CALL_FUNCTION
    CALL_PART
    CALL_VALUE
    CALL_OP


@cython.final
cdef class Run(Frame):
    # Guard: one thread runs it.
    # Has the ops and payloads.
    cdef object _program
    cdef tuple _payloads
    cdef object _context
    cdef object _spans
    cdef CancelFlag _flag
    cdef int64_t _removals
    # What Python kernels get, by the index of the op; None until the op is first run in Python.
    cdef list _calls

    cdef int go(self) except -1
    cdef int step_aside(self) except -1
    cdef int run_op(self, const jc_op *op, tuple payload) except -1
    cdef void forget(self) noexcept


# The constant of the `end` that the program came to. `counts`: its blobs, registers and values of queue ops.
cdef bint run_program(
    object program,
    const jc_op *ops,
    tuple payloads,
    const Py_ssize_t *counts,
    BlobTable workspace,
    object context,
    object spans,
) except -1
