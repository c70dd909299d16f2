"""The op types: what each takes, what it gives, and the kernel that runs it.

An op is checked here when it is built, so that a wrong call fails on the line that wrote it and not in a
task of a running job.
"""

from __future__ import annotations

import difflib
import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final, TypeAlias

from jobcore._fast.program import native_kernel
from jobcore.errors import BuildError, JobcoreError
from jobcore.graph.op import Op, OpContext

__all__ = [
    "REQUIRED",
    "ArgSpec",
    "Kernel",
    "OpSchema",
    "all_ops",
    "is_op",
    "make_op",
    "register_op",
    "schema",
    "unknown_op",
]

Kernel: TypeAlias = Callable[[OpContext], None]
"""Runs one op: reads the input blobs, feeds the output blobs."""


class _Required:
    def __repr__(self) -> str:
        return "REQUIRED"


REQUIRED: Final = _Required()
"""Default of an `ArgSpec` whose argument must be given."""


@dataclass(frozen=True, slots=True)
class ArgSpec:
    """One argument of an op type.

    Attributes
    ----------
    convert
        Returns the value to keep, or raises TypeError or ValueError. What it returns must not be
        something that the caller can still change.
    expected
        What is expected, for the error message: ``"an integer of at least 0"``.
    default
        Used when the argument is not given, without conversion; `REQUIRED` when it must be given.
    doc
        One line.
    """

    convert: Callable[[Any], object]
    expected: str
    default: object = REQUIRED
    doc: str = ""


@dataclass(frozen=True, slots=True)
class OpSchema:
    """Everything known about an op type.

    Attributes
    ----------
    type
        The name it is called by.
    num_inputs, num_outputs
        Smallest and largest count; a largest of ``None`` is no limit.
    args
        The arguments by name.
    kernel
        Runs it.
    doc
        What it does; the docstring of ``ops.<type>``.
    default_outputs
        How many outputs are named automatically when the caller does not mention any.
    inplace
        Whether an output may be one of the inputs.
    check
        Looks at the whole op once counts and arguments are right; raises BuildError.
    native
        A kernel in native code, a capsule named ``jobcore.kernel``, which is tried before `kernel`; or None. See
        ``jobcore/_fast/program.pxd``.
    """

    type: str
    num_inputs: tuple[int, int | None]
    num_outputs: tuple[int, int | None]
    args: Mapping[str, ArgSpec]
    kernel: Kernel
    doc: str
    default_outputs: int = 1
    inplace: bool = False
    check: Callable[[Op], None] | None = field(default=None)
    native: object | None = None


_schemas: dict[str, OpSchema] = {}


def register_op(
    type: str,
    *,
    num_inputs: int | tuple[int, int | None],
    num_outputs: int | tuple[int, int | None],
    args: Mapping[str, ArgSpec] | None = None,
    default_outputs: int | None = None,
    inplace: bool = False,
    check: Callable[[Op], None] | None = None,
    native: object | None = None,
) -> Callable[[Kernel], Kernel]:
    """Register the decorated kernel as an op type; the kernel's docstring becomes the op's.

    Parameters
    ----------
    type
        The name, an identifier such as ``CountUp``.
    num_inputs, num_outputs
        A count, or smallest and largest count with ``None`` for no limit.
    args, default_outputs, inplace, check, native
        See `OpSchema`. `default_outputs` is 1 by default, within the limits of `num_outputs`. An op type of this
        library has its native kernel by its name.

    Returns
    -------
    callable
        Decorator that gives the kernel back unchanged.

    Raises
    ------
    BuildError
        The type exists already or is no identifier, the kernel has no docstring, or an argument has a name
        that every op call uses otherwise.
    """

    def register(kernel: Kernel) -> Kernel:
        if not type.isidentifier() or type.startswith("_"):
            raise BuildError(
                f"expected an identifier without a leading underscore as op type, found {type!r}"
            )
        doc = inspect.getdoc(kernel)
        if not doc:
            raise BuildError(f"the kernel of op type {type!r} has no docstring")
        reserved = {"inputs", "outputs", "name"}.intersection(args or ())
        if reserved:
            raise BuildError(f"op type {type!r} cannot have arguments named {', '.join(sorted(reserved))}")
        outputs = _bounds(num_outputs)
        most = outputs[1]
        default = max(outputs[0], 1 if most is None else min(1, most))
        entry = OpSchema(
            type=type,
            num_inputs=_bounds(num_inputs),
            num_outputs=outputs,
            args=MappingProxyType(dict(args or {})),
            kernel=kernel,
            doc=doc,
            default_outputs=default if default_outputs is None else default_outputs,
            inplace=inplace,
            check=check,
            native=native_kernel(type) if native is None else native,
        )
        # setdefault is one step under the interpreter lock, so two racing registrations cannot both win.
        if _schemas.setdefault(type, entry) is not entry:
            raise BuildError(f"op type {type!r} is registered already")
        return kernel

    return register


def _bounds(count: int | tuple[int, int | None]) -> tuple[int, int | None]:
    return (count, count) if isinstance(count, int) else count


def schema(type: str) -> OpSchema:
    """Return the schema of an op type.

    Raises
    ------
    BuildError
        There is no such op type; close names are listed.
    """
    found = _schemas.get(type)
    if found is None:
        raise BuildError(unknown_op(type))
    return found


def is_op(type: str) -> bool:
    """Return whether there is an op type of this name."""
    return type in _schemas


def all_ops() -> list[str]:
    """Return the names of all op types, sorted."""
    return sorted(_schemas)


def unknown_op(type: str) -> str:
    """Return the text of the error for an op type that does not exist."""
    folded = {name.casefold(): name for name in _schemas}
    close = [folded[name] for name in difflib.get_close_matches(type.casefold(), folded, cutoff=0.5)]
    return f"there is no op type {type!r}" + (f"; did you mean {' or '.join(close)}?" if close else "")


def make_op(
    type: str,
    inputs: Sequence[str],
    outputs: Sequence[str],
    args: Mapping[str, object],
    built_at: str,
    name: str = "",
) -> Op:
    """Check a call against its schema and return it as an `Op`.

    Raises
    ------
    BuildError
        Unknown type, wrong counts, unknown, missing or wrong arguments, an output named twice, or an
        output that is also an input where that cannot work.
    """
    known = schema(type)
    draft = Op(type, tuple(map(str, inputs)), tuple(map(str, outputs)), {}, built_at, name)
    _check_count(draft, "input", draft.inputs, known.num_inputs)
    _check_count(draft, "output", draft.outputs, known.num_outputs)
    if len(set(draft.outputs)) != len(draft.outputs):
        raise BuildError(f"{draft.describe()}: an output is named twice")
    if not known.inplace:
        both = [output for output in draft.outputs if output in draft.inputs]
        if both:
            raise BuildError(
                f"{draft.describe()}: {both[0]!r} is input and output, and this op cannot work in place",
                hint="give the output a name of its own",
            )
    checked = MappingProxyType(_check_args(draft, known, args))
    op = Op(type, draft.inputs, draft.outputs, checked, built_at, name)
    if known.check is not None:
        try:
            known.check(op)
        except JobcoreError as error:
            raise BuildError(f"{op.describe()}: {error.message}", hint=error.hint) from error
    return op


def _check_count(op: Op, what: str, found: tuple[str, ...], bounds: tuple[int, int | None]) -> None:
    least, most = bounds
    if len(found) >= least and (most is None or len(found) <= most):
        return
    if least == most:
        expected = f"{least or 'no'} {what}{'' if least == 1 else 's'}"
    elif most is None:
        expected = f"at least {least} {what}{'' if least == 1 else 's'}"
    else:
        expected = f"{least} to {most} {what}s"
    raise BuildError(f"{op.describe()}: expected {expected}, found {len(found)}")


def _check_args(op: Op, known: OpSchema, args: Mapping[str, object]) -> dict[str, object]:
    for name in args:
        if name not in known.args:
            takes = ", ".join(known.args) or "no arguments"
            raise BuildError(f"{op.describe()}: there is no argument {name!r}; it takes {takes}")
    checked: dict[str, object] = {}
    for name, spec in known.args.items():
        if name not in args:
            if spec.default is REQUIRED:
                raise BuildError(f"{op.describe()}: argument {name!r} is missing; expected {spec.expected}")
            checked[name] = spec.default
            continue
        value = args[name]
        try:
            checked[name] = spec.convert(value)
        except (TypeError, ValueError, OverflowError) as error:
            raise BuildError(
                f"{op.describe()}: argument {name!r}: expected {spec.expected}, "
                f"found {_shown(value)} ({error})",
            ) from error
    return checked


def _shown(value: object) -> str:
    text = repr(value)
    return f"{type(value).__name__} {text if len(text) <= 80 else text[:77] + '...'}"
