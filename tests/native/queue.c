/* Drives queue.h without an interpreter: by test_native_queue.py as it is, and by .ci/sanitize under the thread sanitizer.
 *
 *     queue
 */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <sys/wait.h>

#include "queue_totals.h"
#include "queue_wait.h"

#include "check.h"

#define WIDTH 3
#define WRITERS 3
#define READERS 3

enum { PLAIN = 1, CYCLIC = 2 };

typedef struct {
    jc_queue *queue;
    const int32_t *flag;
    int64_t first, count;    /* of a writer: the numbers to put in */
    int64_t timeout_ns;
    int64_t done, sum;
    int answer;
} worker;

static void fill(jc_value *row, int64_t number)
{
    for (int i = 0; i < WIDTH; i++) {
        memset(&row[i], 0, sizeof row[i]);
        row[i].kind = PLAIN;
        row[i].nbytes = number + i;
    }
}

static void *write_all(void *argument)
{
    worker *w = argument;
    jc_value row[WIDTH];
    for (int64_t n = w->first; n < w->first + w->count;) {
        fill(row, n);
        w->answer = jc_queue_move(w->queue, JC_WRITERS, row, w->timeout_ns, w->flag);
        if (w->answer == JC_QUEUE_TIMEOUT) {
            continue;
        }
        if (w->answer != JC_QUEUE_DONE) {
            break;
        }
        w->sum += n;
        w->done++;
        n++;
    }
    CHECK(jc_queue_drop_writer(w->queue) >= 0);
    return NULL;
}

static void *read_all(void *argument)
{
    worker *w = argument;
    jc_value rows[2 * WIDTH];
    int turn = 0;
    memset(rows, 0, sizeof rows);
    for (;;) {
        w->answer = jc_queue_move(w->queue, JC_READERS, rows, w->timeout_ns, w->flag);
        if (w->answer == JC_QUEUE_TIMEOUT) {
            continue;
        }
        if (w->answer != JC_QUEUE_DONE) {
            break;
        }
        for (int i = 0; i < WIDTH; i++) {
            CHECK(rows[i].kind == PLAIN && rows[i].nbytes == rows[0].nbytes + i);
        }
        if (++turn % 50 == 7 && jc_queue_try(w->queue, JC_READERS, rows + WIDTH, 0) == JC_QUEUE_DONE) {
            CHECK(jc_queue_put_back(w->queue, rows, 2) == 0); /* they come again, here or elsewhere */
            continue;
        }
        w->sum += rows[0].nbytes;
        w->done++;
    }
    return NULL;
}

static void *look(void *argument)
{
    jc_queue *q = argument;
    while (!jc_queue_is_closed(q)) {
        jc_queue_lock(q);
        CHECK(q->count >= 0 && q->count <= q->room && q->rows[JC_READERS] <= q->rows[JC_WRITERS]);
        jc_queue_unlock(q);
        sched_yield();
    }
    return NULL;
}

/* Some rows from each writer to any reader; the end comes with the last writer, a close or a flag. */
static void hand_over(int64_t capacity, int64_t count, int end)
{
    int32_t flag = 0;
    jc_queue *q = jc_queue_new(capacity, WIDTH, 1u << CYCLIC, &jc_forks);
    worker writers[WRITERS], readers[READERS];
    pthread_t threads[WRITERS + READERS + 1];
    int64_t in = 0, out = 0, in_sum = 0, out_sum = 0;
    jc_value row[WIDTH];
    CHECK(q != NULL);
    CHECK(jc_queue_add_writers(q, WRITERS) == JC_QUEUE_DONE);
    for (int i = 0; i < WRITERS; i++) {
        writers[i] = (worker){q, i ? &flag : (end == 2 ? &flag : NULL), i * count, count, i == 2 ? 20000 : -1, 0, 0, 0};
        CHECK(pthread_create(&threads[i], NULL, write_all, &writers[i]) == 0);
    }
    for (int i = 0; i < READERS; i++) {
        readers[i] = (worker){q, i ? &flag : (end == 2 ? &flag : NULL), 0, 0, i == 2 ? 20000 : -1, 0, 0, 0};
        CHECK(pthread_create(&threads[WRITERS + i], NULL, read_all, &readers[i]) == 0);
    }
    CHECK(pthread_create(&threads[WRITERS + READERS], NULL, look, q) == 0);
    if (end) {
        const struct timespec moment = {0, 3000000};
        nanosleep(&moment, NULL);
        if (end == 1) {
            jc_queue_close(q);
        } else {
            __atomic_store_n(&flag, 1, __ATOMIC_RELEASE);
        }
    }
    for (int i = 0; i <= WRITERS + READERS; i++) {
        pthread_join(threads[i], NULL);
    }
    for (int i = 0; i < WRITERS; i++) {
        in += writers[i].done;
        in_sum += writers[i].sum;
        CHECK(end || writers[i].done == count);
    }
    for (int i = 0; i < READERS; i++) {
        out += readers[i].done;
        out_sum += readers[i].sum;
    }
    CHECK(jc_queue_is_closed(q));
    fill(row, 0);
    CHECK(jc_queue_move(q, JC_WRITERS, row, -1, NULL) == JC_QUEUE_CLOSED);
    while (jc_queue_move(q, JC_READERS, row, -1, NULL) == JC_QUEUE_DONE) {
        out++;
        out_sum += row[0].nbytes;
    }
    CHECK(in == out && in_sum == out_sum);
    CHECK(q->rows[JC_READERS] == out && q->rows[JC_WRITERS] == in && q->count == 0);
    jc_queue_free(q);
}

static void answers(void)
{
    int32_t up = 1;
    jc_queue *q = jc_queue_new(1, WIDTH, 1u << CYCLIC, &jc_forks);
    jc_value row[WIDTH];
    CHECK(q != NULL);
    fill(row, 1);
    CHECK(jc_queue_move(q, JC_READERS, row, 0, NULL) == JC_QUEUE_TIMEOUT);
    CHECK(jc_queue_move(q, JC_READERS, row, 1000000, NULL) == JC_QUEUE_TIMEOUT);
    CHECK(jc_queue_move(q, JC_READERS, row, -1, &up) == JC_QUEUE_CANCELLED);
    CHECK(jc_queue_move(q, JC_READERS, row, INT64_MAX, &up) == JC_QUEUE_CANCELLED);
    CHECK(jc_queue_move(q, JC_WRITERS, row, -1, &up) == JC_QUEUE_DONE);
    CHECK(row[0].kind == 0 && jc_queue_peek(&q->waited_ns[JC_READERS]) >= 1000000);
    row[1].kind = CYCLIC;
    CHECK(jc_queue_move(q, JC_READERS, row, -1, NULL) == JC_QUEUE_NEEDS_GIL);
    CHECK(jc_queue_drop_writer(q) == -1);
    jc_queue_close(q);
    CHECK(jc_queue_add_writers(q, 1) == JC_QUEUE_CLOSED);
    CHECK(jc_queue_try(q, JC_READERS, row, 1) == JC_QUEUE_DONE && row[2].nbytes == 3);
    CHECK(jc_queue_move(q, JC_READERS, row, -1, NULL) == JC_QUEUE_CLOSED);
    jc_queue_free(q);
    CHECK(jc_queue_new(INT64_MAX, INT64_MAX, 0, &jc_forks) == NULL);
}

/* Forked while another thread has the lock: a child that looks at it would wait for ever. */
static void forked(void)
{
    jc_queue *q = jc_queue_new(2, WIDTH, 0, &jc_forks);
    jc_value row[WIDTH];
    int status = 1;
    pid_t child;
    CHECK(q != NULL);
    fill(row, 1);
    CHECK(jc_queue_try(q, JC_WRITERS, row, 0) == JC_QUEUE_DONE);
    jc_queue_lock(q);
    child = fork();
    if (child == 0) {
        int good = jc_queue_move(q, JC_WRITERS, row, -1, NULL) == JC_QUEUE_CLOSED &&
                   jc_queue_move(q, JC_READERS, row, -1, NULL) == JC_QUEUE_CLOSED &&
                   jc_queue_wait(q, JC_READERS, -1, NULL) == JC_QUEUE_DONE && jc_queue_is_closed(q) &&
                   jc_queue_add_writers(q, 1) == JC_QUEUE_CLOSED && jc_queue_drop_writer(q) == 0;
        jc_value found;
        int64_t at = 0;
        jc_queue_close(q);
        good = good && !jc_queue_strip(q, &at, 0, &found) && jc_queue_visit(q, NULL, NULL) == 0;
        jc_queue_free(q);
        _exit(good ? 0 : 1);
    }
    jc_queue_unlock(q);
    CHECK(child > 0 && waitpid(child, &status, 0) == child && status == 0);
    CHECK(!jc_queue_is_closed(q));
    CHECK(jc_queue_try(q, JC_READERS, row, 0) == JC_QUEUE_DONE && row[0].nbytes == 1);
    jc_queue_free(q);
}

typedef struct {
    jc_queue *queue;
    int32_t *busy;
    char *shared;   /* written by all, with the lock */
    int64_t rounds;
    int putting;
} sharer;

static int wants_even(const jc_value *row, const void *what)
{
    (void)what;
    return row[0].nbytes % 2 == 0;
}

/* As programs do: what is copied into a row or out of one lies in memory that others write into, under a lock. */
static void *share(void *argument)
{
    sharer *s = argument;
    jc_value row[WIDTH];
    int64_t i;
    fill(row, 0);
    for (i = 0; i < s->rounds; i++) {
        char seen[64];
        CHECK(!jc_spin_lock(s->busy, jc_process_mark(&jc_forks)));
        if (s->putting) {
            memset(s->shared, (int)(i & 127), 64);
        }
        memcpy(seen, s->shared, 64);
        jc_spin_unlock(s->busy);
        CHECK(memcmp(seen, seen + 1, 63) == 0);
        if (s->putting) {
            fill(row, 2 * i);
            CHECK(jc_queue_move(s->queue, JC_WRITERS, row, -1, NULL) == JC_QUEUE_DONE);
        } else {
            CHECK(jc_queue_move_if(s->queue, JC_READERS, row, -1, NULL, wants_even, NULL) == JC_QUEUE_DONE);
            CHECK(row[0].nbytes % 2 == 0);
        }
    }
    return NULL;
}

static void shared(void)
{
    int32_t busy = 0;
    char bytes[64] = {0};
    jc_queue *q = jc_queue_new(4, WIDTH, 0, &jc_forks);
    jc_queue_totals *t;
    sharer all[4];
    pthread_t threads[4];
    jc_value row[WIDTH];
    CHECK(q != NULL);
    t = jc_queue_totals_new(q);
    CHECK(t != NULL);
    for (int i = 0; i < 4; i++) {
        all[i] = (sharer){q, &busy, bytes, 5000, i < 2};
        CHECK(pthread_create(&threads[i], NULL, share, &all[i]) == 0);
    }
    for (int i = 0; i < 100; i++) {
        jc_queue_totals_read(t);
        CHECK(t->rows[JC_READERS] <= t->rows[JC_WRITERS]);
        CHECK(t->bytes[JC_READERS][0] <= t->bytes[JC_WRITERS][0]);
    }
    for (int i = 0; i < 4; i++) {
        pthread_join(threads[i], NULL);
    }
    /* A row that is of no use stays where it is. */
    fill(row, 1);
    CHECK(jc_queue_try(q, JC_WRITERS, row, 0) == JC_QUEUE_DONE);
    CHECK(jc_queue_try_if(q, JC_READERS, row, 0, wants_even, NULL) == JC_QUEUE_NEEDS_GIL && q->count == 1);
    CHECK(jc_queue_move_if(q, JC_READERS, row, -1, NULL, wants_even, NULL) == JC_QUEUE_NEEDS_GIL);
    jc_queue_totals_end(t);
    jc_queue_free(q);
    CHECK(t->rows[JC_WRITERS] == 10001 && t->rows[JC_READERS] == 10000 && t->balance == 0 && t->queue == NULL);
    jc_queue_totals_drop(t);
    /* A lock that a parent's thread had is taken over, and that is told. */
    busy = 1;
    CHECK(jc_spin_lock(&busy, 2) && busy == 2);
    jc_spin_unlock(&busy);
    CHECK(!jc_spin_lock(&busy, 2));
}

int main(void)
{
    CHECK(jc_forks_setup() == 0);
    answers();
    forked();
    shared();
    for (int end = 0; end < 3; end++) {
        hand_over(1, 1000, end);
        hand_over(2, 1000, end);
        hand_over(64, 10000, end);
    }
    puts("well");
    return 0;
}
