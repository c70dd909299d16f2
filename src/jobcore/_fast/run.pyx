"""One run of a program: native where that can be, in Python where it cannot."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.pythread cimport PyThread_get_thread_ident

from jobcore._fast.frame cimport Frame
from jobcore._fast.kernel cimport (
    JC_BOOL,
    JC_CODE_CALL,
    JC_CODE_COUNT,
    JC_CODE_IF_FALSE,
    JC_CODE_IF_TRUE,
    JC_CODE_MARK,
    JC_CODE_OP,
    JC_CODE_STORE_BOOL,
    JC_DECLINE,
    JC_DONE,
    JC_END,
    JC_INT64,
    JC_SPENT,
    JC_WAIT,
    jc_frame,
    jc_near,
    jc_op,
    jc_run,
)
from jobcore._fast.workspace cimport BlobTable

import threading

__all__ = ["Run"]

cdef enum:
    # Ops done with the GIL before it is let go: most loops between two Python steps are over by then.
    SHORT = 1024
    # Ops done without it before signals are looked at again: some milliseconds.
    LONG = 1048576  # no expression here: a debug build cannot check its overflow
    # Python steps run one after the other before other threads get their turn.
    TURN = 256


cdef bint run_program(
    object program,
    const jc_op *ops,
    tuple payloads,
    const Py_ssize_t *counts,
    BlobTable workspace,
    object context,
    object spans,
) except -1:
    cdef Run run = Run.__new__(Run)
    run._program = program
    run._payloads = payloads
    run._context = context
    run._flag = context.token.flag
    run._removals = workspace.removals()
    run._calls = [None] * len(payloads)
    run._spans = spans
    run.make(workspace, ops, counts[0], counts[1], counts[2])
    run._frame.cancelled = &run._flag._set
    run._frame.traced = spans is not None
    if counts[2]:
        run._frame.main = <unsigned long> PyThread_get_thread_ident() == <unsigned long> threading.main_thread().ident
    failure = None
    try:
        run.go()
        return ops[run._frame.pc].constant != 0
    except BaseException as error:
        failure = error
        raise
    finally:
        run.forget()
        if spans is not None:
            spans.end(error=failure)
        del failure


@cython.final
cdef class Run(Frame):
    """A frame, what Python needs to run its ops, and where it is."""

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
                f.has_gil = 1
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
        cdef tuple payload = <tuple> self._payloads[f.pc]
        cdef bint truth
        try:
            if op.code == JC_CODE_OP or op.code == JC_CODE_COUNT:
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
            self.look_again(op, call.inputs, call.outputs)
            answer = op.kernel(f, op, jc_near(f, op, 0), jc_near(f, op, 1))
            if answer == JC_DONE:
                f.pc += 1
                return 0
            if answer == JC_WAIT:
                return 0
        payload[1](call)
        f.pc += 1
        return 0

    cdef void forget(self) noexcept:
        """Let go of all blobs."""
        cdef Py_ssize_t i
        self.let_all_go()
        for i in range(len(self._calls)):
            self._calls[i] = None
