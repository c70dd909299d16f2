/* What went through a queue, also when the queue is gone. With the GIL only. */
#ifndef JOBCORE_FAST_QUEUE_TOTALS_H
#define JOBCORE_FAST_QUEUE_TOTALS_H

#include "queue.h"

typedef struct {
    int64_t references;
    jc_queue *queue;         /* NULL once it is gone: the rest is final then */
    int64_t width;
    int64_t balance;         /* rows in it, and those of waiting writers, less those that readers wait for */
    int64_t rows[2], waited_ns[2];
    int64_t *bytes[2];       /* of each value of a row */
} jc_queue_totals;

static void jc_queue_totals_drop(jc_queue_totals *t)
{
    if (--t->references == 0) {
        free(t->bytes[JC_READERS]);
        free(t);
    }
}

/* NULL when there is no memory; one reference. */
static jc_queue_totals *jc_queue_totals_new(jc_queue *q)
{
    jc_queue_totals *t = calloc(1, sizeof *t);
    int64_t *bytes = calloc((size_t)q->width, 2 * sizeof *bytes);
    if (t == NULL || bytes == NULL) {
        free(t);
        free(bytes);
        return NULL;
    }
    t->references = 1;
    t->queue = q;
    t->width = q->width;
    t->bytes[JC_READERS] = bytes;
    t->bytes[JC_WRITERS] = bytes + q->width;
    return t;
}

/* Copy the numbers of one moment. A child of a fork has those that were read before it. */
static void jc_queue_totals_read(jc_queue_totals *t)
{
    jc_queue *q = t->queue;
    int side;
    if (q == NULL || jc_queue_is_foreign(q)) {
        return;
    }
    jc_queue_lock(q);
    t->balance = q->count + q->sleepers[JC_WRITERS] - q->sleepers[JC_READERS];
    for (side = 0; side < 2; side++) {
        t->rows[side] = q->rows[side];
        t->waited_ns[side] = jc_queue_peek(&q->waited_ns[side]);
        memcpy(t->bytes[side], q->bytes[side], (size_t)q->width * sizeof(int64_t));
    }
    jc_queue_unlock(q);
}

/* Before the queue goes. */
static void jc_queue_totals_end(jc_queue_totals *t)
{
    jc_queue_totals_read(t);
    t->balance = 0;
    t->queue = NULL;
}

#endif
