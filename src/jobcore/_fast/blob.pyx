"""One named value of a workspace."""

cimport cython
from cpython.bool cimport PyBool_Check
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.complex cimport PyComplex_CheckExact
from cpython.float cimport PyFloat_AS_DOUBLE, PyFloat_CheckExact
from cpython.long cimport PyLong_AsLongLongAndOverflow, PyLong_CheckExact
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_AsUTF8AndSize, PyUnicode_CheckExact, PyUnicode_FromObject
from libc.stdint cimport UINT64_MAX, int32_t, int64_t, uint64_t
from libc.string cimport memcpy

cimport numpy as cnp

from jobcore._fast.arrays cimport (
    copies_under_gil,
    copy_of,
    fill,
    jc_copied_by_numpy,
    jc_equal_dtype,
    jc_equal_shape,
    jc_from_scalar,
    jc_has_references,
    jc_identical_dtype,
    jc_keeps_layout,
    jc_new_like,
    jc_read_only_view,
    refcount_of,
)
from jobcore._fast.atomics cimport jc_atomic_fetch_add, jc_relaxed_store
from jobcore._fast.counter cimport Counter
from jobcore._fast.gate cimport (
    GATE_FORKED,
    GATE_OPEN,
    GateState,
    gate_close,
    gate_crowded,
    gate_free,
    gate_open,
    gate_pause,
    gate_wait,
)
from jobcore._fast.timer cimport Timer

cdef extern from "forks.h" nogil:
    int32_t jc_forks
    int jc_forks_setup() noexcept


cdef extern from "spin.h" nogil:
    bint jc_spin_lock(int32_t *word, int32_t mark) noexcept
    void jc_spin_unlock(int32_t *word) noexcept


import operator

import numpy as np

from jobcore._fast.blob_errors import (
    describe,
    holds_objects,
    is_empty,
    misfit,
    no_int64,
    not_transient,
    refuse,
    torn_by_fork,
    used_by_writer,
)
from jobcore.errors import BlobKindError, BlobValueError

__all__ = ["BLOB_KINDS", "Blob"]

cnp.import_array()

cdef tuple KIND_NAMES = (
    "empty", "tensor", "counter", "timer", "string", "bytes", "state", "rng", "object", "queue",
)
BLOB_KINDS = KIND_NAMES
cdef dict KIND_CODES = {kind: code for code, kind in enumerate(KIND_NAMES)}
# What the C code below takes for granted, and a rule written in Python might not keep to.
cdef dict KIND_TYPES = {
    "tensor": np.ndarray, "counter": Counter, "timer": Timer, "string": str, "bytes": bytes, "queue": (),
}
cdef object float64 = np.float64

if jc_forks_setup() != 0:
    raise MemoryError


cdef const int32_t *process_marks() noexcept:
    return &jc_forks


cdef int add_queue_class(type queue) except -1:
    KIND_TYPES["queue"] = (*KIND_TYPES["queue"], queue)
    return 0


cdef int flag_of(object transient) except -2:
    """-1 for None: leave the flag of the blob alone."""
    return -1 if transient is None else bool(transient)


@cython.final
cdef class Blob:
    """One named value of a workspace: a tensor, a counter, a string and so on.

    The kind follows from what is fed:

    ============  ============================================================  ==================================
    kind          fed with                                                      kept as
    ============  ============================================================  ==================================
    ``tensor``    ndarray of any dtype but object, NumPy scalar, bool, int,     ndarray, C order (Fortran order
                  float, complex                                                where the source is in that only)
    ``counter``   `Counter`                                                     that very counter
    ``timer``     `Timer`                                                       that very timer
    ``string``    str                                                           str
    ``bytes``     bytes                                                         bytes
    ``queue``     `BlobQueue`, `RebatchingQueue`; the blob becomes transient    that very queue
    ``empty``     an empty `Blob`, or :meth:`reset`                             nothing
    ``object``    any other object, if the blob is transient                    that very object
    ============  ============================================================  ==================================

    The rule given as `classify` adds more: that of `jobcore.Workspace` takes ``state`` and ``rng``, and makes tensors
    of what has ``__array__`` or ``__dlpack__``.

    Parameters
    ----------
    name
        Any text that is not empty.
    classify
        Called as ``classify(name, value)`` for a value that the table above does not list, and to copy a state; returns
        the kind and the value to keep, or raises `BlobKindError` or `BlobValueError`.

    Raises
    ------
    BlobKindError
        `name` is not a str.
    BlobValueError
        `name` is empty or not valid Unicode.

    Notes
    -----
    Thread safety: every method may be called from any thread at any time. Each takes effect at one moment, as if the
    calls came one after the other; no thread ever gets half a tensor. Copies of 256 KiB and more run without the GIL.
    A feed of that size into memory that is being reused or bound makes the other calls on this blob wait, without the
    GIL. An array that is being fed must not be changed by others meanwhile, and writing into bound memory from outside
    is as safe as the outside makes it.

    Fork: a child process may use every blob. If a thread of the parent was writing into a tensor at the moment of the
    fork, the child's blob is emptied, and the first read there says so.
    """

    def __cinit__(self, name, classify=None):
        self._name = checked_name(name)
        self._classify = refuse if classify is None else classify
        self._scalar_type = -1

    def __init__(self, name, classify=None):
        pass

    def __dealloc__(self):
        # No thread can be waiting: each holds a reference to the blob.
        gate_free(&self._gate)

    def __repr__(self):
        cdef list notes = []
        if self._kind == KIND_TENSOR:
            notes.append(f"{self.dtype} {self.shape}")
        if self._bound:
            notes.append("bound")
        if self._transient:
            notes.append("transient")
        return f"<Blob {self._name!r}: {', '.join([self.kind, *notes])}>"

    @property
    def name(self):
        """The name, as given at creation."""
        return self._name

    @property
    def kind(self):
        """One of `BLOB_KINDS`."""
        return KIND_NAMES[<int> self._kind]

    @property
    def transient(self):
        """Whether the blob is left out of every checkpoint. May be set; an ``object`` or ``queue`` is never False."""
        return self._transient

    @transient.setter
    def transient(self, value):
        cdef bint flag = bool(value)
        if not flag and self._kind in (KIND_OBJECT, KIND_QUEUE):
            raise not_transient(self._name, self._held, self._kind == KIND_QUEUE)
        self._transient = flag

    @property
    def bound(self):
        """Whether the blob is an outside array, see :meth:`bind`."""
        return self._bound

    @property
    def dtype(self):
        """The dtype of a tensor, None for other kinds."""
        return self._held.dtype if self._kind == KIND_TENSOR else None

    @property
    def shape(self):
        """The shape of a tensor, None for other kinds."""
        return self._held.shape if self._kind == KIND_TENSOR else None

    @property
    def nbytes(self):
        """Size in bytes of a tensor, of bytes, or of a string as UTF-8; 0 for other kinds."""
        return cnp.PyArray_NBYTES(<cnp.ndarray> self._held) if self._kind == KIND_TENSOR else self._nbytes

    @property
    def value(self):
        """The live value itself, never a copy; None when empty. Low level: for kernels and for saving.

        The array of a tensor that is not bound is read-only. While somebody holds it, a feed goes to new memory and
        this array keeps what it shows. A state must not be changed by whoever gets it here.

        Raises
        ------
        BlobValueError
            The value was lost in a fork.
        """
        if self._gate.closed:
            self.wait_for_gate(True)
        if self._pins:
            return jc_read_only_view(self._steady())
        return self._held

    def feed(self, value, transient=None):
        """Put a copy of a value into the blob; counters, timers, generators and objects are put in themselves.

        Parameters
        ----------
        value
            What the class documentation lists; a `Blob` stands for its value. A bound blob takes only a tensor of
            equal shape and dtype and copies it into the bound array.
        transient
            True: leave the blob out of checkpoints. False: put it into them. None: leave the flag as it is.

        Raises
        ------
        BlobKindError
            The value is of no supported kind and the blob is not transient, or the blob is bound and the value is
            no tensor.
        BlobValueError
            The blob is bound and shape or dtype differ, or its array has become read-only; an integer beyond 64
            bits; text that is not valid Unicode. The blob is then as before.
        """
        self.put(value, flag_of(transient))

    def fetch(self):
        """Return the value: a copy of a tensor or state, anything else itself.

        Returns
        -------
        object
            For a tensor, an ndarray that owns its memory, of the blob's dtype and shape.

        Raises
        ------
        BlobValueError
            The blob is empty, or its value was lost in a fork.
        """
        return self.get()

    def view(self):
        """Return a read-only array that shows the tensor without a copy.

        It never changes: while it lives, a feed goes to new memory. Only the view of a bound blob shows what becomes
        of the bound array.

        Returns
        -------
        numpy.ndarray
            Read-only, of the blob's dtype and shape.

        Raises
        ------
        BlobKindError
            The blob is no tensor.
        BlobValueError
            The blob is empty, or its value was lost in a fork.
        """
        return self._view()

    def bind(self, array):
        """Make the blob be an outside array from now on: nothing is copied, and whoever feeds or loads fills `array`.

        Parameters
        ----------
        array
            A writable ndarray of any shape, layout and dtype without Python objects. Subclasses are shown as plain
            arrays.

        Raises
        ------
        BlobValueError
            `array` is no ndarray, or is read-only, or masked.
        BlobKindError
            Its dtype holds objects or strings of variable width, which nothing can fill in place.
        """
        self._bind(array)

    def reset(self):
        """Empty the blob. A bound array is let go of, and not touched; the transient flag stays."""
        self.wait_for_gate(False)
        self._install(KIND_EMPTY, None, -1, False)

    def fetch_add(self, int64_t amount):
        """Add to an integer in one step, whatever other threads do to it, programs without the GIL included.

        Parameters
        ----------
        amount
            ``-2**63 <= amount < 2**63``. The sum wraps around as that of NumPy does.

        Returns
        -------
        int
            The value before.

        Raises
        ------
        BlobKindError
            The blob is no 0-d tensor of int64.
        OverflowError, TypeError
            `amount` is no such integer.
        """
        cdef int64_t before = 0
        if not self._fetch_add(amount, &before):
            raise no_int64(self)
        return before

    def take_buffer(self, shape, dtype):
        """Get an array to fill and to :meth:`adopt`, using again the blob's own memory where that harms nobody.

        That is the case when the blob holds a tensor of this shape and dtype in C order and nobody has a view of it.
        The blob is empty then until the array is adopted. Otherwise the array is new and the blob keeps its value. A
        bound blob gives the bound array. Low level: for loading in place.

        Parameters
        ----------
        shape
            An int or a sequence of ints.
        dtype
            Anything that ``numpy.dtype`` takes and that holds no Python objects.

        Returns
        -------
        numpy.ndarray
            Writable, its content undefined.

        Raises
        ------
        BlobKindError
            `dtype` holds objects or strings of variable width.
        BlobValueError
            The blob is bound and shape or dtype differ.
        """
        cdef cnp.ndarray array
        cdef tuple dims = shape_tuple(shape)
        wanted = np.dtype(dtype)
        if wanted.hasobject:
            raise BlobKindError(f"blob {self._name!r}: expected a dtype of fixed-width items, found {wanted}")
        self.wait_for_gate(False)
        if self._bound:
            if self.shape != dims or self.dtype != wanted:
                raise misfit(self._name, self._held, f"{wanted} {dims}")
            return self._held
        if self._kind == KIND_TENSOR and self.shape == dims and self.dtype == wanted and self._exclusive() and (
            self._pins == 0 and
            cnp.PyArray_CHKFLAGS(<cnp.ndarray> self._held, cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_OWNDATA)
        ):
            array = <cnp.ndarray> self._held
            self._install(KIND_EMPTY, None, -1, False)
            cnp.PyArray_ENABLEFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)
            return array
        return np.empty(dims, wanted)

    def adopt(self, array, transient=None):
        """Make an array the value of the blob without a copy. The caller gives it up, and it becomes read-only.

        If the blob is bound, the array is copied into the bound one, unless it is that one. Low level: for loading.

        Parameters
        ----------
        array
            An ndarray, not of a subclass, in C or Fortran order and without Python objects. Nobody may write into its
            memory any more.
        transient
            As for :meth:`feed`.

        Raises
        ------
        BlobKindError
            The dtype holds Python objects.
        BlobValueError
            `array` is no plain contiguous ndarray, or does not fit the bound array.
        """
        cdef int flag = flag_of(transient)
        self.wait_for_gate(False)
        if self._bound and array is self._held:
            self._install(KIND_TENSOR, array, flag, True)
            return
        if not cnp.PyArray_CheckExact(array) or not (
            cnp.PyArray_IS_C_CONTIGUOUS(<cnp.ndarray> array) or cnp.PyArray_IS_F_CONTIGUOUS(<cnp.ndarray> array)
        ):
            raise BlobValueError(
                f"blob {self._name!r}: expected a plain contiguous ndarray to adopt, found {describe(array)}",
                hint="use feed, which copies",
            )
        if not holdable(<cnp.ndarray> array):
            raise holds_objects(self._name, array)
        self._settle(KIND_TENSOR, array, flag)

    # The gate.

    cdef int close_gate(self) except -1:
        """Keep all others out of the blob until :meth:`open_gate`.

        If it had to wait for that, whatever was known of the blob before may no longer hold.
        """
        self.give_way()
        return gate_close(&self._gate)

    cdef void open_gate(self) noexcept:
        gate_open(&self._gate)

    cdef int wait_for_gate(self, bint reading) except -1:
        """Return with the gate open; whatever was known of the blob before may no longer hold."""
        cdef GateState state = gate_wait(&self._gate)
        if state == GATE_OPEN:
            return 0
        if state != GATE_FORKED:
            raise used_by_writer(self._name)
        if not self._bound:
            self._install(KIND_EMPTY, None, -1, False)
        if reading:
            raise torn_by_fork(self._name)
        return 0

    cdef int give_way(self) except -1:
        """Return with the gate open, and all threads through that have waited for it."""
        self.wait_for_gate(False)
        while gate_crowded(&self._gate):
            gate_pause()
            self.wait_for_gate(False)
        return 0

    # Programs that run.

    cdef bint pin(self) noexcept:
        """Let the caller write the one item of a 0-d tensor without the GIL; it keeps a reference to ``_held``.

        False if others could see it change: the blob is bound, or somebody has a view or the array itself.
        """
        if self._scalar_type < 0 or not self._exclusive():
            return False
        self._pins += 1
        return True

    cdef bint pin_tensor(self) noexcept:
        """As :meth:`pin`, for a small tensor of plain bytes, no scalar: the caller writes with ``_busy`` held."""
        if (
            self._kind != KIND_TENSOR
            or self._scalar_type >= 0
            or self._nbytes > PIN_BYTES
            or not self._exclusive()
            or not cnp.PyArray_CHKFLAGS(<cnp.ndarray> self._held, cnp.NPY_ARRAY_C_CONTIGUOUS | cnp.NPY_ARRAY_OWNDATA)
            or jc_copied_by_numpy(<cnp.ndarray> self._held)
        ):
            return False
        self._pins += 1
        return True

    cdef void unpin(self, object held) noexcept:
        """Take a pin back, before the reference to `held` goes."""
        if held is self._held and self._pins > 0:
            self._pins -= 1

    # Writing.

    cdef int put(self, object value, int transient) except -1:
        cdef double pair[2]
        cdef long long integer
        cdef unsigned long long positive
        cdef cnp.npy_bool truth
        cdef Py_ssize_t nbytes
        cdef int overflow = 0
        if PyFloat_CheckExact(value) or type(value) is float64:
            pair[0] = PyFloat_AS_DOUBLE(value)
            return self._put_scalar(cnp.NPY_DOUBLE, pair, sizeof(double), transient)
        if cnp.PyArray_CheckExact(value):
            if holdable(<cnp.ndarray> value):
                return self._put_array(<cnp.ndarray> value, transient)
        elif PyLong_CheckExact(value):
            integer = PyLong_AsLongLongAndOverflow(value, &overflow)
            if not overflow:
                return self._put_scalar(cnp.NPY_INT64, &integer, sizeof(long long), transient)
            if 0 < value <= UINT64_MAX:
                positive = value
                return self._put_scalar(cnp.NPY_UINT64, &positive, sizeof(unsigned long long), transient)
        elif PyUnicode_CheckExact(value):
            try:
                PyUnicode_AsUTF8AndSize(value, &nbytes)
            except UnicodeEncodeError:
                pass
            else:
                return self._settle(KIND_STRING, value, transient)
        elif PyBool_Check(value):
            truth = value is True
            return self._put_scalar(cnp.NPY_BOOL, &truth, sizeof(cnp.npy_bool), transient)
        elif PyComplex_CheckExact(value):
            pair[0] = value.real
            pair[1] = value.imag
            return self._put_scalar(cnp.NPY_CDOUBLE, pair, sizeof(pair), transient)
        elif isinstance(value, cnp.generic):
            array = jc_from_scalar(value)
            if cnp.PyArray_TYPE(<cnp.ndarray> array) == self._scalar_type and self._exclusive():
                return self._put_scalar(
                    self._scalar_type, cnp.PyArray_DATA(<cnp.ndarray> array), <size_t> self._nbytes, transient
                )
            if holdable(<cnp.ndarray> array):
                return self._settle(KIND_TENSOR, array, transient)
        elif PyBytes_CheckExact(value):
            return self._settle(KIND_BYTES, value, transient)
        elif type(value) is Counter:
            return self._settle(KIND_COUNTER, value, transient)
        elif type(value) is Timer:
            return self._settle(KIND_TIMER, value, transient)
        elif type(value) is Blob:
            return self._put_blob(<Blob> value, transient)
        return self._put_by_rule(value, transient)

    cdef int _put_scalar(self, int type_number, const void *number, size_t nbytes, int transient) except -1:
        if self._scalar_type == type_number and self._exclusive():
            memcpy(cnp.PyArray_DATA(<cnp.ndarray> self._held), number, nbytes)
            if transient >= 0:
                self._transient = transient
            return 0
        cdef cnp.ndarray array = cnp.PyArray_SimpleNew(0, NULL, type_number)
        memcpy(cnp.PyArray_DATA(array), number, nbytes)
        return self._settle(KIND_TENSOR, array, transient)

    cdef bint _fetch_add(self, int64_t amount, int64_t *before) except -1:
        cdef int64_t after
        if self._gate.closed:
            self.wait_for_gate(True)
        if self._scalar_type == cnp.NPY_INT64 and self._exclusive():
            before[0] = jc_atomic_fetch_add(<int64_t *> self._data, amount)
            return True
        if self._kind != KIND_TENSOR or self.shape != () or self.dtype != np.int64:
            return False
        # Somebody may look at this array, so no program writes into it: from here on it is one step by the GIL alone.
        before[0] = self._held[()]
        after = <int64_t> (<uint64_t> before[0] + <uint64_t> amount)
        if self._bound:
            self._held[()] = after
        else:
            self._put_scalar(cnp.NPY_INT64, &after, sizeof(after), -1)
        return True

    cdef int _put_array(self, cnp.ndarray source, int transient) except -1:
        cdef cnp.ndarray target
        while True:
            if self._gate.closed:
                self.wait_for_gate(False)
            if self._bound:
                check_fit(self._name, <cnp.ndarray> self._held, source)
            elif not self._reusable(source):
                return self._settle(KIND_TENSOR, copy_of(source), transient)
            target = <cnp.ndarray> self._held
            if copies_under_gil(target, source):
                fill(target, source)
                break
            if not gate_crowded(&self._gate):
                self.close_gate()
                try:
                    self._overwrite(target, source)
                finally:
                    self.open_gate()
                break
            if not self._bound:
                # New memory needs no gate, so nobody has to wait.
                return self._settle(KIND_TENSOR, copy_of(source), transient)
            self.give_way()
        if transient >= 0:
            self._transient = transient
        return 0

    cdef int _overwrite(self, cnp.ndarray target, cnp.ndarray source) except -1:
        """Copy into the array held, which is bound or all our own; the gate is closed."""
        if self._bound:
            return fill(target, source)
        # NumPy's strided copy asks for the flag, and nobody can see it while the gate is closed.
        cnp.PyArray_ENABLEFLAGS(target, cnp.NPY_ARRAY_WRITEABLE)
        try:
            fill(target, source)
        finally:
            cnp.PyArray_CLEARFLAGS(target, cnp.NPY_ARRAY_WRITEABLE)
        return 0

    cdef int _put_blob(self, Blob source, int transient) except -1:
        source.wait_for_gate(True)
        cdef BlobKind kind = source._kind
        cdef object held = source._held
        if source is self:
            # Also for a bound blob: it has its value already.
            if transient == 0 and kind in (KIND_OBJECT, KIND_QUEUE):
                raise not_transient(self._name, held, kind == KIND_QUEUE)
            if transient >= 0:
                self._transient = transient
            return 0
        if kind == KIND_STATE:
            return self._put_by_rule(held, transient)
        if kind != KIND_TENSOR:
            return self._settle(kind, held, transient)
        if source._bound:
            # A copy by way of the other blob's gate, so that it is not torn; it may be of another kind by then.
            return self.put(source.get(), transient)
        return self._put_array(source._steady() if source._pins else <cnp.ndarray> held, transient)

    cdef int _put_by_rule(self, object value, int transient) except -1:
        cdef BlobKind kind
        if type(value) in KIND_TYPES["queue"]:
            return self._settle(KIND_QUEUE, value, transient)
        try:
            name, kept = self._classify(self._name, value)
        except (BlobKindError, BlobValueError):
            if transient == 0 or (transient < 0 and not self._transient):
                raise
            name, kept = "object", value
        if name not in KIND_CODES or not isinstance(kept, KIND_TYPES.get(name, object)):
            raise BlobKindError(
                f"blob {self._name!r}: expected the rule to give a kind of {KIND_NAMES} and a value of that kind, "
                f"found {name!r} and {describe(kept)}"
            )
        kind = <BlobKind> <int> KIND_CODES[name]
        if kind != KIND_TENSOR:
            return self._settle(kind, kept, transient)
        if not holdable(<cnp.ndarray> kept):
            raise holds_objects(self._name, kept)
        return self._put_array(<cnp.ndarray> kept, transient)

    cdef int _settle(self, BlobKind kind, object value, int transient) except -1:
        """Take over a value that nobody else will change."""
        if self._gate.closed:
            self.wait_for_gate(False)
        if self._bound:
            if kind == KIND_TENSOR:
                return self._put_array(<cnp.ndarray> value, transient)
            raise BlobKindError(
                f"blob {self._name!r} is bound: expected {describe(self._held)}, "
                f"found {KIND_NAMES[<int> kind]} {describe(value)}",
                hint="reset the blob to let go of the bound array",
            )
        if kind == KIND_OBJECT and (transient == 0 or (transient < 0 and not self._transient)):
            raise not_transient(self._name, value, False)
        if kind == KIND_QUEUE:
            if transient == 0:
                raise not_transient(self._name, value, True)
            transient = 1
        return self._install(kind, value, transient, False)

    cdef int _install(self, BlobKind kind, object value, int transient, bint bound) except -1:
        """Replace the value; the gate is open and the GIL held, and nothing here lets it go until all is in place."""
        cdef void *data = NULL
        cdef Py_ssize_t nbytes = 0
        cdef int scalar_type = -1
        cdef cnp.ndarray array
        if kind == KIND_TENSOR:
            array = <cnp.ndarray> value
            data = cnp.PyArray_DATA(array)
            nbytes = cnp.PyArray_NBYTES(array)
            if not bound:
                cnp.PyArray_CLEARFLAGS(array, cnp.NPY_ARRAY_WRITEABLE)
                scalar_type = scalar_type_of(array)
        elif kind == KIND_BYTES:
            data = PyBytes_AS_STRING(value)
            nbytes = PyBytes_GET_SIZE(value)
        elif kind == KIND_STRING:
            data = <void *> PyUnicode_AsUTF8AndSize(value, &nbytes)
        # Kept until the function ends: dropping the last reference may run code that uses this very blob.
        cdef object _previous = self._held
        self._kind = kind
        self._data = data
        self._nbytes = nbytes
        self._scalar_type = scalar_type
        self._bound = bound
        if transient >= 0:
            self._transient = transient
        self._held = value
        self._pins = 0
        jc_relaxed_store(&self._version, self._version + 1)
        return 0

    cdef bint _exclusive(self) noexcept:
        """Whether nobody else can see the value: no view, no array from `value`, no copy that is under way."""
        return not self._gate.closed and not self._bound and refcount_of(<PyObject *> self._held) == 1 + self._pins

    cdef bint _reusable(self, cnp.ndarray source) noexcept:
        """Whether the array held can take the place of the copy of `source`, and nobody would see it change."""
        if self._kind != KIND_TENSOR or not self._exclusive() or (self._pins and self._scalar_type < 0):
            return False
        cdef cnp.ndarray held = <cnp.ndarray> self._held
        return (
            cnp.PyArray_CHKFLAGS(held, cnp.NPY_ARRAY_OWNDATA)
            and jc_identical_dtype(held, source)
            and jc_equal_shape(held, source)
            and jc_keeps_layout(source, held)
            and not jc_copied_by_numpy(held)
        )

    cdef int _bind(self, object array) except -1:
        if not isinstance(array, np.ndarray) or isinstance(array, np.ma.MaskedArray):
            raise BlobValueError(f"blob {self._name!r}: expected a writable ndarray to bind, found {describe(array)}")
        if jc_has_references(<cnp.ndarray> array):
            raise BlobKindError(
                f"blob {self._name!r}: expected an array of fixed-width items to bind, found {describe(array)}"
            )
        if not cnp.PyArray_ISWRITEABLE(<cnp.ndarray> array):
            raise BlobValueError(
                f"blob {self._name!r}: expected a writable ndarray to bind, found a read-only one: {describe(array)}",
                hint="bind an array that may be written, or feed a copy",
            )
        self.wait_for_gate(False)
        return self._install(KIND_TENSOR, array, -1, True)

    # Reading.

    cdef object get(self):
        if self._gate.closed:
            self.wait_for_gate(True)
        cdef cnp.ndarray array
        if self._kind == KIND_TENSOR:
            if self._scalar_type >= 0:
                array = jc_new_like(<cnp.ndarray> self._held)
                memcpy(cnp.PyArray_DATA(array), cnp.PyArray_DATA(<cnp.ndarray> self._held), self._nbytes)
                return array
            if self._bound:
                return self._get_bound()
            if self._pins:
                return self._steady()
            # While it is held here, a feed goes to new memory: no need to keep anybody out.
            array = <cnp.ndarray> self._held
            return copy_of(array)
        if self._kind == KIND_EMPTY:
            raise is_empty(self._name)
        if self._kind == KIND_STATE:
            return self._classify(self._name, self._held)[1]
        return self._held

    cdef object _get_bound(self):
        """A copy of the bound array. Feeds always go to that memory, so a long copy must keep them out."""
        cdef cnp.ndarray source, fresh
        while self._bound:
            source = <cnp.ndarray> self._held
            if cnp.PyArray_NBYTES(source) == 0:
                return copy_of(source)
            fresh = jc_new_like(source)
            if copies_under_gil(fresh, source):
                fill(fresh, source)
                return fresh
            if not gate_crowded(&self._gate):
                self.close_gate()
                try:
                    fill(fresh, source)
                finally:
                    self.open_gate()
                return fresh
            self.give_way()
        return self.get()

    cdef cnp.ndarray _steady(self):
        """A copy of a pinned tensor, of one moment."""
        cdef cnp.ndarray source = <cnp.ndarray> self._held, fresh
        cdef bint torn
        if self._scalar_type >= 0:
            return copy_of(source)
        # Before the lock: Python code may run in here, but not between the two calls.
        fresh = jc_new_like(source)
        torn = jc_spin_lock(&self._busy, jc_forks)
        memcpy(cnp.PyArray_DATA(fresh), cnp.PyArray_DATA(source), <size_t> cnp.PyArray_NBYTES(source))
        jc_spin_unlock(&self._busy)
        if torn:
            self._install(KIND_EMPTY, None, -1, False)
            raise torn_by_fork(self._name)
        return fresh

    cdef object _view(self):
        if self._gate.closed:
            self.wait_for_gate(True)
        if self._kind == KIND_TENSOR:
            if self._pins:
                return jc_read_only_view(self._steady())
            return jc_read_only_view(<cnp.ndarray> self._held)
        if self._kind == KIND_EMPTY:
            raise is_empty(self._name)
        raise BlobKindError(f"blob {self._name!r}: expected a tensor to view, found a {self.kind}", hint="use fetch")


cdef bint holdable(cnp.ndarray array) noexcept:
    """Items are plain bytes, or strings of variable width, which belong to their array; no Python objects."""
    return not jc_has_references(array) or cnp.PyArray_TYPE(array) == cnp.NPY_VSTRING


cdef int scalar_type_of(cnp.ndarray array) noexcept:
    cdef int type_number = cnp.PyArray_TYPE(array)
    if (
        cnp.PyArray_NDIM(array) == 0
        and type_number in (cnp.NPY_DOUBLE, cnp.NPY_INT64, cnp.NPY_UINT64, cnp.NPY_BOOL, cnp.NPY_CDOUBLE)
        and cnp.PyArray_CHKFLAGS(array, cnp.NPY_ARRAY_OWNDATA)
        and cnp.PyArray_ISNOTSWAPPED(array)
    ):
        return type_number
    return -1


cdef int check_fit(str name, cnp.ndarray bound, cnp.ndarray source) except -1:
    if not jc_equal_shape(bound, source) or not jc_equal_dtype(bound, source):
        raise misfit(name, bound, f"{source.dtype} {(<object> source).shape}")
    if not cnp.PyArray_ISWRITEABLE(bound):
        raise BlobValueError(
            f"blob {name!r}: the array it is bound to was writable when bound and is read-only now",
            hint="set its writeable flag again, or bind another array",
        )
    return 0


cdef str checked_name(object name):
    """An exact str of the same text: a subclass may compare as it likes, which no dictionary survives."""
    if not isinstance(name, str):
        raise BlobKindError(f"expected a str as blob name, found {describe(name)}")
    cdef str text = PyUnicode_FromObject(name)
    if not text:
        raise BlobValueError("expected a blob name of one character or more, found an empty str")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise BlobValueError(
            f"expected a blob name of valid Unicode text, found {text!r} with a lone surrogate at {error.start}"
        ) from None
    return text


cdef tuple shape_tuple(object shape):
    try:
        return (operator.index(shape),)
    except TypeError:
        return tuple([operator.index(n) for n in shape])
