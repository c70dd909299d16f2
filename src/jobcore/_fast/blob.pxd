"""A blob as native code sees it.

Guard of every field, unless said otherwise: changed with the GIL held and the gate open. So a native kernel may read
the fields and the bytes without the GIL in one of two ways:

- copy ``_kind``, ``_data``, ``_nbytes`` and a new reference to ``_held`` while it has the GIL, then let it go. While
  that reference lives, nobody writes into the bytes of a blob that is not bound: a feed goes to new memory;
- or close the gate with the GIL, work without it, and open the gate with the GIL. Meanwhile every feed, fetch, view,
  bind and reset of this blob waits. Bytes may then be written too, if ``_exclusive()`` held before closing or the blob
  is bound. Whoever closes several gates must close them in one order that all agree on, or two threads wait for each
  other for ever; this module closes one at a time.
"""

cimport cython
cimport numpy as cnp
from libc.stdint cimport int32_t, int64_t

from jobcore._fast.gate cimport Gate


cdef extern from "value.h" nogil:
    cdef enum BlobKind "jc_kind":
        KIND_EMPTY "JC_KIND_EMPTY"
        KIND_TENSOR "JC_KIND_TENSOR"
        KIND_COUNTER "JC_KIND_COUNTER"
        KIND_TIMER "JC_KIND_TIMER"
        KIND_STRING "JC_KIND_STRING"
        KIND_BYTES "JC_KIND_BYTES"
        KIND_STATE "JC_KIND_STATE"
        KIND_RNG "JC_KIND_RNG"
        KIND_OBJECT "JC_KIND_OBJECT"
        KIND_QUEUE "JC_KIND_QUEUE"


# The largest tensor that a program writes into in its place.
cdef enum:
    PIN_BYTES = 16384


@cython.final
cdef class Blob:
    # Set once, at creation.
    cdef str _name
    cdef object _classify

    cdef BlobKind _kind
    # The live value; None when empty. A tensor that is not bound is flagged read-only: only this class writes to it.
    cdef object _held
    # First byte and size of a tensor, of bytes, or of a string as UTF-8; NULL and 0 for other kinds.
    cdef void *_data
    cdef Py_ssize_t _nbytes
    # NumPy's type number if the tensor is 0-d, owns its memory, and is of a type that a Python number makes; else -1.
    cdef int _scalar_type
    cdef bint _bound
    cdef bint _transient
    # Raised whenever other memory or another value takes the place of `_held`; native code reads it without the GIL.
    cdef int64_t _version
    # How many programs that run have a reference to the array in `_held` and may write into it at any moment, without
    # the GIL: whoever wants it to keep what it shows gets a copy. Of a scalar they write the one item, by one atomic
    # store. Of any other tensor they have `_busy` while they write, and so has who copies it; nobody else writes there.
    cdef Py_ssize_t _pins
    # A lock as in spin.h. Held for a copy of `PIN_BYTES` at most, and never by a thread that waits for the GIL.
    cdef int32_t _busy

    cdef Gate _gate

    cdef int close_gate(self) except -1
    cdef void open_gate(self) noexcept
    cdef int wait_for_gate(self, bint reading) except -1
    cdef int give_way(self) except -1

    cdef bint pin(self) noexcept
    cdef bint pin_tensor(self) noexcept
    cdef void unpin(self, object held) noexcept
    cdef int put(self, object value, int transient) except -1
    cdef object get(self)
    # Add to a 0-d tensor of int64 in one step, also beside programs that add to it without the GIL. False for others.
    cdef bint _fetch_add(self, int64_t amount, int64_t *before) except -1
    cdef int _put_scalar(self, int type_number, const void *number, size_t nbytes, int transient) except -1
    cdef int _put_array(self, cnp.ndarray source, int transient) except -1
    cdef int _put_blob(self, Blob source, int transient) except -1
    cdef int _put_by_rule(self, object value, int transient) except -1
    cdef int _settle(self, BlobKind kind, object value, int transient) except -1
    cdef int _install(self, BlobKind kind, object value, int transient, bint bound) except -1
    cdef int _overwrite(self, cnp.ndarray target, cnp.ndarray source) except -1
    cdef bint _exclusive(self) noexcept
    cdef bint _reusable(self, cnp.ndarray source) noexcept
    cdef object _get_bound(self)
    cdef cnp.ndarray _steady(self)
    cdef object _view(self)
    cdef int _bind(self, object array) except -1


cdef int flag_of(object transient) except -2
cdef str checked_name(object name)
# Where the mark of this process is, see forks.h.
cdef const int32_t *process_marks() noexcept
# Tell blobs of a class of queues.
cdef int add_queue_class(type queue) except -1
