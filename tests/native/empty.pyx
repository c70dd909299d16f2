"""The least that a method of a native class costs."""


cdef class Empty:
    """Has a method that does nothing."""

    def count_down(self):
        """Do nothing."""
