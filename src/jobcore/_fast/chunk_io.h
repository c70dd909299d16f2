/* File input and output of chunks, checksummed on the way, by native threads: the block writer of block_writer.h, and the
 * chunk reader, which reads many byte ranges at once into the memory that they belong to, and sums each piece while it is
 * in the processor's cache.
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

#define JC_STEP ((size_t)256 << 10)    /* read and summed at a time: fits into the second-level cache */
#define JC_PIECE ((uint64_t)4 << 20)   /* the share of a chunk that one thread takes */
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
    jc_chunk *chunks;
    jc_piece *pieces;
    size_t piece_count;
    size_t grab;                /* pieces that a thread takes at a time */
    size_t next;                /* first piece that nobody has taken; only by atomic steps */
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

static void *jc_read_pieces(void *argument)
{
    jc_reading *r = argument;
    uint8_t *scratch = NULL;
    size_t index = 0, stop = 0;
    for (;; index++) {
        jc_piece *piece;
        jc_chunk *chunk;
        uint64_t at, end;
        uint32_t crc = 0;
        size_t step = JC_STEP;
        if (index == stop) {
            index = __atomic_fetch_add(&r->next, r->grab, __ATOMIC_RELAXED);
            stop = index + r->grab;
        }
        if (index >= r->piece_count) {
            break;
        }
        piece = &r->pieces[index];
        chunk = &r->chunks[piece->chunk];
        end = piece->start + piece->size;
        at = (uint64_t)chunk->offset + piece->start;
        if (piece->size > JC_STEP
            && (jc_is_cold(r->fd, (int64_t)at) || jc_is_cold(r->fd, (int64_t)(at + piece->size - 1)))) {
            step = JC_PIECE; /* small requests would keep the disk waiting */
        }
        for (at = piece->start; at < end;) {
            uint64_t left = end - at;
            size_t n = left < step ? (size_t)left : step;
            int64_t offset = chunk->offset + (int64_t)at;
            uint8_t *data;
            int failed;
            if (chunk->target != NULL && at < chunk->room) {
                data = chunk->target + at;
                n = chunk->room - at < n ? (size_t)(chunk->room - at) : n;
            } else {
                n = n < JC_STEP ? n : JC_STEP; /* the scratch holds no more */
                if (scratch == NULL) {
                    scratch = malloc(JC_STEP);
                }
                data = scratch;
            }
            failed = data == NULL ? ENOMEM : jc_read_in(r->fd, data, n, &offset);
            if (failed) {
                /* Threads may fail on one chunk at once; any of the reasons will do. */
                __atomic_store_n(&chunk->failed_at, (uint64_t)offset, __ATOMIC_RELAXED);
                __atomic_store_n(&chunk->error, failed, __ATOMIC_RELAXED);
                break;
            }
            crc = jc_crc32_update(crc, data, n);
            at += n;
        }
        piece->crc = crc;
    }
    free(scratch);
    return NULL;
}

/* Read chunks with several threads, the calling one among them. 0, or ENOMEM; the chunks tell of their own failures. */
static int jc_read_chunks(int fd, jc_chunk *chunks, size_t count, int threads)
{
    jc_reading r = {fd, chunks, NULL, 0, 1, 0};
    size_t total = 0, at = 0;
    uint64_t bytes = 0;
    for (size_t i = 0; i < count; i++) {
        total += (size_t)((chunks[i].size + JC_PIECE - 1) / JC_PIECE);
        bytes += chunks[i].size;
        chunks[i].crc = 0;
        chunks[i].error = 0;
    }
    r.pieces = calloc(total ? total : 1, sizeof *r.pieces);
    if (r.pieces == NULL) {
        return ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        for (uint64_t start = 0; start < chunks[i].size; start += JC_PIECE, at++) {
            uint64_t left = chunks[i].size - start;
            r.pieces[at].chunk = i;
            r.pieces[at].start = start;
            r.pieces[at].size = left < JC_PIECE ? left : JC_PIECE;
        }
    }
    r.piece_count = total;
    /* Neighbours go to one thread: two that touch a fresh huge page at once would both fill it with zeros. */
    r.grab = total ? (size_t)(JC_PIECE * total / (bytes ? bytes : 1)) : 1;
    r.grab = r.grab < 1 ? 1 : r.grab > 64 ? 64 : r.grab;
    total = (total + r.grab - 1) / r.grab;
    jc_run_crew(jc_read_pieces, &r, (size_t)threads < total ? (size_t)threads : total);
    for (at = 0; at < r.piece_count; at++) {
        jc_chunk *chunk = &chunks[r.pieces[at].chunk];
        chunk->crc = r.pieces[at].start == 0 ? r.pieces[at].crc
                                             : jc_crc32_join(chunk->crc, r.pieces[at].crc, r.pieces[at].size);
    }
    free(r.pieces);
    return 0;
}

#endif
