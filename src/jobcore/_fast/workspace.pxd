"""The table of blobs, as native code sees it. Guard of all fields: the GIL."""

from libc.stdint cimport int64_t

from jobcore._fast.blob cimport Blob


cdef class BlobTable:
    cdef object __weakref__
    # Every change is one step of the dictionary, so no thread ever sees half of one.
    cdef dict _blobs
    # Set once, before anybody else can have the table.
    cdef BlobTable _parent
    cdef str _table_name
    cdef object _rule
    cdef bint _ready
    # How many removals there were: a program that knows blobs of this table looks them up again after one.
    cdef int64_t _removals

    cdef int64_t removals(self) noexcept
    cdef Blob find(self, object name)
    cdef Blob find_or_raise(self, object name)
    cdef Blob find_or_create(self, object name)
    cdef Blob _insert(self, Blob blob)
    cdef object _not_found(self, object name)
