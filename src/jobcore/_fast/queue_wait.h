/* Waiting at a queue of queue.h, its ends, and its writers. */
#ifndef JOBCORE_FAST_QUEUE_WAIT_H
#define JOBCORE_FAST_QUEUE_WAIT_H

#include <sched.h>
#include <time.h>

#include "queue.h"

#define JC_QUEUE_POLL_NS 25000000 /* between two looks at a cancel flag */
#define JC_QUEUE_SPINS 300        /* looks before the sleep: some microseconds, less than it takes to wake up */
#define JC_QUEUE_YIELD 20         /* after so many of them the processor is offered: the other side may wait for it */

static inline int64_t jc_queue_now_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
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
    int answer = JC_QUEUE_DONE, ready = 0, i;
    if (jc_queue_is_foreign(q)) {
        return JC_QUEUE_DONE; /* closed */
    }
    begin = jc_queue_now_ns();
    for (i = 1; i < JC_QUEUE_SPINS && !(ready = jc_queue_ready(q, side)); i++) {
        if (i % JC_QUEUE_YIELD) {
            jc_spin_pause();
        } else {
            sched_yield();
        }
    }
    if (ready) {
        /* Without the locks: to pass their lines between processors takes longer than to move a row. */
        __atomic_fetch_add(&q->waited_ns[side], jc_queue_now_ns() - begin, __ATOMIC_RELAXED);
        return JC_QUEUE_DONE;
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
    __atomic_fetch_add(&q->waited_ns[side], jc_queue_now_ns() - begin, __ATOMIC_RELAXED);
    jc_queue_unlock(q);
    pthread_mutex_unlock(&q->mutex);
    return answer;
}

/* Try, and wait as long as it takes: DONE, CLOSED, CANCELLED, TIMEOUT or NEEDS_GIL. Not to be called with the GIL. */
static inline int jc_queue_move_if(
    jc_queue *q, int side, jc_value *row, int64_t timeout_ns, const int32_t *flag, jc_queue_look look, const void *what)
{
    int answer = jc_queue_try_if(q, side, row, 0, look, what);
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
        answer = jc_queue_try_if(q, side, row, 0, look, what);
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

static int jc_queue_move(jc_queue *q, int side, jc_value *row, int64_t timeout_ns, const int32_t *flag)
{
    return jc_queue_move_if(q, side, row, timeout_ns, flag, NULL, NULL);
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

#endif
