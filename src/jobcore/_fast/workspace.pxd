"""The table of blobs, as native code sees it. Guard of all fields: the GIL."""

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

    cdef Blob find(self, object name)
    cdef Blob find_or_raise(self, object name)
    cdef Blob find_or_create(self, object name)
    cdef Blob _insert(self, Blob blob)
    cdef object _not_found(self, object name)
