/* File input and output of chunks, checksummed on the way, by native threads.
 *
 * Two machines. The block writer turns a stream of bytes into large aligned writes: one thread fills blocks (copying and
 * summing in one pass), others write full blocks while it goes on. The chunk reader reads many byte ranges at once into
 * the memory that they belong to, and sums each piece while it is in the processor's cache.
 *
 * No function here touches Python. Threads live for one writer or one call of the reader, so a fork between calls finds
 * none, and they block all signals: handlers belong to the interpreter's threads.
 */
#ifndef JOBCORE_FAST_CHUNK_IO_H
#define JOBCORE_FAST_CHUNK_IO_H

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "crc32.h"

#define JC_ALIGN ((size_t)4096)        /* what direct writes want of memory, offset and length */
#define JC_STEP ((size_t)256 << 10)    /* read and summed at a time: fits into the second-level cache */
#define JC_PIECE ((uint64_t)4 << 20)   /* the share of a chunk that one thread takes */
#define JC_MAX_THREADS 16
#define JC_END_OF_FILE (-1)            /* in place of an errno */

/* Start a thread that no signal is delivered to. */
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

/* ---- the block writer ---- */

enum jc_block_state { JC_FREE, JC_FILLING, JC_HELD, JC_QUEUED };

typedef struct {
    uint8_t *data;
    int64_t offset;             /* in the file; a multiple of the block size */
    size_t used;
    int holds;                  /* ranges in it whose bytes are not known yet */
    enum jc_block_state state;
} jc_block;

typedef struct {
    int fd;
    int direct;
    size_t block_bytes;
    int block_count;
    jc_block *blocks;
    uint8_t *memory;
    /* Only the filling thread uses these two. */
    jc_block *current;
    int64_t end;                /* where the next byte goes */
    /* Guards the states of blocks, the queue, error and stopping. */
    pthread_mutex_t lock;
    pthread_cond_t queued;      /* a block was queued, or stopping was set */
    pthread_cond_t freed;       /* a block became free, or error was set */
    int *queue;                 /* indices of queued blocks, a ring that holds them all */
    int queue_head, queue_length;
    int error;                  /* errno of the first write that failed */
    int stopping;
    int thread_count;
    pthread_t threads[JC_MAX_THREADS];
} jc_writer;

/* Go on through the page cache: some file systems refuse direct writes, some only those of a certain shape. */
static void jc_leave_direct(jc_writer *w)
{
#ifdef O_DIRECT
    int flags = fcntl(w->fd, F_GETFL);
    if (flags >= 0) {
        fcntl(w->fd, F_SETFL, flags & ~O_DIRECT);
    }
#endif
    __atomic_store_n(&w->direct, 0, __ATOMIC_RELAXED);
}

static int jc_write_out(jc_writer *w, const uint8_t *data, size_t n, int64_t offset)
{
    while (n > 0) {
        ssize_t count = pwrite(w->fd, data, n, (off_t)offset);
        if (count < 0) {
            if (errno == EINTR) {
                continue;
            }
            if (errno == EINVAL && __atomic_load_n(&w->direct, __ATOMIC_RELAXED)) {
                jc_leave_direct(w);
                continue;
            }
            return errno;
        }
        if (count == 0) {
            return EIO;
        }
        if (count % (ssize_t)JC_ALIGN != 0 && (size_t)count < n && __atomic_load_n(&w->direct, __ATOMIC_RELAXED)) {
            /* The rest starts where no direct write may start. */
            jc_leave_direct(w);
        }
        data += count;
        offset += count;
        n -= (size_t)count;
    }
    return 0;
}

static void *jc_write_blocks(void *argument)
{
    jc_writer *w = argument;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        jc_block *block;
        size_t n;
        int failed;
        while (w->queue_length == 0 && !w->stopping) {
            pthread_cond_wait(&w->queued, &w->lock);
        }
        if (w->queue_length == 0) {
            break;
        }
        block = &w->blocks[w->queue[w->queue_head]];
        w->queue_head = (w->queue_head + 1) % w->block_count;
        w->queue_length--;
        failed = w->error;
        pthread_mutex_unlock(&w->lock);
        /* The last block is filled up with zeros, which jc_writer_finish cuts off again. */
        n = (block->used + JC_ALIGN - 1) / JC_ALIGN * JC_ALIGN;
        memset(block->data + block->used, 0, n - block->used);
        if (!failed) {
            failed = jc_write_out(w, block->data, n, block->offset);
        }
        pthread_mutex_lock(&w->lock);
        if (failed && !w->error) {
            w->error = failed;
        }
        block->state = JC_FREE;
        pthread_cond_signal(&w->freed);
    }
    pthread_mutex_unlock(&w->lock);
    return NULL;
}

static void jc_join_threads(jc_writer *w)
{
    for (int i = 0; i < w->thread_count; i++) {
        pthread_join(w->threads[i], NULL);
    }
    w->thread_count = 0;
}

static void jc_writer_free(jc_writer *w)
{
    if (w == NULL) {
        return;
    }
    pthread_mutex_lock(&w->lock);
    w->stopping = 1;
    if (!w->error) {
        w->error = ECANCELED; /* what is queued is not wanted any more */
    }
    pthread_cond_broadcast(&w->queued);
    pthread_mutex_unlock(&w->lock);
    jc_join_threads(w);
    pthread_cond_destroy(&w->queued);
    pthread_cond_destroy(&w->freed);
    pthread_mutex_destroy(&w->lock);
    free(w->memory);
    free(w->blocks);
    free(w->queue);
    free(w);
}

/* Make a writer over an empty file. NULL and errno on failure; the descriptor stays the caller's. */
static jc_writer *jc_writer_new(int fd, size_t block_bytes, int block_count, int threads, int direct)
{
    void *memory = NULL;
    jc_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    w->fd = fd;
    w->block_bytes = block_bytes;
    w->block_count = block_count;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->queued, NULL);
    pthread_cond_init(&w->freed, NULL);
    w->blocks = calloc((size_t)block_count, sizeof *w->blocks);
    w->queue = calloc((size_t)block_count, sizeof *w->queue);
    if (w->blocks == NULL || w->queue == NULL
        || posix_memalign(&memory, JC_ALIGN, block_bytes * (size_t)block_count) != 0) {
        jc_writer_free(w);
        errno = ENOMEM;
        return NULL;
    }
    w->memory = memory;
    for (int i = 0; i < block_count; i++) {
        w->blocks[i].data = w->memory + block_bytes * (size_t)i;
    }
#ifdef O_DIRECT
    if (direct) {
        int flags = fcntl(fd, F_GETFL);
        w->direct = flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
    }
#else
    (void)direct;
#endif
    for (int i = 0; i < threads && i < JC_MAX_THREADS; i++) {
        int failed = jc_start_thread(&w->threads[i], jc_write_blocks, w);
        if (failed && i == 0) {
            jc_writer_free(w);
            errno = failed;
            return NULL;
        }
        if (failed) {
            break; /* one is enough */
        }
        w->thread_count++;
    }
    return w;
}

/* Ask for the room of a file before it is written: direct writes beyond its end go one by one, and holes that are filled late
 * scatter it. A file system that cannot is no failure; one that has not the room is. 0, or an errno. */
static int jc_allocate(int fd, uint64_t size)
{
#if defined(__linux__) && defined(FALLOC_FL_KEEP_SIZE)
    while (size > 0 && fallocate(fd, 0, 0, (off_t)size) != 0) {
        if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG || errno == EIO) {
            return errno;
        }
        if (errno != EINTR) {
            break;
        }
    }
#else
    (void)fd;
    (void)size;
#endif
    return 0;
}

/* With the lock held. */
static void jc_enqueue(jc_writer *w, jc_block *block)
{
    block->state = JC_QUEUED;
    w->queue[(w->queue_head + w->queue_length) % w->block_count] = (int)(block - w->blocks);
    w->queue_length++;
    pthread_cond_signal(&w->queued);
}

/* The block for the next byte; NULL when a write has failed. */
static jc_block *jc_room(jc_writer *w)
{
    jc_block *block = w->current;
    if (block != NULL && block->used < w->block_bytes) {
        return block;
    }
    pthread_mutex_lock(&w->lock);
    if (block != NULL) {
        if (block->holds > 0) {
            block->state = JC_HELD;
        } else {
            jc_enqueue(w, block);
        }
        w->current = NULL;
    }
    for (block = NULL; !w->error;) {
        for (int i = 0; i < w->block_count && block == NULL; i++) {
            if (w->blocks[i].state == JC_FREE) {
                block = &w->blocks[i];
            }
        }
        if (block != NULL) {
            block->state = JC_FILLING;
            block->used = 0;
            block->holds = 0;
            block->offset = w->end;
            break;
        }
        pthread_cond_wait(&w->freed, &w->lock);
    }
    w->current = block;
    pthread_mutex_unlock(&w->lock);
    return block;
}

/* Take the next range of at most n bytes: its memory and length. NULL when a write has failed. */
static uint8_t *jc_take(jc_writer *w, size_t n, int hold, size_t *count)
{
    jc_block *block = jc_room(w);
    uint8_t *start;
    if (block == NULL) {
        return NULL;
    }
    *count = w->block_bytes - block->used;
    *count = *count < n ? *count : n;
    start = block->data + block->used;
    block->holds += hold;
    block->used += *count;
    w->end += (int64_t)*count;
    return start;
}

/* Append bytes, or n zeros when data is NULL; goes on summing *crc. 0, or an errno. */
static int jc_writer_append(jc_writer *w, const uint8_t *data, size_t n, uint32_t *crc)
{
    static const uint8_t zeros[4096];
    while (n > 0) {
        size_t count;
        uint8_t *start = jc_take(w, data == NULL && n > sizeof zeros ? sizeof zeros : n, 0, &count);
        if (start == NULL) {
            return w->error;
        }
        *crc = jc_crc32_copy(*crc, start, data == NULL ? zeros : data, count);
        data = data == NULL ? NULL : data + count;
        n -= count;
    }
    return 0;
}

/* Leave room for n bytes that are given to jc_writer_fill later; their blocks wait for it. */
static int jc_writer_reserve(jc_writer *w, size_t n)
{
    while (n > 0) {
        size_t count;
        if (jc_take(w, n, 1, &count) == NULL) {
            return w->error;
        }
        n -= count;
    }
    return 0;
}

/* Give the bytes of a range that was reserved, all of it. 0, or EINVAL when it was not. */
static int jc_writer_fill(jc_writer *w, int64_t offset, const uint8_t *data, size_t n)
{
    while (n > 0) {
        jc_block *block = NULL;
        size_t at, count;
        pthread_mutex_lock(&w->lock);
        for (int i = 0; i < w->block_count; i++) {
            jc_block *b = &w->blocks[i];
            if ((b->state == JC_FILLING || b->state == JC_HELD) && b->holds > 0 && offset >= b->offset
                && offset < b->offset + (int64_t)b->used) {
                block = b;
            }
        }
        pthread_mutex_unlock(&w->lock);
        if (block == NULL) {
            return w->error ? w->error : EINVAL;
        }
        at = (size_t)(offset - block->offset);
        count = block->used - at;
        count = count < n ? count : n;
        memcpy(block->data + at, data, count);
        pthread_mutex_lock(&w->lock);
        block->holds--;
        if (block->holds == 0 && block->state == JC_HELD) {
            jc_enqueue(w, block);
        }
        pthread_mutex_unlock(&w->lock);
        data += count;
        offset += (int64_t)count;
        n -= count;
    }
    return 0;
}

/* Write what is left, wait for all of it, and cut the file to its length. 0, or an errno. */
static int jc_writer_finish(jc_writer *w)
{
    int failed;
    pthread_mutex_lock(&w->lock);
    if (w->current != NULL) {
        if (w->current->used > 0) {
            jc_enqueue(w, w->current);
        } else {
            w->current->state = JC_FREE;
        }
        w->current = NULL;
    }
    w->stopping = 1;
    pthread_cond_broadcast(&w->queued);
    pthread_mutex_unlock(&w->lock);
    jc_join_threads(w);
    if (w->direct) {
        jc_leave_direct(w); /* the flag belongs to the open file, which others may go on to use */
    }
    failed = w->error;
    if (!failed) {
        while (ftruncate(w->fd, (off_t)w->end) != 0) {
            if (errno != EINTR) {
                failed = w->error = errno;
                break;
            }
        }
    }
    return failed;
}

/* ---- the chunk reader ---- */

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
    size_t next;
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

static void *jc_read_pieces(void *argument)
{
    jc_reading *r = argument;
    uint8_t *scratch = NULL;
    for (;;) {
        size_t index = __atomic_fetch_add(&r->next, 1, __ATOMIC_RELAXED);
        jc_piece *piece;
        jc_chunk *chunk;
        uint64_t at, end;
        uint32_t crc = 0;
        if (index >= r->piece_count) {
            break;
        }
        piece = &r->pieces[index];
        chunk = &r->chunks[piece->chunk];
        end = piece->start + piece->size;
        for (at = piece->start; at < end;) {
            uint64_t left = end - at;
            size_t n = left < JC_STEP ? (size_t)left : JC_STEP;
            int64_t offset = chunk->offset + (int64_t)at;
            uint8_t *data;
            int failed;
            if (chunk->target != NULL && at < chunk->room) {
                data = chunk->target + at;
                n = chunk->room - at < n ? (size_t)(chunk->room - at) : n;
            } else {
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
    jc_reading r = {fd, chunks, NULL, 0, 0};
    size_t total = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        total += (size_t)((chunks[i].size + JC_PIECE - 1) / JC_PIECE);
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
    jc_run_crew(jc_read_pieces, &r, (size_t)threads < total ? (size_t)threads : total);
    for (at = 0; at < total; at++) {
        jc_chunk *chunk = &chunks[r.pieces[at].chunk];
        chunk->crc = r.pieces[at].start == 0 ? r.pieces[at].crc
                                             : jc_crc32_join(chunk->crc, r.pieces[at].crc, r.pieces[at].size);
    }
    free(r.pieces);
    return 0;
}

#endif
