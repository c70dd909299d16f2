/* The interpreter of a program: ops over slots, control flow as jumps, no Python.
 *
 * A slot is one blob as a running program sees it. It knows where the bytes of a scalar, or the state of a counter or
 * timer, lie, and which version of the blob that was true for. Whoever puts other memory into a blob raises its version,
 * with the GIL; an op looks at it before it touches anything, and an op whose slots are stale, or that meets a value it
 * is not made for, declines: the caller then does it in Python and looks again. So native code never waits for the GIL
 * and never follows a pointer into memory that was given back: the frame holds a reference to whatever a slot points
 * to.
 *
 * Scalars are read and written by relaxed atomic operations of their size, so a thread that reads one while another
 * writes sees one of the two values.
 */
#ifndef JOBCORE_FAST_PROGRAM_H
#define JOBCORE_FAST_PROGRAM_H

#include <stdint.h>
#include <string.h>

#include "atomics.h"
#include "value.h"

/* What a slot points to: nothing that native code can use, the bytes of a 0-d tensor, or the state of a handle. Ops
 * on queues, copies and arithmetic also know small tensors of plain bytes, which are read and written with the blob's lock
 * held. A mutex points to nothing: it is known to be one. */
enum { JC_NOTHING, JC_BOOL, JC_INT64, JC_DOUBLE, JC_COUNTER, JC_TIMER, JC_TENSOR, JC_QUEUE, JC_MUTEX };

typedef struct {
    const int64_t *version; /* of the blob, or jc_unbound */
    int64_t seen;           /* the version that the rest is true for */
    void *data;             /* those bytes or that state; else NULL */
    void *handle;           /* the value as an object, a reference that the frame owns; or NULL */
    void *blob;             /* the blob as an object, a reference that the frame owns; or NULL */
    int32_t nbytes;         /* of a tensor */
    int32_t number;         /* NumPy's, of the dtype of a tensor of plain numbers or booleans; else -1 */
    int32_t *busy;          /* its lock, see blob.pxd */
    int32_t type;
    int32_t writable;       /* the type again if nobody else sees these bytes, apart from readers of the blob; else 0 */
} jc_slot;

/* What a kernel answers. */
enum {
    JC_DONE = 0,
    JC_DECLINE = 1, /* the Python kernel has to do it */
    JC_WAIT = 2,    /* it would have to wait: call it again without the GIL */
    JC_CANCELLED = 3,
    /* from jc_run only */
    JC_END = 4,
    JC_SPENT = 5,
};

typedef struct jc_op jc_op;
typedef struct jc_frame jc_frame;
/* `first` and `second` are the first two slots of the op, inputs before outputs, or any slot where it has fewer. */
typedef int (*jc_kernel)(jc_frame *frame, const jc_op *op, jc_slot *first, jc_slot *second);

enum jc_code {
    JC_CODE_OP,          /* the kernel; Python when it declines */
    JC_CODE_COUNT,       /* the same, of a kernel that adds `constant` to a counter, 1 or -1 */
    JC_CODE_CALL,        /* always Python */
    JC_CODE_JUMP,
    JC_CODE_SET,         /* reg := constant */
    JC_CODE_LOOP,        /* if reg <= 0, to the target; else reg -= 1 */
    JC_CODE_NEXT,        /* reg += 1; then as JUMP */
    JC_CODE_IF_TRUE,     /* to the target if the boolean in the slot is true; missing or empty counts as false */
    JC_CODE_IF_FALSE,
    JC_CODE_STORE_BOOL,  /* slot := constant */
    JC_CODE_STORE_REG,   /* slot := reg, int64 */
    JC_CODE_MARK,        /* nothing, or Python where the run is traced */
    JC_CODE_END,
};

struct jc_op {
    int32_t code;
    int32_t target;
    int32_t reg;
    int32_t inputs, outputs;
    int64_t near[2];        /* the first two of the slots: how many bytes behind the first of the frame */
    const int32_t *slots;   /* of the inputs, then of the outputs */
    jc_kernel kernel;
    int32_t constant_type;  /* JC_BOOL, JC_INT64, JC_DOUBLE, JC_TENSOR, or JC_NOTHING */
    int64_t constant;       /* its bits; of a tensor the array, which the program keeps */
    int32_t first_value;    /* of a queue op: where its row is in the frame, and how many values that has; else 0 */
    int32_t values;
    int32_t puts;           /* whether they go in */
    int32_t tensors;        /* whether its slots are to show tensors, not only scalars */
};

struct jc_frame {
    const jc_op *ops;
    jc_slot *slots;
    int64_t *regs;
    jc_value *values;       /* rows of the queue ops: what comes back of a queue is used again for what goes in */
    const int32_t *cancelled; /* raised by whoever wants the run to stop */
    int32_t pc;
    int32_t has_gil;
    int32_t traced;
    int32_t main;           /* in the main thread: waits are cut short, so that signals are seen */
    int64_t work;           /* since the last jump: bytes of tensors, in ops that take as long */
    const int32_t *marks;   /* where the mark of this process is, for locks of blobs; see forks.h */
};

/* The version of a slot that no blob belongs to: never equal to what a slot has seen. */
static const int64_t jc_unbound = -1;

/* Inputs come before outputs. */
static inline jc_slot *jc_slot_of(jc_frame *f, const jc_op *op, int index)
{
    return &f->slots[op->slots[index]];
}

static inline jc_slot *jc_near(const jc_frame *f, const jc_op *op, int index)
{
    return (jc_slot *)((char *)f->slots + op->near[index]);
}

static inline int jc_fresh(const jc_slot *s)
{
    return __atomic_load_n(s->version, __ATOMIC_RELAXED) == s->seen;
}

static inline int jc_raised(const int32_t *flag)
{
    return __atomic_load_n(flag, __ATOMIC_RELAXED) != 0;
}

static inline int jc_is_cancelled(const jc_frame *f)
{
    return jc_raised(f->cancelled);
}

/* Tell that an op has taken as long as so many bytes do: signals must not wait for many of those. */
static inline void jc_worked(jc_frame *f, int64_t nbytes)
{
    f->work += nbytes >> 5;
}

static inline int64_t jc_get_int64(const jc_slot *s)
{
    return __atomic_load_n((const int64_t *)s->data, __ATOMIC_RELAXED);
}

static inline void jc_set_int64(const jc_slot *s, int64_t value)
{
    __atomic_store_n((int64_t *)s->data, value, __ATOMIC_RELAXED);
}

static inline double jc_get_double(const jc_slot *s)
{
    int64_t bits = jc_get_int64(s);
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

static inline void jc_set_double(const jc_slot *s, double value)
{
    int64_t bits;
    memcpy(&bits, &value, sizeof bits);
    jc_set_int64(s, bits);
}

/* Any byte but 0 is true: an array may have been made of other bytes than 0 and 1. */
static inline int jc_get_bool(const jc_slot *s)
{
    return __atomic_load_n((const uint8_t *)s->data, __ATOMIC_RELAXED) != 0;
}

static inline void jc_set_bool(const jc_slot *s, int value)
{
    __atomic_store_n((uint8_t *)s->data, (uint8_t)(value != 0), __ATOMIC_RELAXED);
}

/* Whether the slot can be read, or written, as a scalar of this type. */
static inline int jc_reads(const jc_slot *s, int32_t type)
{
    return s->type == type && jc_fresh(s);
}

static inline int jc_writes(const jc_slot *s, int32_t type)
{
    return s->writable == type && jc_fresh(s);
}

/* Add 1 or -1 to a counter, and say what it was: up, its value; down, whether nothing was left. Or decline. */
static inline int jc_count_by(int64_t amount, const jc_slot *counter, const jc_slot *out)
{
    if (!jc_reads(counter, JC_COUNTER) || !jc_writes(out, amount > 0 ? JC_INT64 : JC_BOOL)) {
        return JC_DECLINE;
    }
    if (amount > 0) {
        jc_set_int64(out, jc_atomic_fetch_add((int64_t *)counter->data, 1));
    } else {
        jc_set_bool(out, jc_atomic_fetch_add((int64_t *)counter->data, -1) <= 0);
    }
    return JC_DONE;
}

/* Counter ops, one after the other, up to the first that is another op: return that, or, if the answer is not JC_DONE, the
 * op in question.
 *
 * An atomic operation waits until all that was stored before it is in the cache, and what follows waits for it. So here
 * nothing else is stored, not even the address that a kernel returns to, and the slots of the next op are found before. */
static const jc_op *jc_count(jc_frame *f, const jc_op *op, int *answer)
{
    const int32_t *cancelled = f->cancelled;
    jc_slot *counter = jc_near(f, op, 0), *out = jc_near(f, op, 1);
    do {
        jc_slot *next_counter = jc_near(f, op + 1, 0), *next_out = jc_near(f, op + 1, 1);
        __asm__("" : "+r"(next_counter), "+r"(next_out)); /* now, and not when they are used */
        *answer = jc_raised(cancelled) ? JC_CANCELLED : jc_count_by(op->constant, counter, out);
        if (*answer != JC_DONE) {
            break;
        }
        op++; /* there is a next one: the last of all is no counter op */
        counter = next_counter;
        out = next_out;
    } while (op->code == JC_CODE_COUNT);
    return op;
}

/* Run from frame->pc on. JC_DECLINE, JC_WAIT and JC_CANCELLED leave pc at the op in question; JC_SPENT means that about
 * `budget` ops were done and the caller should look round; JC_END that the program is through.
 *
 * The slots of the next op are found before a kernel is called: what follows an atomic operation waits until that is
 * done, each load that needs another one by itself. */
static int jc_run(jc_frame *f, int64_t budget)
{
    const jc_op *op = &f->ops[f->pc], *target;
    jc_slot *first, *second;
    const int32_t *cancelled = f->cancelled;
    int answer;
    for (;;) {
        switch (op->code) {
        case JC_CODE_OP:
            first = jc_near(f, op, 0);
            second = jc_near(f, op, 1);
            do {
                /* There is a next one: the last of all is no kernel's. */
                jc_slot *next_first = jc_near(f, op + 1, 0), *next_second = jc_near(f, op + 1, 1);
                __asm__("" : "+r"(next_first), "+r"(next_second)); /* now, and not when they are used */
                answer = jc_raised(cancelled) ? JC_CANCELLED : op->kernel(f, op, first, second);
                if (answer != JC_DONE) {
                    goto out;
                }
                op++;
                first = next_first;
                second = next_second;
            } while (op->code == JC_CODE_OP);
            continue;
        case JC_CODE_COUNT:
            op = jc_count(f, op, &answer);
            if (answer != JC_DONE) {
                goto out;
            }
            continue;
        case JC_CODE_SET:
            f->regs[op->reg] = op->constant;
            op++;
            continue;
        case JC_CODE_LOOP:
            if (f->regs[op->reg] <= 0) {
                op = &f->ops[op->target];
                continue;
            }
            f->regs[op->reg]--;
            op++;
            continue;
        case JC_CODE_IF_TRUE:
        case JC_CODE_IF_FALSE:
            first = jc_near(f, op, 0);
            if (!jc_reads(first, JC_BOOL)) {
                answer = JC_DECLINE;
                goto out;
            }
            op = jc_get_bool(first) == (op->code == JC_CODE_IF_TRUE) ? &f->ops[op->target] : op + 1;
            continue;
        case JC_CODE_STORE_BOOL:
            first = jc_near(f, op, 0);
            if (!jc_writes(first, JC_BOOL)) {
                answer = JC_DECLINE;
                goto out;
            }
            jc_set_bool(first, op->constant != 0);
            op++;
            continue;
        case JC_CODE_STORE_REG:
            first = jc_near(f, op, 0);
            if (!jc_writes(first, JC_INT64)) {
                answer = JC_DECLINE;
                goto out;
            }
            jc_set_int64(first, f->regs[op->reg]);
            op++;
            continue;
        case JC_CODE_NEXT:
            f->regs[op->reg]++;
            /* fall through */
        case JC_CODE_JUMP:
            target = &f->ops[op->target];
            /* What the loop has done since it was here: a long body must not keep signals waiting for long. */
            budget -= op > target ? op - target : 1;
            if (f->work != 0) {
                budget -= f->work;
                f->work = 0;
            }
            op = target;
            if (jc_raised(cancelled)) {
                answer = JC_CANCELLED;
                goto out;
            }
            if (budget <= 0) {
                answer = JC_SPENT;
                goto out;
            }
            continue;
        case JC_CODE_MARK:
            if (f->traced) {
                answer = JC_DECLINE;
                goto out;
            }
            op++;
            continue;
        case JC_CODE_CALL:
            answer = jc_raised(cancelled) ? JC_CANCELLED : JC_DECLINE;
            goto out;
        default:
            answer = JC_END;
            goto out;
        }
    }
out:
    f->pc = (int32_t)(op - f->ops);
    return answer;
}

#endif
