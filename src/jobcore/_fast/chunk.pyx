"""Chunks of a file: written through aligned blocks, read in parallel, checksummed on the way."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport errno
from libc.stdint cimport INT64_MAX, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free

from jobcore._fast.chunk cimport (
    JC_END_OF_FILE,
    jc_allocate,
    jc_chunk,
    jc_read_chunks,
    jc_writer,
    jc_writer_append,
    jc_writer_fill,
    jc_writer_finish,
    jc_writer_free,
    jc_writer_new,
    jc_writer_reserve,
)

import os
from stat import S_ISREG

from jobcore.errors import BlobValueError, ClosedError

__all__ = ["BlockWriter", "allocate", "read_chunks"]


cdef extern from "crc32.h" nogil:
    void jc_crc32_setup()


jc_crc32_setup()

# Read at a time by all threads together, so that Ctrl-C is seen between two portions.
cdef uint64_t PORTION_BYTES = <uint64_t> 1 << 30


@cython.final
cdef class BlockWriter:
    """Turns a stream of bytes into large aligned writes, and checksums them on the way.

    The calling thread copies into blocks; native threads write full blocks meanwhile, around the page cache
    where the file system allows it, which costs almost no processor time.

    Parameters
    ----------
    fd
        Descriptor of an empty file, open for writing; it stays the caller's, who keeps it open for as long as
        the writer.
    block_bytes
        Size of a block, a multiple of 4,096.
    blocks
        Number of blocks, at least 4. Their memory is all that the writer takes.
    threads
        Threads that write, 1 to 16.
    direct
        Whether to ask for writes around the page cache. Such a file is synced now and then on the way, for the
        disk to set the pace; only a sync at the end makes it durable.

    Raises
    ------
    BlobValueError
        A parameter is out of range.
    OSError
        No memory or no threads.

    Notes
    -----
    Thread safety: none; one thread uses a writer. Large copies and waiting run without the GIL. A child process
    that was forked meanwhile must not use the writer.
    """

    def __cinit__(self, int fd, size_t block_bytes=4 << 20, int blocks=6, int threads=2, bint direct=True):
        if block_bytes == 0 or block_bytes % 4096 or blocks < 4 or not 1 <= threads <= 16:
            raise BlobValueError(
                "expected blocks of a multiple of 4,096 bytes, 4 of them or more, and 1 to 16 threads, "
                f"found {blocks} of {block_bytes} bytes and {threads} threads"
            )
        self._writer = jc_writer_new(fd, block_bytes, blocks, threads, direct)
        if self._writer is NULL:
            raise failure(errno)

    def __init__(self, fd, block_bytes=4 << 20, blocks=6, threads=2, direct=True):
        pass

    def __dealloc__(self):
        jc_writer_free(self._writer)

    @property
    def end(self):
        """Offset at which the next byte goes, in bytes."""
        return self.open_writer("end").end

    @property
    def direct(self):
        """Whether writes go, or went, around the page cache; known for all of them once the writer has finished."""
        return bool(self._direct if self._writer is NULL else self._writer.file.direct)

    @property
    def refused(self):
        """The errno with which the file system refused direct writes, or 0; the file is whole all the same."""
        return self._refused if self._writer is NULL else self._writer.file.refused

    def append(self, data, crc32=0):
        """Append bytes.

        Parameters
        ----------
        data
            Contiguous bytes.
        crc32
            CRC-32 of what came before them, to go on with.

        Returns
        -------
        int
            The CRC-32 with these bytes.

        Raises
        ------
        OSError
            A write failed, of these or earlier bytes.
        """
        cdef jc_writer *writer = self.open_writer("append")
        cdef const uint8_t[::1] view = data
        cdef size_t n = <size_t> view.shape[0]
        cdef uint32_t crc = crc32
        cdef const uint8_t *start
        cdef int failed = 0
        if n == 0:
            return crc
        start = &view[0]
        with nogil:
            failed = jc_writer_append(writer, start, n, &crc)
        if failed:
            raise failure(failed)
        return crc

    def append_zeros(self, size_t count, crc32=0):
        """Append `count` zero bytes; as `append`."""
        cdef jc_writer *writer = self.open_writer("append_zeros")
        cdef uint32_t crc = crc32
        cdef int failed
        with nogil:
            failed = jc_writer_append(writer, NULL, count, &crc)
        if failed:
            raise failure(failed)
        return crc

    def reserve(self, size_t count):
        """Leave room for `count` bytes, which `fill` must give soon: their block waits, and there are few.

        Returns
        -------
        int
            Offset of the room, in bytes.

        Raises
        ------
        OSError
            An earlier write failed.
        """
        cdef jc_writer *writer = self.open_writer("reserve")
        cdef int64_t offset = writer.end
        cdef int failed
        with nogil:
            failed = jc_writer_reserve(writer, count)
        if failed:
            raise failure(failed)
        return offset

    def fill(self, int64_t offset, const uint8_t[::1] data not None):
        """Give all the bytes of a room.

        Parameters
        ----------
        offset
            What `reserve` returned.
        data
            As many bytes as were reserved.

        Raises
        ------
        OSError
            There is no such room, or an earlier write failed.
        """
        cdef jc_writer *writer = self.open_writer("fill")
        cdef int failed = 0
        if data.shape[0]:
            failed = jc_writer_fill(writer, offset, &data[0], <size_t> data.shape[0])
        if failed:
            raise failure(failed)

    def finish(self):
        """Write what is left, wait until all is written, and close the writer; the file has its length then.

        Raises
        ------
        OSError
            A write failed.
        """
        cdef jc_writer *writer = self.open_writer("finish")
        cdef int failed
        with nogil:
            failed = jc_writer_finish(writer)
        self.close()
        if failed:
            raise failure(failed)

    def close(self):
        """Stop writing and free the blocks; what was not finished is lost. More than once is harmless."""
        cdef jc_writer *writer = self._writer
        if writer is NULL:
            return
        self._direct = writer.file.direct
        self._refused = writer.file.refused
        self._writer = NULL
        with nogil:
            jc_writer_free(writer)

    cdef jc_writer *open_writer(self, str method) except NULL:
        if self._writer is NULL:
            raise ClosedError(f"BlockWriter.{method}: expected an open writer, found one that is closed")
        return self._writer


def allocate(int fd, uint64_t nbytes):
    """Ask for the room of an empty file before it is written; where that is refused nothing happens.

    Else the file has that length then; who writes less cuts it.

    Parameters
    ----------
    fd
        File descriptor, open for writing.
    nbytes
        How much, in bytes.

    Returns
    -------
    int
        The errno with which the file system refused, or 0.

    Raises
    ------
    OSError
        There is not so much room.
    """
    cdef int failed, refused
    with nogil:
        failed = jc_allocate(fd, nbytes, &refused)
    if failed:
        raise failure(failed)
    return refused


def read_chunks(int fd, chunks, int threads=2):
    """Read ranges of a file at once, each into memory of its own, and checksum them.

    Parameters
    ----------
    fd
        File descriptor.
    chunks
        ``(offset, size, target)`` for each: where the range starts in the file and its length, in bytes; and
        the writable contiguous memory for its first bytes, or None. What does not fit into the target is only
        checksummed.
    threads
        Threads that read, the calling one among them, 1 to 16.

    Returns
    -------
    list of int
        The CRC-32 of each range.

    Raises
    ------
    OSError
        A read failed; ``filename`` is the offset in the file. EOFError when the file ends before.
    BlobValueError
        A range is negative, or no file reaches that far.

    Notes
    -----
    Thread-safe; runs without the GIL. Signals are handled after each GiB.
    """
    cdef list jobs = list(chunks)
    cdef Py_ssize_t count = len(jobs), i, first
    cdef jc_chunk *table
    cdef uint8_t[::1] view
    cdef list held = []
    cdef uint64_t portion
    cdef size_t n
    cdef int failed
    if not 1 <= threads <= 16:
        raise BlobValueError(f"expected 1 to 16 threads, found {threads}")
    if count == 0:
        return []
    table = <jc_chunk *> calloc(<size_t> count, sizeof(jc_chunk))
    if table is NULL:
        raise MemoryError
    try:
        for i in range(count):
            offset, size, target = jobs[i]
            # Beyond that the number of pieces would wrap, and so the room for them.
            if offset < 0 or size < 0 or offset + size > INT64_MAX:
                raise BlobValueError(f"expected a range of the file, found {size} bytes at {offset}")
            if size > PORTION_BYTES:
                # So many pieces would be made of a range that no file has.
                end = os.fstat(fd)
                if S_ISREG(end.st_mode) and offset + size > end.st_size:
                    raise EOFError(max(offset, end.st_size))
            table[i].offset = offset
            table[i].size = size
            if target is not None and len(target):
                view = target
                held.append(view)
                table[i].target = &view[0]
                table[i].room = <uint64_t> view.shape[0]
        first = 0
        while first < count:
            portion = 0
            n = 0
            while first + <Py_ssize_t> n < count and (n == 0 or portion < PORTION_BYTES):
                portion += table[first + n].size
                n += 1
            with nogil:
                failed = jc_read_chunks(fd, table + first, n, threads, 0)
            if failed:
                raise failure(failed)
            for i in range(first, first + <Py_ssize_t> n):
                if table[i].error == JC_END_OF_FILE:
                    raise EOFError(table[i].failed_at)
                if table[i].error:
                    raise OSError(table[i].error, os.strerror(table[i].error), table[i].failed_at)
            first += <Py_ssize_t> n
            PyErr_CheckSignals()
        return [table[i].crc for i in range(count)]
    finally:
        free(table)


cdef object failure(int code):
    return OSError(code, os.strerror(code))
