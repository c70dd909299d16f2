/* The mark of this process: 1 in the first one, and one more in each child of a fork, so that a lock that was taken and a
 * queue that was made before it are told from those after it. One unit keeps the count; the others have its address. */
#ifndef JOBCORE_FAST_FORKS_H
#define JOBCORE_FAST_FORKS_H

#include <pthread.h>
#include <stdint.h>

static int32_t jc_forks = 1;

static void jc_forked(void)
{
    __atomic_fetch_add(&jc_forks, 1, __ATOMIC_RELAXED);
}

/* Once, before anything looks at the mark. 0 or an errno. */
static int jc_forks_setup(void)
{
    return pthread_atfork(NULL, NULL, jc_forked);
}

static inline int32_t jc_process_mark(const int32_t *forks)
{
    return __atomic_load_n(forks, __ATOMIC_RELAXED);
}

#endif
