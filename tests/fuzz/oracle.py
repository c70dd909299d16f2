"""Whether a database that may be damaged is loaded as it is, or refused by an error that names file and place."""

from __future__ import annotations

import contextlib
import copy
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np

from fuzz import judge
from jobcore import Counter, Workspace
from jobcore.errors import FormatError, JobcoreError, MismatchError
from jobcore.store import inspect, load, open_database, verify

SECONDS = 20
HEADROOM = 1 << 30
#: Memory under a sanitizer is mapped in ways of its own.
BOUNDED = sys.platform == "linux" and "libasan" not in Path("/proc/self/maps").read_text()


class Finding(AssertionError):
    """A case that breaks a promise."""


class Hang(BaseException):
    """A case that takes far too long."""


@contextlib.contextmanager
def bounds() -> Iterator[None]:
    """Let neither time nor memory grow with what a file claims."""
    soft, hard = resource.getrlimit(resource.RLIMIT_AS)
    if BOUNDED:
        pages = int(Path("/proc/self/statm").read_text().split()[0])
        resource.setrlimit(resource.RLIMIT_AS, (pages * resource.getpagesize() + HEADROOM, hard))
    try:
        with _alarm() if threading.current_thread() is threading.main_thread() else contextlib.nullcontext():
            yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, (soft, hard))


@contextlib.contextmanager
def _alarm() -> Iterator[None]:
    def ring(*_: object) -> None:
        raise Hang(f"no answer within {SECONDS} s")

    # Somebody else may have set the clock, for the test as a whole; it goes on afterwards.
    before = signal.signal(signal.SIGALRM, ring)
    begun = time.monotonic()
    left, _ = signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
        if left:
            signal.setitimer(signal.ITIMER_REAL, max(0.001, left - (time.monotonic() - begun)))


class Oracle:
    """Holds everything that can be done with one database against what it says.

    Parameters
    ----------
    path
        The database.
    truth
        What it held before it was changed.
    repaired
        Whether checksums were made right after the change, so that it may say something else now. If not, it must
        give the truth or nothing.
    """

    def __init__(self, path: Path, truth: dict[str, Any], repaired: bool) -> None:
        self.path = path
        self.truth = truth
        self.repaired = repaired
        self._said: judge.Said | None = None
        #: What was done, and what came of it.
        self.outcome: dict[str, str] = {}

    def check(self) -> dict[str, str]:
        """Do it all; give what came of each."""
        with bounds(), contextlib.closing(self):
            self._verify()
            info = self._try("inspect", lambda: inspect(self.path))
            self._try("text", lambda: (repr(info), str(info)))
            if (loaded := self._try("load", lambda: load(self.path))) is not None:
                if list(loaded) != self._says().names:
                    raise Finding(
                        f"loaded the blobs {list(loaded)!r:.300}, but it says {self._says().names!r:.300}"
                    )
                self._compare(loaded, list(loaded))
            self._in_place(np.ascontiguousarray)
            self._in_place(_strided)
            self._workspace()
            if info is not None:
                self._parts([blob.name for blob in info.blobs])
        return self.outcome

    def close(self) -> None:
        if self._said is not None:
            self._said.close()

    def _try(self, what: str, act: Callable[[], Any], also: tuple[type[JobcoreError], ...] = ()) -> Any:
        try:
            found = act()
        except FormatError as error:
            self._check_error(what, error)
        except also as error:
            if str(self.path) not in str(error):
                raise Finding(f"{what}: the error does not name the file: {error!r}") from error
            self.outcome[what] = type(error).__name__
        except Hang as error:
            raise Finding(f"{what}: {error}") from error
        except Exception as error:
            raise Finding(
                f"{what}: expected a FormatError, found {type(error).__name__}: {error!s:.500}"
            ) from error
        else:
            self.outcome[what] = "good"
            return found
        return None

    def _check_error(self, what: str, error: FormatError) -> None:
        self.outcome[what] = type(error).__name__
        text = str(error)
        if str(self.path) not in text or error.path != str(self.path):
            raise Finding(
                f"{what}: the error does not name the file: {text:.500} ({error.path!r})"
            ) from error
        if not error.place:
            raise Finding(f"{what}: the error does not name the place: {text:.500}") from error
        if len(text) > 20_000:
            raise Finding(f"{what}: the error has {len(text)} characters: {text:.200}") from error
        try:
            text.encode()
        except UnicodeEncodeError as lone:
            raise Finding(f"{what}: the error cannot be printed: {text!a:.500}") from lone

    def _verify(self) -> None:
        report = self._try("verify", lambda: verify(self.path))
        if report is None:
            raise Finding("verify: it raised an error in place of a report")
        for fault in report.faults:
            if not fault.place or not fault.message:
                raise Finding(f"verify: a fault without its place or message: {fault}")
            try:
                repr(report).encode()
                str(fault).encode()
            except UnicodeEncodeError as lone:
                raise Finding(f"verify: the report cannot be printed: {fault!a:.500}") from lone
        self.outcome["verify"] = "good" if report.ok else "faults"

    def _says(self) -> judge.Said:
        if self._said is None:
            try:
                self._said = judge.Said(self.path)
            except Exception as error:
                raise Finding(f"it was loaded, but says nothing: {_text(error)}") from error
        return self._said

    def _value(self, name: str) -> tuple[str, Any]:
        try:
            return self._says().value(name)
        except Finding:
            raise
        except Exception as error:
            raise Finding(f"blob {name!r:.100}: it was loaded, but says nothing: {_text(error)}") from error

    def _compare(self, found: dict[str, Any], names: list[str]) -> None:
        for name in names:
            kind, value = self._value(name)
            if not judge.same(found[name], kind, value):
                raise Finding(
                    f"blob {name!r:.100}: loaded {found[name]!r:.300}, but it says {kind} {value!r:.300}"
                )
            if not self.repaired and not _same_as_truth(found[name], self.truth.get(name)):
                raise Finding(f"blob {name!r:.100}: loaded {found[name]!r:.300}, and not the true value")

    def _in_place(self, make: Callable[[Any], Any]) -> None:
        # Into arrays of the shapes that the database had: it may not say them any more.
        arrays = {name: make(np.zeros_like(a)) for name, a in self.truth.items() if type(a) is np.ndarray}
        for array in arrays.values():
            fill(array)
        places = {
            **arrays,
            **{name: _handle(value) for name, value in self.truth.items() if _has_handle(value)},
        }
        what = f"in place, {make.__name__}"
        names = None if len(places) == len(self.truth) else list(places)
        found = self._try(what, lambda: load(self.path, names, into=places), (MismatchError,))
        if found is not None:
            self._compare(found, list(places))
        elif self.outcome[what] == "MismatchError" or self.outcome["inspect"] != "good":
            for name, array in arrays.items():
                if not untouched(array):
                    raise Finding(f"{what}: {name!r:.100} was touched before the error")

    def _workspace(self) -> None:
        workspace = Workspace()
        for name, array in self.truth.items():
            if type(array) is np.ndarray:
                workspace.feed(name, np.zeros_like(array))
        if self._try("workspace", lambda: load(self.path, into=workspace)) is not None:
            names = self._says().names
            self._compare({name: _held(workspace, name) for name in names}, names)

    def _parts(self, names: list[str]) -> None:
        def subset() -> dict[str, Any]:
            return load(self.path, names[::2])

        def rows() -> dict[str, Any]:
            found = {}
            with open_database(self.path) as database:
                for name in names[:8]:
                    with contextlib.suppress(MismatchError):
                        found[name] = database.read(name, slice(1, 3))
            return found

        if (found := self._try("subset", subset)) is not None:
            self._compare(found, names[::2])
        if (found := self._try("rows", rows)) is not None:
            for name, array in found.items():
                if not array.size:
                    continue
                if not self.repaired:
                    kind, value = judge.as_said(self.truth.get(name))
                else:
                    try:
                        kind, value = self._value(name)
                    except Finding:  # what is wrong may lie in other rows
                        continue
                if kind != "tensor" or not judge.same(array, kind, value[1:3]):
                    raise Finding(
                        f"rows of {name!r:.100}: read {array!r:.300}, but it says {kind} {value!r:.300}"
                    )


def _text(error: Exception) -> str:
    return f"{type(error).__name__}: {error!s:.300}"


def _held(workspace: Workspace, name: str) -> Any:
    blob = workspace.blob(name)
    return blob.view() if blob.kind == "tensor" else blob.fetch()


def _has_handle(value: Any) -> bool:
    return isinstance(value, Counter | random.Random | np.random.RandomState | np.random.Generator)


def _handle(value: Any) -> Any:
    return Counter() if isinstance(value, Counter) else copy.deepcopy(value)


def _strided(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    if array.ndim == 0:
        return array
    return np.zeros((*array.shape[:-1], 2 * array.shape[-1]), array.dtype)[..., ::2]


def fill(array: np.ndarray[Any, Any]) -> None:
    """Put the byte 0x5A everywhere."""
    size = array.dtype.itemsize
    array.view(np.dtype((np.void, size)))[...] = np.void(b"Z" * size)


def untouched(array: np.ndarray[Any, Any]) -> bool:
    """Whether the byte is still everywhere."""
    size = array.dtype.itemsize
    return array.view(np.dtype((np.void, size))).tobytes() == b"Z" * (size * array.size)


def _same_as_truth(found: Any, true: Any) -> bool:
    kind, value = judge.as_said(true)
    if kind == "other":
        # Generators have no equality; that they are what the file says was found out already.
        return type(found) is type(true) and (not isinstance(true, str | bytes) or found == true)
    return judge.same(found, kind, value)
