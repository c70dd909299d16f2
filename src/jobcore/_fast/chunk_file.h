/* Files of their own for chunks: the bytes of a chunk, the zeros that fill it up, and the CRC-32C of both.
 *
 * A block at a time goes through memory that nobody else has: copied, summed and hashed in the processor's cache, and
 * written from there. So checksum and hash are those of the file, whatever other threads do to the source meanwhile, and
 * the source is read once.
 *
 * No function here touches Python.
 */
#ifndef JOBCORE_FAST_CHUNK_FILE_H
#define JOBCORE_FAST_CHUNK_FILE_H

#include <errno.h>
#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/types.h>
#include <unistd.h>

#include "crc32c.h"
#include "file_out.h"
#include "hash128.h"

#define JC_TRAILER ((size_t)4)          /* bytes of the checksum after a chunk */
#define JC_FILE_BLOCK ((size_t)512 << 10) /* written at a time: the second-level cache holds it, or most of it */
#define JC_FILE_STEP ((size_t)12 << 10) /* copied, summed and hashed at a time: fits into the first-level cache */

/* A chunk on its way into a file. */
typedef struct {
    int fd;
    const uint8_t *data;
    uint64_t from;  /* where in the chunk these bytes lie: before them there may have been others */
    uint64_t n;     /* bytes of data */
    uint64_t total; /* with the zeros after them */
    uint64_t done;
    uint32_t crc;
    jc_hash128_stream hash;
    uint64_t high, low; /* the hash, once all is done */
} jc_chunk_file;

static void jc_chunk_file_begin(jc_chunk_file *c, int fd, const uint8_t *data, uint64_t n, uint64_t zeros)
{
    *c = (jc_chunk_file){.fd = fd, .data = data, .n = n, .total = n + zeros};
    jc_hash128_begin(&c->hash, jc_hash128_at(jc_hash128_count() - 1)->take, c->total);
}

/* Put the next `count` bytes of the chunk into the block, `real` of which are data. */
static void jc_chunk_file_take(jc_chunk_file *c, uint8_t *block, size_t real, size_t count)
{
    for (size_t at = 0; at < count;) {
        const size_t step = count - at < JC_FILE_STEP ? count - at : JC_FILE_STEP;
        const size_t copied = at >= real ? 0 : real - at < step ? real - at : step;
        uint8_t *into = block + at;

        if (copied > 0) {
            c->crc = jc_crc32c_copy(c->crc, into, c->data + (c->done - c->from) + at, copied);
        }
        if (copied < step) {
            memset(into + copied, 0, step - copied);
            c->crc = jc_crc32c_update(c->crc, into + copied, step - copied);
        }
        if (c->total > JC_HASH128_SHORT) {
            jc_hash128_more(&c->hash, into, step);
        }
        at += step;
    }
}

/* Write on, about `most` bytes; `block` has room for JC_FILE_BLOCK + JC_TRAILER. The end is reached when `done` is more
 * than `total`. 0, or an errno. */
static int jc_chunk_file_write(jc_chunk_file *c, uint8_t *block, uint64_t most)
{
    jc_file file = jc_file_begin(c->fd, 0);
    const uint64_t stop = c->total - c->done < most ? c->total : c->done + most;

    do {
        size_t count = c->total - c->done < JC_FILE_BLOCK ? (size_t)(c->total - c->done) : JC_FILE_BLOCK;
        const size_t real = c->n <= c->done ? 0 : c->n - c->done < count ? (size_t)(c->n - c->done) : count;
        const int last = c->done + count == c->total;
        int failed;

        jc_chunk_file_take(c, block, real, count);
        if (last) {
            if (c->total > JC_HASH128_SHORT) {
                jc_hash128_end(&c->hash, &c->high, &c->low);
            } else {
                jc_hash128(block, count, &c->high, &c->low);
            }
            for (size_t i = 0; i < JC_TRAILER; i++) {
                block[count + i] = (uint8_t)(c->crc >> 8 * i);
            }
            count += JC_TRAILER;
        }
        /* Zeros that are not written read as such. */
        failed = real > 0 || last ? jc_write_out(&file, block, count, (int64_t)c->done) : 0;
        if (failed) {
            return failed;
        }
        c->done += count;
    } while (c->done < stop);
    return 0;
}

/* ---- names ---- */

/* A new file at `key` under a directory. A descriptor, or -1 and errno. */
static int jc_new_file(int directory, const char *key, int mode)
{
    int fd;

    do {
        fd = openat(directory, key, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    } while (fd < 0 && errno == EINTR);
    return fd;
}

/* A new folder. 0, or an errno. */
static int jc_new_folder(int directory, const char *key)
{
    int failed;

    do {
        failed = mkdirat(directory, key, 0777);
    } while (failed && errno == EINTR);
    return failed ? errno : 0;
}

/* Close a file that was written to. 0, or an errno. */
static int jc_close_file(int fd)
{
    /* After EINTR the descriptor is gone, or may belong to somebody else by now. */
    return close(fd) == 0 || errno == EINTR ? 0 : errno;
}

/* A new file with some bytes, to be closed by the caller. 0, or an errno. */
static int jc_put_file(int directory, const char *key, int mode, const uint8_t *data, size_t n, int *fd)
{
    jc_file file;
    int failed;

    *fd = jc_new_file(directory, key, mode);
    if (*fd < 0) {
        return errno;
    }
    file = jc_file_begin(*fd, 0);
    failed = jc_write_out(&file, data, n, 0);
    if (failed) {
        close(*fd);
        *fd = -1;
    }
    return failed;
}

#endif
