"""A gate that one thread closes while it works on memory without the GIL, and at which all others wait.

Inline functions only; they are called with the GIL held, which is the guard of every field. The memory and the gate
belong to an object, and every thread that calls holds a reference to it.
"""

from cpython.pythread cimport (
    WAIT_LOCK,
    PyThread_acquire_lock,
    PyThread_allocate_lock,
    PyThread_free_lock,
    PyThread_get_thread_ident,
    PyThread_release_lock,
    PyThread_type_lock,
)
from posix.time cimport nanosleep, timespec
from posix.types cimport pid_t
from posix.unistd cimport getpid


cdef struct Gate:
    bint closed
    Py_ssize_t waiting
    # Held for as long as the gate is closed, and for a moment by each thread that waited for it to open. Made when
    # first needed: most gates are never closed.
    PyThread_type_lock lock
    # Who closed it last.
    unsigned long thread
    pid_t process


cdef enum GateState:
    GATE_OPEN
    # Closed by this very thread: to wait would be for ever.
    GATE_OWN
    # It was closed when the process was forked, by a thread that exists in the parent only. It is open now, and what
    # that thread was writing is half written.
    GATE_FORKED


cdef inline bint gate_left_by_parent(Gate *gate) noexcept:
    """After a fork, forget the threads that stayed in the parent; True if there may be some to forget."""
    if gate.process == getpid():
        return False
    # A lock that one of them holds can be neither taken nor freed here: it is left to leak.
    gate.process = getpid()
    gate.lock = NULL
    gate.waiting = 0
    gate.closed = False
    return True


cdef inline GateState gate_wait(Gate *gate) noexcept:
    """Wait without the GIL until the gate is open. Whatever was known of the memory before may no longer hold."""
    cdef PyThread_type_lock lock
    while gate.closed:
        if gate_left_by_parent(gate):
            return GATE_FORKED
        if gate.thread == <unsigned long> PyThread_get_thread_ident():
            return GATE_OWN
        gate.waiting += 1
        lock = gate.lock
        with nogil:
            PyThread_acquire_lock(lock, WAIT_LOCK)
            PyThread_release_lock(lock)
        gate.waiting -= 1
    return GATE_OPEN


cdef inline bint gate_crowded(Gate *gate) noexcept:
    """Whether threads that waited have not come through yet.

    They go first. Without this, a thread that closes the gate without end would always have closed it again before a
    sleeper is awake.
    """
    return gate.waiting != 0 and not gate_left_by_parent(gate)


cdef inline void gate_pause() noexcept:
    """Let the GIL go for a moment, in which a thread that is waking up can take it."""
    cdef timespec pause
    pause.tv_sec = 0
    pause.tv_nsec = 20_000
    with nogil:
        nanosleep(&pause, NULL)


cdef inline int gate_close(Gate *gate) except -1:
    """Close a gate that is open and not crowded; never waits."""
    if gate.lock is NULL:
        gate.lock = PyThread_allocate_lock()
        if gate.lock is NULL:
            raise MemoryError
    # Free: who holds it while the gate is open is still counted among those that wait.
    PyThread_acquire_lock(gate.lock, WAIT_LOCK)
    gate.closed = True
    gate.thread = <unsigned long> PyThread_get_thread_ident()
    gate.process = getpid()
    return 0


cdef inline void gate_open(Gate *gate) noexcept:
    gate.closed = False
    PyThread_release_lock(gate.lock)


cdef inline void gate_free(Gate *gate) noexcept:
    if gate.lock is not NULL:
        PyThread_free_lock(gate.lock)
