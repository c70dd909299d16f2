/* Writing to a file from aligned memory, around the page cache where the file system allows it.
 *
 * Direct writes cost almost no processor time. Where they are refused the page cache takes over, and why is kept, so that
 * somebody can say so.
 */
#ifndef JOBCORE_FAST_FILE_OUT_H
#define JOBCORE_FAST_FILE_OUT_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <sys/types.h>
#include <unistd.h>

#define JC_ALIGN ((size_t)4096)            /* what direct writes want of memory, offset and length */
#ifndef JC_SYNC_BYTES
#define JC_SYNC_BYTES ((uint64_t)64 << 20) /* written between two syncs on the way */
#endif

/* Fields are atomic: all threads that write have one of these. */
typedef struct {
    int fd;
    int direct;                 /* whether writes go around the page cache */
    int refused;                /* errno with which the file system refused that, or 0 */
    int syncing;                /* whether a thread is in a sync, or syncs are refused */
    uint64_t unsynced;          /* bytes since the last one was begun */
} jc_file;

/* Ask for direct writes, or not. */
static jc_file jc_file_begin(int fd, int direct)
{
    jc_file f = {fd, 0, 0, 0, 0};
#ifdef O_DIRECT
    if (direct) {
        int flags = fcntl(fd, F_GETFL);
        f.direct = flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
        f.refused = f.direct ? 0 : errno;
    }
#else
    (void)direct;
#endif
    return f;
}

/* Go on through the page cache. */
static void jc_leave_direct(jc_file *f)
{
#ifdef O_DIRECT
    int flags = fcntl(f->fd, F_GETFL);
    if (flags >= 0) {
        fcntl(f->fd, F_SETFL, flags & ~O_DIRECT);
    }
#endif
    __atomic_store_n(&f->direct, 0, __ATOMIC_RELAXED);
}

/* Write all of it. 0, or an errno. */
static int jc_write_out(jc_file *f, const uint8_t *data, size_t n, int64_t offset)
{
    while (n > 0) {
        ssize_t count = pwrite(f->fd, data, n, (off_t)offset);
        if (count < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno == EINVAL && __atomic_load_n(&f->direct, __ATOMIC_RELAXED)) {
                /* Some file systems take the flag, and refuse the writes. */
                __atomic_store_n(&f->refused, EINVAL, __ATOMIC_RELAXED);
                jc_leave_direct(f);
                continue;
            }
            return errno;
        }
        if (count == 0) {
            return EIO;
        }
        if (count % (ssize_t)JC_ALIGN != 0 && (size_t)count < n && __atomic_load_n(&f->direct, __ATOMIC_RELAXED)) {
            /* The rest starts where no direct write may start. */
            jc_leave_direct(f);
        }
        data += count;
        offset += count;
        n -= (size_t)count;
    }
    return 0;
}

/* After a direct write of n bytes: sync now and then. A disk with a cache of its own takes bytes faster than it can keep
 * them, so that a single sync at the end finds most of the work undone, after the processors had no rest. This way the
 * pace is that of the disk from the beginning, and the end comes no later. 0, or an errno. */
static int jc_sync_behind(jc_file *f, size_t n)
{
#ifdef __linux__
    if (!__atomic_load_n(&f->direct, __ATOMIC_RELAXED)
        || __atomic_add_fetch(&f->unsynced, n, __ATOMIC_RELAXED) < JC_SYNC_BYTES
        || __atomic_exchange_n(&f->syncing, 1, __ATOMIC_ACQUIRE)) {
        return 0;
    }
    __atomic_store_n(&f->unsynced, 0, __ATOMIC_RELAXED);
    while (fdatasync(f->fd) != 0) {
        if (errno == EINVAL || errno == ENOSYS || errno == EOPNOTSUPP) {
            return 0; /* whoever syncs in the end will say so */
        }
        if (errno != EINTR) {
            return errno;
        }
    }
    __atomic_store_n(&f->syncing, 0, __ATOMIC_RELEASE);
#else
    (void)f;
    (void)n;
#endif
    return 0;
}

/* Cut the file to its length, and give the descriptor back as it was. 0, or an errno. */
static int jc_file_end(jc_file *f, int64_t size)
{
    int direct = f->direct;
    if (direct) {
        jc_leave_direct(f); /* the flag belongs to the open file, which others may go on to use */
        f->direct = direct;
    }
    while (ftruncate(f->fd, (off_t)size) != 0) {
        if (errno != EINTR) {
            return errno;
        }
    }
    return 0;
}

/* Ask for the room of a file before it is written: direct writes beyond its end go one by one, and holes that are filled late
 * scatter it. A file system that cannot is no failure; one that has not the room is. 0, or an errno; `*refused` is the errno
 * of one that cannot, or 0. */
static int jc_allocate(int fd, uint64_t size, int *refused)
{
    *refused = 0;
#if defined(__linux__) && defined(FALLOC_FL_KEEP_SIZE)
    while (size > 0 && fallocate(fd, 0, 0, (off_t)size) != 0) {
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO) {
            return errno;
        }
        if (errno != EINTR) {
            *refused = errno;
            break;
        }
    }
#else
    (void)fd;
    (void)size;
#endif
    return 0;
}

#endif
