"""Plain callables as parts of a program: what can be called, and by what name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from jobcore.errors import BuildError

__all__ = ["check_runs", "check_step_function", "function_name"]


def function_name(function: object) -> str:
    """Return what to call a callable where it has no name of its own to show."""
    name = getattr(function, "__name__", None)
    if isinstance(name, str) and name and name != "<lambda>":
        return name
    return "function" if name else type(function).__name__


def check_runs(function: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Return `function` if it can be called, and a call runs its body.

    Raises
    ------
    BuildError
        It is not callable, or a generator or coroutine function.
    """
    if not callable(function):
        raise BuildError(f"{what}: expected a callable, found {type(function).__name__}: {function!r}")
    if inspect.iscoroutinefunction(function) or inspect.isasyncgenfunction(function):
        raise BuildError(
            f"{what}: {function!r} is a coroutine function; calling it would not run it",
            hint="pass a plain function that calls asyncio.run",
        )
    if inspect.isgeneratorfunction(function):
        raise BuildError(f"{what}: {function!r} is a generator function; calling it would not run it")
    return function


def check_step_function(
    function: Callable[..., object], what: str, arguments: tuple[str, ...] = ("workspace",)
) -> Callable[..., object]:
    """Return `function` if it can be called with as many positional arguments as `arguments` names.

    Raises
    ------
    BuildError
        It cannot, it is not callable, or a call would not run its body: a generator or a coroutine
        function.
    """
    check_runs(function, what)
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        # Many callables of compiled modules do not tell; they fail at run time if they do not fit.
        return function
    try:
        signature.bind(*arguments)
    except TypeError as error:
        wanted = ", ".join(arguments)
        raise BuildError(
            f"{what}: expected a callable that can be called with ({wanted}), "
            f"found {function_name(function)}{signature}: {error}"
        ) from error
    return function
