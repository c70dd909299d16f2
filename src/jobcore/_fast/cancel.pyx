"""The order to stop, as a flag that native code can look at without the GIL."""

cimport cython
from libc.stdint cimport int32_t

from contextvars import ContextVar

from jobcore.errors import Cancelled

__all__ = ["CancelFlag", "current_flag", "enter_flag"]


cdef extern from * nogil:
    """
    static inline int jc_flag_is_up(const int32_t *cell) { return __atomic_load_n(cell, __ATOMIC_ACQUIRE) != 0; }
    static inline void jc_flag_put_up(int32_t *cell) { __atomic_store_n(cell, 1, __ATOMIC_RELEASE); }
    """
    bint jc_flag_is_up(const int32_t *cell) noexcept
    void jc_flag_put_up(int32_t *cell) noexcept


_current = ContextVar("jobcore_cancel_flag", default=None)


@cython.final
cdef class CancelFlag:
    """A flag that goes up once, and stays up: the native side of a cancel token.

    A wait in native code gets the flag and ends when it is up, within 50 ms.

    Notes
    -----
    Thread safety: any method from any thread, and :meth:`is_set` without the GIL.

    Examples
    --------
    >>> flag = CancelFlag()
    >>> flag.set("a sibling failed")
    >>> flag.is_set(), flag.reason
    (True, 'a sibling failed')
    """

    def set(self, str reason not None=""):
        """Put the flag up; the reason of the first call stays.

        Parameters
        ----------
        reason
            The text of the `Cancelled` that :meth:`check` raises.
        """
        # No Python code runs between the two, so of callers that race only one gives the reason.
        if self._reason is None:
            self._reason = reason
        jc_flag_put_up(&self._set)

    cpdef bint is_set(self) noexcept nogil:
        """Tell whether the flag is up.

        Returns
        -------
        bool
            True from the first call of :meth:`set` on.
        """
        return jc_flag_is_up(&self._set)

    @property
    def reason(self):
        """The reason given with the order, or None before it."""
        return self._reason

    def check(self):
        """Raise if the flag is up.

        Raises
        ------
        Cancelled
            The text is the reason.
        """
        if self.is_set():
            raise Cancelled(self._reason)

    def __repr__(self):
        return f"<CancelFlag {'waiting' if self._reason is None else f'up: {self._reason}'}>"


def current_flag():
    """Return the flag of the group run that the calling code works for, or None where nobody can cancel.

    It is a context variable, set together with that of the cancel token.
    """
    return _current.get()


def enter_flag(CancelFlag flag):
    """Make `flag` the current one of the calling context; None is no flag."""
    _current.set(flag)
