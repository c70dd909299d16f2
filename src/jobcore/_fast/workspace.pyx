"""The table of a workspace's blobs."""

from cpython.dict cimport PyDict_GetItemWithError
from cpython.ref cimport PyObject
from cpython.unicode cimport PyUnicode_CheckExact, PyUnicode_FromObject

from libc.stdint cimport int64_t

from jobcore._fast.blob cimport (
    KIND_COUNTER,
    KIND_EMPTY,
    Blob,
    checked_name,
    flag_of,
)
from jobcore._fast.counter cimport Counter

import difflib

from jobcore._fast.blob_errors import describe, refuse
from jobcore.errors import BlobKindError, BlobNotFoundError, BlobValueError

__all__ = ["Blob", "BlobTable"]

# Comparing a wrong name with all names costs about 10 us each, which a program that tries names must not pay.
cdef Py_ssize_t MAX_COMPARED = 500


cdef class BlobTable:
    """Named blobs, in the order in which they were created, with those of a parent table behind them.

    A name is looked up in the table, then in its parent, and so on. A name that is visible is never created again: to
    feed it writes into the blob of the ancestor. This class is the base of `jobcore.Workspace`, which adds the kinds
    that need Python code.

    Parameters
    ----------
    parent
        The table whose blobs are visible here too. It does not know of its children.
    name
        What to call the table in errors.

    Raises
    ------
    BlobKindError
        `parent` is no table, or `name` no str.

    Notes
    -----
    Thread safety: every method may be called from any thread at any time. Threads that create one name at once in one
    table all get the same blob. A blob that was removed stays usable for whoever holds it. If a name is created in a
    table while another thread creates it in an ancestor, both may exist; the nearer one is then the visible one.

    A subclass extends what can be fed by a static method ``_classify(name, value)``, see `Blob`.
    """

    def __cinit__(self, *args, **kwargs):
        self._blobs = {}
        self._table_name = ""
        self._rule = type(self)._classify

    def __init__(self, parent=None, name=""):
        if self._ready:
            # A second parent could close the chain to a ring, in which a look-up never ends.
            raise BlobValueError(f"workspace {self._table_name!r}: parent and name are set once, at creation")
        if parent is not None and not isinstance(parent, BlobTable):
            raise BlobKindError(f"expected a workspace as parent, found {describe(parent)}")
        if not isinstance(name, str):
            raise BlobKindError(f"expected a str as name of a workspace, found {describe(name)}")
        self._parent = parent
        self._table_name = PyUnicode_FromObject(name)
        self._ready = True

    @staticmethod
    def _classify(name, value):
        """Return the kind and the value to keep of what `Blob` does not take by itself, or raise."""
        refuse(name, value)

    @property
    def name(self):
        """What the table is called in errors."""
        return self._table_name

    @property
    def parent(self):
        """The table whose blobs are visible here too, or None."""
        return self._parent

    def __repr__(self):
        behind = "" if self._parent is None else f", parent {self._parent._table_name!r}"
        return f"<{type(self).__name__} {self._table_name!r}: {len(self._blobs)} blobs{behind}>"

    # Hot: one look-up, then straight into the blob.

    def feed(self, name, value, transient=None):
        """Put a copy of a value into the visible blob of that name, or into a new one in this table.

        Parameters
        ----------
        name
            Any text that is not empty.
        value
            See :meth:`Blob.feed`.
        transient
            True: leave the blob out of checkpoints. False: put it into them. None: leave the flag of a blob that
            exists as it is; a new blob goes into checkpoints.

        Raises
        ------
        BlobKindError
            The value cannot be a blob, or `name` is not a str.
        BlobValueError
            The value does not fit a bound blob, or the name is empty or not valid Unicode.
        """
        cdef int flag = flag_of(transient)
        cdef Blob blob = self.find(name)
        if blob is not None:
            blob.put(value, flag)
            return
        # Fed before it is shown, so that a value that is refused leaves no empty blob behind.
        blob = Blob(name, self._rule)
        blob.put(value, flag)
        cdef Blob visible = self._insert(blob)
        if visible is not blob:
            visible.put(value, flag)

    def fetch(self, name):
        """Return the value of the visible blob of that name: a copy of a tensor or state, anything else itself.

        Raises
        ------
        BlobNotFoundError
            No such blob is visible.
        BlobValueError
            The blob is empty.
        """
        return self.find_or_raise(name).get()

    def view(self, name):
        """Return a read-only array that shows the tensor of that name without a copy, see :meth:`Blob.view`.

        Raises
        ------
        BlobNotFoundError
            No such blob is visible.
        BlobKindError
            The blob is no tensor.
        BlobValueError
            The blob is empty.
        """
        return self.find_or_raise(name)._view()

    def blob(self, name):
        """Return the visible blob of that name.

        Raises
        ------
        BlobNotFoundError
            No such blob is visible; the text lists names that are close.
        """
        return self.find_or_raise(name)

    def has_blob(self, name):
        """Whether a blob of that name is visible."""
        return self.find(name) is not None

    def __contains__(self, name):
        return self.find(name) is not None

    def __getitem__(self, name):
        return self.find_or_raise(name).get()

    def __setitem__(self, name, value):
        self.feed(name, value)

    def __delitem__(self, name):
        self.remove_blob(name)

    # The table itself.

    def create_blob(self, name):
        """Return the visible blob of that name, or a new empty one in this table.

        Raises
        ------
        BlobKindError
            `name` is not a str.
        BlobValueError
            `name` is empty or not valid Unicode.
        """
        return self.find_or_create(name)

    def bind(self, name, array):
        """Make the visible blob of that name, or a new one in this table, be `array`, see :meth:`Blob.bind`.

        Raises
        ------
        BlobKindError, BlobValueError
            `array` cannot be bound, or the name cannot be one.
        """
        cdef Blob blob = self.find(name)
        if blob is None:
            blob = Blob(name, self._rule)
            blob._bind(array)
            if self._insert(blob) is blob:
                return
            blob = self.find_or_create(name)
        blob._bind(array)

    def counter(self, name, init_count=0):
        """Return the counter of that name; if none is visible, or the blob is empty, make it.

        Parameters
        ----------
        name
            The blob.
        init_count
            Where a new counter starts, ``0 <= init_count < 2**63``. A counter that exists goes on from where it is.

        Returns
        -------
        Counter
            The live counter.

        Raises
        ------
        BlobKindError
            The blob holds something else.
        BlobValueError
            `init_count` is out of range.
        """
        cdef Blob blob = self.find(name)
        cdef Counter fresh
        if blob is None or blob._kind == KIND_EMPTY:
            fresh = Counter(init_count)
            blob = self.find_or_create(name)
            # No other thread can come between the question and the answer: the GIL is held, and an empty blob has
            # no copy under way that would have to be waited for.
            if blob._kind == KIND_EMPTY:
                blob.put(fresh, -1)
                return fresh
        if blob._kind != KIND_COUNTER:
            raise BlobKindError(f"blob {blob._name!r}: expected a counter, found a {blob.kind}")
        return blob._held

    def remove_blob(self, name):
        """Take a blob out of this table; whoever holds it may go on using it.

        Raises
        ------
        BlobNotFoundError
            This table has no such blob of its own. Those of its ancestors cannot be removed from here.
        """
        cdef str key = checked_name(name)
        if self._blobs.pop(key, None) is None:
            if self.find(key) is None:
                raise self._not_found(key)
            raise BlobNotFoundError(
                f"blob {key!r} belongs to an ancestor of workspace {self._table_name!r}",
                hint="remove it from the workspace that it belongs to",
            )
        self._removals += 1

    def reset(self):
        """Remove all blobs of this table, as :meth:`remove_blob` does; those of its ancestors stay."""
        # A new dictionary in one step: dropping the old one may run code that uses this table.
        cdef dict blobs = self._blobs
        self._blobs = {}
        self._removals += 1
        blobs.clear()

    def blob_names(self, include_shared=True):
        """Return the visible names, each once: those of the ancestors first, then in order of creation.

        Parameters
        ----------
        include_shared
            False: the names of this table only.

        Returns
        -------
        list of str
        """
        cdef BlobTable table = self
        cdef list tables = []
        cdef dict names = {}
        while table is not None:
            tables.append(table)
            table = table._parent if include_shared else None
        for table in reversed(tables):
            names.update(table._blobs)
        return list(names)

    def local_blobs(self):
        """Return the blobs of this table, in order of creation, without those of its ancestors."""
        return list(self._blobs.values())

    def __len__(self):
        return len(self._blobs) if self._parent is None else len(self.blob_names())

    def __iter__(self):
        return iter(self.blob_names())

    def __bool__(self):
        # By its length an empty workspace would be false, and ``workspace or default`` would drop it.
        return True

    cdef int64_t removals(self) noexcept:
        """How often blobs were taken out of this table or an ancestor."""
        cdef BlobTable table = self
        cdef int64_t total = 0
        while table is not None:
            total += table._removals
            table = table._parent
        return total

    cdef Blob find(self, object name):
        """The visible blob of that name, or None."""
        cdef BlobTable table = self
        cdef PyObject *found
        if not PyUnicode_CheckExact(name):
            name = checked_name(name)
        while table is not None:
            found = PyDict_GetItemWithError(table._blobs, name)
            if found is not NULL:
                return <Blob> found
            table = table._parent
        return None

    cdef Blob find_or_raise(self, object name):
        cdef Blob blob = self.find(name)
        if blob is None:
            raise self._not_found(name)
        return blob

    cdef Blob find_or_create(self, object name):
        cdef Blob blob = self.find(name)
        return self._insert(Blob(name, self._rule)) if blob is None else blob

    cdef Blob _insert(self, Blob blob):
        """Put a blob that nobody else knows into this table, unless its name has become visible meanwhile."""
        # One step to other threads: neither the look-up nor the store runs Python code, as all keys are plain str.
        cdef Blob visible = self.find(blob._name)
        if visible is not None:
            return visible
        self._blobs[blob._name] = blob
        return blob

    cdef object _not_found(self, object name):
        candidates = [other for other in self.blob_names() if abs(len(other) - len(name)) <= 3]
        close = difflib.get_close_matches(name, candidates[:MAX_COMPARED])
        where = f"workspace {self._table_name!r}" + ("" if self._parent is None else " and its ancestors")
        return BlobNotFoundError(
            f"no blob {name!r} among the {len(self)} of {where}",
            hint="close names: " + ", ".join(map(repr, close)) if close else None,
        )
