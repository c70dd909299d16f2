"""Images of zip containers: planned and laid out by native code, into a stream of blocks or into an arena."""

cimport cython
from cpython.exc cimport PyErr_CheckSignals
from cpython.unicode cimport PyUnicode_AsUTF8AndSize
from libc.errno cimport ENOBUFS
from libc.stdint cimport UINT32_MAX, uint8_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcpy, memset

cimport numpy as cnp

from jobcore._fast.arena cimport Arena
from jobcore._fast.chunk cimport BlockWriter
from jobcore._fast.image cimport (
    JC_LARGE,
    JC_MAX_KEY,
    covers,
    jc_blob,
    jc_chunk_key,
    jc_entry,
    jc_escape,
    jc_image_append,
    jc_image_begin,
    jc_image_blobs,
    jc_image_chunk,
    jc_image_copy,
    jc_image_document,
    jc_image_encoded,
    jc_image_finish_chunk,
    jc_image_flush,
    jc_image_free,
    jc_image_name,
    jc_image_piece,
    jc_image_root,
    jc_spec,
)

import os

from jobcore.errors import BlobValueError

__all__ = ["ZipImage"]

cnp.import_array()


cdef extern from "crc32.h" nogil:
    void jc_crc32_setup()

jc_crc32_setup()

cdef enum:
    BATCH = 1024        # blobs taken while the GIL is held
    MAX_AXES = 64

# Done in one go, so that Ctrl-C is seen between two portions.
cdef uint64_t PORTION_BYTES = <uint64_t> 1 << 28


@cython.final
cdef class ZipImage:
    """The bytes of one database in a zip container, made in order.

    Call `add`, `add_gathered` and `add_encoded` for the blobs in order, `copy` when the sink is an arena, `root`, and
    `finish`.

    Parameters
    ----------
    specs
        For each distinct spec ``(head, tail, chunks, chunk_bytes, nbytes, axes)``: the document before and after the
        name, number of chunks, bytes of a chunk and of the array, and axes of the stored array.
    sink
        Where the bytes go: a `BlockWriter` over an empty file, or an `Arena`.
    long_key
        Gives the key of a name that is too long for one; called with the name.
    wide
        From which size or offset on a field is wide.

    Raises
    ------
    BlobValueError
        A spec contradicts itself.

    Notes
    -----
    Thread safety: none; one thread makes an image. Copies and waiting run without the GIL. After an error the image is
    of no use.
    """

    def __cinit__(self, list specs, sink, long_key, uint64_t wide=UINT32_MAX):
        cdef Py_ssize_t i
        cdef bytes head, tail
        cdef jc_spec *spec
        memset(&self._image, 0, sizeof(self._image))
        self._spec_count = len(specs)
        self._specs = <jc_spec *> calloc(<size_t> self._spec_count + 1, sizeof(jc_spec))
        if self._specs is NULL:
            raise MemoryError
        self._held = (specs, sink)
        self._long_key = long_key
        self._image.wide = wide
        if isinstance(sink, BlockWriter):
            self._image.stream = (<BlockWriter> sink).open_writer("ZipImage")
        elif isinstance(sink, Arena):
            self._image.memory = (<Arena> sink).open_data("ZipImage")
            self._image.memory_bytes = (<Arena> sink)._nbytes
        else:
            raise TypeError(f"expected a BlockWriter or an Arena as sink, found {type(sink).__qualname__}")
        for i in range(self._spec_count):
            spec = &self._specs[i]
            head, tail, spec.chunks, spec.chunk_bytes, spec.bytes, spec.axes = specs[i]
            spec.head = head
            spec.head_bytes = <size_t> len(head)
            spec.tail = tail
            spec.tail_bytes = <size_t> len(tail)
            spec.number = <unsigned int> i
            if spec.axes > MAX_AXES + 1 or not covers(spec):
                raise BlobValueError(f"expected chunks that hold the array, found {specs[i][2:]!r}")

    def __init__(self, specs, sink, long_key, wide=UINT32_MAX):
        pass

    def __dealloc__(self):
        jc_image_free(&self._image)
        free(self._specs)

    @property
    def end(self):
        """Offset of the next byte."""
        return self._image.end

    @property
    def entries(self):
        """Number of entries."""
        return self._image.entries

    @property
    def index_bytes(self):
        """Bytes of the central directory so far."""
        return self._image.central.used

    def add(self, list names, list arrays, list spec, Py_ssize_t start=0, stop=None):
        """Add blobs whose arrays are contiguous, up to the first large one that is not.

        Parameters
        ----------
        names, arrays, spec
            Name, array and index of the spec of each blob. An array has at least as many bytes as its spec says.
        start, stop
            Index of the first blob, and of the one after the last; all from `start` on by default.

        Returns
        -------
        int
            Index of the first blob that was not added: one for `add_gathered`, or `stop`.

        Raises
        ------
        OSError
            A write failed, or the arena is too small.
        """
        cdef Py_ssize_t total = len(names), count
        cdef int failed = 0
        cdef uint64_t taken
        cdef bint scattered = False
        cdef list held
        cdef jc_blob *blobs
        cdef jc_blob *blob
        if len(arrays) != total or len(spec) != total or start < 0:
            raise BlobValueError(f"expected {total} arrays and specs, found {len(arrays)} and {len(spec)}")
        if stop is not None:
            if not 0 <= stop <= total:
                raise BlobValueError(f"expected to stop at 0 to {total}, found {stop}")
            total = stop
        self.check(0)
        blobs = <jc_blob *> malloc(BATCH * sizeof(jc_blob))
        if blobs is NULL:
            raise MemoryError
        try:
            while start < total:
                held = []
                count = 0
                taken = 0
                while count < BATCH and taken < PORTION_BYTES and start + count < total:
                    blob = &blobs[count]
                    scattered = not self.take(
                        blob, names[start + count], arrays[start + count], spec[start + count], held
                    )
                    if scattered:
                        break
                    if blob.spec.bytes >= PORTION_BYTES and count > 0:
                        break
                    count += 1
                    taken += blob.spec.bytes
                if taken >= PORTION_BYTES and count == 1:
                    self.add_large(&blobs[0])
                    start += 1
                    continue
                with nogil:
                    failed = jc_image_blobs(&self._image, blobs, <size_t> count)
                self.check(failed)
                PyErr_CheckSignals()
                start += count
                if scattered:
                    break
        finally:
            free(blobs)
        return start

    cdef int add_large(self, const jc_blob *blob) except -1:
        cdef jc_entry entry
        cdef uint64_t chunk
        cdef int failed
        memcpy(entry.key, blob.key, blob.key_bytes)
        self.check(jc_image_name(&self._image, blob.name, blob.name_bytes, blob.spec))
        for chunk in range(blob.spec.chunks):
            with nogil:
                failed = jc_image_chunk(&self._image, &entry, blob.key_bytes, blob.spec, blob.data, chunk)
            self.check(failed)
            PyErr_CheckSignals()
        self.check(jc_image_document(&self._image, &entry, blob.key_bytes, blob.name, blob.name_bytes, blob.spec))
        return 0

    cdef bint take(self, jc_blob *blob, str name, cnp.ndarray array, Py_ssize_t index, list held) except -1:
        cdef jc_spec *spec = self.spec_at(index)
        cdef Py_ssize_t n
        if <uint64_t> cnp.PyArray_NBYTES(array) < spec.bytes:
            raise BlobValueError(f"expected an array of {spec.bytes} bytes, found {array.nbytes}")
        if not cnp.PyArray_IS_C_CONTIGUOUS(array):
            if spec.bytes >= JC_LARGE:
                return False
            array = cnp.PyArray_GETCONTIGUOUS(array)
            held.append(array)
        blob.data = <const uint8_t *> cnp.PyArray_DATA(array)
        blob.name = <const uint8_t *> PyUnicode_AsUTF8AndSize(name, &n)
        blob.name_bytes = <size_t> n
        blob.spec = spec
        blob.key_bytes = self.make_key(name, blob.name, <size_t> n, blob.key)
        return True

    cdef size_t make_key(self, str name, const uint8_t *text, size_t n, uint8_t *out) except 0:
        cdef size_t length = jc_escape(out, text, n) if n else 0
        cdef bytes key
        if length == 0:
            key = (<str> self._long_key(name)).encode("ascii")
            length = <size_t> len(key)
            if not 1 <= length <= JC_MAX_KEY:
                raise BlobValueError(f"expected a key of 1 to {JC_MAX_KEY} characters, found {key!r:.80}")
            memcpy(out, <const uint8_t *> key, length)
        return length

    def add_gathered(self, str name, Py_ssize_t index, pieces):
        """Add a blob whose bytes are gathered piece by piece.

        Parameters
        ----------
        name, index
            Its name and the index of its spec.
        pieces
            Called with the number of each chunk; gives the contiguous memory of its bytes in order, without the zeros
            that fill it up.

        Raises
        ------
        OSError
            A write failed, or the arena is too small.
        """
        cdef jc_spec *spec = self.spec_at(index)
        cdef jc_entry entry
        cdef Py_ssize_t n
        cdef const uint8_t *text = <const uint8_t *> PyUnicode_AsUTF8AndSize(name, &n)
        cdef size_t node
        cdef uint64_t chunk
        cdef const uint8_t[::1] view
        cdef const uint8_t *data
        cdef uint64_t size
        cdef int failed
        self.check(0)
        node = self.make_key(name, text, <size_t> n, entry.key)
        self.check(jc_image_name(&self._image, text, <size_t> n, spec))
        for chunk in range(spec.chunks):
            jc_chunk_key(&entry, node, spec, chunk)
            entry.size = spec.chunk_bytes
            with nogil:
                failed = jc_image_begin(&self._image, &entry)
            self.check(failed)
            for piece in pieces(chunk):
                view = piece
                size = <uint64_t> view.shape[0]
                if size == 0:
                    continue
                data = &view[0]
                with nogil:
                    failed = jc_image_piece(&self._image, data, size)
                self.check(failed)
            with nogil:
                failed = jc_image_piece(&self._image, NULL, self._image.open_left)
                if not failed:
                    failed = jc_image_finish_chunk(&self._image)
            self.check(failed)
        self.check(jc_image_document(&self._image, &entry, node, text, <size_t> n, spec))

    def add_encoded(self, str name, Py_ssize_t index, chunks):
        """Add a blob whose chunks are given as their encoded bytes.

        Parameters
        ----------
        name, index
            Its name and the index of its spec.
        chunks
            The encoded bytes of each chunk, in order; each is taken when the one before it has been laid out.

        Returns
        -------
        list of int
            The size of each encoded chunk, in bytes.

        Raises
        ------
        OSError
            A write failed, or the arena is too small.
        BlobValueError
            There are fewer chunks than the spec says, or more; or one has no bytes.
        """
        cdef jc_spec *spec = self.spec_at(index)
        cdef jc_entry entry
        cdef Py_ssize_t n
        cdef const uint8_t *text = <const uint8_t *> PyUnicode_AsUTF8AndSize(name, &n)
        cdef size_t node
        cdef uint64_t chunk = 0
        cdef const uint8_t[::1] view
        cdef const uint8_t *data
        cdef uint64_t size
        cdef int failed
        cdef list sizes = []
        self.check(0)
        node = self.make_key(name, text, <size_t> n, entry.key)
        self.check(jc_image_name(&self._image, text, <size_t> n, spec))
        for encoded in chunks:
            view = encoded
            size = <uint64_t> view.shape[0]
            if chunk == spec.chunks or size == 0:
                raise BlobValueError(f"expected {spec.chunks} chunks of encoded bytes, found one more or an empty one")
            data = &view[0]
            with nogil:
                failed = jc_image_encoded(&self._image, &entry, node, spec, chunk, data, size)
            self.check(failed)
            PyErr_CheckSignals()
            sizes.append(size)
            chunk += 1
        if chunk != spec.chunks:
            raise BlobValueError(f"expected {spec.chunks} chunks of encoded bytes, found {chunk}")
        self.check(jc_image_document(&self._image, &entry, node, text, <size_t> n, spec))
        return sizes

    def copy(self, int threads=2):
        """Copy the large payloads that an arena has room for, and fill in their checksums; the sources are free then.

        Parameters
        ----------
        threads
            Threads that copy, the calling one among them, 1 to 16.

        Raises
        ------
        MemoryError
            There is none for the list of copies.
        """
        cdef int failed, left = 1
        if not 1 <= threads <= 16:
            raise BlobValueError(f"expected 1 to 16 threads, found {threads}")
        self.check(0)
        while left:
            with nogil:
                failed = jc_image_copy(&self._image, threads, 4 * PORTION_BYTES, &left)
            self.check(failed)
            PyErr_CheckSignals()

    def root(self, bytes head not None, bytes specs not None, bytes tail not None, bytes more not None=b""):
        """Add the root document: `head`, the table with `specs` as one of its columns, and `tail`.

        `more` is the text of further columns, which begins with a comma; they come last in the table.

        Raises
        ------
        OSError
            A write failed, or the arena is too small.
        """
        cdef const uint8_t *parts[4]
        cdef size_t sizes[4]
        cdef int failed
        self.check(0)
        for i, part in enumerate((head, specs, more, tail)):
            parts[i] = <const uint8_t *> (<bytes> part)
            sizes[i] = <size_t> len(<bytes> part)
        with nogil:
            failed = jc_image_root(
                &self._image, parts[0], sizes[0], parts[1], sizes[1], parts[2], sizes[2], parts[3], sizes[3]
            )
        self.check(failed)

    def index(self):
        """Give the central directory; the view is good until the image goes on."""
        return memoryview(<uint8_t[:self._image.central.used]> self._image.central.data) if (
            self._image.central.used
        ) else memoryview(b"")

    def finish(self, const uint8_t[::1] end not None):
        """Append the central directory and then `end`, and give the size of the whole in bytes.

        A `BlockWriter` is not finished by it.

        Raises
        ------
        OSError
            A write failed, or the arena is too small.
        """
        cdef size_t n = <size_t> end.shape[0]
        cdef const uint8_t *data = &end[0] if n else NULL
        cdef int failed
        self.check(0)
        with nogil:
            failed = jc_image_append(&self._image, self._image.central.data, self._image.central.used)
            if not failed:
                failed = jc_image_append(&self._image, data, n)
            if not failed:
                failed = jc_image_flush(&self._image)
        self.check(failed)
        return self._image.end

    cdef int check(self, int failed) except -1:
        if failed and not self._failed:
            self._failed = failed
        if self._failed == ENOBUFS:
            raise MemoryError("the arena is too small for the image")
        if self._failed:
            raise OSError(self._failed, os.strerror(self._failed))
        return 0

    cdef jc_spec *spec_at(self, Py_ssize_t index) except NULL:
        if not 0 <= index < self._spec_count:
            raise BlobValueError(f"expected the index of one of {self._spec_count} specs, found {index}")
        return &self._specs[index]
