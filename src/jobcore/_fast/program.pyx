"""Programs: steps and nets as one flat list of ops and jumps, run without the interpreter where that can be."""

cimport cython
cimport numpy as cnp
from cpython.pycapsule cimport PyCapsule_GetPointer, PyCapsule_IsValid, PyCapsule_New
from cpython.ref cimport PyObject
from libc.stdint cimport int32_t, int64_t, intptr_t
from libc.stdlib cimport calloc, free
from libc.string cimport memcpy

from jobcore._fast.arrays cimport jc_copied_by_numpy
from jobcore._fast.blob cimport PIN_BYTES
from jobcore._fast.kernel cimport (
    JC_BOOL,
    JC_CODE_CALL,
    JC_CODE_COUNT,
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
    JC_DOUBLE,
    JC_INT64,
    JC_NOTHING,
    JC_TENSOR,
    jc_kernel,
    jc_op,
    jc_slot,
)
from jobcore._fast.run cimport CALL_FUNCTION, CALL_OP, CALL_PART, CALL_VALUE, run_program
from jobcore._fast.workspace cimport BlobTable

from jobcore.errors import BuildError

__all__ = ["SMALL_BYTES", "Program", "native_kernel"]

cnp.import_array()

# The largest tensor that native kernels know.
SMALL_BYTES = PIN_BYTES

cdef extern from "kernels.h" nogil:
    ctypedef struct jc_named_kernel:
        const char *type
        jc_kernel kernel
    const jc_named_kernel *jc_kernels
    const size_t JC_KERNEL_COUNT
    bint jc_knows_tensors(jc_kernel kernel) noexcept
    int64_t jc_amount_of(jc_kernel kernel) noexcept
    int jc_values_of(jc_kernel kernel, int inputs, int outputs, int32_t *puts) noexcept


cdef const char *KERNEL = "jobcore.kernel"

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
        kernel or None; a bool, int, float, an array that nobody changes any more, or None; and what Python needs to do
        it, see below. The last one is ``end``.

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
        self._constants = []
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
        cdef Py_ssize_t index, k
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
        for k in range(min(2, op.inputs + op.outputs)):
            op.near[k] = <int64_t> op.slots[k] * <int64_t> sizeof(jc_slot)
        needs = {"if_true": 1, "if_false": 1, "store_bool": 1, "store_register": 1}.get(code, 0)
        if needs and op.inputs + op.outputs != needs:
            raise BuildError(f"instruction {i}: expected {needs} blob for {code!r}, found {op.inputs + op.outputs}")
        if code in ("set", "loop", "next", "store_register", "value") and register >= self._registers:
            raise BuildError(f"instruction {i}: expected a register below {self._registers}, found {register}")
        if kernel is not None:
            if not PyCapsule_IsValid(kernel, KERNEL):
                raise BuildError(f"instruction {i}: expected a capsule named 'jobcore.kernel', found {kernel!r}")
            op.kernel = <jc_kernel> PyCapsule_GetPointer(kernel, KERNEL)
            op.tensors = jc_knows_tensors(op.kernel)
            op.values = jc_values_of(op.kernel, op.inputs, op.outputs, &op.puts)
            op.first_value = <int32_t> self._values
            self._values += op.values
        self.set_constant(op, constant)
        if code in CALLS:
            op.constant = CALLS[code]
        elif code == "op" and kernel is None:
            op.code = JC_CODE_CALL
            op.constant = CALL_OP
        elif code == "op" and jc_amount_of(op.kernel) and op.inputs == 1 and op.outputs == 1:
            op.code = JC_CODE_COUNT
            op.constant = jc_amount_of(op.kernel)
        return used

    cdef int set_constant(self, jc_op *op, object constant) except -1:
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
        elif cnp.PyArray_CheckExact(constant):
            if not cnp.PyArray_IS_C_CONTIGUOUS(constant) or jc_copied_by_numpy(constant):
                raise BuildError(f"expected an array of plain items in C order as constant, found {constant!r:.80}")
            self._constants.append(constant)
            op.constant_type = JC_TENSOR
            op.constant = <int64_t> <intptr_t> <PyObject *> constant
        elif constant is not None:
            raise BuildError(
                f"expected a bool, an int, a float, an array or None as constant, found {constant!r:.80}"
            )
        return 0

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
        cdef Py_ssize_t[3] counts
        counts[0] = len(self._names)
        counts[1] = self._registers
        counts[2] = self._values
        return run_program(self, self._ops, self._payloads, counts, workspace, context, spans)

    def __repr__(self):
        return f"<Program of {self._count} instructions on {len(self._names)} blobs>"
