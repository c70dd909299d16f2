"""Programs: steps and nets as one flat list of ops and jumps, run without the interpreter where that can be."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport Py_DECREF, Py_INCREF, PyObject
from libc.stdint cimport int32_t, int64_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

cimport numpy as cnp

from jobcore._fast.blob cimport (
    KIND_COUNTER,
    KIND_TENSOR,
    KIND_TIMER,
    Blob,
)
from jobcore._fast.counter cimport Counter
from jobcore._fast.program cimport (
    JC_BOOL,
    JC_CODE_CALL,
    JC_CODE_END,
    JC_CODE_IF_FALSE,
    JC_CODE_IF_TRUE,
    JC_CODE_JUMP,
    JC_CODE_LOOP,
    JC_CODE_MARK,
    JC_CODE_NEXT,
    JC_CODE_OP,
    JC_CODE_SET,
    JC_CODE_STORE_BOOL,
    JC_CODE_STORE_REG,
    JC_COUNTER,
    JC_DECLINE,
    JC_DONE,
    JC_DOUBLE,
    JC_END,
    JC_INT64,
    JC_NOTHING,
    JC_SPENT,
    JC_TIMER,
    JC_WAIT,
    jc_frame,
    jc_kernel,
    jc_op,
    jc_reads,
    jc_run,
    jc_slot,
    jc_slot_of,
    jc_unbound,
    jc_writes,
)
from jobcore._fast.timer cimport Timer
from jobcore._fast.workspace cimport BlobTable

from jobcore.errors import BuildError

__all__ = ["Program", "native_kernel"]

cnp.import_array()


cdef extern from "kernels.h" nogil:
    ctypedef struct jc_named_kernel:
        const char *type
        jc_kernel kernel
    const jc_named_kernel *jc_kernels
    const size_t JC_KERNEL_COUNT


cdef const char *KERNEL = "jobcore.kernel"

cdef enum:
    # Ops done with the GIL before it is let go: most loops between two Python steps are over by then.
    SHORT = 1024
    # Ops done without it before signals are looked at again: some milliseconds.
    LONG = 1 << 20
    # Python steps run one after the other before other threads get their turn.
    TURN = 256

# What an instruction of the code JC_CODE_CALL is, as its constant.
cdef enum:
    CALL_FUNCTION
    CALL_PART
    CALL_VALUE
    CALL_OP

cdef dict CALLS = {"call": CALL_FUNCTION, "part": CALL_PART, "value": CALL_VALUE}
cdef dict CODES = {
    "op": JC_CODE_OP,
    "call": JC_CODE_CALL,
    "part": JC_CODE_CALL,
    "value": JC_CODE_CALL,
    "jump": JC_CODE_JUMP,
    "set": JC_CODE_SET,
    "loop": JC_CODE_LOOP,
    "next": JC_CODE_NEXT,
    "if_true": JC_CODE_IF_TRUE,
    "if_false": JC_CODE_IF_FALSE,
    "store_bool": JC_CODE_STORE_BOOL,
    "store_register": JC_CODE_STORE_REG,
    "mark": JC_CODE_MARK,
    "end": JC_CODE_END,
}


def native_kernel(str type not None):
    """Return the native kernel of an op type, a capsule named ``jobcore.kernel``, or None if it has none."""
    cdef bytes name = type.encode()
    cdef size_t i
    for i in range(JC_KERNEL_COUNT):
        if jc_kernels[i].type == name:
            return PyCapsule_New(<void *> jc_kernels[i].kernel, KERNEL, NULL)
    return None


@cython.final
cdef class Program:
    """A compiled sequence of ops and Python steps with its control flow, as ``runtime/lower.py`` makes them.

    Parameters
    ----------
    names
        The blobs it uses.
    registers
        How many int64 registers it needs.
    code
        Its instructions, each ``(code, target, register, inputs, outputs, kernel, constant, payload)``: name of the
        code; index of the instruction to go to; index of the register; indices into `names`; capsule of a native
        kernel or None; a bool, int, float or None; and what Python needs to do it, see below. The last one is
        ``end``.

    Raises
    ------
    BuildError
        An index, a code, a kernel or a constant makes no sense.

    Notes
    -----
    A payload begins with the place that a failure is told to come from. It is, for

    - ``op``: ``(place, kernel, op, make)``; ``kernel(make(op, workspace, inputs, outputs, args))`` runs it in Python;
    - ``call``: ``(place, function)``, called with the workspace;
    - ``part``: ``(None, function, step)``; ``function(step, workspace, context)`` reports its own failures and tells
      whether to go to the target;
    - ``value``: ``(place, function)``, called with the workspace, whose int goes into the register;
    - ``if_true`` and ``if_false``: ``(place, name, read)``; ``read(name, workspace)`` tells what any blob means;
    - ``store_bool`` and ``store_register``: ``(place, name, write)``; ``write(name, workspace, value)``;
    - ``mark``: ``(None, key, name)``; it begins the span of the key if its constant is true, and else ends it.

    Thread safety: it never changes; any number of threads may run it at once.
    """

    def __cinit__(self, tuple names not None, Py_ssize_t registers, list code not None):
        cdef Py_ssize_t i, used = 0
        cdef list payloads = []
        self._names = names
        self._registers = registers
        self._count = len(code)
        for row in code:
            used += len(row[3]) + len(row[4])
        self._ops = <jc_op *> calloc(<size_t> self._count + 1, sizeof(jc_op))
        self._indices = <int32_t *> calloc(<size_t> used + 1, sizeof(int32_t))
        if self._ops is NULL or self._indices is NULL:
            raise MemoryError
        if not code or code[len(code) - 1][0] != "end" or registers < 0:
            raise BuildError("expected a program that ends with 'end' and no negative number of registers")
        used = 0
        for i in range(self._count):
            used = self.read(i, code[i], used)
            payloads.append(code[i][7])
        self._payloads = tuple(payloads)

    def __init__(self, names, registers, code):
        pass

    def __dealloc__(self):
        free(self._ops)
        free(self._indices)

    cdef Py_ssize_t read(self, Py_ssize_t i, tuple row, Py_ssize_t used) except -1:
        cdef jc_op *op = &self._ops[i]
        cdef Py_ssize_t index
        code, target, register, inputs, outputs, kernel, constant, _ = row
        if code not in CODES or not 0 <= target < self._count or not 0 <= register <= self._registers:
            raise BuildError(
                f"instruction {i}: expected a known code, a target and a register in range, found {row[:3]}"
            )
        op.code = CODES[code]
        op.target = target
        op.reg = register
        op.inputs = <int32_t> len(inputs)
        op.outputs = <int32_t> len(outputs)
        op.slots = self._indices + used
        for index in (*inputs, *outputs):
            if not 0 <= index < len(self._names):
                raise BuildError(f"instruction {i}: expected a blob from 0 to {len(self._names) - 1}, found {index}")
            self._indices[used] = <int32_t> index
            used += 1
        needs = {"if_true": 1, "if_false": 1, "store_bool": 1, "store_register": 1}.get(code, 0)
        if needs and op.inputs + op.outputs != needs:
            raise BuildError(f"instruction {i}: expected {needs} blob for {code!r}, found {op.inputs + op.outputs}")
        if code in ("set", "loop", "next", "store_register", "value") and register >= self._registers:
            raise BuildError(f"instruction {i}: expected a register below {self._registers}, found {register}")
        if kernel is not None:
            if not PyCapsule_IsValid(kernel, KERNEL):
                raise BuildError(f"instruction {i}: expected a capsule named 'jobcore.kernel', found {kernel!r}")
            op.kernel = <jc_kernel> PyCapsule_GetPointer(kernel, KERNEL)
        set_constant(op, constant)
        if code in CALLS:
            op.constant = CALLS[code]
        elif code == "op" and kernel is None:
            op.code = JC_CODE_CALL
            op.constant = CALL_OP
        return used

    def run(self, BlobTable workspace not None, context not None, spans=None):
        """Run it once.

        Parameters
        ----------
        workspace
            Where its blobs are.
        context
            Has ``token``, with the `CancelFlag` that stops the run as ``flag`` and a ``check()`` that raises then;
            ``passes(error)``, which tells whether an exception of a step is to go on as it is; and ``failed(place,
            error)``, which returns the exception to raise in its place.

        spans
            Where marks go: ``begin(key, name)``, ``end(key)``, and at the end of the run ``end(error=...)`` for all
            that are open. None: nowhere.

        Returns
        -------
        bool
            The constant of the ``end`` that it came to, False by default.

        Raises
        ------
        BaseException
            What `context` made of a failure.
        """
        cdef Frame frame = Frame(self, workspace, context)
        failure = None
        frame._spans = spans
        frame._frame.traced = spans is not None
        try:
            frame.go()
            return frame._frame.ops[frame._frame.pc].constant != 0
        except BaseException as error:
            failure = error
            raise
        finally:
            frame.forget()
            if spans is not None:
                spans.end(error=failure)
            del failure

    def __repr__(self):
        return f"<Program of {self._count} instructions on {len(self._names)} blobs>"


cdef int set_constant(jc_op *op, object constant) except -1:
    cdef double real
    op.constant_type = JC_NOTHING
    if type(constant) is bool:
        op.constant_type = JC_BOOL
        op.constant = constant
    elif type(constant) is int:
        op.constant_type = JC_INT64
        op.constant = constant
    elif type(constant) is float:
        op.constant_type = JC_DOUBLE
        real = constant
        memcpy(&op.constant, &real, sizeof(real))
    elif constant is not None:
        raise BuildError(f"expected a bool, an int, a float or None as constant, found {constant!r:.80}")
    return 0


@cython.final
cdef class Frame:
    """One run of a program: its slots, its registers and where it is."""

    def __cinit__(self, Program program not None, BlobTable workspace not None, context):
        cdef Py_ssize_t i
        self._program = program
        self._workspace = workspace
        self._context = context
        self._flag = context.token.flag
        self._slot_count = len(program._names)
        self._removals = workspace.removals()
        self._calls = [None] * program._count
        self._frame.ops = program._ops
        self._frame.cancelled = &self._flag._set
        # One more of each, so that none of them is an allocation of nothing.
        self._frame.slots = <jc_slot *> calloc(<size_t> self._slot_count + 1, sizeof(jc_slot))
        self._frame.regs = <int64_t *> calloc(<size_t> program._registers + 1, sizeof(int64_t))
        if self._frame.slots is NULL or self._frame.regs is NULL:
            raise MemoryError
        for i in range(self._slot_count):
            self._frame.slots[i].version = &jc_unbound

    def __dealloc__(self):
        self.forget()
        free(self._frame.slots)
        free(self._frame.regs)

    cdef int go(self) except -1:
        cdef jc_frame *f = &self._frame
        cdef int answer
        cdef int turns = 0
        while True:
            f.has_gil = 1
            answer = jc_run(f, SHORT)
            while answer == JC_SPENT or answer == JC_WAIT:
                with nogil:
                    f.has_gil = 0
                    answer = jc_run(f, LONG)
                # Without the GIL nobody sees Ctrl-C.
                PyErr_CheckSignals()
            if answer == JC_DECLINE:
                self.step_aside()
                turns += 1
                if turns == TURN:
                    # Neither this loop nor a step made of C code would ever let other threads in.
                    turns = 0
                    with nogil:
                        pass
                    PyErr_CheckSignals()
            elif answer == JC_END:
                return 0
            else:
                self._context.token.check()
                raise RuntimeError(f"expected the token to be cancelled, found {self._context.token!r}")

    cdef int step_aside(self) except -1:
        """Do in Python what native code could not: one instruction, or only what makes it able to."""
        cdef jc_frame *f = &self._frame
        cdef const jc_op *op = &f.ops[f.pc]
        cdef tuple payload = <tuple> self._program._payloads[f.pc]
        cdef bint truth
        try:
            if op.code == JC_CODE_OP:
                self.run_op(op, payload)
            elif op.code == JC_CODE_CALL:
                if op.constant == CALL_OP:
                    self.run_op(op, payload)
                elif op.constant == CALL_PART:
                    truth = payload[1](payload[2], self._workspace, self._context)
                    f.pc = op.target if truth else f.pc + 1
                elif op.constant == CALL_VALUE:
                    f.regs[op.reg] = payload[1](self._workspace)
                    f.pc += 1
                else:
                    payload[1](self._workspace)
                    f.pc += 1
            elif op.code == JC_CODE_MARK:
                if op.constant:
                    self._spans.begin(payload[1], payload[2])
                else:
                    self._spans.end(payload[1])
                f.pc += 1
            elif op.code == JC_CODE_IF_TRUE or op.code == JC_CODE_IF_FALSE:
                if not self.ready(op, False, JC_BOOL, payload[1]):
                    truth = payload[2](payload[1], self._workspace)
                    f.pc = op.target if truth == (op.code == JC_CODE_IF_TRUE) else f.pc + 1
            elif not self.ready(op, True, JC_BOOL if op.code == JC_CODE_STORE_BOOL else JC_INT64, payload[1]):
                if op.code == JC_CODE_STORE_BOOL:
                    payload[2](payload[1], self._workspace, op.constant != 0)
                else:
                    payload[2](payload[1], self._workspace, f.regs[op.reg])
                f.pc += 1
        except BaseException as error:
            # A part reports its own failures.
            if payload[0] is None or self._context.passes(error):
                raise
            raise self._context.failed(payload[0], error) from None
        if self._workspace.removals() != self._removals:
            # Somebody took blobs out of the workspace: the names may stand for others now.
            self._removals = self._workspace.removals()
            self.forget()
        return 0

    cdef int run_op(self, const jc_op *op, tuple payload) except -1:
        cdef jc_frame *f = &self._frame
        cdef object call = self._calls[f.pc]
        cdef int answer
        if call is None:
            described = payload[2]
            call = payload[3](
                described,
                self._workspace,
                [self._workspace.find_or_raise(name) for name in described.inputs],
                [self._workspace.find_or_create(name) for name in described.outputs],
                described.args,
            )
            self._calls[f.pc] = call
        if op.kernel is not NULL:
            self.look_again(op, call)
            answer = op.kernel(f, op)
            if answer == JC_DONE:
                f.pc += 1
                return 0
            if answer == JC_WAIT:
                return 0
        payload[1](call)
        f.pc += 1
        return 0

    cdef int look_again(self, const jc_op *op, object call) except -1:
        """Bind the slots of an op whose blobs are not known, or were given other memory."""
        cdef jc_slot *slot
        cdef int i = 0
        for blob in call.inputs:
            slot = jc_slot_of(&self._frame, op, i)
            if slot.version[0] != slot.seen:
                self.bind(slot, <Blob?> blob)
            i += 1
        for blob in call.outputs:
            slot = jc_slot_of(&self._frame, op, i)
            if slot.version[0] != slot.seen or not slot.writable:
                self.bind(slot, <Blob?> blob)
            i += 1
        return 0

    cdef bint ready(self, const jc_op *op, bint writing, int32_t kind, object name) except -1:
        """Whether native code can read, or write, the slot of a jump or store after another look."""
        cdef Blob blob = self._workspace.find(name)
        cdef jc_slot *slot = &self._frame.slots[op.slots[0]]
        if blob is None:
            return False
        self.bind(slot, blob)
        return jc_writes(slot, kind) if writing else jc_reads(slot, kind)

    cdef int bind(self, jc_slot *slot, Blob blob) except -1:
        self.let_go(slot)
        slot.type = JC_NOTHING
        slot.seen = blob._version
        slot.version = &blob._version
        Py_INCREF(blob)
        slot.blob = <void *> blob
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
            # Before the reference below is taken, which would make it look as if somebody had the array.
            slot.writable = blob.pin()
            slot.data = cnp.PyArray_DATA(<cnp.ndarray> blob._held)
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
        if slot.writable:
            (<Blob> blob).unpin(<object> handle)
        slot.writable = False
        if handle is not NULL:
            Py_DECREF(<object> handle)
        if blob is not NULL:
            Py_DECREF(<object> blob)

    cdef void forget(self) noexcept:
        """Let go of all blobs."""
        cdef Py_ssize_t i
        for i in range(self._slot_count):
            self.let_go(&self._frame.slots[i])
        for i in range(len(self._calls)):
            self._calls[i] = None
