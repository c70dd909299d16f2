"""Files of their own for chunks and documents, as the directory container has them."""

cimport cython
from cpython.buffer cimport PyBUF_ANY_CONTIGUOUS, PyBuffer_Release
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.exc cimport PyErr_CheckSignals
from libc.errno cimport errno
from libc.stdint cimport uint8_t, uint64_t
from libc.stdlib cimport free, malloc
from libc.string cimport memcpy

from jobcore._fast.buffers cimport in_range, take_buffer
from jobcore._fast.chunk_file cimport (
    JC_FILE_BLOCK,
    JC_TRAILER,
    jc_chunk_file,
    jc_chunk_file_begin,
    jc_chunk_file_write,
    jc_close_file,
    jc_new_file,
    jc_new_folder,
    jc_put_file,
)

import os

from jobcore.errors import BlobValueError

__all__ = ["ChunkFiles"]


cdef extern from "crc32c.h" nogil:
    void jc_crc32c_setup()

cdef extern from "hash128.h" nogil:
    void jc_hash128_setup()

# Here, and not at the first call: two threads could make that at once.
jc_crc32c_setup()
jc_hash128_setup()

cdef enum:
    KEPT = 16               # blocks that are kept: one for each thread that works at the same time
    PORTION = 67108864      # bytes written between two looks at signals: 64 MiB
    FEED = 4194304          # of pieces, put together before they are written: some whole blocks

# The zeros after the data of a chunk; more would take minutes.
cdef uint64_t MOST_ZEROS = <uint64_t> 1 << 40
cdef uint64_t MOST_BYTES = <uint64_t> 1 << 60


@cython.final
cdef class ChunkFiles:
    """Makes files below a directory, each of which is whole when its call returns and is never written to again.

    Parameters
    ----------
    directory
        Descriptor of the directory; it stays the caller's, who keeps it open for as long as this is used.
    mode
        Permissions of the files, as for ``os.open``.

    Notes
    -----
    Thread safety: any number of threads at once. All file system calls run without the GIL. Each thread that writes a
    chunk takes a block of 1 MiB, which is used again.
    """

    def __cinit__(self, int directory, int mode=0o444):
        self._directory = directory
        self._mode = mode
        self._block_count = 0

    def __init__(self, directory, mode=0o444):
        pass

    def __dealloc__(self):
        while self._block_count:
            self._block_count -= 1
            free(self._blocks[self._block_count])

    def folder(self, str key not None):
        """Make a folder.

        Parameters
        ----------
        key
            Its path below the directory.

        Raises
        ------
        OSError
            It is there already, or cannot be made; ``filename`` is the key.
        BlobValueError
            There is a NUL in the key.
        """
        cdef bytes name = encoded(key)
        cdef const char *path = name
        cdef int failed
        with nogil:
            failed = jc_new_folder(self._directory, path)
        if failed:
            raise failure(failed, key)

    def file(self, str key not None, data, bint keep=False):
        """Make a file of some bytes.

        Parameters
        ----------
        key
            Its path below the directory.
        data
            Contiguous bytes.
        keep
            Whether the file stays open.

        Returns
        -------
        int
            Its descriptor, for the caller to close; -1 when it was closed.

        Raises
        ------
        OSError
            It is there already, or could not be written; ``filename`` is the key. A part of it may be there.
        BlobValueError
            There is a NUL in the key, or the buffer is not contiguous.
        """
        cdef bytes name = encoded(key)
        cdef const char *path = name
        cdef Py_buffer view
        cdef int failed, fd
        take_buffer(data, &view, PyBUF_ANY_CONTIGUOUS, "ChunkFiles.file", "data")
        with nogil:
            failed = jc_put_file(self._directory, path, self._mode, <const uint8_t *> view.buf, <size_t> view.len, &fd)
            if not failed and not keep:
                failed = jc_close_file(fd)
                fd = -1
        PyBuffer_Release(&view)
        if failed:
            raise failure(failed, key)
        return fd

    def chunk(self, str key not None, data, zeros=0, bint keep=False):
        """Make the file of a chunk: its bytes, the zeros that fill it up, and the CRC-32C of both, lowest byte first.

        Parameters
        ----------
        key
            Its path below the directory.
        data
            Contiguous bytes, taken as they lie in memory.
        zeros
            As many zero bytes follow the data, ``0 <= zeros <= 2**40``.
        keep
            Whether the file stays open.

        Returns
        -------
        tuple of int, bytes and int
            The CRC-32C; the 128-bit hash of the data and the zeros, as ``hash128`` gives it; and the descriptor of
            the file, for the caller to close, or -1 when it was closed.

        Raises
        ------
        OSError
            The file is there already, or could not be written; ``filename`` is the key. A part of it may be there.
        BlobValueError
            There is a NUL in the key, the buffer is not contiguous, or `zeros` is out of range.

        Notes
        -----
        Checksum and hash are those of what is in the file, even if another thread changes the data meanwhile. Signals
        are handled after each 64 MiB.
        """
        cdef uint64_t padding = in_range(zeros, MOST_ZEROS, "2**40", "ChunkFiles.chunk", "zeros")
        cdef bytes name = encoded(key)
        cdef const char *path = name
        cdef Py_buffer view
        cdef jc_chunk_file file
        cdef uint8_t *block
        cdef int failed = 0, fd
        take_buffer(data, &view, PyBUF_ANY_CONTIGUOUS, "ChunkFiles.chunk", "data")
        try:
            block = self.take_block()
            try:
                with nogil:
                    fd = jc_new_file(self._directory, path, self._mode)
                    if fd < 0:
                        failed = errno
                    else:
                        jc_chunk_file_begin(&file, fd, <const uint8_t *> view.buf, <uint64_t> view.len, padding)
                        failed = jc_chunk_file_write(&file, block, PORTION)
                        if not failed and not keep and file.done > file.total:
                            failed = jc_close_file(fd)
                            fd = -1
                try:
                    while not failed and file.done <= file.total:
                        PyErr_CheckSignals()
                        with nogil:
                            failed = jc_chunk_file_write(&file, block, PORTION)
                    if failed:
                        raise failure(failed, key)
                except BaseException:
                    if fd >= 0:
                        jc_close_file(fd)
                    raise
            finally:
                self.give_block(block)
        finally:
            PyBuffer_Release(&view)
        return self.result(&file, fd, keep, key)

    def chunk_in_pieces(self, str key not None, pieces, nbytes, zeros=0, bint keep=False):
        """Make the file of a chunk whose bytes come in pieces, so that they need not be in memory all at once.

        Parameters
        ----------
        key
            Its path below the directory.
        pieces
            An iterable of contiguous bytes.
        nbytes
            How many they are together, ``0 <= nbytes <= 2**60``.
        zeros, keep
            As for `chunk`.

        Returns
        -------
        tuple of int, bytes and int
            As for `chunk`.

        Raises
        ------
        OSError
            As for `chunk`.
        BlobValueError
            As for `chunk`, or the pieces are not `nbytes` together. A part of the file may be there.

        Notes
        -----
        As for `chunk`. It takes 4 MiB beside the pieces.
        """
        cdef uint64_t padding = in_range(zeros, MOST_ZEROS, "2**40", "ChunkFiles.chunk_in_pieces", "zeros")
        cdef uint64_t total = in_range(nbytes, MOST_BYTES, "2**60", "ChunkFiles.chunk_in_pieces", "nbytes")
        cdef bytes name = encoded(key)
        cdef const char *path = name
        cdef jc_chunk_file file
        cdef uint8_t *block
        cdef uint8_t *room = <uint8_t *> malloc(FEED)
        cdef int failed, fd
        if room is NULL:
            raise MemoryError
        try:
            block = self.take_block()
            try:
                with nogil:
                    fd = jc_new_file(self._directory, path, self._mode)
                    failed = errno if fd < 0 else 0
                if failed:
                    raise failure(failed, key)
                jc_chunk_file_begin(&file, fd, room, total, padding)
                try:
                    failed = self.feed(&file, block, room, pieces, total)
                    if failed:
                        raise failure(failed, key)
                except BaseException:
                    jc_close_file(fd)
                    raise
            finally:
                self.give_block(block)
        finally:
            free(room)
        return self.result(&file, fd, keep, key)

    cdef int feed(self, jc_chunk_file *file, uint8_t *block, uint8_t *room, object pieces, uint64_t nbytes) except -1:
        """Write the pieces, and the zeros after them; 0, or an errno."""
        cdef uint64_t left = nbytes
        cdef size_t used = 0, at, step, size
        cdef int failed = 0
        cdef Py_buffer view
        for piece in pieces:
            take_buffer(piece, &view, PyBUF_ANY_CONTIGUOUS, "ChunkFiles.chunk_in_pieces", "a piece")
            try:
                size = <size_t> view.len
                if size > left:
                    raise BlobValueError(f"expected pieces of {nbytes} bytes together, found more")
                left -= size
                at = 0
                while at < size and not failed:
                    step = min(size - at, <size_t> FEED - used)
                    with nogil:
                        memcpy(room + used, <const uint8_t *> view.buf + at, step)
                        used += step
                        at += step
                        if used == FEED:
                            # Whole blocks, so that the next bytes begin another one.
                            file.from_ = file.done
                            failed = jc_chunk_file_write(file, block, FEED)
                            used = 0
            finally:
                PyBuffer_Release(&view)
            if failed:
                return failed
            PyErr_CheckSignals()
        if left:
            raise BlobValueError(f"expected pieces of {nbytes} bytes together, found {nbytes - left}")
        file.from_ = file.done
        while not failed and file.done <= file.total:
            PyErr_CheckSignals()
            with nogil:
                failed = jc_chunk_file_write(file, block, PORTION)
        return failed

    cdef tuple result(self, jc_chunk_file *file, int fd, bint keep, object key):
        cdef uint8_t digest[16]
        cdef int i
        for i in range(8):
            digest[i] = (file.high >> (56 - 8 * i)) & 255
            digest[8 + i] = (file.low >> (56 - 8 * i)) & 255
        return file.crc, PyBytes_FromStringAndSize(<const char *> digest, 16), self.finish(fd, keep, key)

    cdef int finish(self, int fd, bint keep, object key) except -2:
        cdef int failed
        if fd < 0 or keep:
            return fd
        with nogil:
            failed = jc_close_file(fd)
        if failed:
            raise failure(failed, key)
        return -1

    cdef uint8_t *take_block(self) except NULL:
        cdef uint8_t *block
        if self._block_count:
            self._block_count -= 1
            return self._blocks[self._block_count]
        block = <uint8_t *> malloc(JC_FILE_BLOCK + JC_TRAILER)
        if block is NULL:
            raise MemoryError
        return block

    cdef void give_block(self, uint8_t *block) noexcept:
        if self._block_count < KEPT:
            self._blocks[self._block_count] = block
            self._block_count += 1
        else:
            free(block)


cdef object failure(int code, object key):
    return OSError(code, os.strerror(code), key)


cdef bytes encoded(str key):
    cdef bytes name = key.encode()
    if b"\0" in name:
        # The system would take what stands before it for the whole.
        raise BlobValueError(f"expected a key without NUL characters, found {key!r:.80}")
    return name
