"""An atomic int64 counter."""

cimport cython
from cpython.number cimport PyNumber_Index
from libc.stdint cimport INT64_MAX, INT64_MIN, int64_t

from jobcore._fast.atomics cimport (
    jc_atomic_exchange,
    jc_atomic_fetch_add,
    jc_atomic_load,
    jc_atomic_store,
)

from jobcore.errors import BlobValueError

__all__ = ["Counter"]


@cython.final
cdef class Counter:
    """A signed 64-bit counter that any number of threads may change at once.

    It counts up from a start, or down to zero as a stop condition. Every method is one atomic step, so
    no count is ever lost and a method never waits. Past the ends of int64 the value wraps around, as C
    atomics do: one above ``2**63 - 1`` is ``-2**63``.

    Parameters
    ----------
    init_count
        The start value, ``0 <= init_count < 2**63``.

    Raises
    ------
    BlobValueError
        If `init_count` is negative or does not fit int64.
    TypeError
        If `init_count` is not an integer.

    Notes
    -----
    Thread safety: all methods are atomic and sequentially consistent, with and without the GIL.

    Examples
    --------
    >>> left = Counter(1)
    >>> left.count_down(), left.count_down()
    (False, True)
    """

    def __init__(self, init_count=0):
        jc_atomic_store(&self._value, _start_value(init_count, "Counter()"))

    def count_up(self):
        """Add 1.

        Returns
        -------
        int
            The value before the addition.
        """
        return self.fetch_add(1)

    def count_down(self):
        """Subtract 1, whatever the value is.

        Returns
        -------
        bool
            True if the value before the subtraction was 0 or less: nothing was left to count.
        """
        return self.fetch_add(-1) <= 0

    def add(self, amount):
        """Add any amount.

        Parameters
        ----------
        amount
            ``-2**63 <= amount < 2**63``.

        Returns
        -------
        int
            The value before the addition.

        Raises
        ------
        BlobValueError
            If `amount` does not fit int64; the counter keeps its value.
        TypeError
            If `amount` is not an integer; the counter keeps its value.
        """
        return self.fetch_add(_as_int64(amount, "Counter.add", "amount"))

    def reset(self, init_count=0):
        """Set a new start value.

        Parameters
        ----------
        init_count
            The new value, ``0 <= init_count < 2**63``.

        Returns
        -------
        int
            The value before.

        Raises
        ------
        BlobValueError
            If `init_count` is negative or does not fit int64; the counter keeps its value.
        TypeError
            If `init_count` is not an integer; the counter keeps its value.
        """
        return self.exchange(_start_value(init_count, "Counter.reset"))

    def retrieve(self):
        """Return the value; the counter is not changed.

        Returns
        -------
        int
            The value.
        """
        return self.load()

    def check_done(self):
        """Tell whether nothing is left to count; the counter is not changed.

        Returns
        -------
        bool
            True if the value is 0 or less.
        """
        return self.load() <= 0

    def restore(self, value):
        """Set any value, as a load does: a counter counted below zero comes back as it was.

        Parameters
        ----------
        value
            The new value, ``-2**63 <= value < 2**63``.

        Raises
        ------
        BlobValueError
            If `value` does not fit int64; the counter keeps its value.
        TypeError
            If `value` is not an integer; the counter keeps its value.
        """
        jc_atomic_store(&self._value, _as_int64(value, "Counter.restore", "value"))

    def __repr__(self):
        return f"<Counter {self.load()}>"

    cdef int64_t load(self) noexcept nogil:
        return jc_atomic_load(&self._value)

    cdef int64_t fetch_add(self, int64_t delta) noexcept nogil:
        return jc_atomic_fetch_add(&self._value, delta)

    cdef int64_t exchange(self, int64_t value) noexcept nogil:
        return jc_atomic_exchange(&self._value, value)


cdef int64_t _start_value(object value, str where) except -1:
    cdef int64_t count = _as_int64(value, where, "init_count")
    if count < 0:
        raise BlobValueError(
            f"{where}: expected init_count of at least 0, found {count}",
            hint="restore(value) sets a counter below zero",
        )
    return count


cdef int64_t _as_int64(object value, str where, str argument) except? -1:
    try:
        number = PyNumber_Index(value)
    except TypeError:
        # A float is refused, not rounded: a count that arrives as 2.7 is a mistake upstream.
        raise TypeError(f"{where}: expected an integer as {argument}, found {type(value).__name__}") from None
    if not INT64_MIN <= number <= INT64_MAX:
        # The size is told and not the number: Python refuses to print one of more than 4,300 digits.
        raise BlobValueError(
            f"{where}: expected {argument} within int64, -2**63 to 2**63 - 1, "
            f"found {'a negative' if number < 0 else 'an'} integer of {number.bit_length()} bits"
        )
    return number
