"""From a compiled step tree to one native program: control flow becomes jumps, and ops keep their kernels."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from jobcore._fast.program import Program
from jobcore.graph import Guard, Loop, OpContext, When, While
from jobcore.runtime.conditions import read_condition, read_count, read_stop_blob, set_flag, set_index
from jobcore.runtime.native import native_kernel_of
from jobcore.runtime.program import OpProgram, Part, Place, StepProgram
from jobcore.workspace import Workspace

if TYPE_CHECKING:
    from jobcore.runtime.context import StepContext

__all__ = ["lower"]

RunStep: TypeAlias = "Callable[[StepProgram, Workspace, StepContext], bool]"
ReadFlag: TypeAlias = Callable[[str, Workspace], bool]


def lower(step: StepProgram, run_step: RunStep) -> None:
    """Give a step tree its native programs.

    A program does what the tree does, in the same order, with the same failures at the same places. What starts
    threads, has a workspace of its own, or is framed by what comes before, beside and after it is done by `run_step`;
    the sequences inside it have programs of their own.

    Parameters
    ----------
    step
        The root of the tree; nobody runs it yet.
    run_step
        Called with a step, a workspace and a context; returns whether a stop is on its way outwards.
    """
    for inner in (*step.init, *step.exit, *(reporter.step for reporter in step.reporters)):
        lower(inner, run_step)
    if step.concurrent:
        for part in step.parts:
            if isinstance(part, StepProgram):
                lower(part, run_step)
    elif step.parts:
        # A callable alone is called more quickly by whoever runs the step.
        object.__setattr__(step, "native", _Code(run_step).lowered(step))


class _Label:
    """A place in the code that may not be known yet."""

    __slots__ = ("at", "used")

    def __init__(self) -> None:
        self.at = -1
        self.used = False


class _Code:
    """The instructions so far."""

    def __init__(self, run_step: RunStep) -> None:
        self._run_step = run_step
        self._names: dict[str, int] = {}
        self._registers = 0
        self._rows: list[tuple[str, _Label | None, int, tuple[int, ...], tuple[int, ...], Any, Any, Any]] = []

    def lowered(self, step: StepProgram) -> Program:
        stopped = _Label()
        if step.sequential:
            self._whole(step, stopped)
        elif step.instances == 1:
            self._rounds(step, stopped)
        else:
            self._content(step, stopped)
        self.put("end")
        self._here(stopped)
        self.put("end", constant=True)
        rows = [(row[0], 0 if row[1] is None else row[1].at, *row[2:]) for row in self._rows]
        return Program(tuple(self._names), self._registers, rows)

    def put(
        self,
        code: str,
        target: _Label | None = None,
        register: int = 0,
        inputs: tuple[str, ...] = (),
        outputs: tuple[str, ...] = (),
        kernel: object = None,
        constant: object = None,
        payload: object = None,
    ) -> None:
        if target is not None:
            target.used = True
        self._rows.append(
            (code, target, register, self._slots(inputs), self._slots(outputs), kernel, constant, payload)
        )

    def _slots(self, names: tuple[str, ...]) -> tuple[int, ...]:
        return tuple(self._names.setdefault(name, len(self._names)) for name in names)

    def _register(self) -> int:
        self._registers += 1
        return self._registers - 1

    def _here(self, label: _Label) -> _Label:
        label.at = len(self._rows)
        return label

    # -- steps; `out` is where a stop goes that the step does not catch

    def _step(self, step: StepProgram, out: _Label) -> None:
        if step.sequential:
            self._whole(step, out)
        else:
            lower(step, self._run_step)
            self.put("part", out, payload=(None, self._run_step, step))

    def _whole(self, step: StepProgram, out: _Label) -> None:
        control, end, after = step.control, _Label(), _Label()
        if isinstance(control, When):
            self._branch(control, step.place, after)
        self._mark(step, begins=True)
        stopped = _Label()
        self._rounds(step, stopped)
        if isinstance(control, Guard):
            self._store(step.place, control.stopped, False)
            self.put("jump", end)
            self._here(stopped)
            self._store(step.place, control.stopped, True)
        elif step.catches_stop:
            self._here(stopped)
        elif stopped.used:
            self.put("jump", end)
            self._here(stopped)
            self.put("jump", out)
        self._here(end)
        self._mark(step, begins=False)
        self._here(after)

    def _mark(self, step: StepProgram, *, begins: bool) -> None:
        name = step.place.path.rpartition(" / ")[2]
        self.put("mark", constant=begins, payload=(None, step.place, name))

    def _branch(self, when: When, place: Place, end: _Label) -> None:
        if when.taken is not None:
            if when.first:
                self._store(place, when.taken, False)
            else:
                self._jump_if(True, when.taken, place, end, read_condition)
        if when.condition is not None:
            self._jump_if(False, when.condition, place, end, read_condition)
        if when.taken is not None:
            self._store(place, when.taken, True)

    def _rounds(self, step: StepProgram, stopped: _Label) -> None:
        if isinstance(step.control, Loop):
            self._loop(step, step.control, stopped)
        elif isinstance(step.control, While):
            self._while(step, step.control, stopped)
        elif step.num_iter == 1 or step.once:
            self._content(step, stopped)
        else:
            self._repeat(step, step.num_iter, stopped)

    def _repeat(self, step: StepProgram, count: int | None, stopped: _Label) -> None:
        if not step.parts and step.function is None:
            return
        end, left = _Label(), self._register()
        if count is not None:
            self.put("set", register=left, constant=_clamped(count))
        top = self._here(_Label())
        if count is not None:
            self.put("loop", end, left)
        self._content(step, stopped)
        self.put("jump", top)
        self._here(end)

    def _loop(self, step: StepProgram, loop: Loop, stopped: _Label) -> None:
        left, done, end = self._register(), self._register(), _Label()
        if loop.count_blob is not None:
            self.put("value", register=left, payload=(step.place, partial(_read_count, loop.count_blob)))
        elif loop.count is not None:
            self.put("set", register=left, constant=_clamped(loop.count))
        self.put("set", register=done, constant=0)
        self._index(step.place, loop, done)
        top = self._here(_Label())
        if not loop.endless:
            self.put("loop", end, left)
        self._content(step, stopped)
        if loop.index_blob is not None:
            on = _Label()
            self.put("next", on, done)
            self._here(on)
            self._index(step.place, loop, done)
        self.put("jump", top)
        self._here(end)

    def _index(self, place: Place, loop: Loop, done: int) -> None:
        if loop.index_blob is not None:
            payload = (place, loop.index_blob, set_index)
            self.put("store_register", register=done, outputs=(loop.index_blob,), payload=payload)

    def _while(self, step: StepProgram, control: While, stopped: _Label) -> None:
        condition, body = step.parts
        end = _Label()
        top = self._here(_Label())
        self._part(condition, stopped)
        self._jump_if(False, control.condition, step.place, end, read_condition)
        self._part(body, stopped)
        self.put("jump", top)
        self._here(end)

    def _content(self, step: StepProgram, stopped: _Label) -> None:
        """One round."""
        if step.function is not None:
            self.put("call", payload=(step.place, step.function))
            self._stop_test(step, stopped)
        for part in step.parts:
            self._part(part, stopped)
            self._stop_test(step, stopped)

    def _part(self, part: Part, stopped: _Label) -> None:
        if isinstance(part, StepProgram):
            self._step(part, stopped)
            return
        for op in part.ops:
            if isinstance(op, OpProgram):
                self._op(op)
            elif op.condition is None:
                self.put("jump", stopped)
            else:
                self._jump_if(True, op.condition, op.place, stopped, read_condition)

    def _stop_test(self, step: StepProgram, stopped: _Label) -> None:
        if step.stop_blob is not None:
            self._jump_if(True, step.stop_blob, step.place, stopped, read_stop_blob)

    def _jump_if(self, wanted: bool, name: str, place: Place, target: _Label, read: ReadFlag) -> None:
        code = "if_true" if wanted else "if_false"
        self.put(code, target, inputs=(name,), payload=(place, name, read))

    def _store(self, place: Place, name: str, value: bool) -> None:
        self.put("store_bool", outputs=(name,), constant=value, payload=(place, name, set_flag))

    def _op(self, program: OpProgram) -> None:
        op = program.op
        kernel, constant = native_kernel_of(op)
        self.put(
            "op",
            inputs=op.inputs,
            outputs=op.outputs,
            kernel=kernel,
            constant=constant,
            payload=(program.place, program.kernel, op, OpContext),
        )


def _read_count(name: str, workspace: Workspace) -> int:
    return _clamped(read_count(name, workspace))


def _clamped(count: int) -> int:
    """Return a count that fits a register; nobody lives to see the difference."""
    return min(max(count, 0), 2**63 - 1)
