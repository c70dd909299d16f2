/* What the ops of a program are measured against: the same work in a plain loop. Built and called by bench_program.py. */
#include <stdint.h>

int64_t atomic_adds(int64_t rounds)
{
    static int64_t cell;
    for (int64_t i = 0; i < rounds; i++) {
        __atomic_fetch_add(&cell, 1, __ATOMIC_SEQ_CST);
    }
    return cell;
}
