/* The state of a timer. Touched through these functions only, by any number of threads at once.
 *
 * `begin_ns` decides every race: whoever changes it from or to JC_STOPPED owns that start or that end, and only the
 * owner of an end adds to the totals.
 */
#ifndef JOBCORE_FAST_TIMER_H
#define JOBCORE_FAST_TIMER_H

#include <stddef.h>
#include <stdint.h>
#include <time.h>

#include "atomics.h"

/* No reading of the clock is negative. Zero would not do: it is a reading, the moment of boot. */
#define JC_STOPPED ((int64_t)-1)

typedef struct {
    int64_t begin_ns, sum_ns, count;
    int64_t *more_ns, *more_count; /* totals of several timers, which each end is added to as well; or NULL */
} jc_timer;

/* It cannot fail: the clock is mandatory and the pointer good. */
static inline int64_t jc_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

/* False if it is running already. */
static inline int jc_timer_begin(jc_timer *t)
{
    return jc_atomic_replace(&t->begin_ns, JC_STOPPED, jc_now_ns());
}

/* Nanoseconds since the start, -1 if it is stopped. */
static inline int64_t jc_timer_get(const jc_timer *t)
{
    int64_t begin_ns = jc_atomic_load(&t->begin_ns);
    return begin_ns == JC_STOPPED ? -1 : jc_now_ns() - begin_ns;
}

/* Stops and adds to the totals: nanoseconds since the start, -1 if it is stopped. */
static inline int64_t jc_timer_end(jc_timer *t)
{
    /* The clock is read after the span is taken: read before it, a span that another thread began in between would come
     * out negative. */
    int64_t begin_ns = jc_atomic_exchange(&t->begin_ns, JC_STOPPED), span_ns;
    if (begin_ns == JC_STOPPED) {
        return -1;
    }
    span_ns = jc_now_ns() - begin_ns;
    jc_atomic_fetch_add(&t->sum_ns, span_ns);
    jc_atomic_fetch_add(&t->count, 1);
    if (t->more_ns != NULL) {
        jc_atomic_fetch_add(t->more_ns, span_ns);
        jc_atomic_fetch_add(t->more_count, 1);
    }
    return span_ns;
}

#endif
