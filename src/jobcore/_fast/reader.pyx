"""The layout of a zip container, worked out from its table, and reading by it."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

cimport numpy as cnp

from jobcore._fast.image cimport JC_MAX_KEY, covers, jc_escape, jc_grow, jc_spec
from jobcore._fast.reader cimport (
    JC_DIFFERS,
    jc_layout_add,
    jc_layout_compare,
    jc_layout_free,
    jc_scan,
    jc_scan_all,
    jc_scan_free,
    jc_wanted,
)

import os

from jobcore.errors import BlobValueError

__all__ = ["ZipLayout"]

cnp.import_array()


cdef extern from "crc32.h" nogil:
    void jc_crc32_setup()


jc_crc32_setup()

cdef enum:
    END_OF_FILE = -1    # JC_END_OF_FILE

# Read in one go, so that Ctrl-C is seen between two portions.
cdef uint64_t PORTION_BYTES = <uint64_t> 1 << 29


@cython.final
cdef class ZipLayout:
    """Where everything of a database lies, by its table alone.

    Parameters
    ----------
    specs
        As for `jobcore._fast.image.ZipImage`.
    names, spec
        Name of each blob, and the index of its spec.
    places, sums
        Offset in the file and CRC-32 of each chunk of all blobs, in order.
    long_key
        Gives the key of a name that is too long for one.
    wide
        From which size or offset on a field is wide.

    Attributes
    ----------
    ok : bool
        Whether the places are those that follow from the rest. If not, there is nothing else to be had here.

    Raises
    ------
    BlobValueError
        The columns contradict each other.

    Notes
    -----
    Thread-safe: it does not change once it is made.
    """

    def __cinit__(self, list specs, list names, list spec, list places, list sums, long_key, uint64_t wide=UINT32_MAX):
        cdef Py_ssize_t i, n, count = len(names), index
        cdef jc_spec *one
        cdef bytes head, tail, key
        cdef const uint8_t *text
        cdef uint8_t *room
        cdef size_t length
        cdef int failed
        memset(&self._layout, 0, sizeof(self._layout))
        self._held = (specs, names)
        self._specs = <jc_spec *> calloc(<size_t> len(specs) + 1, sizeof(jc_spec))
        self._places = <uint64_t *> malloc((<size_t> len(places) + 1) * sizeof(uint64_t))
        self._sums = <uint32_t *> malloc((<size_t> len(places) + 1) * sizeof(uint32_t))
        if self._specs is NULL or self._places is NULL or self._sums is NULL:
            raise MemoryError
        if len(spec) != count or len(places) != len(sums):
            raise BlobValueError(f"expected {count} specs and as many sums as places, found {len(spec)}, {len(sums)}")
        for i in range(len(specs)):
            one = &self._specs[i]
            head, tail, one.chunks, one.chunk_bytes, one.bytes, one.axes = specs[i]
            one.head, one.head_bytes = <const uint8_t *> head, <size_t> len(head)
            one.tail, one.tail_bytes = <const uint8_t *> tail, <size_t> len(tail)
            one.number = <uint32_t> i
            if one.axes > 65 or not covers(one):
                raise BlobValueError(f"expected chunks that hold the array, found {specs[i][2:]!r}")
        try:
            for i in range(len(places)):
                self._places[i] = places[i]
                self._sums[i] = sums[i]
        except OverflowError:
            return  # no file has such places
        self._layout.places, self._layout.sums = self._places, self._sums
        self._layout.chunks = <uint64_t> len(places)
        self._layout.wide = wide
        for i in range(count):
            index = spec[i]
            if not 0 <= index < len(specs):
                raise BlobValueError(f"expected the index of one of {len(specs)} specs, found {index}")
            text = <const uint8_t *> PyUnicode_AsUTF8AndSize(<str> names[i], &n)
            room = jc_grow(&self._layout.keys, JC_MAX_KEY)
            if room is NULL:
                raise MemoryError
            length = jc_escape(room, text, <size_t> n) if n else 0
            if length == 0:
                key = (<str> long_key(names[i])).encode("ascii")
                length = <size_t> len(key)
                if not 1 <= length <= JC_MAX_KEY:
                    raise BlobValueError(f"expected a key of 1 to {JC_MAX_KEY} characters, found {key!r:.80}")
                memcpy(room, <const uint8_t *> key, length)
            self._layout.keys.used -= JC_MAX_KEY - length
            failed = jc_layout_add(&self._layout, text, <size_t> n, &self._specs[index], length)
            if failed == JC_DIFFERS:
                return
            if failed:
                raise MemoryError
        last = self._layout.blobs[count - 1].first + self._layout.blobs[count - 1].spec.chunks if count else 0
        self._ok = last == self._layout.chunks

    def __init__(self, specs, names, spec, places, sums, long_key, wide=UINT32_MAX):
        pass

    def __dealloc__(self):
        jc_layout_free(&self._layout)
        free(self._specs)
        free(self._places)
        free(self._sums)

    @property
    def ok(self):
        """Whether the places are those that follow from the rest."""
        return self._ok

    @property
    def end(self):
        """Offset of the entry of the root document."""
        return self._layout.end

    def offset(self, Py_ssize_t blob):
        """Offset of the first entry of a blob."""
        if not self._ok or not 0 <= blob < <Py_ssize_t> self._layout.count:
            raise BlobValueError(f"expected the index of one of {self._layout.count} blobs, found {blob}")
        return self._layout.blobs[blob].offset

    def same_index(self, const uint8_t[::1] directory not None):
        """Compare a central directory with the one that the table implies.

        Parameters
        ----------
        directory
            Its bytes.

        Returns
        -------
        int or None
            Where the header of the root document starts in it; None when it is not the same up to there.
        """
        cdef size_t at = 0, n = <size_t> directory.shape[0]
        cdef const uint8_t *data = &directory[0] if n else NULL
        cdef int failed
        if not self._ok:
            return None
        with nogil:
            failed = jc_layout_compare(&self._layout, data, n, &at)
        if failed and failed != JC_DIFFERS:
            raise MemoryError
        return None if failed else at

    def read(self, int fd, list blobs, list arrays, int threads=2):
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

        Returns
        -------
        bool
            False when bytes are not those that the table implies; the arrays may then hold anything.

        Raises
        ------
        OSError
            A read failed. EOFError when the file ends before.
        BlobValueError
            An array does not fit.

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
        scan.l, scan.fd, scan.threads = &self._layout, fd, threads
        try:
            for i in range(count):
                blob = blobs[i]
                if not before < blob < <Py_ssize_t> self._layout.count:
                    raise BlobValueError(f"expected increasing indices of {self._layout.count} blobs, found {blob}")
                before = blob
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
                with nogil:
                    failed = jc_scan_all(&scan, wanted + first, <size_t> (last - first))
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
            jc_scan_free(&scan)
            free(wanted)
