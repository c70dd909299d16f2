"""The layout of a zip container, worked out from its table, and reading by it."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memset

cimport numpy as cnp

from jobcore._fast.fresh cimport Rooms
from jobcore._fast.image cimport JC_MAX_KEY, covers, jc_escape, jc_spec
from jobcore._fast.reader cimport (
    JC_DIFFERS,
    jc_job,
    jc_job_begin,
    jc_job_finish,
    jc_job_free,
    jc_job_make,
    jc_layout_free,
    jc_long_key,
    jc_scan,
    jc_scan_all,
    jc_wanted,
)
from jobcore._fast.table cimport RootTable

import os

from jobcore.errors import BlobValueError

__all__ = ["ZipLayout"]

cnp.import_array()


cdef extern from "crc32.h" nogil:
    void jc_crc32_setup()


jc_crc32_setup()

cdef enum:
    END_OF_FILE = -1    # JC_END_OF_FILE
    SURE_BYTES = 64     # the key of a name of up to so many bytes is never too long

# Read in one go, so that Ctrl-C is seen between two portions.
cdef uint64_t PORTION_BYTES = <uint64_t> 1 << 29


@cython.final
cdef class ZipLayout:
    """Where everything of a database lies, by its table alone.

    A native thread works it out, and compares it with the index of the file, while the caller does something else.

    Parameters
    ----------
    specs
        As for `jobcore._fast.image.ZipImage`.
    table
        The columns.
    long_key
        Gives the key of a name that is too long for one.
    wide
        From which size or offset on a field is wide.
    encoded, sizes
        Whether chunks of each spec are encoded, and the bytes that are stored of each chunk that is, of all blobs in
        order. Such blobs have their places in the layout; `read` takes the others only.

    Raises
    ------
    BlobValueError
        The columns contradict each other.

    Notes
    -----
    One thread makes it and calls `begin` and `finish`; it does not change any more then, and any thread may use it.
    """

    def __cinit__(
        self, list specs, RootTable table not None, long_key, uint64_t wide=UINT32_MAX, list encoded=None,
        list sizes=None
    ):
        cdef Py_ssize_t i
        cdef jc_spec *one
        cdef jc_job *job = &self._job
        cdef bytes head, tail, key
        jc_job_make(job)
        memset(&self._layout, 0, sizeof(self._layout))
        self._table = table
        self._specs = <jc_spec *> calloc(<size_t> len(specs) + 1, sizeof(jc_spec))
        if self._specs is NULL:
            raise MemoryError
        for i in range(len(specs)):
            one = &self._specs[i]
            head, tail, one.chunks, one.chunk_bytes, one.bytes, one.axes = specs[i]
            one.head, one.head_bytes = <const uint8_t *> head, <size_t> len(head)
            one.tail, one.tail_bytes = <const uint8_t *> tail, <size_t> len(tail)
            one.number = <uint32_t> i
            if one.axes > 65 or not covers(one):
                raise BlobValueError(f"expected chunks that hold the array, found {specs[i][2:]!r}")
        for i in range(table.blobs):
            if table.spec[i] >= <size_t> len(specs):
                raise BlobValueError(f"expected the index of one of {len(specs)} specs, found {table.spec[i]}")
        keys = self.long_keys(long_key)
        self._keys = <jc_long_key *> calloc(<size_t> len(keys) + 1, sizeof(jc_long_key))
        if self._keys is NULL:
            raise MemoryError
        for i in range(len(keys)):
            self._keys[i].blob, key = keys[i]
            self._keys[i].text, self._keys[i].nbytes = <const uint8_t *> key, <size_t> len(key)
        self._layout.places, self._layout.sums = table.places, table.sums
        self._layout.chunks = <uint64_t> table.chunks
        self._layout.wide = wide
        if encoded is not None:
            if len(encoded) != len(specs):
                raise BlobValueError(f"expected as many in encoded as specs, {len(specs)}, found {len(encoded)}")
            self.take_sizes([] if sizes is None else sizes, encoded)
        job.l, job.names, job.spec = &self._layout, table.texts, table.spec
        job.specs, job.count = self._specs, <size_t> table.blobs
        job.keys, job.key_count = self._keys, <size_t> len(keys)
        self._held = [specs, keys]

    def __init__(self, specs, table, long_key, wide=UINT32_MAX, encoded=None, sizes=None):
        pass

    def __dealloc__(self):
        jc_job_free(&self._job)
        jc_layout_free(&self._layout)
        free(self._specs)
        free(self._keys)
        free(self._encoded)
        free(self._sizes)

    def begin(self, const uint8_t[::1] directory not None, int fd=-1, Rooms rooms=None):
        """Begin to work it out in a native thread; to be called once.

        Parameters
        ----------
        directory
            The central directory of the file, to be compared with the one that the table implies. Its memory must
            not change.
        fd
            File descriptor that small blobs are read of, where there are rooms.
        rooms
            Memory of each blob of the same table, which the thread fills.
        """
        cdef jc_job *job = &self._job
        if self._begun:
            raise BlobValueError("expected begin() to be called once, found a second call")
        if rooms is not None and self._encoded is not NULL:
            raise BlobValueError("expected no rooms where blobs are encoded")
        if rooms is not None:
            if rooms.table is not self._table or not self.holds(rooms):
                raise BlobValueError("expected rooms that were made for this table and these specs")
            job.targets, job.fd = rooms.data, fd
        self._begun = True
        # A view of it is held, so that the memory stays where it is.
        self._held += [directory, rooms]
        if directory.shape[0]:
            job.index, job.index_bytes = &directory[0], <size_t> directory.shape[0]
        jc_job_begin(job)

    def finish(self):
        """Help with what is left to do, and wait for its end; to be called once, before anything else.

        Returns
        -------
        tuple of (int or None) and (bool or None)
            Where the header of the root document starts in the directory, None when that is not the same up to
            there; and whether the small blobs are as they should be, None when they were not read.
        """
        cdef jc_job *job = &self._job
        if not self._begun or self._ok:
            raise BlobValueError("expected finish() to be called once, after begin()")
        with nogil:
            jc_job_finish(job)
        # The arrays in them are the caller's now.
        del self._held[2:]
        if job.failed and job.failed != JC_DIFFERS:
            raise MemoryError
        if job.failed:
            return None, None
        self._ok = True
        return job.root_at, (job.scan.error == 0 if job.small else None)

    cdef bint holds(self, Rooms rooms) noexcept:
        """Whether there is as much memory for each blob as its spec says."""
        cdef Py_ssize_t i
        cdef uint32_t spec
        for i in range(self._table.blobs):
            spec = self._table.spec[i]
            if rooms.forms[spec].nbytes != self._specs[spec].bytes:
                return False
        return True

    cdef int take_sizes(self, list sizes, list encoded) except -1:
        cdef Py_ssize_t i
        self._encoded = <uint8_t *> calloc(<size_t> len(encoded) + 1, 1)
        self._sizes = <uint64_t *> calloc(<size_t> len(sizes) + 1, sizeof(uint64_t))
        if self._encoded is NULL or self._sizes is NULL:
            raise MemoryError
        for i in range(len(encoded)):
            self._encoded[i] = 1 if encoded[i] else 0
        try:
            for i in range(len(sizes)):
                self._sizes[i] = sizes[i]
        except (OverflowError, TypeError) as error:
            raise BlobValueError(f"expected sizes that a file can have: {error}") from error
        self._layout.encoded, self._layout.sizes, self._layout.sized = self._encoded, self._sizes, <uint64_t> len(sizes)
        return 0

    cdef list long_keys(self, object long_key):
        """Give the keys that are made otherwise: index of the blob and key of each."""
        cdef list found = []
        cdef uint8_t room[200]
        cdef Py_ssize_t i
        cdef bytes key
        for i in range(self._table.blobs):
            if self._table.texts[i].nbytes - 1 < SURE_BYTES:
                continue
            # Nor is there a key for no name at all.
            if self._table.texts[i].nbytes and jc_escape(room, self._table.texts[i].text, self._table.texts[i].nbytes):
                continue
            key = (<str> long_key(self._table._names[i])).encode("ascii")
            if not 1 <= len(key) <= <Py_ssize_t> JC_MAX_KEY:
                raise BlobValueError(f"expected a key of 1 to {JC_MAX_KEY} characters, found {key!r:.80}")
            found.append((i, key))
        return found

    @property
    def end(self):
        """Offset of the entry of the root document."""
        return self._layout.end

    def offset(self, Py_ssize_t blob):
        """Offset of the first entry of a blob."""
        if not self._ok or not 0 <= blob < <Py_ssize_t> self._layout.count:
            raise BlobValueError(f"expected the index of one of {self._layout.count} blobs, found {blob}")
        return self._layout.blobs[blob].offset

    def read(self, int fd, list blobs, list arrays, int threads=2, bint fresh=False):
        """Read blobs, and check every byte of theirs: headers, payloads and documents.

        Parameters
        ----------
        fd
            File descriptor.
        blobs
            Their indices, increasing.
        arrays
            The C-contiguous writable array that each fills, or None to check it only.
        threads
            Threads that read large payloads, the calling one among them, 1 to 16.
        fresh
            Whether nobody has touched the memory of the arrays yet, which is then read into in another way. Only the
            speed depends on it.

        Returns
        -------
        bool
            False when bytes are not those that the table implies; the arrays may then hold anything.

        Raises
        ------
        OSError
            A read failed. EOFError when the file ends before.
        BlobValueError
            An array does not fit, or a blob is encoded.

        Notes
        -----
        Runs without the GIL; signals are handled after each 512 MiB.
        """
        cdef Py_ssize_t count = len(blobs), i, first = 0, last
        cdef jc_wanted *wanted
        cdef cnp.ndarray array
        cdef uint64_t portion
        cdef Py_ssize_t blob, before = -1
        cdef jc_scan scan
        cdef int failed
        if not self._ok:
            return False
        if len(arrays) != count or not 1 <= threads <= 16:
            raise BlobValueError(f"expected {count} arrays and 1 to 16 threads, found {len(arrays)} and {threads}")
        wanted = <jc_wanted *> malloc((<size_t> count + 1) * sizeof(jc_wanted))
        if wanted is NULL:
            raise MemoryError
        memset(&scan, 0, sizeof(scan))
        scan.l, scan.fd, scan.threads, scan.fresh = &self._layout, fd, threads, fresh
        try:
            for i in range(count):
                blob = blobs[i]
                if not before < blob < <Py_ssize_t> self._layout.count:
                    raise BlobValueError(f"expected increasing indices of {self._layout.count} blobs, found {blob}")
                before = blob
                if self._layout.blobs[blob].sizes is not NULL:
                    raise BlobValueError(f"expected blobs that are not encoded, found that of index {blob}")
                wanted[i].blob = <size_t> blob
                wanted[i].target = NULL
                if arrays[i] is not None:
                    array = arrays[i]
                    if (
                        not cnp.PyArray_IS_C_CONTIGUOUS(array)
                        or not cnp.PyArray_ISWRITEABLE(array)
                        or <uint64_t> cnp.PyArray_NBYTES(array) != self._layout.blobs[blob].spec.bytes
                    ):
                        raise BlobValueError(
                            f"expected a writable C-contiguous array of {self._layout.blobs[blob].spec.bytes} bytes"
                        )
                    wanted[i].target = <uint8_t *> cnp.PyArray_DATA(array)
            while first < count:
                portion = 0
                last = first
                while last < count and portion < PORTION_BYTES:
                    portion += self._layout.blobs[wanted[last].blob].spec.bytes + 1024
                    last += 1
                scan.wanted, scan.count = wanted + first, <size_t> (last - first)
                with nogil:
                    failed = jc_scan_all(&scan)
                if failed == JC_DIFFERS:
                    return False
                if failed == END_OF_FILE:
                    raise EOFError
                if failed:
                    raise OSError(failed, os.strerror(failed))
                PyErr_CheckSignals()
                first = last
            return True
        finally:
            free(wanted)
