/* How kernels are written. */
#ifndef JOBCORE_FAST_KERNEL_H
#define JOBCORE_FAST_KERNEL_H

#include "program.h"

#define JC_KERNEL(name) static int jc_op_##name(jc_frame *f, const jc_op *op)
#define JC_NEED(condition)     \
    do {                       \
        if (!(condition)) {    \
            return JC_DECLINE; \
        }                      \
    } while (0)

#endif
