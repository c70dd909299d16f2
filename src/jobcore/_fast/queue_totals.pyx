"""The numbers of a queue, also when it is gone."""

cimport cython

from jobcore._fast.queue_calls cimport (
    JC_READERS,
    JC_WRITERS,
    jc_queue_totals,
    jc_queue_totals_drop,
    jc_queue_totals_read,
)

__all__ = ["QueueTotals"]


@cython.final
cdef class QueueTotals:
    """What went through a queue; made by its ``totals``. It does not keep the queue alive.

    Notes
    -----
    Thread safety: any method from any thread; each reads the numbers of one moment. In a child of a fork they are those
    that were read last before it.
    """

    def __cinit__(self):
        pass

    def __init__(self):
        raise TypeError("expected the `totals` of a queue, which makes these")

    def __dealloc__(self):
        if self._totals is not NULL:
            jc_queue_totals_drop(self._totals)

    @staticmethod
    cdef QueueTotals of(jc_queue_totals *totals, tuple field_names):
        cdef QueueTotals made = QueueTotals.__new__(QueueTotals)
        totals.references += 1
        made._totals = totals
        made._field_names = field_names
        return made

    @property
    def ended(self):
        """Whether the queue is gone and the numbers are final."""
        return self._totals is NULL or self._totals.queue is NULL

    def read(self):
        """Return the numbers by name.

        Returns
        -------
        dict of str to int
            ``queue_balance``: records in it and those of writers that wait, less the readers that wait; 0 when it is
            gone. Since it was made: ``queue_enqueued_records`` and ``queue_dequeued_records``; ``queue_enqueued_bytes``
            and ``queue_dequeued_bytes``, of tensors, bytes and strings, for named fields also each with
            ``/<field>`` behind it; ``write_time_ns/sum`` and ``read_time_ns/sum``, waited for room and for records,
            in nanoseconds of all threads together, with the records as ``.../count``.
        """
        cdef jc_queue_totals *t = self._totals
        cdef dict found
        cdef Py_ssize_t i
        if t is NULL:
            return {}
        jc_queue_totals_read(t)
        found = {"queue_balance": t.balance}
        for side, done, waited in (
            (<int> JC_WRITERS, "enqueued", "write_time_ns"), (<int> JC_READERS, "dequeued", "read_time_ns")
        ):
            numbers = [t.bytes[<int> side][i] for i in range(t.width)]
            found[f"queue_{done}_records"] = t.rows[<int> side]
            found[f"queue_{done}_bytes"] = sum(numbers)
            if self._field_names is not None:
                found.update(
                    [(f"queue_{done}_bytes/{name}", number) for name, number in zip(self._field_names, numbers)]
                )
            found[f"{waited}/sum"] = t.waited_ns[<int> side]
            found[f"{waited}/count"] = t.rows[<int> side]
        return found

    def __repr__(self):
        return f"<QueueTotals: {'final' if self.ended else 'of a queue that is there'}>"
