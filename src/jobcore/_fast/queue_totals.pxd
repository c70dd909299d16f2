"""The numbers of a queue, also when it is gone."""

cimport cython

from jobcore._fast.queue_calls cimport jc_queue_totals


@cython.final
cdef class QueueTotals:
    # Set once; the numbers in it are read and written with the GIL.
    cdef jc_queue_totals *_totals
    cdef tuple _field_names

    @staticmethod
    cdef QueueTotals of(jc_queue_totals *totals, tuple field_names)
