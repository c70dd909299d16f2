"""What a running program sees of its blobs."""

from libc.stdint cimport int32_t

from jobcore._fast.blob cimport Blob
from jobcore._fast.kernel cimport jc_frame, jc_op, jc_slot
from jobcore._fast.workspace cimport BlobTable


cpdef bint is_mutex(object state) except -1


cdef class Frame:
    # Guard: one thread runs a frame.
    cdef BlobTable _workspace
    cdef jc_frame _frame
    cdef Py_ssize_t _slot_count
    cdef Py_ssize_t _value_count

    cdef int make(
        self, BlobTable workspace, const jc_op *ops, Py_ssize_t slots, Py_ssize_t registers, Py_ssize_t values
    ) except -1
    cdef int look_again(self, const jc_op *op, list inputs, list outputs) except -1
    cdef bint ready(self, const jc_op *op, bint writing, int32_t kind, object name) except -1
    cdef int stock(self, const jc_op *op) except -1
    cdef int bind(self, jc_slot *slot, Blob blob, bint tensors) except -1
    cdef void let_go(self, jc_slot *slot) noexcept
    cdef void let_all_go(self) noexcept
