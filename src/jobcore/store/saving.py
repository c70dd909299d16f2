"""One save under way: a temporary database, and the steps that lead to its final name.

Data are synced before the database gets its name, and the directory after it; so what has a final name is whole.
"""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections import Counter
from contextlib import AbstractContextManager
from typing import Any

from jobcore._fast.descriptor import Descriptor
from jobcore.errors import FormatError, SaveError
from jobcore.store import containers, files, publishing, syncing
from jobcore.store.container import Content, Written
from jobcore.store.dirformat import is_database
from jobcore.store.records import WriteResult
from jobcore.store.telling import Telling
from jobcore.store.verification import verify as verify_file
from jobcore.tracing import span

__all__ = ["Saving"]

_HINTS = {
    errno.EACCES: "choose a directory that you may write to",
    errno.EFBIG: "raise the limit of the size of files (ulimit -f), or choose another file system",
    errno.EISDIR: "choose another name, or remove the directory; only a database is replaced",
    errno.EMFILE: "close files, or raise the limit of open files (ulimit -n)",
    errno.ENOENT: "make the directory first",
    errno.EROFS: "choose a file system that can be written to",
}


class Saving:
    """A save that was begun: its place was checked, and its temporary database exists.

    Parameters
    ----------
    final
        Absolute path.
    content
        What to write.
    base
        Absolute path of a database to share chunks with.
    durable, overwrite, verify
        As for :func:`jobcore.save`.
    publish
        Whether :meth:`finish` gives the database its name. If not, it is given together with those of other files.

    Attributes
    ----------
    step
        What it does at the moment, for people.

    Raises
    ------
    SaveError
        The place cannot be written.

    Notes
    -----
    One thread at a time. :meth:`finish` or :meth:`abandon` must follow. Where `publish` is False it is one of
    :meth:`finish` and :meth:`write`, and after it :meth:`learn_synced` while there is something :attr:`unsynced`,
    :meth:`publish` and :meth:`settle`, in this order; when any of them fails, :meth:`withdraw`.
    """

    def __init__(
        self,
        final: str,
        content: Content,
        *,
        base: str | None,
        durable: bool,
        overwrite: bool,
        verify: bool,
        publish: bool = True,
    ) -> None:
        self.final = final
        self.step = "begun"
        table = content.table
        self.needed = sum(
            count * table.specs[index].chunk_bytes * table.specs[index].chunks
            for index, count in Counter(table.spec).items()
        )
        self._content: Content | None = content
        self._blobs, self._skipped = table.count, content.header.skipped
        self._durable, self._overwrite, self._verify = durable, overwrite, verify
        self._ends_named, self._naming = publish, False
        self._written: Written | None = None
        self._directory: Descriptor | None = None
        self._process = os.getpid()
        self._loose = False
        try:
            if publish:
                # Opened first: a missing directory is told before anything is written.
                self._directory = syncing.open_directory(os.path.dirname(final))  # noqa: PTH120 - paths are plain text here
            _check_place(final, overwrite, content.header.container)
            self._out = containers.create(content.header.container, final, durable=durable, base=base)
            self._loose = True
        except BaseException as error:
            self._close_directory()
            if isinstance(error, OSError) and not isinstance(error, SaveError):
                raise self._error(error) from error
            raise

    def __del__(self) -> None:
        # An interrupt between two steps of a save leaves nobody who could remove what was begun. A child that was
        # forked meanwhile has a copy of this, and must leave the file alone.
        if self.__dict__.get("_loose") and self._process == os.getpid():
            self._remove()

    @property
    def written_bytes(self) -> int:
        """How much of the database is in its file, in bytes."""
        try:
            return files.tree_size(self._out.temporary)
        except OSError:
            return 0

    @property
    def content(self) -> Content:
        """What is saved."""
        assert self._content is not None
        return self._content

    def stage(self) -> None:
        """Copy what may change, so that the rest may be done later, in another thread."""
        self.step = "copying"
        try:
            with self._span("copy"):
                self._out.stage(self.content)
        except BaseException:
            self.abandon()
            raise

    def finish(self) -> WriteResult:
        """Write, sync and publish; what is not to be published is only written and synced.

        Returns
        -------
        WriteResult
            What was written.

        Raises
        ------
        SaveError
            The file system failed; nothing was changed.
        """
        try:
            with self._telling(), self._span("write"):
                written = self._write()
                self._sync(written)
                if self._ends_named:
                    self._publish()
                    self.settle()
        finally:
            # What was saved must not be kept alive by whoever still waits for the result.
            self._content = None
        return self._result(written)

    def abandon(self) -> None:
        """Remove what was begun."""
        self._content = None
        self._remove()

    # -- the steps of `finish`, for what gets its name together with others; see `publishing.publish_together`

    @property
    def unsynced(self) -> int:
        """Descriptor of what :meth:`write` wrote, for others to force to the disk; -1 when all of it is there."""
        return -1 if self._written is None else self._out.descriptor

    def write(self) -> WriteResult:
        """Write what is not to be published yet, and leave it to others to force it to the disk; see :attr:`unsynced`.

        Where it is not one file, it is forced to the disk here.

        Raises
        ------
        SaveError
            The file system failed; nothing is left behind.
        """
        try:
            with self._telling(), self._span("write"):
                written = self._write()
                if self._out.descriptor < 0:
                    self._sync(written)
                else:
                    self._written = written
        finally:
            self._content = None
        return self._result(written)

    def learn_synced(self, error: OSError | None) -> None:
        """Learn that what :meth:`write` wrote is on the disk, or raise what that failed with."""
        written = self._written
        assert written is not None
        with self._telling():
            if error is not None:
                raise error
            self._end(written)
        self._written = None

    def publish(self) -> None:
        """Give the database its name, which the directory must be synced for."""
        with self._telling():
            self.step = "publishing"
            self._naming = True
            publishing.publish(self._out.temporary, self.final)

    def settle(self) -> None:
        """Learn that the directory has been synced."""
        self.step, self._loose = "done", False
        self._close_directory()

    def withdraw(self) -> bool:
        """Remove it, whatever name it has, for nobody may rely on it; return whether its final name is free of it.

        May be repeated.
        """
        naming, self._naming = self._naming, False
        gone = not naming or publishing.take_back(self._out.temporary, self.final)
        self._remove()
        return gone

    # -- inside

    def _write(self) -> Written:
        try:
            self.step = "writing"
            return self._out.write(self.content)
        except BaseException:
            self._remove()
            raise

    def _sync(self, written: Written) -> None:
        try:
            if self._durable:
                self.step = "syncing"
                self._out.sync()
        except BaseException:
            self._remove()
            raise
        self._end(written)

    def _end(self, written: Written) -> None:
        try:
            self._out.close()
            if self._verify:
                self.step = "reading back"
                _reread(self._out.temporary, self.final, written.digest)
        except BaseException:
            self._remove()
            raise
        self.step = "written"

    def _publish(self) -> None:
        temporary, final = self._out.temporary, self.final
        self._loose = published = replaced = False
        try:
            self.step = "publishing"
            if self._overwrite:
                replaced = publishing.replace(temporary, final)
            else:
                publishing.publish(temporary, final)
                published = True
            if self._durable:
                assert self._directory is not None
                syncing.sync_directory(self._directory.number)
            if replaced:
                replaced = False  # from here on the old one may go, and must not come back
                files.remove_quietly(temporary)
        except BaseException:
            if replaced:
                # Back again: the new one may not survive a power cut, and the old one is still whole.
                with contextlib.suppress(OSError):
                    replaced = not publishing.replace(temporary, final)
            if not replaced:
                files.remove_quietly(temporary)
            if published:
                # Its name may be gone after a power cut, so nobody must be able to rely on it now.
                files.remove_quietly(final)
            self._close_directory()
            raise

    def _remove(self) -> None:
        self._loose = False
        try:
            self._out.close()
        finally:
            files.remove_quietly(self._out.temporary)
            self._close_directory()

    def _result(self, written: Written) -> WriteResult:
        return WriteResult(self.final, written.size_bytes, written.digest, self._blobs, self._skipped)

    def _telling(self) -> Telling:
        return Telling(self._error)

    def _span(self, what: str) -> AbstractContextManager[None]:
        header = self.content.header
        args: dict[str, Any] = (
            {"path": self.final} if header.epoch is None else {"path": self.final, "epoch": header.epoch}
        )
        return span(f"{what} {os.path.basename(self.final)}", "save", header.node, **args)  # noqa: PTH119 - plain text

    def _close_directory(self) -> None:
        if self._directory is not None:
            self._directory.close_quietly()

    def _error(self, error: OSError) -> SaveError:
        reason = error.strerror or str(error)
        hint = None
        if error.errno == errno.EEXIST:
            hint = "choose another name" + (
                ", or pass overwrite=True" if reason == os.strerror(errno.EEXIST) else ""
            )
        elif error.errno in _HINTS:
            hint = _HINTS[error.errno]
        elif error.errno in (errno.ENOSPC, errno.EDQUOT):
            reason += f"; its data takes {self.needed:,} bytes, and {_free(self.final)} bytes are free"
            hint = "make room, or raise the quota"
        raised = SaveError(f"{self.final}: the database could not be written: {reason}", hint=hint)
        raised.errno, raised.strerror, raised.filename = error.errno, error.strerror, self.final
        return raised


def _check_place(final: str, overwrite: bool, db_type: str) -> None:
    # Publishing would find all this out too, but only after everything was written.
    try:
        mode = os.lstat(final).st_mode
    except FileNotFoundError:
        return
    replaceable = db_type == "zarr" and stat.S_ISDIR(mode) and is_database(final)
    if stat.S_ISDIR(mode) and overwrite and not replaceable:
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), final)
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        # Whoever may do anything would else put a file in the place of /dev/null.
        raised = SaveError(
            f"{final}: expected a new name or that of a database, found a device, pipe or socket",
            hint="choose another name",
        )
        raised.errno, raised.strerror, raised.filename = errno.EEXIST, os.strerror(errno.EEXIST), final
        raise raised
    if not overwrite:
        what = "Is a directory" if stat.S_ISDIR(mode) and not replaceable else os.strerror(errno.EEXIST)
        raise FileExistsError(errno.EEXIST, what, final)


def _reread(temporary: str, final: str, digest: str) -> None:
    report = verify_file(temporary, digest=digest)
    if report.ok:
        return
    found = "; ".join(map(str, report.faults[:5]))
    raised = SaveError(
        f"{final}: what was written could not be read back: {found}",
        hint="the disk, its driver or the memory is at fault; nothing was changed",
    )
    raised.errno, raised.strerror, raised.filename = errno.EIO, os.strerror(errno.EIO), final
    first = report.faults[0]
    raise raised from FormatError(f"{temporary}: {first.message}", path=temporary, place=first.place)


def _free(final: str) -> str:
    try:
        found = os.statvfs(os.path.dirname(final))  # noqa: PTH120 - paths are plain text here
    except OSError:
        return "an unknown number of"
    return f"{found.f_bavail * found.f_frsize:,}"
