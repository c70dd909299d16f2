"""File descriptors that no interruption leaves open."""

cimport cython
from libc.errno cimport EINTR, errno

import os

__all__ = ["Descriptor"]


cdef extern from "<unistd.h>" nogil:
    int posix_close "close" (int fd)


@cython.final
cdef class Descriptor:
    """A file descriptor of its own, which is closed at the latest when nobody has it any more.

    The interpreter handles signals between its own steps. So one that raises finds the file opened and noted here, or
    not opened; and no Python code closes it that could be interrupted.

    Parameters
    ----------
    path, flags, mode, dir_fd
        As for `os.open`.

    Raises
    ------
    OSError
        It cannot be opened.

    Notes
    -----
    A context manager, whose end closes it without a word. Any thread may close it.

    Examples
    --------
    >>> import os
    >>> from jobcore._fast.descriptor import Descriptor
    >>> with Descriptor(".", os.O_RDONLY) as number:
    ...     os.path.isdir(number)
    True
    """

    def __cinit__(self):
        self._number = -1

    def __init__(self, path, int flags, int mode=0o777, *, dir_fd=None):
        if self._number >= 0:
            self.close_quietly()
        self._number = os.open(path, flags, mode, dir_fd=dir_fd)

    def __dealloc__(self):
        if self._number >= 0:
            posix_close(self._number)

    @property
    def number(self):
        """The descriptor; -1 once it is closed."""
        return self._number

    def close(self):
        """Close it; twice is harmless.

        Raises
        ------
        OSError
            The system reports a failure, such as that of an earlier write. It is closed all the same.
        """
        cdef int code = self._close()
        if code:
            raise OSError(code, os.strerror(code))

    def close_quietly(self):
        """Close it, whatever the system says to that."""
        self._close()

    def __enter__(self):
        return self._number

    def __exit__(self, *error):
        self._close()

    cdef int _close(self) noexcept:
        cdef int number = self._number, code = 0
        self._number = -1
        if number >= 0:
            with nogil:
                # An interrupted one is closed too, on Linux as on macOS.
                if posix_close(number) != 0 and errno != EINTR:
                    code = errno
        return code
