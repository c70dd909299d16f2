/* Several files forced to the disk, in about the time that one takes.
 *
 * Writing is started for all of them first, so that they share what the file system does to force the first to the
 * disk. What is left for the others is a flush of the disk's cache each. Where that is quick, they follow in turn. A disk
 * may take milliseconds for it: there, threads wait for all files at the same time, and share the flush as well.
 */
#ifndef JOBCORE_FAST_FILE_SYNC_H
#define JOBCORE_FAST_FILE_SYNC_H

#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <unistd.h>

#include "crew.h"
#include "timer.h"

#define JC_SYNC_THREADS 8
#define JC_SYNC_IN_TURN 4 /* the most files that are not worth threads on a quick disk */
/* The longest that a flush takes there. To begin and to end threads takes a fifth of it; all of it on a busy machine. */
#define JC_SYNC_QUICK_NS 1000000

typedef struct {
    const int *fds;
    int *codes;
    size_t count;
    size_t next; /* atomic: the first that no thread has taken */
} jc_syncs;

/* Whether the disk was slow when it was last used: of several disks, whichever that was. */
static int32_t jc_sync_slow = 0;

/* Start to write what the page cache has of a file. What fails then is told by the sync. */
static void jc_sync_begin(int fd)
{
#ifdef SYNC_FILE_RANGE_WRITE
    (void)sync_file_range(fd, 0, 0, SYNC_FILE_RANGE_WRITE);
#else
    (void)fd;
#endif
}

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

/* One after the other; tells whether the disk is slow. */
static int jc_sync_in_turn(const jc_syncs *s)
{
    int64_t begin = 0;
    size_t i;
    for (i = 0; i < s->count; i++) {
        s->codes[i] = jc_sync_file(s->fds[i]);
        if (i == 0) {
            begin = jc_now_ns();
        }
    }
    return s->count > 1 && jc_now_ns() - begin > (int64_t)(s->count - 1) * JC_SYNC_QUICK_NS;
}

/* All at the same time; tells whether the disk is slow. */
static int jc_sync_at_once(jc_syncs *s)
{
    int64_t begin = jc_now_ns();
    jc_run_crew(jc_sync_some, s, s->count < JC_SYNC_THREADS ? s->count : JC_SYNC_THREADS);
    return jc_now_ns() - begin > 2 * JC_SYNC_QUICK_NS;
}

/* Force all files to the disk, at least one; `codes` gets for each 0 or an errno. */
static void jc_sync_files(const int *fds, int *codes, size_t count)
{
    jc_syncs s = {fds, codes, count, 0};
    int slow = __atomic_load_n(&jc_sync_slow, __ATOMIC_RELAXED);
    size_t i;
    for (i = 0; i < count; i++) {
        jc_sync_begin(fds[i]);
    }
    slow = slow || count > JC_SYNC_IN_TURN ? jc_sync_at_once(&s) : jc_sync_in_turn(&s);
    __atomic_store_n(&jc_sync_slow, slow, __ATOMIC_RELAXED);
}

#endif
