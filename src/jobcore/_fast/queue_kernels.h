/* Ops on queues, as a program runs them: records of small tensors, between blobs and a queue, without the interpreter.
 *
 * A record is copied out of the blobs into a row of the frame, and the row swapped with a slot of the queue; or a slot
 * with the row, and the row copied into the blobs. The arrays go round between the two sides, so that nobody has to make
 * any. Where a row has no array that is like the blob's, the op declines, and whoever has the GIL makes one.
 *
 * Whatever is not such a record is left to the Python kernel, also when it is first seen in the queue: it stays there.
 */
#ifndef JOBCORE_FAST_QUEUE_KERNELS_H
#define JOBCORE_FAST_QUEUE_KERNELS_H

#include "kernel.h"
#include "queue_wait.h"
#include "tensor_kernels.h"

#define JC_SIGNALS_NS 25000000 /* the longest that the main thread waits without a look for signals */

/* Whether a value has the dtype and shape of what the slot shows, so that the bytes of one can become those of the other. */
static inline int jc_alike(const jc_value *value, const jc_slot *s)
{
    if (value->kind != JC_KIND_TENSOR || value->held == NULL) {
        return 0;
    }
    if (jc_is_scalar(s)) {
        return value->scalar_type == jc_number_of(s->type);
    }
    return s->type == JC_TENSOR && value->scalar_type < 0 && value->nbytes == s->nbytes &&
           jc_same_layout((PyArrayObject *)value->held, (PyArrayObject *)s->handle);
}

static inline void jc_take(jc_frame *f, jc_value *value, const jc_slot *s)
{
    if (s->type == JC_TENSOR) {
        jc_spin_lock(s->busy, jc_process_mark(f->marks));
        memcpy(value->data, s->data, (size_t)s->nbytes);
        jc_spin_unlock(s->busy);
        jc_worked(f, s->nbytes);
    } else if (s->type == JC_BOOL) {
        *(uint8_t *)value->data = __atomic_load_n((const uint8_t *)s->data, __ATOMIC_RELAXED);
    } else {
        *(int64_t *)value->data = jc_get_int64(s);
    }
}

static inline void jc_give(jc_frame *f, const jc_value *value, const jc_slot *s)
{
    if (s->type == JC_TENSOR) {
        jc_spin_lock(s->busy, jc_process_mark(f->marks));
        memcpy(s->data, value->data, (size_t)s->nbytes);
        jc_spin_unlock(s->busy);
        jc_worked(f, s->nbytes);
    } else if (s->type == JC_BOOL) {
        __atomic_store_n((uint8_t *)s->data, *(const uint8_t *)value->data, __ATOMIC_RELAXED);
    } else {
        jc_set_int64(s, *(const int64_t *)value->data);
    }
}

typedef struct {
    jc_frame *frame;
    const jc_op *op;
    int first; /* of the slots that the values go to */
} jc_targets;

/* Looked at when the record is there, and not before the wait: somebody may have put something else into a blob since. */
static int jc_fits(const jc_value *row, const void *what)
{
    const jc_targets *t = what;
    int i;
    for (i = 0; i < t->op->values; i++) {
        const jc_slot *s = jc_slot_of(t->frame, t->op, t->first + i);
        if (!s->writable || !jc_fresh(s) || !jc_alike(&row[i], s)) {
            return 0;
        }
    }
    return 1;
}

/* JC_DONE, JC_DECLINE, JC_WAIT or JC_CANCELLED; `closed` is set with JC_DONE. */
static inline int jc_move_row(jc_frame *f, const jc_op *op, jc_queue *q, int side, int may_wait, int *closed)
{
    const jc_targets targets = {f, op, 1};
    const jc_queue_look look = side == JC_READERS ? jc_fits : NULL;
    jc_value *row = f->values + op->first_value;
    int answer;
    if (f->has_gil || !may_wait) {
        answer = jc_queue_try_if(q, side, row, 0, look, &targets);
    } else {
        answer = jc_queue_move_if(q, side, row, f->main ? JC_SIGNALS_NS : -1, f->cancelled, look, &targets);
    }
    *closed = answer == JC_QUEUE_CLOSED;
    switch (answer) {
    case JC_QUEUE_DONE:
    case JC_QUEUE_CLOSED:
        return JC_DONE;
    case JC_QUEUE_WAIT:
        return may_wait ? JC_WAIT : JC_DECLINE;
    case JC_QUEUE_TIMEOUT:
        return JC_WAIT;
    case JC_QUEUE_CANCELLED:
        return JC_CANCELLED;
    default:
        return JC_DECLINE;
    }
}

static inline jc_queue *jc_queue_in(jc_frame *f, const jc_op *op)
{
    const jc_slot *s = jc_slot_of(f, op, 0);
    jc_queue *q = jc_reads(s, JC_QUEUE) ? s->data : NULL;
    return q != NULL && q->width == op->values ? q : NULL;
}

/* The constant of these ops: whether they do no more than this. */
static inline int jc_is_plain(const jc_op *op)
{
    return op->constant_type == JC_BOOL && op->constant;
}

static inline int jc_enqueue(jc_frame *f, const jc_op *op, int *closed)
{
    jc_queue *q = jc_queue_in(f, op);
    jc_value *row = f->values + op->first_value;
    int i;
    JC_NEED(q != NULL && jc_is_plain(op));
    for (i = 0; i < op->values; i++) {
        const jc_slot *s = jc_slot_of(f, op, 1 + i);
        JC_NEED(jc_fresh(s) && jc_alike(&row[i], s));
    }
    for (i = 0; i < op->values; i++) {
        jc_take(f, &row[i], jc_slot_of(f, op, 1 + i));
    }
    return jc_move_row(f, op, q, JC_WRITERS, 1, closed);
}

static inline int jc_dequeue(jc_frame *f, const jc_op *op, int may_wait, int *closed)
{
    jc_queue *q = jc_queue_in(f, op);
    int answer, i;
    JC_NEED(q != NULL);
    answer = jc_move_row(f, op, q, JC_READERS, may_wait, closed);
    for (i = 0; answer == JC_DONE && !*closed && i < op->values; i++) {
        jc_give(f, &f->values[op->first_value + i], jc_slot_of(f, op, 1 + i));
    }
    return answer;
}

JC_KERNEL(EnqueueBlobs)
{
    int closed, answer = jc_enqueue(f, op, &closed);
    return answer == JC_DONE && closed ? JC_DECLINE : answer;
}

JC_KERNEL(SafeEnqueueBlobs)
{
    const jc_slot *status = jc_slot_of(f, op, op->inputs + op->outputs - 1);
    int closed, answer;
    JC_NEED(jc_writes(status, JC_BOOL));
    answer = jc_enqueue(f, op, &closed);
    if (answer == JC_DONE) {
        jc_set_bool(status, closed);
    }
    return answer;
}

JC_KERNEL(DequeueBlobs)
{
    /* With a timeout the Python kernel waits. */
    int closed, answer = jc_dequeue(f, op, jc_is_plain(op), &closed);
    return answer == JC_DONE && closed ? JC_DECLINE : answer;
}

JC_KERNEL(SafeDequeueBlobs)
{
    const jc_slot *status = jc_slot_of(f, op, op->inputs + op->outputs - 1);
    int closed, answer;
    JC_NEED(jc_is_plain(op) && jc_writes(status, JC_BOOL));
    answer = jc_dequeue(f, op, 1, &closed);
    if (answer == JC_DONE) {
        jc_set_bool(status, closed);
    }
    return answer;
}

/* How many values the record of such an op has, 0 for other kernels; `*puts` tells whether they go in. */
static int jc_values_of(jc_kernel kernel, int inputs, int outputs, int32_t *puts)
{
    *puts = kernel == jc_op_EnqueueBlobs || kernel == jc_op_SafeEnqueueBlobs;
    return *puts                             ? inputs - 1
           : kernel == jc_op_DequeueBlobs     ? outputs
           : kernel == jc_op_SafeDequeueBlobs ? outputs - 1
                                              : 0;
}

#endif
