/* Ops on scalars, counters and timers, as a program runs them, and the table of all native kernels.
 *
 * Each does what the Python kernel of its op type does, for the values that are common in control flow: booleans, int64
 * and double, of native byte order and without a shape; arithmetic and copies also for small tensors. For everything else, and for every error, it declines, and the
 * Python kernel decides: so there is one text of each rule and each message, in graph/ops_*.py.
 *
 * Integers wrap around as NumPy's do, by way of unsigned arithmetic.
 */
#ifndef JOBCORE_FAST_KERNELS_H
#define JOBCORE_FAST_KERNELS_H

#include "kernel.h"
#include "queue_kernels.h"
#include "sync_kernels.h"
#include "tensor_kernels.h"
#include "timer.h"

/* ---- counters ---- */

static inline int64_t *jc_counter_in(const jc_slot *s)
{
    return jc_reads(s, JC_COUNTER) ? (int64_t *)s->data : NULL;
}

JC_KERNEL(CreateCounter)
{
    const jc_slot *s = first;
    JC_NEED(jc_reads(s, JC_COUNTER) && op->constant_type == JC_INT64);
    jc_atomic_store((int64_t *)s->data, op->constant);
    return JC_DONE;
}

JC_KERNEL(CountUp)
{
    return jc_count_by(1, first, second);
}

JC_KERNEL(CountDown)
{
    return jc_count_by(-1, first, second);
}

JC_KERNEL(ResetCounter)
{
    int64_t *counter = jc_counter_in(first);
    int64_t before;
    JC_NEED(counter != NULL && op->constant_type == JC_INT64);
    JC_NEED(op->outputs == 0 || jc_writes(second, JC_INT64));
    before = jc_atomic_exchange(counter, op->constant);
    if (op->outputs > 0) {
        jc_set_int64(second, before);
    }
    return JC_DONE;
}

JC_KERNEL(RetrieveCount)
{
    int64_t *counter = jc_counter_in(first);
    const jc_slot *out = second;
    JC_NEED(counter != NULL && jc_writes(out, JC_INT64));
    jc_set_int64(out, jc_atomic_load(counter));
    return JC_DONE;
}

JC_KERNEL(CheckCounterDone)
{
    int64_t *counter = jc_counter_in(first);
    const jc_slot *out = second;
    JC_NEED(counter != NULL && jc_writes(out, JC_BOOL));
    jc_set_bool(out, jc_atomic_load(counter) <= 0);
    return JC_DONE;
}

/* ---- timers ---- */

static inline jc_timer *jc_timer_in(const jc_slot *s)
{
    return jc_reads(s, JC_TIMER) ? (jc_timer *)s->data : NULL;
}

JC_KERNEL(TimerBegin)
{
    jc_timer *timer = jc_timer_in(first);
    return timer != NULL && jc_timer_begin(timer) ? JC_DONE : JC_DECLINE;
}

JC_KERNEL(TimerGet)
{
    jc_timer *timer = jc_timer_in(first);
    const jc_slot *out = second;
    int64_t span_ns;
    JC_NEED(timer != NULL && jc_writes(out, JC_INT64));
    span_ns = jc_timer_get(timer);
    JC_NEED(span_ns >= 0);
    jc_set_int64(out, span_ns);
    return JC_DONE;
}

JC_KERNEL(TimerEnd)
{
    jc_timer *timer = jc_timer_in(first);
    return timer != NULL && jc_timer_end(timer) >= 0 ? JC_DONE : JC_DECLINE;
}

JC_KERNEL(TimerGetAndEnd)
{
    jc_timer *timer = jc_timer_in(first);
    const jc_slot *out = second;
    int64_t span_ns;
    JC_NEED(timer != NULL && jc_writes(out, JC_INT64));
    span_ns = jc_timer_end(timer);
    JC_NEED(span_ns >= 0);
    jc_set_int64(out, span_ns);
    return JC_DONE;
}

/* ---- constants and copies ---- */

/* Const and the fills: the constant is there already as a value of the output's type. */
JC_KERNEL(Constant)
{
    const jc_slot *out = first;
    if (op->constant_type == JC_TENSOR) {
        return jc_store_array(f, op, out);
    }
    JC_NEED(op->constant_type != JC_NOTHING && jc_writes(out, op->constant_type));
    if (out->type == JC_BOOL) {
        jc_set_bool(out, op->constant != 0);
    } else {
        jc_set_int64(out, op->constant);
    }
    return JC_DONE;
}

JC_KERNEL(Copy)
{
    const jc_slot *in = first, *out = second;
    JC_NEED(jc_fresh(in) && jc_writes(out, in->type));
    switch (in->type) {
    case JC_BOOL:
        jc_set_bool(out, jc_get_bool(in));
        return JC_DONE;
    case JC_INT64:
    case JC_DOUBLE:
        jc_set_int64(out, jc_get_int64(in));
        return JC_DONE;
    case JC_TENSOR:
        return jc_copy_tensor(f, in, out);
    default:
        return JC_DECLINE;
    }
}

/* ---- arithmetic, comparison, logic ---- */

#define JC_ARITHMETIC(name, integer_expression, real_expression)                            \
    JC_KERNEL(name)                                                                         \
    {                                                                                       \
        const jc_slot *left = first, *right = second;          \
        const jc_slot *out = jc_slot_of(f, op, 2);                                          \
        if (jc_reads(left, JC_INT64) && jc_reads(right, JC_INT64) && jc_writes(out, JC_INT64)) { \
            uint64_t a = (uint64_t)jc_get_int64(left), b = (uint64_t)jc_get_int64(right);   \
            jc_set_int64(out, (int64_t)(integer_expression));                               \
            return JC_DONE;                                                                 \
        }                                                                                   \
        if (jc_reads(left, JC_DOUBLE) && jc_reads(right, JC_DOUBLE) && jc_writes(out, JC_DOUBLE)) { \
            double a = jc_get_double(left), b = jc_get_double(right);                       \
            jc_set_double(out, real_expression);                                            \
            return JC_DONE;                                                                 \
        }                                                                                   \
        return jc_by_element(f, op, jc_loops_##name, 0);                                    \
    }

JC_ARITHMETIC(Add, a + b, a + b)
JC_ARITHMETIC(Sub, a - b, a - b)
JC_ARITHMETIC(Mul, a * b, a * b)

JC_KERNEL(Div)
{
    const jc_slot *left = first, *right = second, *out = jc_slot_of(f, op, 2);
    if (jc_reads(left, JC_INT64) && jc_reads(right, JC_INT64) && jc_writes(out, JC_INT64)) {
        int64_t a = jc_get_int64(left), b = jc_get_int64(right), quotient;
        JC_NEED(b != 0 && b != -1); /* no value, or one that may not fit */
        quotient = a / b;
        /* Down, as Python does, where C goes towards zero. */
        jc_set_int64(out, quotient - (a % b != 0 && (a < 0) != (b < 0)));
        return JC_DONE;
    }
    if (jc_reads(left, JC_DOUBLE) && jc_reads(right, JC_DOUBLE) && jc_writes(out, JC_DOUBLE)) {
        jc_set_double(out, jc_get_double(left) / jc_get_double(right));
        return JC_DONE;
    }
    return jc_by_element(f, op, jc_loops_Div, 0);
}

JC_KERNEL(Neg)
{
    const jc_slot *in = first, *out = second;
    if (jc_reads(in, JC_INT64) && jc_writes(out, JC_INT64)) {
        jc_set_int64(out, (int64_t)(0 - (uint64_t)jc_get_int64(in)));
        return JC_DONE;
    }
    if (jc_reads(in, JC_DOUBLE) && jc_writes(out, JC_DOUBLE)) {
        jc_set_double(out, -jc_get_double(in));
        return JC_DONE;
    }
    return jc_by_element(f, op, jc_loops_Neg, 0);
}

#define JC_COMPARISON(name, operator)                                              \
    JC_KERNEL(name)                                                                \
    {                                                                              \
        const jc_slot *left = first, *right = second;                              \
        const jc_slot *out = jc_slot_of(f, op, 2);                                 \
        if (!jc_writes(out, JC_BOOL)) {                                            \
            return jc_by_element(f, op, jc_loops_##name, 1);                       \
        }                                                                          \
        if (jc_reads(left, JC_INT64) && jc_reads(right, JC_INT64)) {               \
            jc_set_bool(out, jc_get_int64(left) operator jc_get_int64(right));     \
            return JC_DONE;                                                        \
        }                                                                          \
        if (jc_reads(left, JC_DOUBLE) && jc_reads(right, JC_DOUBLE)) {             \
            jc_set_bool(out, jc_get_double(left) operator jc_get_double(right));   \
            return JC_DONE;                                                        \
        }                                                                          \
        if (jc_reads(left, JC_BOOL) && jc_reads(right, JC_BOOL)) {                 \
            jc_set_bool(out, jc_get_bool(left) operator jc_get_bool(right));       \
            return JC_DONE;                                                        \
        }                                                                          \
        return jc_by_element(f, op, jc_loops_##name, 1);                           \
    }

JC_COMPARISON(EQ, ==)
JC_COMPARISON(NE, !=)
JC_COMPARISON(LT, <)
JC_COMPARISON(LE, <=)
JC_COMPARISON(GT, >)
JC_COMPARISON(GE, >=)

#define JC_LOGIC(name, operator)                                                               \
    JC_KERNEL(name)                                                                            \
    {                                                                                          \
        const jc_slot *left = first, *right = second;                                          \
        const jc_slot *out = jc_slot_of(f, op, 2);                                             \
        if (!jc_reads(left, JC_BOOL) || !jc_reads(right, JC_BOOL) || !jc_writes(out, JC_BOOL)) { \
            return jc_by_element(f, op, jc_loops_##name, 1);                                   \
        }                                                                                      \
        jc_set_bool(out, jc_get_bool(left) operator jc_get_bool(right));                       \
        return JC_DONE;                                                                        \
    }

JC_LOGIC(And, &)
JC_LOGIC(Or, |)
JC_LOGIC(Xor, ^)

JC_KERNEL(Not)
{
    const jc_slot *in = first, *out = second;
    if (!jc_reads(in, JC_BOOL) || !jc_writes(out, JC_BOOL)) {
        return jc_by_element(f, op, jc_loops_Not, 1);
    }
    jc_set_bool(out, !jc_get_bool(in));
    return JC_DONE;
}

/* ---- the table ---- */

typedef struct {
    const char *type;
    jc_kernel kernel;
    int tensors; /* whether it knows tensors */
} jc_named_kernel;

static const jc_named_kernel jc_kernels[] = {
#define JC_ROW(name) {#name, jc_op_##name, 0}
#define JC_TENSOR_ROW(name) {#name, jc_op_##name, 1}
#define JC_FILL_ROW(name) {#name, jc_op_Constant, 1}
    JC_ROW(CreateCounter), JC_ROW(CountUp), JC_ROW(CountDown), JC_ROW(ResetCounter), JC_ROW(RetrieveCount),
    JC_ROW(CheckCounterDone), JC_ROW(TimerBegin), JC_ROW(TimerGet), JC_ROW(TimerEnd), JC_ROW(TimerGetAndEnd),
    JC_TENSOR_ROW(Copy), JC_TENSOR_ROW(IsEmpty), JC_TENSOR_ROW(Add), JC_TENSOR_ROW(Sub), JC_TENSOR_ROW(Mul),
    JC_TENSOR_ROW(Div), JC_TENSOR_ROW(Neg), JC_TENSOR_ROW(EQ), JC_TENSOR_ROW(NE), JC_TENSOR_ROW(LT), JC_TENSOR_ROW(LE),
    JC_TENSOR_ROW(GT), JC_TENSOR_ROW(GE), JC_TENSOR_ROW(And), JC_TENSOR_ROW(Or), JC_TENSOR_ROW(Xor), JC_TENSOR_ROW(Not),
    JC_TENSOR_ROW(EnqueueBlobs), JC_TENSOR_ROW(SafeEnqueueBlobs), JC_TENSOR_ROW(DequeueBlobs),
    JC_TENSOR_ROW(SafeDequeueBlobs), JC_ROW(AtomicFetchAdd64), JC_ROW(CreateAtomicBool),
    JC_ROW(ConditionalSetAtomicBool), JC_ROW(CheckAtomicBool), JC_ROW(Iter),
#ifndef __APPLE__
    JC_ROW(DeadlinePassed),
#endif
    JC_FILL_ROW(Const), JC_FILL_ROW(ConstantFill), JC_FILL_ROW(GivenTensorFill), JC_FILL_ROW(GivenTensorDoubleFill),
    JC_FILL_ROW(GivenTensorIntFill), JC_FILL_ROW(GivenTensorInt64Fill), JC_FILL_ROW(GivenTensorBoolFill),
    JC_FILL_ROW(GivenTensorStringFill),
#undef JC_ROW
#undef JC_TENSOR_ROW
#undef JC_FILL_ROW
};

#define JC_KERNEL_COUNT (sizeof jc_kernels / sizeof jc_kernels[0])

/* Whether the slots of a kernel's ops are to show tensors; those of other packages know scalars only. */
static int jc_knows_tensors(jc_kernel kernel)
{
    size_t i;
    for (i = 0; i < JC_KERNEL_COUNT; i++) {
        if (jc_kernels[i].kernel == kernel) {
            return jc_kernels[i].tensors;
        }
    }
    return 0;
}

/* What a kernel adds by jc_count_by, 1 or -1; 0 for kernels that do something else. */
static int64_t jc_amount_of(jc_kernel kernel)
{
    return kernel == jc_op_CountUp ? 1 : kernel == jc_op_CountDown ? -1 : 0;
}

#endif
