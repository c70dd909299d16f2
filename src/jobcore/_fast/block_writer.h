/* Turns a stream of bytes into large aligned writes: one thread fills blocks (copying and summing in one pass), others
 * write full blocks while it goes on.
 *
 * No function here touches Python.
 */
#ifndef JOBCORE_FAST_BLOCK_WRITER_H
#define JOBCORE_FAST_BLOCK_WRITER_H

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

#include "crc32.h"
#include "crew.h"
#include "file_out.h"
#include "memory.h"

enum jc_block_state { JC_FREE, JC_FILLING, JC_HELD, JC_QUEUED };

typedef struct {
    uint8_t *data;
    int64_t offset;             /* in the file; a multiple of the block size */
    size_t used;
    int holds;                  /* ranges in it whose bytes are not known yet */
    enum jc_block_state state;
} jc_block;

typedef struct {
    jc_file file;
    pid_t process;              /* a forked child has neither the threads nor the memory */
    size_t block_bytes;
    int block_count;
    jc_block *blocks;
    uint8_t *memory;
    size_t memory_bytes;
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

static void *jc_write_blocks(void *argument)
{
    jc_writer *w = argument;
    pthread_mutex_lock(&w->lock);
    for (;;) {
        jc_block *block;
        size_t n, written = 0;
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
            failed = jc_write_out(&w->file, block->data, n, block->offset);
            written = n;
        }
        pthread_mutex_lock(&w->lock);
        if (failed && !w->error) {
            w->error = failed;
        }
        block->state = JC_FREE;
        pthread_cond_signal(&w->freed);
        if (written == 0 || failed) {
            continue;
        }
        pthread_mutex_unlock(&w->lock);
        failed = jc_sync_behind(&w->file, written);
        pthread_mutex_lock(&w->lock);
        if (failed && !w->error) {
            w->error = failed;
            pthread_cond_signal(&w->freed);
        }
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
    if (w == NULL || w->process != getpid()) {
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
    if (w->memory != NULL) {
        munmap(w->memory, w->memory_bytes);
    }
    free(w->blocks);
    free(w->queue);
    free(w);
}

/* Make a writer over an empty file. NULL and errno on failure; the descriptor stays the caller's. */
static jc_writer *jc_writer_new(int fd, size_t block_bytes, int block_count, int threads, int direct)
{
    jc_writer *w = calloc(1, sizeof *w);
    if (w == NULL) {
        return NULL;
    }
    w->process = getpid();
    w->block_bytes = block_bytes;
    w->block_count = block_count;
    pthread_mutex_init(&w->lock, NULL);
    pthread_cond_init(&w->queued, NULL);
    pthread_cond_init(&w->freed, NULL);
    w->blocks = calloc((size_t)block_count, sizeof *w->blocks);
    w->queue = calloc((size_t)block_count, sizeof *w->queue);
    w->memory_bytes = (block_bytes * (size_t)block_count + JC_HUGE - 1) / JC_HUGE * JC_HUGE;
    w->memory = w->blocks != NULL && w->queue != NULL ? jc_arena_map(w->memory_bytes) : NULL;
    if (w->memory == NULL) {
        jc_writer_free(w);
        errno = ENOMEM;
        return NULL;
    }
    for (int i = 0; i < block_count; i++) {
        w->blocks[i].data = w->memory + block_bytes * (size_t)i;
    }
    w->file = jc_file_begin(fd, direct);
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
    failed = w->error;
    if (!failed) {
        failed = w->error = jc_file_end(&w->file, w->end);
    }
    return failed;
}

#endif
