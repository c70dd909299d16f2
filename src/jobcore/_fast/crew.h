/* Native threads: started for one piece of work, and joined at its end, so a fork between two finds none.
 *
 * They block all signals: handlers belong to the interpreter's threads.
 */
#ifndef JOBCORE_FAST_CREW_H
#define JOBCORE_FAST_CREW_H

#include <pthread.h>
#include <signal.h>
#include <stddef.h>

#define JC_MAX_THREADS 16

/* Start a thread that no signal is delivered to. 0, or an errno. */
static int jc_start_thread(pthread_t *thread, void *(*body)(void *), void *argument)
{
    sigset_t all, before;
    int failed;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    failed = pthread_create(thread, NULL, body, argument);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    return failed;
}

/* Run `body` in several threads, the calling one among them, which does what a thread that cannot start would have done. */
static void jc_run_crew(void *(*body)(void *), void *argument, size_t threads)
{
    pthread_t others[JC_MAX_THREADS];
    int started = 0;
    while ((size_t)started + 1 < threads && started < JC_MAX_THREADS) {
        if (jc_start_thread(&others[started], body, argument) != 0) {
            break;
        }
        started++;
    }
    body(argument);
    for (int i = 0; i < started; i++) {
        pthread_join(others[i], NULL);
    }
}

#endif
