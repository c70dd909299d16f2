"""The table of a root document in native memory, and a fast parser of the text that the writer makes."""

cimport cython
from cpython.bytes cimport PyBytes_FromStringAndSize
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_DecodeUTF8
from libc.stdint cimport UINT32_MAX, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, realloc

from jobcore._fast.table cimport (
    jc_after,
    jc_find,
    jc_integers,
    jc_list_end,
    jc_name,
    jc_table_fits,
    jc_text_end,
)

import json

from jobcore.errors import BlobValueError

__all__ = ["RootTable"]

# Offsets in a file are below it.
cdef uint64_t PLACES = <uint64_t> 1 << 63


@cython.final
cdef class RootTable:
    """The columns of a table.

    Parameters
    ----------
    names, spec
        Name of each blob, and the index of its spec.
    places, sums
        Offset in the file and CRC-32 of each chunk of all blobs, in order.

    Attributes
    ----------
    names : list of str
        Not to be changed.
    specs : bytes
        JSON text of the specs, where the table was parsed; else empty.

    Raises
    ------
    BlobValueError
        The columns contradict each other, or numbers are out of range.

    Notes
    -----
    Thread-safe: it does not change once it is made.
    """

    def __init__(self, list names not None, list spec not None, list places not None, list sums not None):
        cdef Py_ssize_t i, n
        if len(spec) != len(names) or len(places) != len(sums):
            raise BlobValueError(
                f"expected {len(names)} specs and as many sums as places, found {len(spec)}, {len(sums)}"
            )
        self._specs = b""
        # A copy: native code points into these texts.
        self._names = list(names)
        self.room(len(names), len(places))
        try:
            for i in range(self.blobs):
                self.texts[i].text = <const uint8_t *> PyUnicode_AsUTF8AndSize(<str?> names[i], &n)
                self.texts[i].nbytes = <size_t> n
                self.spec[i] = spec[i]
            for i in range(self.chunks):
                self.places[i] = places[i]
                self.sums[i] = sums[i]
                if self.places[i] >= PLACES:
                    raise OverflowError("a place beyond any file")
        except (OverflowError, TypeError, UnicodeEncodeError) as error:
            raise BlobValueError(f"expected names, and numbers that a table can hold: {error}") from error

    @property
    def names(self):
        """Name of each blob; not to be changed."""
        return self._names

    @property
    def specs(self):
        """JSON text of the specs, where the table was parsed; else empty."""
        return self._specs

    def __dealloc__(self):
        free(self.texts)
        free(self.spec)
        free(self.places)
        free(self.sums)

    @staticmethod
    def parse(const uint8_t[::1] data not None, Py_ssize_t start=0):
        """Parse a table as this library writes it, from its first brace to its last.

        Parameters
        ----------
        data
            Text that holds it.
        start
            Where its first brace stands; the text ends with the table's last.

        Returns
        -------
        RootTable or None
            None where it is anything else than the very bytes that the writer would make of some table, also when
            a general parser could read it. Names may still be equal, and indices of specs and places out of order.
        """
        cdef RootTable table = RootTable.__new__(RootTable)
        cdef const uint8_t *first
        if not 0 <= start < data.shape[0]:
            return None
        first = &data[0]
        table._held = data
        return table if table.take(first + start, first + data.shape[0]) else None

    def fits(self, list chunks not None, list sizes not None):
        """Check the columns against the specs.

        Parameters
        ----------
        chunks, sizes
            Number of chunks and bytes of one chunk, of each spec.

        Returns
        -------
        bool
            Whether each blob has one of the specs, each chunk a place and a sum, and chunks lie in order and apart.
        """
        cdef Py_ssize_t count = len(chunks), i
        cdef uint64_t *numbers
        if len(sizes) != count:
            raise BlobValueError(f"expected {count} sizes, found {len(sizes)}")
        numbers = <uint64_t *> calloc(<size_t> (2 * count + 1), sizeof(uint64_t))
        if numbers is NULL:
            raise MemoryError
        try:
            for i in range(count):
                numbers[i] = chunks[i]
                numbers[count + i] = sizes[i]
                if numbers[count + i] >= PLACES:
                    return False
            return bool(
                jc_table_fits(
                    self.spec, <size_t> self.blobs, numbers, numbers + count, <size_t> count, self.places,
                    <size_t> self.chunks
                )
            )
        except OverflowError:
            return False
        finally:
            free(numbers)

    def columns(self):
        """Give the columns `spec`, `places` and `sums` as lists of integers."""
        cdef Py_ssize_t i
        return (
            [self.spec[i] for i in range(self.blobs)],
            [self.places[i] for i in range(self.chunks)],
            [self.sums[i] for i in range(self.chunks)],
        )

    cdef int room(self, Py_ssize_t blobs, Py_ssize_t chunks) except -1:
        if self.texts is NULL:
            self.texts = <jc_name *> calloc(<size_t> blobs + 1, sizeof(jc_name))
        self.spec = <uint32_t *> calloc(<size_t> blobs + 1, sizeof(uint32_t))
        self.places = <uint64_t *> calloc(<size_t> chunks + 1, sizeof(uint64_t))
        self.sums = <uint32_t *> calloc(<size_t> chunks + 1, sizeof(uint32_t))
        if self.texts is NULL or self.spec is NULL or self.places is NULL or self.sums is NULL:
            raise MemoryError
        self.blobs, self.chunks = blobs, chunks
        return 0

    cdef const uint8_t *take_names(self, const uint8_t *p, const uint8_t *end) except? NULL:
        """Take names up to the bracket behind them, and give what follows it; NULL when one is not as it should be."""
        cdef Py_ssize_t count = 0, have = 0, n
        cdef const uint8_t *stop
        cdef jc_name *texts
        cdef int plain
        cdef str name
        cdef list names = []
        self._names = names
        if p < end and p[0] == c"]":
            return p + 1
        while True:
            if p == end or p[0] != c'"':
                return NULL
            p += 1
            stop = jc_text_end(p, end, &plain)
            if stop is NULL or stop == p:
                return NULL
            if count == have:
                have = 2 * have + 64
                texts = <jc_name *> realloc(self.texts, <size_t> have * sizeof(jc_name))
                if texts is NULL:
                    raise MemoryError
                self.texts = texts
            try:
                if plain:
                    name = PyUnicode_DecodeUTF8(<const char *> p, stop - p, NULL)
                    self.texts[count].text, self.texts[count].nbytes = p, <size_t> (stop - p)
                else:
                    name = json.loads(PyBytes_FromStringAndSize(<const char *> p - 1, stop - p + 2))
                    self.texts[count].text = <const uint8_t *> PyUnicode_AsUTF8AndSize(name, &n)
                    self.texts[count].nbytes = <size_t> n
            except ValueError:
                return NULL  # no JSON, or no text of Unicode
            names.append(name)
            count += 1
            p = stop + 1
            if p == end:
                return NULL
            if p[0] == c"]":
                return p + 1
            if p[0] != c",":
                return NULL
            p += 1

    cdef bint take(self, const uint8_t *p, const uint8_t *end) except -1:
        cdef const uint8_t *spec
        cdef const uint8_t *spec_end
        cdef const uint8_t *places
        cdef const uint8_t *places_end
        cdef const uint8_t *sums_end
        cdef size_t blobs = 0, chunks = 0, sums = 0
        p = jc_after(p, end, b'{"name":[')
        if p is NULL:
            return False
        p = self.take_names(p, end)
        if p is NULL:
            return False
        spec = jc_after(p, end, b',"spec":[')
        if spec is NULL:
            return False
        spec_end = jc_list_end(spec, end, &blobs)
        if spec_end is NULL or blobs != <size_t> len(self._names):
            return False
        p = jc_after(spec_end, end, b'],"specs":[')
        if p is NULL:
            return False
        # The first such bytes: a text in the specs may hold them only where the specs are no JSON up to there.
        places = jc_find(p, end, b'],"place":[')
        if places is NULL:
            return False
        self._specs = PyBytes_FromStringAndSize(<const char *> p - 1, places - p + 2)
        places += 11
        places_end = jc_list_end(places, end, &chunks)
        if places_end is NULL:
            return False
        p = jc_after(places_end, end, b'],"crc32":[')
        if p is NULL:
            return False
        sums_end = jc_list_end(p, end, &sums)
        if sums_end is NULL or sums != chunks or end - sums_end != 2 or sums_end[1] != c"}":
            return False
        self.room(<Py_ssize_t> blobs, <Py_ssize_t> chunks)
        return (
            jc_integers(spec, spec_end, <uint64_t> UINT32_MAX, self.spec, blobs, 0)
            and jc_integers(places, places_end, PLACES, self.places, chunks, 1)
            and jc_integers(p, sums_end, <uint64_t> UINT32_MAX + 1, self.sums, chunks, 0)
        )
