"""What a running program sees of its blobs: where their bytes are, and rows for what goes through queues."""

from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free

cimport numpy as cnp

from jobcore._fast.arrays cimport jc_copied_by_numpy, jc_new_like, jc_plain_number
from jobcore._fast.blob cimport (
    KIND_COUNTER,
    KIND_QUEUE,
    KIND_STATE,
    KIND_TENSOR,
    KIND_TIMER,
    PIN_BYTES,
    Blob,
    process_marks,
)
from jobcore._fast.counter cimport Counter
from jobcore._fast.kernel cimport (
    JC_BOOL,
    JC_COUNTER,
    JC_DOUBLE,
    JC_INT64,
    JC_MUTEX,
    JC_NOTHING,
    JC_QUEUE,
    JC_TENSOR,
    JC_TIMER,
    jc_op,
    jc_reads,
    jc_slot,
    jc_slot_of,
    jc_unbound,
    jc_writes,
)
from jobcore._fast.queue cimport BlobQueue
from jobcore._fast.timer cimport Timer
from jobcore._fast.value cimport drop_value, fill_tensor, jc_value
from jobcore._fast.workspace cimport BlobTable

__all__ = ["Frame", "is_mutex"]

cnp.import_array()


cdef extern from "kernels.h" nogil:
    bint jc_alike(const jc_value *value, const jc_slot *slot) noexcept
    int32_t jc_number_of(int32_t type) noexcept


cdef class Frame:
    """The slots, registers and rows of one run of a program."""

    def __dealloc__(self):
        self.let_all_go()
        free(self._frame.slots)
        free(self._frame.regs)
        free(self._frame.values)

    cdef int make(
        self, BlobTable workspace, const jc_op *ops, Py_ssize_t slots, Py_ssize_t registers, Py_ssize_t values
    ) except -1:
        cdef Py_ssize_t i
        self._workspace = workspace
        self._frame.ops = ops
        self._frame.marks = process_marks()
        # One more of each, so that none of them is an allocation of nothing.
        self._frame.slots = <jc_slot *> calloc(<size_t> slots + 1, sizeof(jc_slot))
        self._frame.regs = <int64_t *> calloc(<size_t> registers + 1, sizeof(int64_t))
        if values:
            self._frame.values = <jc_value *> calloc(<size_t> values, sizeof(jc_value))
        if self._frame.slots is NULL or self._frame.regs is NULL or (values and self._frame.values is NULL):
            raise MemoryError
        for i in range(slots + 1):
            self._frame.slots[i].version = &jc_unbound
        self._slot_count = slots
        self._value_count = values
        return 0

    cdef int look_again(self, const jc_op *op, list inputs, list outputs) except -1:
        """Bind the slots of an op whose blobs are not known, or were given other memory."""
        cdef jc_slot *slot
        cdef bint tensors = op.tensors
        cdef int i = 0
        for blob in inputs:
            slot = jc_slot_of(&self._frame, op, i)
            # Another op may have had no use for a tensor.
            if slot.version[0] != slot.seen or (tensors and slot.type == JC_NOTHING):
                self.bind(slot, <Blob?> blob, tensors)
            i += 1
        for blob in outputs:
            slot = jc_slot_of(&self._frame, op, i)
            if slot.version[0] != slot.seen or not slot.writable:
                self.bind(slot, <Blob?> blob, tensors)
            i += 1
        if op.puts:
            self.stock(op)
        return 0

    cdef bint ready(self, const jc_op *op, bint writing, int32_t kind, object name) except -1:
        """Whether native code can read, or write, the slot of a jump or store after another look."""
        cdef Blob blob = self._workspace.find(name)
        cdef jc_slot *slot = &self._frame.slots[op.slots[0]]
        if blob is None:
            return False
        self.bind(slot, blob, False)
        return jc_writes(slot, kind) if writing else jc_reads(slot, kind)

    cdef int stock(self, const jc_op *op) except -1:
        """Make the arrays that go into a queue, where those of earlier records cannot be used again."""
        cdef jc_value *value
        cdef jc_slot *slot
        cdef int i
        for i in range(op.values):
            slot = jc_slot_of(&self._frame, op, 1 + i)
            value = &self._frame.values[op.first_value + i]
            if slot.type not in (JC_BOOL, JC_INT64, JC_DOUBLE, JC_TENSOR) or jc_alike(value, slot):
                continue
            drop_value(value)
            if slot.type == JC_TENSOR:
                fill_tensor(value, jc_new_like(<cnp.ndarray> slot.handle))
            else:
                fill_tensor(value, cnp.PyArray_SimpleNew(0, NULL, jc_number_of(slot.type)))
                value.scalar_type = jc_number_of(slot.type)
        return 0

    cdef int bind(self, jc_slot *slot, Blob blob, bint tensors) except -1:
        """Point a slot to what a blob holds; to a tensor that is no scalar only where it is asked for."""
        self.let_go(slot)
        slot.type = JC_NOTHING
        slot.number = -1
        slot.seen = blob._version
        slot.version = &blob._version
        Py_INCREF(blob)
        slot.blob = <void *> blob
        # Pinned before the reference below is taken, which would make it look as if somebody had the array.
        if blob._kind == KIND_COUNTER:
            slot.type = JC_COUNTER
            slot.data = &(<Counter> blob._held)._value
        elif blob._kind == KIND_TIMER:
            slot.type = JC_TIMER
            slot.data = &(<Timer> blob._held)._state
        elif blob._kind == KIND_TENSOR and blob._scalar_type >= 0:
            if blob._scalar_type == cnp.NPY_BOOL:
                slot.type = JC_BOOL
            elif blob._scalar_type == cnp.NPY_INT64:
                slot.type = JC_INT64
            elif blob._scalar_type == cnp.NPY_DOUBLE:
                slot.type = JC_DOUBLE
            else:
                return 0
            slot.number = jc_number_of(slot.type)
            slot.writable = slot.type if blob.pin() else JC_NOTHING
            slot.data = cnp.PyArray_DATA(<cnp.ndarray> blob._held)
        elif blob._kind == KIND_TENSOR and tensors and may_be_copied(blob):
            slot.type = JC_TENSOR
            slot.writable = slot.type if blob.pin_tensor() else JC_NOTHING
            slot.data = cnp.PyArray_DATA(<cnp.ndarray> blob._held)
            slot.nbytes = <int32_t> blob._nbytes  # at most PIN_BYTES
            slot.number = jc_plain_number(<cnp.ndarray> blob._held)
            slot.busy = &blob._busy
        elif blob._kind == KIND_QUEUE and type(blob._held) is BlobQueue:
            slot.type = JC_QUEUE
            slot.data = (<BlobQueue> blob._held)._queue
        elif blob._kind == KIND_STATE and is_mutex(blob._held):
            slot.type = JC_MUTEX
        else:
            return 0
        Py_INCREF(blob._held)
        slot.handle = <void *> <PyObject *> blob._held
        return 0

    cdef void let_go(self, jc_slot *slot) noexcept:
        cdef PyObject *handle = <PyObject *> slot.handle
        cdef PyObject *blob = <PyObject *> slot.blob
        slot.version = &jc_unbound
        slot.seen = 0
        slot.data = NULL
        slot.handle = NULL
        slot.blob = NULL
        slot.busy = NULL
        if slot.writable:
            (<Blob> blob).unpin(<object> handle)
        slot.writable = JC_NOTHING
        if handle is not NULL:
            Py_DECREF(<object> handle)
        if blob is not NULL:
            Py_DECREF(<object> blob)

    cdef void let_all_go(self) noexcept:
        cdef Py_ssize_t i
        for i in range(self._slot_count):
            self.let_go(&self._frame.slots[i])
        for i in range(self._value_count):
            drop_value(&self._frame.values[i])


cdef bint may_be_copied(Blob blob) noexcept:
    """Whether native code may read the bytes of a tensor, which stay as they are or are written with its lock held."""
    cdef cnp.ndarray array = <cnp.ndarray> blob._held
    return (
        not blob._bound
        and blob._nbytes <= PIN_BYTES
        and cnp.PyArray_IS_C_CONTIGUOUS(array)
        and not jc_copied_by_numpy(array)
    )


cpdef bint is_mutex(object state) except -1:
    """Whether it is what the op CreateMutex makes."""
    # Not compared as a whole: an array in a state has no single answer.
    if type(state) is not dict or len(<dict> state) != 1:
        return False
    value = (<dict> state).get("mutex")
    return type(value) is str and value == "unlocked"
