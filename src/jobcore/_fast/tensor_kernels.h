/* Ops on small tensors, as a program runs them: copies, and element by element.
 *
 * For tensors in C order of one plain dtype and one shape, or one of them a single item, where the output has the dtype
 * and the shape of the result already. All others go to NumPy by way of the Python kernel, which makes an output that
 * fits the next time.
 *
 * The locks of all blobs of an op are held while it works, so that nobody sees half of a tensor. They are taken in the
 * order of their addresses: two threads never wait for each other.
 */
#ifndef JOBCORE_FAST_TENSOR_KERNELS_H
#define JOBCORE_FAST_TENSOR_KERNELS_H

#include <numpy/ndarraytypes.h>

#include "forks.h"
#include "kernel.h"
#include "loops.h"
#include "spin.h"

#define JC_MOST_TENSORS 3 /* of an op */

/* NumPy's number of a slot's type, -1 for what is no scalar. */
static inline int32_t jc_number_of(int32_t type)
{
    return type == JC_INT64 ? NPY_INT64 : type == JC_DOUBLE ? NPY_DOUBLE : type == JC_BOOL ? NPY_BOOL : -1;
}

static inline int jc_is_scalar(const jc_slot *s)
{
    return s->type == JC_BOOL || s->type == JC_INT64 || s->type == JC_DOUBLE;
}

/* Of an array that nobody changes in any other way than by its items these fields stay as they are. */
static inline int jc_same_shape(PyArrayObject *a, PyArrayObject *b)
{
    return PyArray_NDIM(a) == PyArray_NDIM(b) &&
           memcmp(PyArray_DIMS(a), PyArray_DIMS(b), (size_t)PyArray_NDIM(a) * sizeof(npy_intp)) == 0;
}

/* Whether the bytes of one can become those of the other. */
static inline int jc_same_layout(PyArrayObject *a, PyArrayObject *b)
{
    return PyArray_DESCR(a) == PyArray_DESCR(b) && jc_same_shape(a, b) && PyArray_IS_C_CONTIGUOUS(a) &&
           PyArray_IS_C_CONTIGUOUS(b);
}

/* ---- locks ---- */

typedef struct {
    int32_t *words[JC_MOST_TENSORS];
    int count;
} jc_locks;

/* Slots that show no tensor have none. */
static inline void jc_locks_add(jc_locks *locks, const jc_slot *s)
{
    int i = locks->count;
    if (s->type != JC_TENSOR) {
        return;
    }
    while (i > 0 && (uintptr_t)locks->words[i - 1] > (uintptr_t)s->busy) {
        i--;
    }
    if (i > 0 && locks->words[i - 1] == s->busy) {
        return;
    }
    memmove(&locks->words[i + 1], &locks->words[i], (size_t)(locks->count - i) * sizeof *locks->words);
    locks->words[i] = s->busy;
    locks->count++;
}

static inline void jc_lock_all(const jc_locks *locks, int32_t mark)
{
    int i;
    for (i = 0; i < locks->count; i++) {
        jc_spin_lock(locks->words[i], mark);
    }
}

static inline void jc_unlock_all(const jc_locks *locks)
{
    int i;
    for (i = locks->count; i > 0; i--) {
        jc_spin_unlock(locks->words[i - 1]);
    }
}

/* ---- constants, copies, emptiness ---- */

/* The constant is an array that the program keeps. */
static inline int jc_store_array(jc_frame *f, const jc_op *op, const jc_slot *out)
{
    PyArrayObject *array = (PyArrayObject *)(intptr_t)op->constant;
    JC_NEED(jc_writes(out, JC_TENSOR) && jc_same_layout(array, (PyArrayObject *)out->handle));
    jc_spin_lock(out->busy, jc_process_mark(f->marks));
    memcpy(out->data, PyArray_DATA(array), (size_t)out->nbytes);
    jc_spin_unlock(out->busy);
    jc_worked(f, out->nbytes);
    return JC_DONE;
}

static inline int jc_copy_tensor(jc_frame *f, const jc_slot *in, const jc_slot *out)
{
    jc_locks locks = {{NULL}, 0};
    JC_NEED(jc_reads(in, JC_TENSOR) && jc_writes(out, JC_TENSOR));
    JC_NEED(jc_same_layout((PyArrayObject *)in->handle, (PyArrayObject *)out->handle));
    jc_locks_add(&locks, in);
    jc_locks_add(&locks, out);
    jc_lock_all(&locks, jc_process_mark(f->marks));
    memmove(out->data, in->data, (size_t)out->nbytes);
    jc_unlock_all(&locks);
    jc_worked(f, out->nbytes);
    return JC_DONE;
}

JC_KERNEL(IsEmpty)
{
    const jc_slot *in = first, *out = second;
    JC_NEED(jc_fresh(in) && (in->type == JC_TENSOR || jc_is_scalar(in)) && jc_writes(out, JC_BOOL));
    jc_set_bool(out, in->type == JC_TENSOR && in->nbytes == 0);
    return JC_DONE;
}

/* ---- element by element ---- */

typedef struct {
    const void *data;
    PyArrayObject *array; /* NULL for what a slot shows as a scalar */
    int64_t scalar;       /* its bytes, as far as it has them */
    int32_t number;       /* NumPy's, of the dtype */
    int32_t nbytes;       /* 0 for a scalar */
} jc_operand;

static inline int jc_operand_of(const jc_slot *s, jc_operand *o)
{
    if (!jc_fresh(s)) {
        return 0;
    }
    o->array = NULL;
    o->number = s->number;
    o->nbytes = s->type == JC_TENSOR ? s->nbytes : 0;
    o->data = &o->scalar;
    if (s->type == JC_TENSOR) {
        o->array = (PyArrayObject *)s->handle;
        o->data = s->data;
    } else if (s->type == JC_BOOL) {
        *(uint8_t *)&o->scalar = (uint8_t)jc_get_bool(s);
    } else if (jc_is_scalar(s)) {
        o->scalar = jc_get_int64(s);
    }
    return s->number >= 0;
}

static inline int jc_axes(const jc_operand *o)
{
    return o->array == NULL ? 0 : PyArray_NDIM(o->array);
}

static inline int jc_fit(const jc_operand *a, const jc_operand *b)
{
    return jc_axes(a) == jc_axes(b) && (jc_axes(a) == 0 || jc_same_shape(a->array, b->array));
}

static inline size_t jc_items(const jc_operand *o)
{
    size_t items = 1;
    int i;
    for (i = 0; i < jc_axes(o); i++) {
        items *= (size_t)PyArray_DIM(o->array, i);
    }
    return items;
}

/* An op on one or two operands, whose result is of their dtype or, if it tells something about them, boolean. Not inlined,
 * so that the ops on scalars, which come here last, stay as small as they are. */
static __attribute__((noinline)) int jc_by_element(jc_frame *f, const jc_op *op, const jc_loop *loops, int tells)
{
    const int count = op->inputs;
    const jc_slot *out = jc_slot_of(f, op, count);
    jc_operand in[2], result, *shape = &in[0];
    jc_locks locks = {{NULL}, 0};
    int i, singles = JC_NO_SINGLE;
    JC_NEED(count >= 1 && count <= 2 && op->outputs == 1);
    for (i = 0; i < count; i++) {
        JC_NEED(jc_operand_of(jc_slot_of(f, op, i), &in[i]));
        jc_locks_add(&locks, jc_slot_of(f, op, i));
    }
    JC_NEED(in[count - 1].number == in[0].number && loops[in[0].number] != NULL);
    if (count == 2 && !jc_fit(&in[0], &in[1])) {
        singles = jc_axes(&in[0]) == 0 ? JC_LEFT_SINGLE : JC_RIGHT_SINGLE;
        JC_NEED(singles == JC_LEFT_SINGLE || jc_axes(&in[1]) == 0);
        shape = singles == JC_LEFT_SINGLE ? &in[1] : &in[0];
    }
    JC_NEED(out->writable && jc_operand_of(out, &result));
    JC_NEED(result.number == (tells ? NPY_BOOL : in[0].number) && jc_fit(&result, shape));
    jc_locks_add(&locks, out);
    jc_lock_all(&locks, jc_process_mark(f->marks));
    loops[in[0].number](out->type == JC_TENSOR ? out->data : &result.scalar, in[0].data, in[count - 1].data,
                        jc_items(shape), singles);
    jc_unlock_all(&locks);
    jc_worked(f, out->type == JC_TENSOR ? out->nbytes + shape->nbytes : 0);
    if (out->type == JC_BOOL) {
        jc_set_bool(out, *(const uint8_t *)&result.scalar);
    } else if (out->type != JC_TENSOR) {
        jc_set_int64(out, result.scalar);
    }
    return JC_DONE;
}

#endif
