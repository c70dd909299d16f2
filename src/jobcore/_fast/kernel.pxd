"""Declarations of ``program.h``, for the units of this layer and for kernels."""

from libc.stdint cimport int32_t, int64_t

from jobcore._fast.value cimport jc_value


cdef extern from "program.h" nogil:
    # What a slot shows.
    enum:
        JC_NOTHING
        JC_BOOL
        JC_INT64
        JC_DOUBLE
        JC_COUNTER
        JC_TIMER
        JC_TENSOR
        JC_QUEUE
        JC_MUTEX

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
        JC_CODE_COUNT
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
        int32_t nbytes
        int32_t number
        int32_t *busy
        int32_t type
        int32_t writable

    ctypedef struct jc_frame
    ctypedef struct jc_op
    ctypedef int (*jc_kernel)(jc_frame *frame, const jc_op *op, jc_slot *first, jc_slot *second) noexcept

    ctypedef struct jc_op:
        int32_t code
        int32_t target
        int32_t reg
        int32_t inputs
        int32_t outputs
        int64_t near[2]
        const int32_t *slots
        jc_kernel kernel
        int32_t constant_type
        int64_t constant
        int32_t first_value
        int32_t values
        int32_t puts
        int32_t tensors

    ctypedef struct jc_frame:
        const jc_op *ops
        jc_slot *slots
        int64_t *regs
        jc_value *values
        const int32_t *cancelled
        int32_t pc
        int32_t has_gil
        int32_t traced
        int32_t main
        int64_t work
        const int32_t *marks

    const int64_t jc_unbound
    # One of the first two slots.
    jc_slot *jc_near(const jc_frame *frame, const jc_op *op, int index)
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
