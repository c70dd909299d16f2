"""Arrays of other libraries that show their memory as buffers, as plain NumPy arrays."""


cdef object exported(object value)
