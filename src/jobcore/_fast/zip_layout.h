/* Where everything of a zip container lies, worked out from the table of its root alone, and reading by it.
 *
 * Keys, documents, headers and index of a database follow from the table. So instead of taking the index apart and comparing
 * what it says, the index that it must be is made again and compared byte by byte; and so are headers and documents as
 * they are read. Where a byte differs, the caller looks for the reason with slower means.
 *
 * Nothing here touches Python. Functions return 0 or an errno, or one of the two values below.
 */
#ifndef JOBCORE_FAST_ZIP_LAYOUT_H
#define JOBCORE_FAST_ZIP_LAYOUT_H

#include "chunk_io.h"
#include "zip_sink.h"

#define JC_DIFFERS (-2)             /* bytes are not those that the table implies */
#define JC_WINDOW ((uint64_t)1 << 20) /* small entries that lie side by side are read by one call */

typedef struct {
    const uint8_t *name;
    size_t name_bytes;
    const jc_spec *spec;
    uint64_t first;     /* of its chunks, among all chunks */
    uint64_t offset;    /* of its first entry */
    uint64_t key;       /* where its key starts among all keys */
    uint32_t key_bytes;
} jc_place;

typedef struct {
    jc_place *blobs;
    size_t count, room;
    jc_buffer keys;
    const uint64_t *places;
    const uint32_t *sums;
    uint64_t chunks;
    uint64_t wide;
    uint64_t end;       /* offset of the root entry */
    jc_buffer text;     /* of one document; one thread at a time */
} jc_layout;

static void jc_layout_free(jc_layout *l)
{
    free(l->blobs);
    jc_buffer_free(&l->keys);
    jc_buffer_free(&l->text);
    memset(l, 0, sizeof *l);
}

static int jc_layout_text(jc_buffer *text, const jc_place *b)
{
    text->used = 0;
    return jc_put(text, b->spec->head, b->spec->head_bytes) || jc_put_text(text, b->name, b->name_bytes)
        || jc_put(text, b->spec->tail, b->spec->tail_bytes) ? ENOMEM : 0;
}

static void jc_layout_key(const jc_layout *l, const jc_place *b, jc_entry *e)
{
    memcpy(e->key, l->keys.data + b->key, b->key_bytes);
}

/* The entry of a chunk, given its offset. */
static void jc_layout_chunk(const jc_place *b, jc_entry *e, uint64_t chunk, uint64_t offset)
{
    jc_chunk_key(e, b->key_bytes, b->spec, chunk);
    e->size = b->spec->chunk_bytes;
    e->offset = offset;
}

static void jc_layout_document(const jc_place *b, jc_entry *e, uint64_t size, uint64_t offset)
{
    memcpy(e->key + b->key_bytes, "/zarr.json", 10);
    e->key_bytes = b->key_bytes + 10;
    e->size = size;
    e->offset = offset;
}

/* Add a blob; its key was appended to the keys already. JC_DIFFERS when the table's places are not those that follow. */
static int jc_layout_add(jc_layout *l, const uint8_t *name, size_t name_bytes, const jc_spec *spec, size_t key_bytes)
{
    jc_place *b;
    jc_entry e;
    if (l->count == l->room) {
        size_t room = l->room ? l->room * 2 : 64;
        jc_place *blobs = realloc(l->blobs, room * sizeof *blobs);
        if (blobs == NULL) {
            return ENOMEM;
        }
        l->blobs = blobs;
        l->room = room;
    }
    b = &l->blobs[l->count++];
    *b = (jc_place){name, name_bytes, spec, 0, l->end, l->keys.used - key_bytes, (uint32_t)key_bytes};
    b->first = l->count > 1 ? b[-1].first + b[-1].spec->chunks : 0;
    if (spec->chunks > l->chunks - b->first) {
        return JC_DIFFERS;
    }
    jc_layout_key(l, b, &e);
    for (uint64_t chunk = 0; chunk < spec->chunks; chunk++) {
        jc_layout_chunk(b, &e, chunk, l->end);
        l->end += jc_header_bytes(&e, l->wide);
        if (l->places[b->first + chunk] != l->end || e.size > UINT64_MAX / 2 - l->end) {
            return JC_DIFFERS;
        }
        l->end += e.size;
    }
    if (jc_layout_text(&l->text, b)) {
        return ENOMEM;
    }
    jc_layout_document(b, &e, l->text.used, l->end);
    l->end += jc_header_bytes(&e, l->wide) + e.size;
    return 0;
}

/* Compare a central directory with the one that the table implies, but for the root at its end, whose header starts at
 * *at then. */
static int jc_layout_compare(jc_layout *l, const uint8_t *data, size_t n, size_t *at)
{
    jc_buffer header = {NULL, 0, 0};
    int failed = 0;
    *at = 0;
    for (size_t i = 0; i < l->count && !failed; i++) {
        const jc_place *b = &l->blobs[i];
        uint64_t offset = b->offset;
        jc_entry e;
        jc_layout_key(l, b, &e);
        header.used = 0;
        for (uint64_t chunk = 0; chunk < b->spec->chunks && !failed; chunk++) {
            jc_layout_chunk(b, &e, chunk, offset);
            failed = jc_put_central(&header, &e, l->sums[b->first + chunk], l->wide);
            offset += jc_header_bytes(&e, l->wide) + e.size;
            if (!failed && header.used > n - *at) {
                failed = JC_DIFFERS; /* before a table that claims too much makes it too large */
            }
        }
        if (!failed) {
            failed = jc_layout_text(&l->text, b);
        }
        if (!failed) {
            jc_layout_document(b, &e, l->text.used, offset);
            failed = jc_put_central(&header, &e, jc_crc32_update(0, l->text.data, l->text.used), l->wide);
        }
        if (!failed && (header.used > n - *at || memcmp(header.data, data + *at, header.used) != 0)) {
            failed = JC_DIFFERS;
        }
        *at += header.used;
    }
    jc_buffer_free(&header);
    return failed;
}

/* ---- reading ---- */

/* What to read: a blob, and the memory of all its bytes, or NULL to check it only. */
typedef struct {
    size_t blob;
    uint8_t *target;
} jc_wanted;

typedef struct {
    const jc_layout *l;
    int fd;
    int threads;
    jc_buffer window;           /* bytes of the file, from window_start on */
    uint64_t window_start;
    uint64_t ahead;             /* up to where small entries follow that will be wanted */
    jc_buffer large;            /* jc_chunk of large payloads */
    jc_buffer sums;             /* and what they must sum up to */
    jc_buffer text;
} jc_scan;

static int jc_pread_all(int fd, uint8_t *data, uint64_t n, uint64_t offset)
{
    int64_t at = (int64_t)offset;
    return n ? jc_read_in(fd, data, (size_t)n, &at) : 0;
}

/* Bytes of the file that are to be looked at; good until the next call. */
static int jc_scan_bytes(jc_scan *s, uint64_t offset, uint64_t n, const uint8_t **data)
{
    uint64_t have = s->window_start + s->window.used;
    if (s->window.used == 0 || offset < s->window_start || offset + n > have) {
        uint64_t most = s->ahead > offset ? s->ahead - offset : 0;
        uint64_t size = most < JC_WINDOW ? most : JC_WINDOW;
        int failed;
        size = size < n ? n : size;
        s->window.used = 0;
        s->window_start = offset;
        if (jc_grow(&s->window, (size_t)size) == NULL) {
            return ENOMEM;
        }
        failed = jc_pread_all(s->fd, s->window.data, size, offset);
        if (failed) {
            return failed;
        }
    }
    *data = s->window.data + (offset - s->window_start);
    return 0;
}

/* Read the large payloads that were only noted. */
static int jc_scan_large(jc_scan *s)
{
    jc_chunk *chunks = (jc_chunk *)s->large.data;
    const uint32_t *sums = (const uint32_t *)s->sums.data;
    size_t count = s->large.used / sizeof *chunks;
    int failed = count ? jc_read_chunks(s->fd, chunks, count, s->threads) : 0;
    for (size_t i = 0; i < count && !failed; i++) {
        failed = chunks[i].error ? chunks[i].error : chunks[i].crc != sums[i] ? JC_DIFFERS : 0;
    }
    s->large.used = s->sums.used = 0;
    return failed;
}

static int jc_scan_blob(jc_scan *s, const jc_wanted *wanted)
{
    const jc_layout *l = s->l;
    const jc_place *b = &l->blobs[wanted->blob];
    const jc_spec *spec = b->spec;
    uint8_t header[JC_MAX_HEADER];
    uint64_t offset = b->offset;
    const uint8_t *data;
    jc_entry e;
    size_t head;
    int failed;
    jc_layout_key(l, b, &e);
    for (uint64_t chunk = 0; chunk < spec->chunks; chunk++) {
        uint64_t at = chunk * spec->chunk_bytes;
        uint64_t room = spec->bytes - at < spec->chunk_bytes ? spec->bytes - at : spec->chunk_bytes;
        uint32_t sum = l->sums[b->first + chunk];
        uint8_t *target = wanted->target == NULL ? NULL : wanted->target + at;
        int small;
        jc_layout_chunk(b, &e, chunk, offset);
        small = e.size < JC_LARGE;
        head = jc_header_bytes(&e, l->wide);
        failed = jc_scan_bytes(s, offset, small ? head + e.size : head, &data);
        if (failed) {
            return failed;
        }
        jc_local_header(header, &e, sum, l->wide);
        if (memcmp(data, header, head) != 0) {
            return JC_DIFFERS;
        }
        if (small) {
            if (jc_crc32_update(0, data + head, (size_t)e.size) != sum) {
                return JC_DIFFERS;
            }
            if (target != NULL) {
                memcpy(target, data + head, (size_t)room);
            }
        } else {
            jc_chunk large = {(int64_t)(offset + head), e.size, target, target == NULL ? 0 : room, 0, 0, 0};
            if (jc_put(&s->large, &large, sizeof large) || jc_put(&s->sums, &sum, sizeof sum)) {
                return ENOMEM;
            }
        }
        offset += head + e.size;
    }
    if (jc_layout_text(&s->text, b)) {
        return ENOMEM;
    }
    jc_layout_document(b, &e, s->text.used, offset);
    head = jc_header_bytes(&e, l->wide);
    failed = jc_scan_bytes(s, offset, head + e.size, &data);
    if (failed) {
        return failed;
    }
    jc_local_header(header, &e, jc_crc32_update(0, s->text.data, s->text.used), l->wide);
    return memcmp(data, header, head) != 0 || memcmp(data + head, s->text.data, (size_t)e.size) != 0 ? JC_DIFFERS : 0;
}

/* Read blobs in order. *done of them are whole when it fails: the fault is in the next one, or later for a large payload. */
static int jc_scan_all(jc_scan *s, const jc_wanted *wanted, size_t count)
{
    const jc_layout *l = s->l;
    int failed = 0;
    for (size_t i = 0; i < count && !failed; i++) {
        if (i == 0 || s->ahead <= l->blobs[wanted[i].blob].offset) {
            /* Entries lie side by side; a large payload ends what is read ahead. */
            size_t j = i;
            s->ahead = l->blobs[wanted[i].blob].offset;
            while (j < count && l->blobs[wanted[j].blob].spec->chunk_bytes < JC_LARGE
                   && (j == i || wanted[j].blob == wanted[j - 1].blob + 1)) {
                s->ahead = wanted[j].blob + 1 < l->count ? l->blobs[wanted[j].blob + 1].offset : l->end;
                j++;
            }
        }
        failed = jc_scan_blob(s, &wanted[i]);
    }
    return failed ? failed : jc_scan_large(s);
}

static void jc_scan_free(jc_scan *s)
{
    jc_buffer_free(&s->window);
    jc_buffer_free(&s->large);
    jc_buffer_free(&s->sums);
    jc_buffer_free(&s->text);
}

#endif
