/* A lock for work of some tens of nanoseconds, in one word: to sleep would cost a thousand times that.
 *
 * The word is 0, or the mark of the process that has the lock. After a fork a child may find the mark of its parent, of a
 * thread that it does not have: it takes the lock all the same, and is told.
 */
#ifndef JOBCORE_FAST_SPIN_H
#define JOBCORE_FAST_SPIN_H

#include <sched.h>
#include <stdint.h>
#include <time.h>

#define JC_SPIN_LOOKS 200 /* looks at a lock that is taken before the processor is given to others */

static inline void jc_spin_pause(void)
{
#if defined(__x86_64__) || defined(__i386__)
    __builtin_ia32_pause();
#elif defined(__aarch64__)
    __asm__ __volatile__("yield");
#endif
}

/* Whoever has it was put aside, if it takes so long. */
static void jc_spin_wait(const int32_t *word, int32_t mark)
{
    int looks = 0;
    while (__atomic_load_n(word, __ATOMIC_RELAXED) == mark) {
        if (++looks < JC_SPIN_LOOKS) {
            jc_spin_pause();
        } else if (looks < 2 * JC_SPIN_LOOKS) {
            sched_yield();
        } else {
            const struct timespec moment = {0, 50000};
            nanosleep(&moment, NULL);
        }
    }
}

/* Whether the lock was taken over from a parent process: what it guards may be half written. No `mark` is 0. */
static inline int jc_spin_lock(int32_t *word, int32_t mark)
{
    int32_t found = 0;
    while (!__atomic_compare_exchange_n(word, &found, mark, 0, __ATOMIC_ACQUIRE, __ATOMIC_RELAXED)) {
        if (found == mark) {
            jc_spin_wait(word, mark);
            found = 0;
        }
    }
    return found != 0;
}

static inline void jc_spin_unlock(int32_t *word)
{
    __atomic_store_n(word, 0, __ATOMIC_RELEASE);
}

#endif
