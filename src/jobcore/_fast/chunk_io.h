/* File input and output of chunks, checksummed on the way, by native threads: the block writer of block_writer.h, and the
 * chunk reader, which reads many byte ranges at once into the memory that they belong to.
 *
 * What the page cache has goes through a small buffer that stays in the processor's cache: from there it is summed and stored
 * past the caches by one pass, which takes less time than to let the kernel store it and to sum it where it lies then.
 * What comes from the disk goes right to its place in large requests; and what goes to memory that nobody has touched yet
 * does so in small ones, since the kernel has just filled it with zeros and the caches have it.
 *
 * No function here touches Python.
 */
#ifndef JOBCORE_FAST_CHUNK_IO_H
#define JOBCORE_FAST_CHUNK_IO_H

#include <errno.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "block_writer.h"
#include "crc32.h"
#include "crew.h"

#define JC_STEP ((size_t)128 << 10)    /* read and summed at a time, if nothing else is said */
#define JC_LARGE_STEP ((size_t)1 << 20) /* the same where each processor has a second-level cache of that size */
#define JC_FRESH_STEP ((size_t)512 << 10) /* the same where it goes to fresh memory */
#define JC_PIECE ((uint64_t)4 << 20)   /* of memory: what one thread fills at a time */
#define JC_FEW ((uint64_t)64 << 20)    /* bytes in all below which threads take half as much, so that none waits long */
#define JC_END_OF_FILE (-1)            /* in place of an errno */

typedef struct {
    int64_t offset;     /* in the file */
    uint64_t size;      /* bytes to read and sum */
    uint8_t *target;    /* where the first `room` of them go; the others are only summed */
    uint64_t room;
    uint32_t crc;       /* result */
    int error;          /* result: 0, an errno, or JC_END_OF_FILE */
    uint64_t failed_at; /* result: offset in the file of the read that failed */
} jc_chunk;

typedef struct {
    size_t chunk;
    uint64_t start, size;
    uint32_t crc;
} jc_piece;

typedef struct {
    int fd;
    int fresh;                  /* nobody has touched the memory that it goes to */
    size_t step;                /* bytes that go through the small buffer at a time */
    jc_chunk *chunks;
    jc_piece *pieces;
    size_t *groups;             /* first piece of each group that a thread takes at a time, and the number of pieces */
    size_t group_count;
    size_t next;                /* first group that nobody has taken; only by atomic steps */
} jc_reading;

static int jc_read_in(int fd, uint8_t *data, size_t n, int64_t *offset)
{
    while (n > 0) {
        ssize_t count = pread(fd, data, n, (off_t)*offset);
        if (count < 0) {
            if (errno == EINTR) {
                continue;
            }
            return errno;
        }
        if (count == 0) {
            return JC_END_OF_FILE;
        }
        data += count;
        *offset += count;
        n -= (size_t)count;
    }
    return 0;
}

/* Whether the page cache lacks a byte of a file; 0 where nobody can tell. */
static int jc_is_cold(int fd, int64_t offset)
{
#if defined(__linux__) && defined(RWF_NOWAIT)
    uint8_t byte;
    struct iovec place = {&byte, 1};
    return preadv2(fd, &place, 1, (off_t)offset, RWF_NOWAIT) < 0 && errno == EAGAIN;
#else
    (void)fd;
    (void)offset;
    return 0;
#endif
}

/* How much to read and sum at a time: where the caches are large enough for it, memory that is read and written in longer
 * turns gives more. */
static size_t jc_step(void)
{
#ifdef _SC_LEVEL2_CACHE_SIZE
    static size_t known; /* to ask the processor takes long on a virtual one */
    size_t step = __atomic_load_n(&known, __ATOMIC_RELAXED);
    if (step == 0) {
        step = sysconf(_SC_LEVEL2_CACHE_SIZE) >= (long)JC_LARGE_STEP ? JC_LARGE_STEP : JC_STEP;
        __atomic_store_n(&known, step, __ATOMIC_RELAXED);
    }
    return step;
#else
    return JC_STEP;
#endif
}

/* Read and sum one piece. `scratch` is room for one step, made where it is needed. 0, an errno, or JC_END_OF_FILE. */
static int jc_read_piece(const jc_reading *r, const jc_chunk *chunk, jc_piece *piece, uint8_t **scratch, int64_t *offset)
{
    const int fd = r->fd;
    uint64_t at = piece->start, end = piece->start + piece->size;
    uint32_t crc = 0;
    int cold;
    *offset = chunk->offset + (int64_t)at;
    cold = piece->size > JC_STEP && (jc_is_cold(fd, *offset) || jc_is_cold(fd, *offset + (int64_t)piece->size - 1));
    while (at < end) {
        uint64_t n = end - at;
        uint8_t *target = chunk->target != NULL && at < chunk->room ? chunk->target + at : NULL;
        int failed;
        if (target != NULL && n > chunk->room - at) {
            n = chunk->room - at;
        }
        if (target != NULL && (cold || r->fresh)) {
            /* Small requests would keep the disk waiting. */
            n = cold || n < JC_FRESH_STEP ? n : JC_FRESH_STEP;
            failed = jc_read_in(fd, target, (size_t)n, offset);
            crc = failed ? crc : jc_crc32_update(crc, target, (size_t)n);
        } else {
            n = n < r->step ? n : r->step;
            if (*scratch == NULL && (*scratch = malloc(r->step)) == NULL) {
                return ENOMEM;
            }
            failed = jc_read_in(fd, *scratch, (size_t)n, offset);
            if (!failed) {
                crc = target == NULL ? jc_crc32_update(crc, *scratch, (size_t)n)
                                     : jc_crc32_copy(crc, target, *scratch, (size_t)n);
            }
        }
        if (failed) {
            return failed;
        }
        at += n;
    }
    piece->crc = crc;
    return 0;
}

static void *jc_read_pieces(void *argument)
{
    jc_reading *r = argument;
    uint8_t *scratch = NULL;
    for (;;) {
        size_t group = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
        if (group >= r->group_count) {
            break;
        }
        for (size_t i = r->groups[group]; i < r->groups[group + 1]; i++) {
            jc_chunk *chunk = &r->chunks[r->pieces[i].chunk];
            int64_t offset;
            int failed = jc_read_piece(r, chunk, &r->pieces[i], &scratch, &offset);
            if (failed) {
                /* Threads may fail on one chunk at once; any of the reasons will do. */
                __atomic_store_n(&chunk->failed_at, (uint64_t)offset, __ATOMIC_RELAXED);
                __atomic_store_n(&chunk->error, failed, __ATOMIC_RELAXED);
            }
        }
    }
    free(scratch);
    return NULL;
}

/* Where a byte of a chunk lies: in memory, or in the file where it is only summed. */
static uint64_t jc_chunk_at(const jc_chunk *chunk, uint64_t at)
{
    return chunk->target != NULL && at < chunk->room ? (uint64_t)(uintptr_t)chunk->target + at
                                                     : (uint64_t)chunk->offset + at;
}

/* Cut chunks into pieces, at multiples of `step` of the memory: two threads that touch a fresh huge page at once would both
 * fill it with zeros. For the same reason neighbours in memory make one group. Where there are none yet, they are only
 * counted. */
static void jc_cut_pieces(jc_reading *r, size_t count, uint64_t step, size_t *pieces)
{
    uint64_t before = 0;
    *pieces = 0;
    r->group_count = 0;
    for (size_t i = 0; i < count; i++) {
        const jc_chunk *chunk = &r->chunks[i];
        for (uint64_t start = 0, size; start < chunk->size; start += size) {
            uint64_t at = jc_chunk_at(chunk, start);
            size = step - at % step;
            size = size < chunk->size - start ? size : chunk->size - start;
            if (r->pieces != NULL) {
                r->pieces[*pieces] = (jc_piece){i, start, size, 0};
                if (*pieces == 0 || at / step != before) {
                    r->groups[r->group_count++] = *pieces;
                }
                before = at / step;
            }
            ++*pieces;
        }
    }
    if (r->groups != NULL) {
        r->groups[r->group_count] = *pieces;
    }
}

/* Read chunks with several threads, the calling one among them; `fresh`: to memory that nobody has touched. 0, or ENOMEM; the chunks tell of their own failures. */
static int jc_read_chunks(int fd, jc_chunk *chunks, size_t count, int threads, int fresh)
{
    jc_reading r = {fd, fresh, jc_step(), chunks, NULL, NULL, 0, 0};
    uint64_t bytes = 0, step;
    size_t pieces;
    for (size_t i = 0; i < count; i++) {
        bytes += chunks[i].size;
        chunks[i].crc = 0;
        chunks[i].error = 0;
    }
    step = bytes < JC_FEW ? JC_PIECE / 2 : JC_PIECE;
    jc_cut_pieces(&r, count, step, &pieces);
    r.pieces = calloc(pieces + 1, sizeof *r.pieces);
    r.groups = calloc(pieces + 1, sizeof *r.groups);
    if (r.pieces == NULL || r.groups == NULL) {
        free(r.pieces);
        free(r.groups);
        return ENOMEM;
    }
    jc_cut_pieces(&r, count, step, &pieces);
    jc_run_crew(jc_read_pieces, &r, (size_t)threads < r.group_count ? (size_t)threads : r.group_count);
    for (size_t i = 0; i < pieces; i++) {
        jc_chunk *chunk = &chunks[r.pieces[i].chunk];
        chunk->crc = r.pieces[i].start == 0 ? r.pieces[i].crc
                                            : jc_crc32_join(chunk->crc, r.pieces[i].crc, r.pieces[i].size);
    }
    free(r.pieces);
    free(r.groups);
    return 0;
}

#endif
