"""An op of another package with a native kernel: three times a number."""

from jobcore._fast.program cimport (
    JC_DECLINE,
    JC_DONE,
    JC_INT64,
    jc_frame,
    jc_get_int64,
    jc_op,
    jc_reads,
    jc_set_int64,
    jc_slot,
    jc_writes,
    kernel_capsule,
)

cdef int native_calls = 0


cdef int triple(jc_frame *frame, const jc_op *op, jc_slot *number, jc_slot *out) noexcept nogil:
    global native_calls
    if not jc_reads(number, JC_INT64) or not jc_writes(out, JC_INT64):
        return JC_DECLINE
    jc_set_int64(out, 3 * jc_get_int64(number))
    native_calls += 1
    return JC_DONE


def kernel():
    """The capsule of the kernel."""
    return kernel_capsule(triple)


def calls():
    """How often the native kernel did it."""
    return native_calls
