"""Declarations of ``atomics.h`` for the units of this layer."""

from libc.stdint cimport int64_t


cdef extern from "atomics.h" nogil:
    int64_t jc_atomic_load(const int64_t* cell) noexcept
    void jc_atomic_store(int64_t* cell, int64_t value) noexcept
    int64_t jc_atomic_fetch_add(int64_t* cell, int64_t delta) noexcept
    int64_t jc_atomic_exchange(int64_t* cell, int64_t value) noexcept
    bint jc_atomic_replace(int64_t* cell, int64_t expected, int64_t value) noexcept
    void jc_relaxed_store(int64_t* cell, int64_t value) noexcept
