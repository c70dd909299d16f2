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
#include <time.h>
#include <unistd.h>

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

#define JC_QUEUE_POLL_NS 25000000   /* between two looks at a cancel flag */
#define JC_QUEUE_SPINS 300          /* looks before the sleep: some microseconds, less than it takes to wake up */
#define JC_QUEUE_YIELD 20           /* after so many of them the processor is offered: the other side may wait for it */
#define JC_QUEUE_LOCK_SPINS 200     /* looks at a lock that is taken before the processor is given to others */
#define JC_LINE 64                  /* bytes that processors pass to each other at once */

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
    int64_t *bytes;          /* taken out, of each value of a row */
    int64_t room;            /* rows that the slots have place for; more than the capacity once rows were put back */
    int64_t writers;         /* registered, and not done */
    int64_t waited_ns[2];

    /* Set once, before others can have the queue. */
    int64_t capacity;        /* rows at which writers wait */
    int64_t width;           /* values in a row */
    int64_t process;         /* jc_queue_process at creation */
    uint32_t cyclic;         /* bit set of the kinds that need the GIL */
    uint32_t seen_cyclic;    /* whether such a value was ever put in; with the GIL */

    /* Sleep: readers for a row, writers for room. Whoever wants to sleep counts itself with both locks, and keeps the
     * mutex until it sleeps; so a signal given with the mutex finds it asleep. */
    pthread_mutex_t mutex;
    pthread_cond_t line[2];
} jc_queue;

/* Counted up in each forked child. */
static int64_t jc_queue_process;

static void jc_queue_forked(void)
{
    __atomic_fetch_add(&jc_queue_process, 1, __ATOMIC_RELAXED);
}

/* Once, before any queue is made. 0 or an errno. */
static int jc_queue_setup(void)
{
    return pthread_atfork(NULL, NULL, jc_queue_forked);
}

static inline int jc_queue_is_foreign(const jc_queue *q)
{
    return q->process != __atomic_load_n(&jc_queue_process, __ATOMIC_RELAXED);
}

static inline int64_t jc_queue_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

static inline void jc_queue_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Held for some tens of nanoseconds: to sleep would cost a thousand times that. */
static inline void jc_queue_lock(jc_queue *q)
{
    int looks = 0;
    while (__atomic_exchange_n(&q->lock, 1, __ATOMIC_ACQUIRE)) {
        while (__atomic_load_n(&q->lock, __ATOMIC_RELAXED)) {
            if (++looks < JC_QUEUE_LOCK_SPINS) {
                jc_queue_pause();
            } else if (looks < 2 * JC_QUEUE_LOCK_SPINS) {
                sched_yield(); /* who has it was put aside */
            } else {
                const struct timespec moment = {0, 50000};
                nanosleep(&moment, NULL);
            }
        }
    }
}

static inline void jc_queue_unlock(jc_queue *q)
{
    __atomic_store_n(&q->lock, 0, __ATOMIC_RELEASE);
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
    free(q->bytes);
    free(q);
}

/* NULL when there is no memory. */
static jc_queue *jc_queue_new(int64_t capacity, int64_t width, uint32_t cyclic)
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
    q->bytes = calloc(values, sizeof(int64_t));
    if (q->slots == NULL || q->bytes == NULL) {
        jc_queue_release(q);
        return NULL;
    }
    q->capacity = q->room = capacity;
    q->width = width;
    q->cyclic = cyclic;
    q->process = __atomic_load_n(&jc_queue_process, __ATOMIC_RELAXED);
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

/* Swap `row` with the next free slot or with the oldest row, without waiting: DONE, CLOSED, WAIT or NEEDS_GIL. */
static int jc_queue_try(jc_queue *q, int side, jc_value *row, int has_gil)
{
    int wake = 0, answer = JC_QUEUE_DONE;
    jc_value *slot;
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
        } else {
            if (has_gil && side == JC_WRITERS && jc_queue_any_cyclic(q, row)) {
                q->seen_cyclic = 1;
            }
            jc_queue_swap(row, slot, q->width);
            q->rows[side]++;
            if (side == JC_WRITERS) {
                jc_queue_set(&q->count, q->count + 1);
            } else {
                for (i = 0; i < q->width; i++) {
                    q->bytes[i] += row[i].nbytes;
                }
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

static inline int jc_queue_ready(const jc_queue *q, int side)
{
    int64_t count = jc_queue_peek(&q->count);
    return (side == JC_WRITERS ? count < q->capacity : count > 0) || __atomic_load_n(&q->closed, __ATOMIC_RELAXED);
}

/* Sleep with the mutex held, which is let go of meanwhile, until a signal or for `ns` at most. */
static inline void jc_queue_sleep(jc_queue *q, int side, int64_t ns)
{
    struct timespec until;
#ifdef __APPLE__
    until.tv_sec = (time_t)(ns / 1000000000);
    until.tv_nsec = (long)(ns % 1000000000);
    pthread_cond_timedwait_relative_np(&q->line[side], &q->mutex, &until);
#else
    int64_t end = jc_queue_now_ns() + ns;
    until.tv_sec = (time_t)(end / 1000000000);
    until.tv_nsec = (long)(end % 1000000000);
    pthread_cond_timedwait(&q->line[side], &q->mutex, &until);
#endif
}

/* Wait until a try may succeed: DONE, CANCELLED or TIMEOUT. No limit for a timeout below 0; `flag` may be NULL.
 *
 * Ready comes first: a signal wakes one sleeper, so one that was woken must say so and not that its time is up, or the
 * row would lie there while the others sleep. */
static int jc_queue_wait(jc_queue *q, int side, int64_t timeout_ns, const int32_t *flag)
{
    const int64_t longest = 3600 * (int64_t)1000000000;
    int64_t begin, left;
    int answer = JC_QUEUE_DONE, i;
    if (jc_queue_is_foreign(q)) {
        return JC_QUEUE_DONE; /* closed */
    }
    begin = jc_queue_now_ns();
    for (i = 1; i < JC_QUEUE_SPINS && !jc_queue_ready(q, side); i++) {
        if (i % JC_QUEUE_YIELD) {
            jc_queue_pause();
        } else {
            sched_yield();
        }
    }
    pthread_mutex_lock(&q->mutex);
    for (;;) {
        jc_queue_lock(q);
        if (jc_queue_ready(q, side)) {
            break;
        }
        if (flag != NULL && __atomic_load_n(flag, __ATOMIC_ACQUIRE)) {
            answer = JC_QUEUE_CANCELLED;
            break;
        }
        left = longest;
        if (timeout_ns >= 0) {
            int64_t gone = jc_queue_now_ns() - begin;
            if (gone >= timeout_ns) {
                answer = JC_QUEUE_TIMEOUT;
                break;
            }
            left = timeout_ns - gone < longest ? timeout_ns - gone : longest;
        }
        if (flag != NULL && left > JC_QUEUE_POLL_NS) {
            left = JC_QUEUE_POLL_NS;
        }
        q->sleepers[side]++;
        jc_queue_unlock(q);
        jc_queue_sleep(q, side, left);
        jc_queue_lock(q);
        q->sleepers[side]--;
        jc_queue_unlock(q);
    }
    q->waited_ns[side] += jc_queue_now_ns() - begin;
    jc_queue_unlock(q);
    pthread_mutex_unlock(&q->mutex);
    return answer;
}

/* Try, and wait as long as it takes: DONE, CLOSED, CANCELLED, TIMEOUT or NEEDS_GIL. Not to be called with the GIL. */
static int jc_queue_move(jc_queue *q, int side, jc_value *row, int64_t timeout_ns, const int32_t *flag)
{
    int answer = jc_queue_try(q, side, row, 0);
    int64_t end = 0, left = timeout_ns;
    if (answer != JC_QUEUE_WAIT) {
        return answer;
    }
    if (timeout_ns == 0) {
        return JC_QUEUE_TIMEOUT;
    }
    if (timeout_ns > 0) {
        int64_t now = jc_queue_now_ns();
        end = timeout_ns < INT64_MAX - now ? now + timeout_ns : INT64_MAX;
    }
    for (;;) {
        answer = jc_queue_wait(q, side, left, flag);
        if (answer != JC_QUEUE_DONE) {
            return answer;
        }
        answer = jc_queue_try(q, side, row, 0);
        if (answer != JC_QUEUE_WAIT) {
            return answer;
        }
        /* Another one was faster. */
        if (timeout_ns > 0) {
            left = end - jc_queue_now_ns();
            left = left > 0 ? left : 0;
        }
    }
}

/* Nothing goes in any more, and all who wait are told. */
static void jc_queue_close(jc_queue *q)
{
    if (jc_queue_is_foreign(q)) {
        return;
    }
    jc_queue_lock(q);
    __atomic_store_n(&q->closed, 1, __ATOMIC_RELAXED);
    jc_queue_unlock(q);
    jc_queue_wake(q, JC_READERS, 1);
    jc_queue_wake(q, JC_WRITERS, 1);
}

/* Count writers that will say when they are done. CLOSED if it is too late. */
static int jc_queue_add_writers(jc_queue *q, int64_t count)
{
    int answer = JC_QUEUE_DONE;
    if (jc_queue_is_foreign(q)) {
        return JC_QUEUE_CLOSED;
    }
    jc_queue_lock(q);
    if (q->closed) {
        answer = JC_QUEUE_CLOSED;
    } else {
        q->writers += count;
    }
    jc_queue_unlock(q);
    return answer;
}

/* One of them is done; the last one closes. The number that is left, or -1 if there was none. */
static int64_t jc_queue_drop_writer(jc_queue *q)
{
    int64_t left;
    if (jc_queue_is_foreign(q)) {
        return 0;
    }
    jc_queue_lock(q);
    left = q->writers - 1;
    if (left >= 0) {
        q->writers = left;
    }
    jc_queue_unlock(q);
    if (left == 0) {
        jc_queue_close(q);
    }
    return left;
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
            q->bytes[k] -= jc_queue_row(q, 0)[k].nbytes;
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
