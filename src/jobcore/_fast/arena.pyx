"""Memory that is kept from save to save."""

cimport cython
from libc.stdint cimport uint8_t, uint64_t
from posix.unistd cimport getpid

from jobcore._fast.arena cimport JC_ALIGN, JC_HUGE, jc_arena_map, jc_write_arena
from jobcore._fast.chunk cimport jc_file

import os

from jobcore.errors import BlobValueError, ClosedError

__all__ = ["Arena"]


cdef extern from "crc32.h" nogil:
    void jc_crc32_setup()

cdef extern from "sys/mman.h" nogil:
    int munmap(void *address, size_t length)


jc_crc32_setup()


@cython.final
cdef class Arena:
    """Memory that is kept from save to save: aligned, and in huge pages where the system has them.

    Parameters
    ----------
    nbytes
        How much at least, in bytes.

    Attributes
    ----------
    nbytes : int
        How much it is, in bytes.

    Raises
    ------
    MemoryError
        There is no such address space.

    Notes
    -----
    Pages are taken from the system when they are first written. A forked child does not have them. Thread safety:
    none; one save has an arena for itself.
    """

    def __cinit__(self, size_t nbytes):
        self._nbytes = (nbytes + JC_HUGE - 1) // JC_HUGE * JC_HUGE
        if self._nbytes < nbytes:
            raise MemoryError
        self._data = jc_arena_map(self._nbytes)
        self._process = getpid()
        if self._data is NULL:
            raise MemoryError(f"expected {nbytes} bytes of address space for an arena, found none")

    def __init__(self, nbytes):
        pass

    def __dealloc__(self):
        self.close()

    @property
    def nbytes(self):
        """How much it is, in bytes."""
        return self._nbytes

    def close(self):
        """Give the memory back; nothing may use it any more. More than once is harmless."""
        cdef uint8_t *data = self._data
        self._data = NULL
        # A child may have something else at that address.
        if data is not NULL and self._process == getpid():
            with nogil:
                munmap(data, self._nbytes)

    def write_to(self, int fd, uint64_t size, size_t step=8 << 20, int threads=2, bint direct=True):
        """Write the first bytes as the whole of an empty file.

        Parameters
        ----------
        fd
            File descriptor, open for writing.
        size
            How many, in bytes.
        step
            Bytes of one request, a multiple of 4,096.
        threads
            Requests in flight, 1 to 16.
        direct
            Whether to ask for writes around the page cache.

        Returns
        -------
        int
            The errno with which the file system refused direct writes, or 0; the file is whole all the same.

        Raises
        ------
        OSError
            A write failed.
        BlobValueError
            A parameter is out of range.
        """
        cdef uint8_t *data = self.open_data("write_to")
        cdef jc_file file
        cdef int failed
        if size > self._nbytes or step == 0 or step % JC_ALIGN or not 1 <= threads <= 16:
            raise BlobValueError(
                f"expected at most {self._nbytes} bytes in steps of a multiple of 4,096 by 1 to 16 threads, found "
                f"{size} in steps of {step} by {threads}"
            )
        with nogil:
            failed = jc_write_arena(fd, data, size, step, threads, direct, &file)
        if failed:
            raise OSError(failed, os.strerror(failed))
        return file.refused

    def tobytes(self, size_t size):
        """Copy the first bytes out."""
        cdef uint8_t *data = self.open_data("tobytes")
        if size > self._nbytes:
            raise BlobValueError(f"expected at most {self._nbytes} bytes, found {size}")
        return data[:size]

    cdef uint8_t *open_data(self, str method) except NULL:
        if self._data is NULL or self._process != getpid():
            what = "one that is closed" if self._data is NULL else "one of another process"
            raise ClosedError(f"Arena.{method}: expected an open arena, found {what}")
        return self._data
