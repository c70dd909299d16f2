/* A bounded queue of rows of values, for any number of writers and readers.
 *
 * Values move by swapping the content of a slot with that of the caller, so no reference count changes and no thread
 * needs the GIL. A lock guards the ring; it is held for a swap and never while somebody waits for the GIL. Whoever finds
 * nothing to do looks for some microseconds without the lock, then sleeps on a condition.
 *
 * Values of some kinds may be part of a reference cycle. The garbage collector, which runs with the GIL, must find each of
 * them at one place from its first look to its last, so these are moved by threads that have the GIL only.
 *
 * After a fork the lock may be held, and a row half moved, by a thread that the child does not have. The child does not
 * touch the ring: to it the queue is closed and empty.
 */
#ifndef JOBCORE_FAST_QUEUE_H
#define JOBCORE_FAST_QUEUE_H

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "forks.h"
#include "spin.h"
#include "value.h"

/* Answers; queue.pxd says the same. */
enum {
    JC_QUEUE_DONE = 0,
    JC_QUEUE_CLOSED = 1,    /* nothing can be put in any more; or nothing is left and nothing will come */
    JC_QUEUE_CANCELLED = 2,
    JC_QUEUE_TIMEOUT = 3,
    JC_QUEUE_NEEDS_GIL = 4, /* a value may be part of a cycle */
    JC_QUEUE_WAIT = 5,      /* full or empty now */
};

enum { JC_READERS = 0, JC_WRITERS = 1 };

#define JC_LINE 64 /* bytes that processors pass to each other at once */

/* Looks at the slot that a row is to be swapped with, with the lock held. */
typedef int (*jc_queue_look)(const jc_value *slot, const void *what);

typedef struct {
    /* Guard of the first two groups: the lock. `count` and `closed` are also read without it, by atomic loads, and so
     * written by atomic stores. The first group is all that a push or pop writes, in one line of the cache. */
    int32_t lock;
    int32_t closed;
    int32_t sleepers[2];
    int64_t head;            /* slot of the oldest row */
    int64_t count;           /* rows */
    int64_t rows[2];         /* taken out, put in */
    char line_end[JC_LINE - 48];

    jc_value *slots;         /* those that hold no row have what callers left there */
    int64_t *bytes[2];       /* taken out and put in, of each value of a row */
    int64_t room;            /* rows that the slots have place for; more than the capacity once rows were put back */
    int64_t writers;         /* registered, and not done */

    /* Set once, before others can have the queue. */
    int64_t capacity;        /* rows at which writers wait */
    int64_t width;           /* values in a row */
    const int32_t *marks;    /* where the mark of this process is, and what it was at creation; see forks.h */
    int32_t mark;
    uint32_t cyclic;         /* bit set of the kinds that need the GIL */
    uint32_t seen_cyclic;    /* whether such a value was ever put in; with the GIL */

    /* Only by atomic steps: whoever has waited adds to it without the lock, and not to a line that the lock's owner reads. */
    char waits_begin[JC_LINE];
    int64_t waited_ns[2];
    char waits_end[JC_LINE];

    /* Sleep: readers for a row, writers for room. Whoever wants to sleep counts itself with both locks, and keeps the
     * mutex until it sleeps; so a signal given with the mutex finds it asleep. */
    pthread_mutex_t mutex;
    pthread_cond_t line[2];
} jc_queue;

static inline int jc_queue_is_foreign(const jc_queue *q)
{
    return q->mark != jc_process_mark(q->marks);
}

static inline void jc_queue_lock(jc_queue *q)
{
    jc_spin_lock(&q->lock, 1);
}

static inline void jc_queue_unlock(jc_queue *q)
{
    jc_spin_unlock(&q->lock);
}

static void jc_queue_wake(jc_queue *q, int side, int all)
{
    pthread_mutex_lock(&q->mutex);
    if (all) {
        pthread_cond_broadcast(&q->line[side]);
    } else {
        pthread_cond_signal(&q->line[side]);
    }
    pthread_mutex_unlock(&q->mutex);
}

static inline int64_t jc_queue_peek(const int64_t *cell)
{
    return __atomic_load_n(cell, __ATOMIC_RELAXED);
}

static inline void jc_queue_set(int64_t *cell, int64_t value)
{
    __atomic_store_n(cell, value, __ATOMIC_RELAXED);
}

static void jc_queue_release(jc_queue *q)
{
    free(q->slots);
    free(q->bytes[JC_READERS]);
    free(q->bytes[JC_WRITERS]);
    free(q);
}

/* NULL when there is no memory. */
static jc_queue *jc_queue_new(int64_t capacity, int64_t width, uint32_t cyclic, const int32_t *marks)
{
    size_t rows = (size_t)capacity, values = (size_t)width;
    pthread_condattr_t how;
    void *memory;
    jc_queue *q;
    if (rows > SIZE_MAX / sizeof(jc_value) / values || posix_memalign(&memory, JC_LINE, sizeof *q) != 0) {
        return NULL;
    }
    q = memory;
    memset(q, 0, sizeof *q);
    q->slots = calloc(rows * values, sizeof(jc_value));
    q->bytes[JC_READERS] = calloc(values, sizeof(int64_t));
    q->bytes[JC_WRITERS] = calloc(values, sizeof(int64_t));
    if (q->slots == NULL || q->bytes[JC_READERS] == NULL || q->bytes[JC_WRITERS] == NULL) {
        jc_queue_release(q);
        return NULL;
    }
    q->capacity = q->room = capacity;
    q->width = width;
    q->cyclic = cyclic;
    q->marks = marks;
    q->mark = jc_process_mark(marks);
    pthread_mutex_init(&q->mutex, NULL);
    pthread_condattr_init(&how);
#ifndef __APPLE__
    pthread_condattr_setclock(&how, CLOCK_MONOTONIC);
#endif
    pthread_cond_init(&q->line[JC_READERS], &how);
    pthread_cond_init(&q->line[JC_WRITERS], &how);
    pthread_condattr_destroy(&how);
    return q;
}

/* Nobody uses it any more, and no slot owns a reference. */
static void jc_queue_free(jc_queue *q)
{
    if (!jc_queue_is_foreign(q)) { /* in a child they may count threads as waiting that it does not have */
        pthread_cond_destroy(&q->line[JC_READERS]);
        pthread_cond_destroy(&q->line[JC_WRITERS]);
        pthread_mutex_destroy(&q->mutex);
    }
    jc_queue_release(q);
}

static inline int jc_queue_is_closed(const jc_queue *q)
{
    return jc_queue_is_foreign(q) || __atomic_load_n(&q->closed, __ATOMIC_RELAXED);
}

static inline jc_value *jc_queue_row(jc_queue *q, int64_t index)
{
    int64_t slot = q->head + index;
    return q->slots + (slot < q->room ? slot : slot - q->room) * q->width;
}

static inline int jc_queue_any_cyclic(const jc_queue *q, const jc_value *row)
{
    int64_t i;
    for (i = 0; i < q->width; i++) {
        if (q->cyclic >> row[i].kind & 1) {
            return 1;
        }
    }
    return 0;
}

static inline void jc_queue_swap(jc_value *a, jc_value *b, int64_t n)
{
    int64_t i;
    for (i = 0; i < n; i++) {
        jc_value held = a[i];
        a[i] = b[i];
        b[i] = held;
    }
}

/* Swap `row` with the next free slot or with the oldest row, without waiting: DONE, CLOSED, WAIT or NEEDS_GIL.
 *
 * NEEDS_GIL too where `look`, unless it is NULL, finds the slot to be of no use to the caller: the row is left to a thread
 * that can use any. */
static inline int jc_queue_try_if(
    jc_queue *q, int side, jc_value *row, int has_gil, jc_queue_look look, const void *what)
{
    int wake = 0, answer = JC_QUEUE_DONE;
    jc_value *slot, *moved;
    int64_t i;
    if (jc_queue_is_foreign(q)) {
        return JC_QUEUE_CLOSED;
    }
    jc_queue_lock(q);
    if (side == JC_WRITERS) {
        if (q->closed) {
            answer = JC_QUEUE_CLOSED;
        } else if (q->count >= q->capacity) {
            answer = JC_QUEUE_WAIT;
        }
    } else if (q->count == 0) {
        answer = q->closed ? JC_QUEUE_CLOSED : JC_QUEUE_WAIT;
    }
    if (answer == JC_QUEUE_DONE) {
        slot = jc_queue_row(q, side == JC_WRITERS ? q->count : 0);
        if (!has_gil && (jc_queue_any_cyclic(q, row) || jc_queue_any_cyclic(q, slot))) {
            answer = JC_QUEUE_NEEDS_GIL;
        } else if (look != NULL && !look(slot, what)) {
            answer = JC_QUEUE_NEEDS_GIL;
        } else {
            if (has_gil && side == JC_WRITERS && jc_queue_any_cyclic(q, row)) {
                q->seen_cyclic = 1;
            }
            jc_queue_swap(row, slot, q->width);
            q->rows[side]++;
            moved = side == JC_WRITERS ? slot : row;
            for (i = 0; i < q->width; i++) {
                q->bytes[side][i] += moved[i].nbytes;
            }
            if (side == JC_WRITERS) {
                jc_queue_set(&q->count, q->count + 1);
            } else {
                q->head = q->head + 1 < q->room ? q->head + 1 : 0;
                jc_queue_set(&q->count, q->count - 1);
            }
            wake = q->sleepers[1 - side] > 0;
        }
    }
    jc_queue_unlock(q);
    if (wake) {
        jc_queue_wake(q, 1 - side, 0);
    }
    return answer;
}

static int jc_queue_try(jc_queue *q, int side, jc_value *row, int has_gil)
{
    return jc_queue_try_if(q, side, row, has_gil, NULL, NULL);
}

/* Put `n` rows back before the oldest one, the first of them in front; over the capacity too. 0 or an errno. With the GIL.
 *
 * For a reader that took rows and could not use them: they come out again in the same order. */
static int jc_queue_put_back(jc_queue *q, jc_value *rows, int64_t n)
{
    int64_t i, k, room;
    if (jc_queue_is_foreign(q)) {
        return EINVAL;
    }
    jc_queue_lock(q);
    if (q->count + n > q->room) {
        jc_value *slots;
        room = q->count + n;
        slots = (size_t)room > SIZE_MAX / sizeof(jc_value) / (size_t)q->width
                    ? NULL
                    : calloc((size_t)(room * q->width), sizeof(jc_value));
        if (slots == NULL) {
            jc_queue_unlock(q);
            return ENOMEM;
        }
        for (i = 0; i < q->room; i++) { /* what lies in free slots is moved as well: it owns references */
            jc_queue_swap(slots + i * q->width, jc_queue_row(q, i), q->width);
        }
        free(q->slots);
        q->slots = slots;
        q->head = 0;
        q->room = room;
    }
    for (i = n - 1; i >= 0; i--) {
        q->head = q->head > 0 ? q->head - 1 : q->room - 1;
        jc_queue_swap(rows + i * q->width, jc_queue_row(q, 0), q->width);
        jc_queue_set(&q->count, q->count + 1);
        q->rows[JC_READERS]--;
        for (k = 0; k < q->width; k++) {
            q->bytes[JC_READERS][k] -= jc_queue_row(q, 0)[k].nbytes;
        }
    }
    jc_queue_unlock(q);
    jc_queue_wake(q, JC_READERS, 1);
    return 0;
}

/* Show each reference that may be part of a cycle: stops at an answer other than 0 and gives it. With the GIL. */
static int jc_queue_visit(jc_queue *q, int (*look)(PyObject *, void *), void *argument)
{
    PyObject *found[64];
    int64_t at = 0, end;
    int n, i, answer = 0;
    /* The other values belong to threads without the GIL too, and no cycle goes through them. */
    if (jc_queue_is_foreign(q) || !q->seen_cyclic) {
        return 0;
    }
    do {
        n = 0;
        jc_queue_lock(q);
        end = q->room * q->width;
        for (; at < end && n < 64; at++) {
            if (q->slots[at].held != NULL && q->cyclic >> q->slots[at].kind & 1) {
                found[n++] = q->slots[at].held; /* it stays where it is as long as this thread has the GIL */
            }
        }
        jc_queue_unlock(q);
        for (i = 0; i < n && answer == 0; i++) {
            answer = look(found[i], argument);
        }
    } while (at < end && answer == 0);
    return answer;
}

/* Take a value out of the slots, its row or not: 0 when there is none from `*at` on. With the GIL, which the caller needs
 * to drop the reference. */
static int jc_queue_strip(jc_queue *q, int64_t *at, int free_only, jc_value *found)
{
    int taken = 0;
    if (jc_queue_is_foreign(q)) {
        return 0; /* in a child a value may be half moved: what it refers to stays alive there */
    }
    jc_queue_lock(q);
    for (; *at < q->room * q->width && !taken; ++*at) {
        int64_t row = *at / q->width;
        jc_value *value = jc_queue_row(q, row) + *at % q->width;
        if (value->held != NULL && !(free_only && row < q->count)) {
            *found = *value;
            memset(value, 0, sizeof *value);
            taken = 1;
        }
    }
    jc_queue_unlock(q);
    return taken;
}

#endif
