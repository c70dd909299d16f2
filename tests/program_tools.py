"""Programs written by hand, for tests of the interpreter itself."""

from __future__ import annotations

from jobcore._fast.cancel import CancelFlag
from jobcore._fast.program import Program, native_kernel
from jobcore.errors import Cancelled
from jobcore.graph import OpContext, schema
from jobcore.graph.registry import make_op
from jobcore.runtime.conditions import read_stop_blob

END = ("end", 0, 0, (), (), None, None, None)


class Context:
    """What a program needs of whoever runs it; failures come out with the place in a note."""

    def __init__(self):
        self.flag = CancelFlag()
        self.token = self

    def check(self):
        if self.flag.is_set():
            raise Cancelled("the test said so")

    def passes(self, error):
        return isinstance(error, Cancelled)

    def failed(self, place, error):
        error.add_note(f"at {place}")
        return error


class Code:
    """Rows of a program, with names for blobs and rows for labels."""

    def __init__(self):
        self.names = {}
        self.rows = []

    def slots(self, *names):
        return tuple(self.names.setdefault(name, len(self.names)) for name in names)

    def put(self, code, target=0, register=0, blobs=(), constant=None, payload=None):
        self.rows.append((code, target, register, self.slots(*blobs), (), None, constant, payload))
        return self

    def op(self, op_type, inputs=(), outputs=(), constant=None, native=True, **args):
        op = make_op(op_type, inputs, outputs, args, "a test", "")
        kernel = native_kernel(op_type) if native else None
        payload = (f"op {len(self.rows)}", schema(op_type).kernel, op, OpContext)
        self.rows.append(("op", 0, 0, self.slots(*inputs), self.slots(*outputs), kernel, constant, payload))
        return self

    def call(self, function):
        return self.put("call", payload=(f"call {len(self.rows)}", function))

    def jump_if(self, truth, blob, target):
        payload = (f"jump {len(self.rows)}", blob, read_stop_blob)
        return self.put("if_true" if truth else "if_false", target, blobs=(blob,), payload=payload)

    def program(self, registers=0):
        return Program(tuple(self.names), registers, [*self.rows, END])

    def loop(self, count):
        """Everything so far, `count` times."""
        shift = 2
        moved = [(code, target + shift, *rest) for code, target, *rest in self.rows]
        end = len(moved) + 3
        rows = [
            ("set", 0, 0, (), (), None, count, None),
            ("loop", end, 0, (), (), None, None, None),
            *moved,
            ("jump", 1, 0, (), (), None, None, None),
            END,
        ]
        return Program(tuple(self.names), 1, rows)
