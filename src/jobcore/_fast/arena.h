/* Memory that is kept: large, aligned, in huge pages where the system has them, and there before it is needed.
 *
 * Fresh memory costs more than the copy into it (a page fault for every 4 KiB), so an arena is made once, filled by
 * several threads, and used again for the next save.
 */
#ifndef JOBCORE_FAST_ARENA_H
#define JOBCORE_FAST_ARENA_H

#include <errno.h>
#include <stdint.h>
#include <string.h>

#include "chunk_io.h"
#include "crc32.h"
#include "crew.h"
#include "file_out.h"
#include "memory.h"

/* ---- copies by several threads ---- */

typedef struct {
    uint8_t *target;
    const uint8_t *source;
    uint64_t size;      /* bytes to copy */
    uint64_t zeros;     /* zero bytes behind them */
    uint32_t crc;       /* result: of all of them */
} jc_copy;

typedef struct {
    jc_copy *copies;
    size_t count;
    jc_piece *pieces;
    size_t piece_count;
    size_t next;
} jc_copying;

static void *jc_copy_pieces(void *argument)
{
    jc_copying *c = argument;
    for (;;) {
        size_t index = __atomic_fetch_add(&c->next, 1, __ATOMIC_RELAXED);
        jc_piece *piece;
        const jc_copy *copy;
        if (index >= c->piece_count) {
            break;
        }
        piece = &c->pieces[index];
        copy = &c->copies[piece->chunk];
        piece->crc = jc_crc32_copy(0, copy->target + piece->start, copy->source + piece->start, (size_t)piece->size);
    }
    return NULL;
}

/* Do all copies with several threads, the calling one among them. 0, or ENOMEM. */
static int jc_copy_all(jc_copy *copies, size_t count, int threads)
{
    jc_copying c = {copies, count, NULL, 0, 0};
    size_t total = 0, at = 0;
    for (size_t i = 0; i < count; i++) {
        total += (size_t)((copies[i].size + JC_PIECE - 1) / JC_PIECE);
        copies[i].crc = 0;
    }
    c.pieces = calloc(total ? total : 1, sizeof *c.pieces);
    if (c.pieces == NULL) {
        return ENOMEM;
    }
    for (size_t i = 0; i < count; i++) {
        for (uint64_t start = 0; start < copies[i].size; start += JC_PIECE, at++) {
            uint64_t left = copies[i].size - start;
            c.pieces[at].chunk = i;
            c.pieces[at].start = start;
            c.pieces[at].size = left < JC_PIECE ? left : JC_PIECE;
        }
    }
    c.piece_count = total;
    jc_run_crew(jc_copy_pieces, &c, (size_t)threads < total ? (size_t)threads : total);
    for (at = 0; at < total; at++) {
        jc_copy *copy = &copies[c.pieces[at].chunk];
        copy->crc = c.pieces[at].start == 0 ? c.pieces[at].crc
                                            : jc_crc32_join(copy->crc, c.pieces[at].crc, c.pieces[at].size);
    }
    for (size_t i = 0; i < count; i++) {
        uint8_t *rest = copies[i].target + copies[i].size;
        memset(rest, 0, copies[i].zeros);
        copies[i].crc = jc_crc32_update(copies[i].crc, rest, copies[i].zeros);
    }
    free(c.pieces);
    return 0;
}

/* ---- writing an arena out ---- */

typedef struct {
    jc_file file;
    const uint8_t *data;
    uint64_t size;              /* a multiple of JC_ALIGN */
    uint64_t step;
    uint64_t next;
    int error;
} jc_output;

static void *jc_write_steps(void *argument)
{
    jc_output *o = argument;
    for (;;) {
        uint64_t at = __atomic_fetch_add(&o->next, o->step, __ATOMIC_RELAXED);
        uint64_t n;
        int failed;
        if (at >= o->size || __atomic_load_n(&o->error, __ATOMIC_RELAXED)) {
            break;
        }
        n = o->size - at < o->step ? o->size - at : o->step;
        failed = jc_write_out(&o->file, o->data + at, (size_t)n, (int64_t)at);
        failed = failed ? failed : jc_sync_behind(&o->file, (size_t)n);
        if (failed) {
            __atomic_store_n(&o->error, failed, __ATOMIC_RELAXED);
        }
    }
    return NULL;
}

/* Write `size` bytes of an arena as the whole of an empty file. The bytes up to the next multiple of JC_ALIGN are written
 * too, and cut off again. What became of direct writes is told by `*file`. 0, or an errno. */
static int jc_write_arena(int fd, uint8_t *data, uint64_t size, uint64_t step, int threads, int direct, jc_file *file)
{
    jc_output o;
    memset(&o, 0, sizeof o);
    o.file = jc_file_begin(fd, direct);
    o.data = data;
    o.size = (size + JC_ALIGN - 1) / JC_ALIGN * JC_ALIGN;
    o.step = step;
    memset(data + size, 0, o.size - size);
    jc_run_crew(jc_write_steps, &o, (size_t)threads);
    if (!o.error) {
        o.error = jc_file_end(&o.file, (int64_t)size);
    }
    *file = o.file;
    return o.error;
}

#endif
