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

from jobcore.errors import FormatError, SaveError
from jobcore.store import containers, files, publishing, syncing
from jobcore.store.container import Content, Written
from jobcore.store.dirformat import is_database
from jobcore.store.records import WriteResult
from jobcore.store.verification import verify as verify_file
from jobcore.tracing import span

__all__ = ["Saving"]


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
    One thread at a time. :meth:`finish` or :meth:`abandon` must follow.
    """

    def __init__(
        self, final: str, content: Content, *, base: str | None, durable: bool, overwrite: bool, verify: bool
    ) -> None:
        self.final = final
        self.step = "begun"
        table = content.table
        self.needed = sum(
            count * table.specs[index].chunk_bytes * table.specs[index].chunks
            for index, count in Counter(table.spec).items()
        )
        self._content: Content | None = content
        self._durable, self._overwrite, self._verify = durable, overwrite, verify
        self._directory = -1
        try:
            # Opened first: a missing directory is told before anything is written.
            self._directory = syncing.open_directory(os.path.dirname(final))  # noqa: PTH120 - paths are plain text here
            _check_place(final, overwrite, content.header.container)
            self._out = containers.create(content.header.container, final, durable=durable, base=base)
        except BaseException as error:
            self._close_directory()
            if isinstance(error, OSError) and not isinstance(error, SaveError):
                raise self._error(error) from error
            raise

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
        """Write, sync and publish.

        Returns
        -------
        WriteResult
            What was written.

        Raises
        ------
        SaveError
            The file system failed; nothing was changed.
        """
        content = self.content
        try:
            with self._span("write"):
                written = self._publish(content)
        except SaveError:
            raise
        except OSError as error:
            raise self._error(error) from error
        finally:
            # What was saved must not be kept alive by whoever still waits for the result.
            self._content = None
            self._close_directory()
        self.step = "done"
        return WriteResult(
            self.final, written.size_bytes, written.digest, content.table.count, content.header.skipped
        )

    def abandon(self) -> None:
        """Remove what was begun."""
        self._content = None
        try:
            self._out.close()
        finally:
            files.remove_quietly(self._out.temporary)
            self._close_directory()

    def _publish(self, content: Content) -> Written:
        out, final = self._out, self.final
        published = replaced = False
        try:
            try:
                self.step = "writing"
                written = out.write(content)
                if self._durable:
                    self.step = "syncing"
                    out.sync()
            finally:
                out.close()
            if self._verify:
                self.step = "reading back"
                _reread(out.temporary, final, written.digest)
            self.step = "publishing"
            if self._overwrite:
                replaced = publishing.replace(out.temporary, final)
            else:
                publishing.publish(out.temporary, final)
                published = True
            if self._durable:
                syncing.sync_directory(self._directory)
            if replaced:
                replaced = False  # from here on the old one may go, and must not come back
                files.remove_quietly(out.temporary)
        except BaseException:
            if replaced:
                # Back again: the new one may not survive a power cut, and the old one is still whole.
                with contextlib.suppress(OSError):
                    replaced = not publishing.replace(out.temporary, final)
            if not replaced:
                files.remove_quietly(out.temporary)
            if published:
                # Its name may be gone after a power cut, so nobody must be able to rely on it now.
                files.remove_quietly(final)
            raise
        return written

    def _span(self, what: str) -> AbstractContextManager[None]:
        header = self.content.header
        args: dict[str, Any] = (
            {"path": self.final} if header.epoch is None else {"path": self.final, "epoch": header.epoch}
        )
        return span(f"{what} {os.path.basename(self.final)}", "save", header.node, **args)  # noqa: PTH119 - plain text

    def _close_directory(self) -> None:
        directory, self._directory = self._directory, -1
        if directory >= 0:
            files.close_quietly(directory)

    def _error(self, error: OSError) -> SaveError:
        reason = error.strerror or str(error)
        hint = None
        if error.errno == errno.EEXIST:
            hint = "choose another name, or pass overwrite=True"
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
    if not overwrite:
        raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), final)
    if stat.S_ISDIR(mode) and not (db_type == "zarr" and is_database(final)):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), final)


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
