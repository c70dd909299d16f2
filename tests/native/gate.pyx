"""Native code that keeps all others out of a blob, as a kernel does that works on its bytes without the GIL."""

from cpython.ref cimport PyObject

from jobcore._fast.blob cimport KIND_TENSOR, Blob


def close(Blob blob not None):
    """Close the gate."""
    blob.close_gate()


def open(Blob blob not None):
    """Open the gate."""
    blob.open_gate()


def state(Blob blob not None):
    """Whether the gate is closed, and how many threads wait for it."""
    return bool(blob._gate.closed), blob._gate.waiting


def negate(Blob blob not None):
    """Change the sign of a tensor of float64 that nobody else sees, in place and without the GIL."""
    cdef Py_ssize_t i
    if not blob._exclusive() and not blob._bound:
        raise ValueError
    blob.close_gate()
    with nogil:
        for i in range(blob._nbytes // 8):
            (<double *> blob._data)[i] *= -1
    blob.open_gate()


def add_up(Blob blob not None, meanwhile):
    """Add up a tensor of float64 by the other way: a reference keeps its bytes as they are, whatever is fed."""
    cdef object held = blob._held
    cdef const double *item = <const double *> blob._data
    cdef Py_ssize_t i, count = blob._nbytes // 8
    cdef double total = 0
    assert blob._kind == KIND_TENSOR
    meanwhile()
    with nogil:
        for i in range(count):
            total += item[i]
    assert <PyObject *> held != <PyObject *> blob._held
    return total
