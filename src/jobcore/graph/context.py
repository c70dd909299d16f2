"""Build-time contexts: what ``with job:``, ``with task:`` and ``with Node(...):`` make current.

Each managed class has one stack per thread; a new thread starts with empty stacks. Entering an object
pushes it on the stack of its class and of every managed class above it, and leaving takes exactly that
entry off again, whatever happened in between.
"""

from __future__ import annotations

import functools
import inspect
import threading
from collections.abc import Callable
from contextlib import ExitStack
from types import TracebackType
from typing import ClassVar, Literal, ParamSpec, Self, TypeVar, overload

from jobcore.errors import ContextError

__all__ = ["DefaultManaged", "Managed"]

P = ParamSpec("P")
R = TypeVar("R")


class Managed:
    """Base of the classes whose objects can be made current with ``with``.

    Subclasses that do more than become current override `_enter_context`, and `_leave_context` for what
    must happen on the way out.

    Notes
    -----
    Thread safety: stacks are per thread, so one object may be current in many threads at once.
    """

    _context_classes: ClassVar[tuple[type[Managed], ...]] = ()
    _abstract: ClassVar[bool] = True

    def __init_subclass__(cls, *, abstract: bool = False, **kwargs: object) -> None:
        super().__init_subclass__(**kwargs)
        cls._abstract = abstract
        cls._context_classes = tuple(
            c for c in cls.__mro__ if issubclass(c, Managed) and not c.__dict__["_abstract"]
        )

    @overload
    @classmethod
    def current(cls, value: Self | None = None, required: Literal[True] = True) -> Self: ...
    @overload
    @classmethod
    def current(cls, value: Self | None = None, *, required: bool) -> Self | None: ...
    @overload
    @classmethod
    def current(cls, value: Self | None, required: bool) -> Self | None: ...
    @classmethod
    def current(cls, value: Self | None = None, required: bool = True) -> Self | None:
        """Return `value` when given, else the object of this class entered last in this thread.

        Parameters
        ----------
        value
            An object to use in place of the current one; lets a function offer an optional argument.
        required
            With ``False``, ``None`` is returned when nothing is current.

        Raises
        ------
        TypeError
            `value` is of another class.
        ContextError
            Nothing is current and `required` is true.
        """
        if value is not None:
            if not isinstance(value, cls):
                raise TypeError(f"expected a {cls.__name__}, found {type(value).__name__}: {value!r}")
            return value
        stack = _stacks().get(cls)
        if stack:
            top = stack[-1].target
            assert isinstance(top, cls)
            return top
        return cls._default() if required else None

    @classmethod
    def _default(cls) -> Self:
        """Give the object to use when nothing is current."""
        raise ContextError(
            f"no {cls.__name__} is active in this thread",
            hint=f"build this inside a `with {cls.__name__}(...):` block of the same thread",
        )

    def _enter_context(self, inner: ExitStack) -> None:
        """Enter what goes with this object: contexts entered on `inner` are left before it is."""

    def _leave_context(self, error: BaseException | None) -> None:
        """Finish after the inner contexts were left; `error` is what the block raised, if anything."""

    def __enter__(self) -> Self:
        """Make this object current.

        A failure here leaves every stack as it was.
        """
        entry = _Entry(self)
        _push(entry)
        try:
            with entry.inner:
                self._enter_context(entry.inner)
                # Nothing failed: what was entered stays entered until __exit__.
                entry.inner = entry.inner.pop_all()
        except BaseException:
            _remove(entry)
            raise
        return self

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Take this object off the stacks again, also when the block or its own clean-up failed.

        Raises
        ------
        ContextError
            The object was not entered, or contexts entered after it are still open. In the second case
            it is off the stacks all the same and the others stay on. An exception that is already under
            way is not replaced: it gets a note.
        """
        entry = next((e for e in reversed(_stacks().get(type(self), ())) if e.target is self), None)
        if entry is None:
            raise ContextError(f"{_describe(self)} is left, but it was never entered in this thread")
        error = exc
        try:
            try:
                entry.inner.__exit__(exc_type, exc, traceback)
            except BaseException as failure:
                error = failure
                raise
            finally:
                self._leave_context(error)
        except BaseException as failure:
            _complain(_remove(entry), failure)
            raise
        disorder = _remove(entry)
        if disorder is not None:
            _complain(disorder, exc)
            if exc is None:
                raise ContextError(disorder, hint="leave contexts in the reverse order of entering them")

    def __call__(self, function: Callable[P, R]) -> Callable[P, R]:
        """Decorate `function`: each call runs with this object current.

        Raises
        ------
        TypeError
            `function` is a generator or a coroutine function: its body would run after the context was
            left again.
        """
        if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
            raise TypeError(f"{_describe(self)} cannot decorate the coroutine function {function!r}")
        if inspect.isgeneratorfunction(function):
            raise TypeError(f"{_describe(self)} cannot decorate the generator function {function!r}")

        @functools.wraps(function)
        def inside(*args: P.args, **kwargs: P.kwargs) -> R:
            with self:
                return function(*args, **kwargs)

        return inside


class DefaultManaged(Managed, abstract=True):
    """A managed class of which a fresh object serves when nothing is current.

    The fresh object is returned and forgotten: it is **not** left on the stack, so asking for the
    current object never changes what later code sees. (The stack this library descends from left it
    there for the rest of the process.)
    """

    @classmethod
    def _default(cls) -> Self:
        return cls()


class _Entry:
    """One entering of one object; the same entry sits on all the stacks it was pushed on."""

    __slots__ = ("inner", "target")

    def __init__(self, target: Managed) -> None:
        self.target = target
        self.inner = ExitStack()


class _Local(threading.local):
    def __init__(self) -> None:
        self.stacks: dict[type[Managed], list[_Entry]] = {}


_local = _Local()


def _stacks() -> dict[type[Managed], list[_Entry]]:
    return _local.stacks


def _push(entry: _Entry) -> None:
    stacks = _stacks()
    for cls in type(entry.target)._context_classes:
        stacks.setdefault(cls, []).append(entry)


def _remove(entry: _Entry) -> str | None:
    """Take `entry` off every stack; say what was above it, if anything."""
    stacks = _stacks()
    disorder: str | None = None
    for cls in type(entry.target)._context_classes:
        stack = stacks[cls]
        # Only this entry goes: those above it belong to blocks that are still running.
        place = next(i for i in range(len(stack) - 1, -1, -1) if stack[i] is entry)
        if disorder is None and place != len(stack) - 1:
            above = ", ".join(_describe(e.target) for e in stack[place + 1 :])
            disorder = f"{_describe(entry.target)} is left before what was entered inside it: {above}"
        del stack[place]
        if not stack:
            del stacks[cls]
    return disorder


def _complain(disorder: str | None, failure: BaseException | None) -> None:
    if disorder is not None and failure is not None:
        failure.add_note(disorder)


def _describe(target: Managed) -> str:
    name = getattr(target, "name", None)
    return f"{type(target).__name__} {name!r}" if isinstance(name, str) else type(target).__name__
