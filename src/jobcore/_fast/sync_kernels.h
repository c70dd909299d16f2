/* Ops by which tasks and instances agree, as a program runs them; see kernels.h. */
#ifndef JOBCORE_FAST_SYNC_KERNELS_H
#define JOBCORE_FAST_SYNC_KERNELS_H

#include "kernel.h"
#include "timer.h"

/* Exact beside Blob.fetch_add, by which the Python kernel adds: an atomic addition needs no mutex, but it has to be one. */
JC_KERNEL(AtomicFetchAdd64)
{
    const jc_slot *amount = jc_slot_of(f, op, 2), *sum = jc_slot_of(f, op, 3), *before = jc_slot_of(f, op, 4);
    JC_NEED(jc_reads(first, JC_MUTEX) && jc_reads(amount, JC_INT64));
    JC_NEED(jc_writes(sum, JC_INT64) && jc_writes(before, JC_INT64));
    jc_set_int64(before, jc_atomic_fetch_add((int64_t *)sum->data, jc_get_int64(amount)));
    return JC_DONE;
}

JC_KERNEL(CreateAtomicBool)
{
    const jc_slot *out = first;
    JC_NEED(jc_writes(out, JC_BOOL));
    jc_set_bool(out, 0);
    return JC_DONE;
}

JC_KERNEL(ConditionalSetAtomicBool)
{
    const jc_slot *flag = first, *condition = second;
    JC_NEED(jc_writes(flag, JC_BOOL) && jc_reads(condition, JC_BOOL));
    if (jc_get_bool(condition)) {
        jc_set_bool(flag, 1);
    }
    return JC_DONE;
}

JC_KERNEL(CheckAtomicBool)
{
    const jc_slot *flag = first, *out = second;
    JC_NEED(jc_reads(flag, JC_BOOL) && jc_writes(out, JC_BOOL));
    jc_set_bool(out, jc_get_bool(flag));
    return JC_DONE;
}

JC_KERNEL(Iter)
{
    const jc_slot *count = jc_slot_of(f, op, op->inputs);
    JC_NEED(jc_writes(count, JC_INT64));
    jc_set_int64(count, (int64_t)((uint64_t)jc_get_int64(count) + 1));
    return JC_DONE;
}

#ifndef __APPLE__ /* where Python's steady clock is another one */
JC_KERNEL(DeadlinePassed)
{
    const jc_slot *deadline = first, *out = second;
    JC_NEED(jc_reads(deadline, JC_INT64) && jc_writes(out, JC_BOOL));
    jc_set_bool(out, jc_now_ns() >= jc_get_int64(deadline));
    return JC_DONE;
}
#endif

#endif
