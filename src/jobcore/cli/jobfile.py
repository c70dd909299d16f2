"""Loads the Python file that defines a job, and calls its ``build_job`` with the values of ``--set``."""

from __future__ import annotations

import difflib
import importlib.util
import inspect
import os
import stat
import sys
import types
import typing
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import Any

from jobcore.cli.convert import Unfit, convert, type_name

__all__ = ["JobFile", "JobFileError", "Parameter", "SettingError", "open_job_file", "parse_settings"]

BUILDER = "build_job"


class JobFileError(ValueError):
    """The file is not one that defines a job."""


class SettingError(ValueError):
    """A ``--set`` does not fit the parameters of ``build_job``."""


@dataclass(frozen=True, slots=True)
class Parameter:
    """One parameter of ``build_job``: its name, the type that its values have, and its default."""

    name: str
    type: Any
    default: Any = inspect.Parameter.empty

    @property
    def required(self) -> bool:
        """Whether there is no default."""
        return self.default is inspect.Parameter.empty

    def describe(self) -> tuple[str, str, str]:
        """Return name, type and default as text."""
        return self.name, type_name(self.type), "(required)" if self.required else f"= {self.default!r}"


class JobFile:
    """A loaded job file.

    Parameters
    ----------
    path
        As it was given, for messages.
    builder
        Its ``build_job``.

    Raises
    ------
    JobFileError
        ``build_job`` cannot be called by parameter names.
    """

    def __init__(self, path: str, builder: Callable[..., object]) -> None:
        self.path = path
        self._builder = builder
        self.parameters: dict[str, Parameter] = {}
        self._others: Parameter | None = None
        try:
            signature = inspect.signature(builder)
        except (TypeError, ValueError) as error:
            raise JobFileError(f"{path}: the parameters of {BUILDER} cannot be read: {error}") from error
        types_ = _annotations(builder)
        for name, found in signature.parameters.items():
            parameter = Parameter(
                name, _wanted(types_.get(name, found.annotation), found.default), found.default
            )
            if found.kind is found.VAR_KEYWORD:
                self._others = parameter
            elif found.kind is found.POSITIONAL_ONLY:
                raise JobFileError(
                    f"{path}: expected parameters of {BUILDER} that can be given by name, "
                    f"found {name!r} before the slash"
                )
            elif found.kind is not found.VAR_POSITIONAL:
                self.parameters[name] = parameter

    def values(self, settings: Mapping[str, str]) -> dict[str, object]:
        """Convert the texts of ``--set`` to what the parameters want.

        Raises
        ------
        SettingError
            An unknown key, a value that does not fit, or a required parameter that is missing.
        """
        converted: dict[str, object] = {}
        for key, text in settings.items():
            parameter = self.parameters.get(key, self._others)
            if parameter is None:
                raise SettingError(self._unknown(key))
            try:
                converted[key] = convert(text, parameter.type)
            except Unfit as error:
                raise SettingError(f"--set {key}: expected {error}, found {text!r}") from None
        missing = [p.name for p in self.parameters.values() if p.required and p.name not in converted]
        if missing:
            needed = " ".join(f"--set {name}=..." for name in missing)
            raise SettingError(f"{self.path}: {BUILDER} needs {needed}\n{self._listing()}")
        return converted

    def build(self, values: Mapping[str, object]) -> Any:
        """Call ``build_job`` and return its job.

        Raises
        ------
        JobFileError
            It returned something else.
        """
        from jobcore.job import Job

        job = self._builder(**values)
        if isinstance(job, Job):
            return job
        hint = ""
        if job is None:
            hint = f"; does {BUILDER} end with 'return job'?"
        elif inspect.iscoroutine(job):
            job.close()
            hint = f"; {BUILDER} must not be async"
        raise JobFileError(
            f"{self.path}: expected {BUILDER} to return a Job, found {type(job).__name__}{hint}"
        )

    def _unknown(self, key: str) -> str:
        close = difflib.get_close_matches(key, self.parameters, 1)
        meant = f"; did you mean {close[0]!r}?" if close else ""
        return f"--set {key}: {BUILDER} of {self.path} has no parameter {key!r}{meant}\n{self._listing()}"

    def _listing(self) -> str:
        if not self.parameters:
            return f"{BUILDER} has no parameters."
        rows = [parameter.describe() for parameter in self.parameters.values()]
        wide = [max(len(row[column]) for row in rows) for column in (0, 1)]
        lines = [f"  {name:{wide[0]}}  {kind:{wide[1]}}  {default}" for name, kind, default in rows]
        return "\n".join([f"Parameters of {BUILDER}:", *lines])


def parse_settings(pairs: Iterable[str]) -> dict[str, str]:
    """Split ``key=value`` texts.

    Raises
    ------
    SettingError
        A text has no key or no equals sign, or a key comes twice.
    """
    found: dict[str, str] = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        key = key.strip()
        if not equals or not key.isidentifier():
            raise SettingError(f"--set: expected key=value, found {pair!r}")
        if key in found:
            raise SettingError(f"--set {key}: expected one value, found {found[key]!r} and {text!r}")
        found[key] = text
    return found


@contextmanager
def open_job_file(path: str | os.PathLike[str]) -> Iterator[JobFile]:
    """Import a job file by its path, under a private module name, and forget it at the end.

    Within the block the file's directory stands first on ``sys.path``, as for a script, so that what lies beside it can
    be imported, also late. The name is not ``__main__``, so the part for scripts does not run.

    Raises
    ------
    JobFileError
        There is no such file, or it has no ``build_job``.
    Exception
        Whatever the file itself raises.
    """
    shown = os.fspath(path)
    file = _existing(shown)
    directory = str(file.parent)
    name = "_jobcore_job_" + "".join(c if c.isalnum() else "_" for c in file.stem)
    spec = importlib.util.spec_from_file_location(name, file, loader=_FreshLoader(name, str(file)))
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    # Dataclasses, pickle and get_type_hints look a class's module up by its name.
    before = sys.modules.get(name)
    sys.modules[name] = module
    sys.path.insert(0, directory)
    try:
        try:
            spec.loader.exec_module(module)
        except SystemExit as stop:
            raise JobFileError(
                f"{shown}: expected a file that can be imported, found that it exits (status {stop.code}); "
                "put the part for scripts under: if __name__ == '__main__'"
            ) from stop
        yield JobFile(shown, _builder(module, shown))
    finally:
        if directory in sys.path:
            sys.path.remove(directory)
        if before is None:
            sys.modules.pop(name, None)
        else:
            sys.modules[name] = before


class _FreshLoader(SourceFileLoader):
    """Compiles the source each time.

    The cache of byte code knows a file by its second and its size: after a quick edit it would run the old code.
    """

    def path_stats(self, path: Any) -> Mapping[str, Any]:
        raise OSError(f"no cache for {path}")


def _existing(shown: str) -> Path:
    file = Path(os.path.expanduser(shown))  # noqa: PTH111 - Path refuses the home of a user that is not there
    try:
        mode = file.stat().st_mode
        if stat.S_ISREG(mode):
            file.open("rb").close()  # may it be read? What the file itself fails with is told otherwise
    except (FileNotFoundError, NotADirectoryError):
        mode = 0
    except (OSError, ValueError) as error:
        raise JobFileError(
            f"expected a Python file that defines {BUILDER}, found a path that cannot be read: {shown}: "
            f"{getattr(error, 'strerror', None) or error}"
        ) from None
    if stat.S_ISDIR(mode):
        raise JobFileError(f"expected a Python file that defines {BUILDER}, found the directory {shown}")
    if not mode:
        close = difflib.get_close_matches(file.name, _python_files(file.parent), 1)
        meant = f"; did you mean {file.with_name(close[0])}?" if close else ""
        raise JobFileError(f"expected a Python file that defines {BUILDER}, found no file {shown}{meant}")
    return file.resolve()


def _python_files(directory: Path) -> list[str]:
    return sorted(path.name for path in directory.glob("*.py")) if directory.is_dir() else []


def _builder(module: types.ModuleType, shown: str) -> Callable[..., object]:
    builder = getattr(module, BUILDER, None)
    if builder is None:
        functions = [
            name
            for name, thing in vars(module).items()
            if inspect.isfunction(thing) and thing.__module__ == module.__name__ and not name.startswith("_")
        ]
        found = f"the functions {', '.join(functions)}" if functions else "no functions"
        raise JobFileError(f"{shown}: expected a function {BUILDER} that returns a Job, found {found}")
    if not callable(builder):
        raise JobFileError(f"{shown}: expected a function {BUILDER}, found {type(builder).__name__}")
    return typing.cast("Callable[..., object]", builder)


def _annotations(builder: Callable[..., object]) -> dict[str, Any]:
    """Return the evaluated annotations, or none when one of them names what exists for type checkers only."""
    target = builder if inspect.isroutine(builder) else type(builder).__call__
    try:
        return typing.get_type_hints(inspect.unwrap(target), include_extras=True)
    except Exception:  # noqa: BLE001 - an annotation is code of the file's own and may raise anything
        return {}


_BY_NAME: dict[str, Any] = {"int": int, "float": float, "bool": bool, "str": str}


def _wanted(annotation: Any, default: Any) -> Any:
    """Return the type of a parameter: its annotation, else the type of its default, else anything."""
    if isinstance(annotation, str):
        annotation = _BY_NAME.get(annotation, inspect.Parameter.empty)
    if annotation is not inspect.Parameter.empty:
        # def f(rate: float = None) means that None will do.
        return annotation | None if default is None and isinstance(annotation, type) else annotation
    if default is inspect.Parameter.empty or default is None:
        return Any
    return type(default)
