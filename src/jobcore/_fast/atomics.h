/* Lock-free int64 operations, sequentially consistent.
 *
 * The compiler builtins are used and not <stdatomic.h>: Cython declares struct fields as plain int64_t, and
 * a cast of a plain field to _Atomic is undefined. GCC and Clang define the builtins on plain objects, with
 * two's complement wrap-around and no signed-overflow trap.
 */
#ifndef JOBCORE_FAST_ATOMICS_H
#define JOBCORE_FAST_ATOMICS_H

#include <stdint.h>

/* On a target without 8-byte atomics the builtins would become calls that take a hidden lock: such a build
 * must fail here and not deadlock later, when a fork copies the lock in its held state. */
_Static_assert(__atomic_always_lock_free(sizeof(int64_t), 0), "jobcore needs lock-free 64-bit atomics");

static inline int64_t jc_atomic_load(const int64_t *cell) {
    return __atomic_load_n(cell, __ATOMIC_SEQ_CST);
}

static inline void jc_atomic_store(int64_t *cell, int64_t value) {
    __atomic_store_n(cell, value, __ATOMIC_SEQ_CST);
}

/* Returns the value before the addition. */
static inline int64_t jc_atomic_fetch_add(int64_t *cell, int64_t delta) {
    return __atomic_fetch_add(cell, delta, __ATOMIC_SEQ_CST);
}

/* Returns the value that was replaced. */
static inline int64_t jc_atomic_exchange(int64_t *cell, int64_t value) {
    return __atomic_exchange_n(cell, value, __ATOMIC_SEQ_CST);
}

/* Stores `value` if the cell holds `expected`; returns whether it did. */
static inline int jc_atomic_replace(int64_t *cell, int64_t expected, int64_t value) {
    return __atomic_compare_exchange_n(cell, &expected, value, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST);
}

/* For a cell with one writer at a time: others see the old value or the new one, sooner or later. */
static inline void jc_relaxed_store(int64_t *cell, int64_t value) {
    __atomic_store_n(cell, value, __ATOMIC_RELAXED);
}

#endif
