"""Saves in the background: a copy is taken while the caller waits, and written while the caller trains.

Two moments can be waited for. *Staged*: the blobs may change. *Committed*: the database has its final name and, if it
is to be durable, survives a power cut. An error between the two is never lost: it is raised by whoever waits, or else
by the next save; and it is in the log.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from jobcore.errors import ClosedError, SaveTimeoutError
from jobcore.store.records import WriteResult
from jobcore.store.saving import Saving
from jobcore.store.workers import Owner, is_ending
from jobcore.store.write import begin

__all__ = ["BackgroundSaver", "PendingSave", "save_async"]

_log = logging.getLogger("jobcore.store")
_MiB = 1 << 20
_VIEWS = (np.ndarray, memoryview)
# Modules whose objects may be changed by somebody, though an array shows them read-only.
_MUTABLE = {"builtins", "array", "ctypes", "_ctypes", "mmap", "multiprocessing", "numpy"}


class PendingSave:
    """A save that goes on in the background; made by :func:`save_async` and :class:`BackgroundSaver`.

    Attributes
    ----------
    path : str
        Where the database will be.

    Notes
    -----
    Thread-safe. A forked child cannot wait for a save of its parent.
    """

    def __init__(self, saving: Saving) -> None:
        self.path = saving.final
        self._saving = saving
        self._staged = threading.Event()
        self._ended = threading.Event()
        self._result: WriteResult | None = None
        self._error: BaseException | None = None
        self._told = False
        self._process = os.getpid()
        self._owner = Owner()  # of writing it, or abandoning it
        self._begun = time.monotonic()

    def __repr__(self) -> str:
        return f"<jobcore.PendingSave {self.path!r}: {self._state()}>"

    @property
    def staged(self) -> bool:
        """Whether the blobs may change."""
        return self._staged.is_set()

    @property
    def done(self) -> bool:
        """Whether it has ended, well or not."""
        return self._ended.is_set()

    @property
    def error(self) -> BaseException | None:
        """What it failed with, or None; asking counts as having been told."""
        if self._ended.is_set():
            self._told = True
        return self._error

    def wait_staged(self, timeout: float | None = None) -> None:
        """Wait until the blobs may change.

        Parameters
        ----------
        timeout
            In seconds; None waits for ever.

        Raises
        ------
        SaveTimeoutError
            It takes longer; the text says what is still missing. The save goes on.
        SaveError
            It has failed.
        """
        self._wait(self._staged, timeout, "staged")
        if self._error is not None:
            self._raise(self._error)

    def wait(self, timeout: float | None = None) -> WriteResult:
        """Wait until the database is committed.

        Parameters
        ----------
        timeout
            In seconds; None waits for ever.

        Returns
        -------
        WriteResult
            As :func:`jobcore.save` returns it.

        Raises
        ------
        SaveTimeoutError
            It takes longer; the text says what is still missing. The save goes on.
        SaveError
            It has failed; nothing was changed.
        """
        self._wait(self._ended, timeout, "committed")
        if self._error is not None:
            self._raise(self._error)
        assert self._result is not None
        return self._result

    def _wait(self, event: threading.Event, timeout: float | None, what: str) -> None:
        if self._process != os.getpid():
            raise ClosedError(
                f"{self.path}: expected a save of this process, found one of process {self._process}",
                hint="wait for saves before the process forks",
            )
        if not event.wait(timeout):
            raise SaveTimeoutError(
                f"{self.path}: expected the save to be {what} within {timeout} s, found it {self._state()}",
                hint="it goes on: wait again, with more time",
            )

    def _raise(self, error: BaseException) -> None:
        self._told = True
        raise error

    def _state(self) -> str:
        if self._ended.is_set():
            return "failed" if self._error is not None else "committed"
        saving = self._saving
        seconds = time.monotonic() - self._begun
        return (
            f"{saving.step} after {seconds:.1f} s: {saving.written_bytes / _MiB:,.1f} of about "
            f"{saving.needed / _MiB:,.1f} MiB in the file"
        )

    def _abandon(self, error: BaseException) -> bool:
        """Remove what was begun, unless its thread has it already; return whether it was removed."""
        if not self._owner.may_be("caller"):
            return False
        self._error, self._told = error, True
        self._staged.set()
        self._ended.set()
        self._saving.abandon()
        return True

    def _run(self, who: str = "thread") -> None:
        if not self._owner.may_be(who):
            return
        try:
            self._result = self._saving.finish()
        except BaseException as error:  # noqa: BLE001 - whatever it is, it belongs to whoever waits
            error.add_note(f"while {self.path} was saved in the background")
            self._error = error
            _log.error("%s: the save in the background failed: %s", self.path, error)
        finally:
            self._staged.set()
            self._ended.set()


def unpublished(save: PendingSave) -> Saving:
    """Return what gives a database its name that was written with ``publish=False``."""
    return save._saving


class BackgroundSaver:
    """Saves databases in the background, one after the other.

    A save waits for the one before it, so that there is one copy of the state at most, and raises what that one failed
    with. Leaving the context waits for the last one.

    Notes
    -----
    Thread-safe, and a signal handler may save in the middle of a save: then there are two copies of the state for a
    moment, and the save of the handler may be committed before the one that it interrupted.

    The end of the process waits for a save that is under way; one that is begun later still, by a function of
    `atexit` or a finalizer, is written before it returns. A process that is killed leaves a hidden temporary file and
    no database.

    Examples
    --------
    >>> import numpy as np, jobcore
    >>> with jobcore.BackgroundSaver() as saver:  # doctest: +SKIP
    ...     for epoch in range(3):
    ...         saver.save(f"epoch{epoch}.zarr.zip", {"w": np.zeros(4)})
    """

    def __init__(self) -> None:
        # Held while a save is begun, so that saves keep their order.
        self._lock = threading.RLock()
        self._begun: list[PendingSave] = []  # in order; one at most, unless a signal handler has saved too
        self._beginning = False
        self._process = os.getpid()

    def __enter__(self) -> BackgroundSaver:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None:
            self.wait()
            return
        try:
            self.wait()
        except Exception as failure:  # noqa: BLE001 - the error that is on its way says more; this one goes with it
            error.add_note(f"and a save in the background failed: {failure}")

    def save(
        self, path: str | os.PathLike[str], blobs: Mapping[str, object], *, copy: bool = True, **options: Any
    ) -> PendingSave:
        """Take a copy of the blobs, and save them in the background.

        Parameters
        ----------
        path, blobs
            As for :func:`jobcore.save`.
        copy
            Whether the blobs may be changed as soon as this returns. With False nothing is copied: they must not be
            changed before the save is committed. Read-only arrays whose memory nobody can write, such as those of
            JAX, are never copied.
        **options
            Any other parameter of :func:`jobcore.save`.

        Returns
        -------
        PendingSave
            Staged already.

        Raises
        ------
        SaveError
            The place cannot be written; or the save before this one failed and nobody has been told.
        UnsupportedBlobError, BlobValueError
            As for :func:`jobcore.save`.
        MemoryError
            The copy does not fit into memory.
        """
        if self._process != os.getpid():
            # Another thread of the parent may have held it, and does not live here to let it go.
            self._lock, self._begun, self._process = threading.RLock(), [], os.getpid()
        with self._lock:
            inside, self._beginning = self._beginning, True
            try:
                self._settle(inside=inside)
                return self._begin(begin(path, blobs, **options), copy=copy)
            finally:
                self._beginning = inside

    def wait(self, timeout: float | None = None) -> WriteResult | None:
        """Wait until the last save is committed.

        Parameters
        ----------
        timeout
            In seconds; None waits for ever.

        Returns
        -------
        WriteResult or None
            What it wrote; None when there was none.

        Raises
        ------
        SaveTimeoutError, SaveError
            As for :meth:`PendingSave.wait`.
        """
        result = None
        for pending in list(self._begun):
            if pending._process == os.getpid():
                result = pending.wait(timeout)
        return result

    def _begin(self, saving: Saving, *, copy: bool) -> PendingSave:
        pending = None
        try:
            pending = PendingSave(saving)
            if copy:
                stage(saving)
            pending._staged.set()
            self._begun.append(pending)
            if is_ending():
                # Nobody would wait for a thread, and it might never run.
                pending._run()
            else:
                # No daemon: the end of the interpreter waits for it, so a save that was begun is not cut off.
                threading.Thread(target=pending._run, name=f"save {Path(pending.path).name}").start()
        except BaseException as error:
            # An interrupt may find the thread at work: then the save is its own, and ends as any other.
            if pending is None:
                saving.abandon()
            elif pending._abandon(error):
                self._forget(pending)
            raise
        return pending

    def _settle(self, *, inside: bool) -> None:
        """Wait for the saves before; `inside` tells whether one of them is being begun by this very thread."""
        for pending in list(self._begun):
            if pending._process == os.getpid():
                if inside:
                    # Its thread may be yet to be started, by who waits for this to return.
                    pending._run("signal handler")
                pending._ended.wait()
            self._forget(pending)
            if pending._error is not None and not pending._told:
                pending._raise(pending._error)

    def _forget(self, pending: PendingSave) -> None:
        with contextlib.suppress(ValueError):  # a signal handler has done it meanwhile
            self._begun.remove(pending)


_default = BackgroundSaver()


def save_async(
    path: str | os.PathLike[str], blobs: Mapping[str, object], *, copy: bool = True, **options: Any
) -> PendingSave:
    """Take a copy of named values, and save them in the background, whole or not at all.

    Parameters
    ----------
    path, blobs
        As for :func:`jobcore.save`.
    copy
        As for :meth:`BackgroundSaver.save`.
    **options
        Any other parameter of :func:`jobcore.save`.

    Returns
    -------
    PendingSave
        To wait for. The blobs may be changed at once.

    Raises
    ------
    SaveError, UnsupportedBlobError, BlobValueError, MemoryError
        As for :meth:`BackgroundSaver.save`.

    Notes
    -----
    Thread-safe. It waits for the `save_async` before it, and raises what that one failed with if nobody else was told.

    Examples
    --------
    >>> import numpy as np, jobcore
    >>> pending = jobcore.save_async("model.zarr.zip", {"w": np.zeros(4)})  # doctest: +SKIP
    >>> pending.wait().path  # doctest: +SKIP
    """
    return _default.save(path, blobs, copy=copy, **options)


def stage(saving: Saving) -> None:
    """Copy what may change of a save that was begun."""
    content = saving.content
    verdicts: dict[type, bool] = {}
    frozen = [is_immutable(array, verdicts) for array in content.arrays]
    held = sum(array.nbytes for array, keep in zip(content.arrays, frozen, strict=True) if keep)
    if 2 * held >= sum(array.nbytes for array in content.arrays) and held:
        # Most of it cannot change. The rest is copied by itself, and all is written from where it is.
        content.arrays = [
            array if keep else array.copy() for array, keep in zip(content.arrays, frozen, strict=True)
        ]
        return
    saving.stage()


def is_immutable(array: np.ndarray[Any, Any], verdicts: dict[type, bool] | None = None) -> bool:
    """Tell whether nobody can change an array: it is read-only, and so is everything that it is a view of.

    `verdicts` keeps what was found of each type of owner, for the next array.
    """
    verdicts = {} if verdicts is None else verdicts
    base: Any = array
    while isinstance(base, _VIEWS):
        if isinstance(base, memoryview):
            base = base.obj  # JAX shows its arrays through one
        elif base.flags.writeable:
            return False
        else:
            base = base.base
    kind = type(base)
    verdict = verdicts.get(kind)
    if verdict is None:
        verdict = verdicts[kind] = _cannot_change(kind)
    return verdict


def _cannot_change(kind: type) -> bool:
    # Helpers of NumPy and of the standard library hide who may write; a mapped file can change under us.
    module = kind.__module__.partition(".")[0]
    return (
        issubclass(kind, (type(None), bytes))
        or kind.__name__ == "PyCapsule"  # of an exporter that said nobody may write
        or module not in _MUTABLE
    )
