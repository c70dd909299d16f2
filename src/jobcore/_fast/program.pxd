"""Programs as native code sees them, and what a kernel of your own needs.

A kernel is a C function ``int kernel(jc_frame *frame, const jc_op *op)`` that runs without the GIL. It looks at its
slots with ``jc_reads`` and ``jc_writes``, which also make sure that nobody has put something else into the blob, and
answers ``JC_DONE``, or ``JC_DECLINE`` for whatever it is not made for: then the Python kernel of the op runs. It must
not touch Python, nor wait while ``frame.has_gil`` is set: it answers ``JC_WAIT`` instead and is called again without
the GIL. A wait must end when ``jc_is_cancelled(frame)``, with ``JC_CANCELLED``.
"""

cimport cython
from cpython.pycapsule cimport PyCapsule_New
from libc.stdint cimport int32_t, int64_t

from jobcore._fast.blob cimport Blob
from jobcore._fast.cancel cimport CancelFlag
from jobcore._fast.workspace cimport BlobTable


cdef extern from "program.h" nogil:
    # What a slot shows.
    enum:
        JC_NOTHING
        JC_BOOL
        JC_INT64
        JC_DOUBLE
        JC_COUNTER
        JC_TIMER

    # What a kernel answers.
    enum:
        JC_DONE
        JC_DECLINE
        JC_WAIT
        JC_CANCELLED
        JC_END
        JC_SPENT

    enum:
        JC_CODE_OP
        JC_CODE_CALL
        JC_CODE_JUMP
        JC_CODE_SET
        JC_CODE_LOOP
        JC_CODE_NEXT
        JC_CODE_IF_TRUE
        JC_CODE_IF_FALSE
        JC_CODE_STORE_BOOL
        JC_CODE_STORE_REG
        JC_CODE_MARK
        JC_CODE_END

    ctypedef struct jc_slot:
        const int64_t *version
        int64_t seen
        void *data
        void *handle
        void *blob
        int32_t type
        int32_t writable

    ctypedef struct jc_frame
    ctypedef struct jc_op
    ctypedef int (*jc_kernel)(jc_frame *frame, const jc_op *op) noexcept

    ctypedef struct jc_op:
        int32_t code
        int32_t target
        int32_t reg
        int32_t inputs
        int32_t outputs
        const int32_t *slots
        jc_kernel kernel
        int32_t constant_type
        int64_t constant

    ctypedef struct jc_frame:
        const jc_op *ops
        jc_slot *slots
        int64_t *regs
        const int32_t *cancelled
        int32_t pc
        int32_t has_gil
        int32_t traced

    const int64_t jc_unbound
    # The slot of an op's input or, counted on from there, output.
    jc_slot *jc_slot_of(jc_frame *frame, const jc_op *op, int index)
    bint jc_reads(const jc_slot *slot, int32_t type)
    bint jc_writes(const jc_slot *slot, int32_t type)
    bint jc_is_cancelled(const jc_frame *frame)
    int64_t jc_get_int64(const jc_slot *slot)
    void jc_set_int64(const jc_slot *slot, int64_t value)
    double jc_get_double(const jc_slot *slot)
    void jc_set_double(const jc_slot *slot, double value)
    bint jc_get_bool(const jc_slot *slot)
    void jc_set_bool(const jc_slot *slot, bint value)
    int jc_run(jc_frame *frame, int64_t budget)


cdef inline object kernel_capsule(jc_kernel kernel):
    """What `register_op` wants as `native`."""
    return PyCapsule_New(<void *> kernel, "jobcore.kernel", NULL)


@cython.final
cdef class Program:
    # Set at creation and never changed; frames of any number of threads use them at once.
    cdef tuple _names
    cdef tuple _payloads
    cdef jc_op *_ops
    cdef int32_t *_indices
    cdef Py_ssize_t _count
    cdef Py_ssize_t _registers

    cdef Py_ssize_t read(self, Py_ssize_t i, tuple row, Py_ssize_t used) except -1


@cython.final
cdef class Frame:
    # Guard: one thread runs a frame.
    cdef Program _program
    cdef BlobTable _workspace
    cdef object _context
    cdef object _spans
    cdef CancelFlag _flag
    cdef jc_frame _frame
    cdef Py_ssize_t _slot_count
    cdef int64_t _removals
    # What Python kernels get, by the index of the op; None until the op is first run in Python.
    cdef list _calls

    cdef int go(self) except -1
    cdef int step_aside(self) except -1
    cdef int run_op(self, const jc_op *op, tuple payload) except -1
    cdef int look_again(self, const jc_op *op, object call) except -1
    cdef bint ready(self, const jc_op *op, bint writing, int32_t kind, object name) except -1
    cdef int bind(self, jc_slot *slot, Blob blob) except -1
    cdef void let_go(self, jc_slot *slot) noexcept
    cdef void forget(self) noexcept
