/* How kernels are written. */
#ifndef JOBCORE_FAST_KERNEL_H
#define JOBCORE_FAST_KERNEL_H

#include "program.h"

/* Not every kernel looks at all that it is given. */
#define JC_KERNEL(name)                                                                                 \
    static int jc_op_##name(__attribute__((unused)) jc_frame *f, __attribute__((unused)) const jc_op *op, \
                            __attribute__((unused)) jc_slot *first, __attribute__((unused)) jc_slot *second)
#define JC_NEED(condition)     \
    do {                       \
        if (!(condition)) {    \
            return JC_DECLINE; \
        }                      \
    } while (0)

#endif
