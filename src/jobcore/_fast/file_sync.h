/* Several files forced to the disk at the same time: a disk takes about as long for a few small ones as for one. */
#ifndef JOBCORE_FAST_FILE_SYNC_H
#define JOBCORE_FAST_FILE_SYNC_H

#include <errno.h>
#include <stddef.h>
#include <unistd.h>

#include "crew.h"

#define JC_SYNC_THREADS 8

typedef struct {
    const int *fds;
    int *codes;
    size_t count;
    size_t next; /* atomic: the first that no thread has taken */
} jc_syncs;

/* Force the data of one file to the disk. 0, or an errno. */
static int jc_sync_file(int fd)
{
#ifdef __APPLE__
    while (fsync(fd) != 0) {
#else
    while (fdatasync(fd) != 0) {
#endif
        if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

static void *jc_sync_some(void *argument)
{
    jc_syncs *s = argument;
    size_t i;
    while ((i = __atomic_fetch_add(&s->next, 1, __ATOMIC_RELAXED)) < s->count) {
        s->codes[i] = jc_sync_file(s->fds[i]);
    }
    return NULL;
}

/* Force all files to the disk; `codes` gets for each 0 or an errno. */
static void jc_sync_files(const int *fds, int *codes, size_t count)
{
    jc_syncs s = {fds, codes, count, 0};
    jc_run_crew(jc_sync_some, &s, count < JC_SYNC_THREADS ? count : JC_SYNC_THREADS);
}

#endif
