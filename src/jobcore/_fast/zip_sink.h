/* A zip image on its way into a file or an arena: entries in, headers, index and columns of the table out.
 *
 * Two sinks. A stream (chunk_io.h) takes the bytes in order and writes them while the next ones are made; what waits for
 * a checksum keeps its block. Memory, the arena of a snapshot, takes everything; large payloads are only noted, and
 * copied by several threads at the end.
 *
 * Nothing here touches Python or knows what a blob is. Functions return 0 or an errno; after a failure the image is good
 * for nothing but jc_image_free().
 */
#ifndef JOBCORE_FAST_ZIP_SINK_H
#define JOBCORE_FAST_ZIP_SINK_H

#include "arena.h"
#include "chunk_io.h"
#include "zip_image.h"

#define JC_LARGE ((uint64_t)256 << 10)  /* payloads of this size are not put into the buffer of small ones */
#define JC_BATCH ((size_t)256 << 10)

/* What all arrays of one kind, type and shape share. */
typedef struct {
    const uint8_t *head, *tail; /* the document before and after the name */
    size_t head_bytes, tail_bytes;
    uint64_t chunks, chunk_bytes;
    uint64_t bytes;             /* of the array itself */
    uint32_t axes;              /* of the stored array */
    uint32_t number;            /* index of the spec */
} jc_spec;

/* A payload of the arena whose checksum is not known yet. */
typedef struct {
    uint8_t *header;            /* in the arena */
    size_t central;             /* in the index */
    size_t sum;                 /* in the column */
} jc_pending;

typedef struct {
    jc_writer *stream;          /* one of the two is set */
    uint8_t *memory;
    size_t memory_bytes;
    uint64_t wide;
    uint64_t end;               /* offset of the next byte, those in `batch` included */
    uint64_t flushed;           /* offset of the first byte of `batch` */
    uint64_t entries;
    uint64_t places;
    jc_buffer batch, central;
    jc_buffer names, specs, place_column, sums; /* JSON text, and at last the sums as numbers */
    jc_buffer copies, pending;
    size_t copied;              /* of the copies, those that are done */
    jc_buffer text;
    /* The chunk that is being given in pieces. */
    jc_entry open;
    uint64_t open_left;
    uint32_t open_crc;
} jc_image;

static void jc_image_free(jc_image *m)
{
    jc_buffer *all[] = {&m->batch, &m->central, &m->names,   &m->specs, &m->place_column,
                        &m->sums,  &m->copies,  &m->pending, &m->text};
    for (size_t i = 0; i < sizeof all / sizeof all[0]; i++) {
        jc_buffer_free(all[i]);
    }
}

/* ---- the sinks ---- */

/* Memory for the next n bytes of the arena. */
static uint8_t *jc_image_room(jc_image *m, uint64_t at, uint64_t n)
{
    return n <= m->memory_bytes && at <= m->memory_bytes - n ? m->memory + at : NULL;
}

static int jc_image_flush(jc_image *m)
{
    size_t n = m->batch.used;
    int failed = 0;
    if (n == 0) {
        return 0;
    }
    if (m->stream != NULL) {
        uint32_t unused = 0;
        failed = jc_writer_append(m->stream, m->batch.data, n, &unused);
    } else {
        uint8_t *room = jc_image_room(m, m->flushed, n);
        if (room == NULL) {
            return ENOBUFS;
        }
        memcpy(room, m->batch.data, n);
    }
    m->flushed += n;
    m->batch.used = 0;
    return failed;
}

/* Note an entry in the index, with its key and size. */
static int jc_image_index(jc_image *m, const jc_entry *e, uint32_t crc)
{
    m->entries++;
    return jc_put_central(&m->central, e, crc, m->wide);
}

/* Note a chunk in the table. */
static int jc_image_column(jc_image *m, uint64_t place, uint32_t crc)
{
    if (m->places++ > 0 && jc_put(&m->place_column, ",", 1)) {
        return ENOMEM;
    }
    return jc_put_number(&m->place_column, place) || jc_put(&m->sums, &crc, sizeof crc) ? ENOMEM : 0;
}

/* ---- entries ---- */

/* Add an entry that is put together in memory: `n` bytes and as many zeros behind them as its size asks for. */
static int jc_image_small(jc_image *m, jc_entry *e, const uint8_t *data, size_t n, int is_chunk)
{
    size_t head, size = (size_t)e->size;
    uint8_t *p;
    uint32_t crc;
    e->offset = m->end;
    head = jc_header_bytes(e, m->wide);
    p = jc_grow(&m->batch, head + size);
    if (p == NULL) {
        return ENOMEM;
    }
    if (n > 0) {
        memcpy(p + head, data, n);
    }
    memset(p + head + n, 0, size - n);
    crc = jc_crc32_update(0, p + head, size);
    jc_local_header(p, e, crc, m->wide);
    m->end += head + size;
    if (jc_image_index(m, e, crc) || (is_chunk && jc_image_column(m, e->offset + head, crc))) {
        return ENOMEM;
    }
    return m->batch.used >= JC_BATCH ? jc_image_flush(m) : 0;
}

/* Begin a chunk that is given in pieces. */
static int jc_image_begin(jc_image *m, const jc_entry *e)
{
    size_t head;
    int failed = jc_image_flush(m);
    if (failed) {
        return failed;
    }
    m->open = *e;
    m->open.offset = m->end;
    m->open_left = e->size;
    m->open_crc = 0;
    head = jc_header_bytes(&m->open, m->wide);
    m->end += head;
    m->flushed = m->end;
    if (m->stream != NULL) {
        return jc_writer_reserve(m->stream, head);
    }
    return jc_image_room(m, m->open.offset, head + e->size) == NULL ? ENOBUFS : 0;
}

/* Give the next n bytes of the open chunk, or zeros. */
static int jc_image_piece(jc_image *m, const uint8_t *data, uint64_t n)
{
    int failed = 0;
    if (n > m->open_left) {
        return EINVAL;
    }
    if (m->stream != NULL) {
        failed = jc_writer_append(m->stream, data, (size_t)n, &m->open_crc);
    } else {
        uint8_t *room = m->memory + m->end;
        if (data != NULL) {
            m->open_crc = jc_crc32_copy(m->open_crc, room, data, (size_t)n);
        } else {
            memset(room, 0, (size_t)n);
            m->open_crc = jc_crc32_update(m->open_crc, room, (size_t)n);
        }
    }
    m->end += n;
    m->flushed = m->end;
    m->open_left -= n;
    return failed;
}

static int jc_image_finish_chunk(jc_image *m)
{
    uint8_t header[JC_MAX_HEADER];
    const jc_entry *e = &m->open;
    size_t head = jc_header_bytes(e, m->wide);
    int failed = 0;
    if (m->open_left != 0) {
        return EINVAL;
    }
    jc_local_header(header, e, m->open_crc, m->wide);
    if (m->stream != NULL) {
        failed = jc_writer_fill(m->stream, (int64_t)e->offset, header, head);
    } else {
        memcpy(m->memory + e->offset, header, head);
    }
    if (failed) {
        return failed;
    }
    return jc_image_index(m, e, m->open_crc) || jc_image_column(m, e->offset + head, m->open_crc) ? ENOMEM : 0;
}

/* Add a large chunk whose bytes are in memory. */
static int jc_image_large(jc_image *m, const jc_entry *e, const uint8_t *data, uint64_t n)
{
    jc_copy copy;
    jc_pending pending;
    size_t head;
    int failed = jc_image_begin(m, e);
    if (failed) {
        return failed;
    }
    if (m->stream != NULL) {
        failed = jc_image_piece(m, data, n);
        if (!failed && m->open_left > 0) {
            failed = jc_image_piece(m, NULL, m->open_left);
        }
        return failed ? failed : jc_image_finish_chunk(m);
    }
    head = jc_header_bytes(&m->open, m->wide);
    pending.header = m->memory + m->open.offset;
    pending.central = m->central.used;
    pending.sum = m->sums.used;
    jc_local_header(pending.header, &m->open, 0, m->wide);
    copy = (jc_copy){m->memory + m->end, data, n, e->size - n, 0};
    m->end += e->size;
    m->flushed = m->end;
    if (jc_put(&m->copies, &copy, sizeof copy) || jc_put(&m->pending, &pending, sizeof pending)
        || jc_image_index(m, &m->open, 0) || jc_image_column(m, m->open.offset + head, 0)) {
        return ENOMEM;
    }
    return 0;
}

/* Copy some of what was only noted, a portion of about `most` bytes, and fill in its checksums. `*left` tells whether there
 * is more. */
static int jc_image_copy(jc_image *m, int threads, uint64_t most, int *left)
{
    jc_copy *copies = (jc_copy *)m->copies.data + m->copied;
    const jc_pending *pending = (const jc_pending *)m->pending.data + m->copied;
    size_t all = m->copies.used / sizeof *copies - m->copied, count = 0;
    uint64_t bytes = 0;
    int failed;
    while (count < all && bytes < most) {
        bytes += copies[count++].size;
    }
    *left = count < all;
    failed = count ? jc_copy_all(copies, count, threads) : 0;
    for (size_t i = 0; i < count && !failed; i++) {
        jc_little(pending[i].header + JC_LOCAL_CRC, copies[i].crc, 4);
        jc_little(m->central.data + pending[i].central + JC_CENTRAL_CRC, copies[i].crc, 4);
        memcpy(m->sums.data + pending[i].sum, &copies[i].crc, 4);
    }
    m->copied += count;
    return failed;
}

/* ---- blobs ---- */

/* Append to a key, which stays below JC_MAX_ENTRY_KEY: 200 characters, a number, and at most 64 axes. */
static void jc_chunk_key(jc_entry *e, size_t node_bytes, const jc_spec *spec, uint64_t chunk)
{
    char *p = (char *)e->key + node_bytes;
    memcpy(p, "/c", 2);
    p += 2;
    if (spec->axes > 0) {
        uint8_t digits[20];
        size_t n = jc_digits(digits, chunk);
        *p++ = '.';
        memcpy(p, digits + 20 - n, n);
        p += n;
        for (uint32_t i = 1; i < spec->axes; i++) {
            memcpy(p, ".0", 2);
            p += 2;
        }
    }
    e->key_bytes = (size_t)(p - (char *)e->key);
}

/* Name the next blob: its name and spec go into the table. */
static int jc_image_name(jc_image *m, const uint8_t *name, size_t name_bytes, const jc_spec *spec)
{
    if (m->names.used > 0 && (jc_put(&m->names, ",", 1) || jc_put(&m->specs, ",", 1))) {
        return ENOMEM;
    }
    return jc_put_text(&m->names, name, name_bytes) || jc_put_number(&m->specs, spec->number) ? ENOMEM : 0;
}

/* Add a chunk of a contiguous array. e->key holds the key of the blob, of node_bytes. */
static int jc_image_chunk(jc_image *m, jc_entry *e, size_t node_bytes, const jc_spec *spec, const uint8_t *data,
                          uint64_t chunk)
{
    uint64_t at = chunk * spec->chunk_bytes;
    uint64_t n = spec->bytes - at < spec->chunk_bytes ? spec->bytes - at : spec->chunk_bytes;
    jc_chunk_key(e, node_bytes, spec, chunk);
    e->size = spec->chunk_bytes;
    if (e->size < JC_LARGE) {
        return jc_image_small(m, e, data + at, (size_t)n, 1);
    }
    return jc_image_large(m, e, data + at, n);
}

/* Add the document of a blob. */
static int jc_image_document(jc_image *m, jc_entry *e, size_t node_bytes, const uint8_t *name, size_t name_bytes,
                             const jc_spec *spec)
{
    m->text.used = 0;
    if (jc_put(&m->text, spec->head, spec->head_bytes) || jc_put_text(&m->text, name, name_bytes)
        || jc_put(&m->text, spec->tail, spec->tail_bytes)) {
        return ENOMEM;
    }
    memcpy(e->key + node_bytes, "/zarr.json", 10);
    e->key_bytes = node_bytes + 10;
    e->size = m->text.used;
    return jc_image_small(m, e, m->text.data, m->text.used, 0);
}

/* Add a chunk that is given as its encoded bytes, which may go as soon as this returns. e->key holds the key of the
 * blob, of node_bytes. */
static int jc_image_encoded(jc_image *m, jc_entry *e, size_t node_bytes, const jc_spec *spec, uint64_t chunk,
                            const uint8_t *data, uint64_t n)
{
    int failed;
    jc_chunk_key(e, node_bytes, spec, chunk);
    e->size = n;
    if (n < JC_LARGE) {
        return jc_image_small(m, e, data, (size_t)n, 1);
    }
    failed = jc_image_begin(m, e);
    if (!failed) {
        failed = jc_image_piece(m, data, n);
    }
    return failed ? failed : jc_image_finish_chunk(m);
}

/* Add the root document: `head`, the columns, `specs` and `more` among them, and `tail`. */
static int jc_image_root(jc_image *m, const uint8_t *head, size_t head_bytes, const uint8_t *specs, size_t specs_bytes,
                         const uint8_t *more, size_t more_bytes, const uint8_t *tail, size_t tail_bytes)
{
    static const char *const names[] = {"{\"name\":[", "],\"spec\":[", "],\"specs\":", ",\"place\":[", "],\"crc32\":["};
    jc_buffer *t = &m->text;
    const uint32_t *sums = (const uint32_t *)m->sums.data;
    jc_entry e;
    t->used = 0;
    if (jc_put(t, head, head_bytes) || jc_put(t, names[0], strlen(names[0]))
        || jc_put(t, m->names.data, m->names.used) || jc_put(t, names[1], strlen(names[1]))
        || jc_put(t, m->specs.data, m->specs.used) || jc_put(t, names[2], strlen(names[2]))
        || jc_put(t, specs, specs_bytes) || jc_put(t, names[3], strlen(names[3]))
        || jc_put(t, m->place_column.data, m->place_column.used) || jc_put(t, names[4], strlen(names[4]))) {
        return ENOMEM;
    }
    for (uint64_t i = 0; i < m->places; i++) {
        if ((i > 0 && jc_put(t, ",", 1)) || jc_put_number(t, sums[i])) {
            return ENOMEM;
        }
    }
    if (jc_put(t, "]", 1) || jc_put(t, more, more_bytes) || jc_put(t, "}", 1) || jc_put(t, tail, tail_bytes)) {
        return ENOMEM;
    }
    memcpy(e.key, "zarr.json", 9);
    e.key_bytes = 9;
    e.size = t->used;
    return jc_image_small(m, &e, t->data, t->used, 0);
}

/* A blob whose array is contiguous, with its key. */
typedef struct {
    const uint8_t *name;
    const uint8_t *data;
    const jc_spec *spec;
    size_t name_bytes, key_bytes;
    uint8_t key[JC_MAX_KEY];
} jc_blob;

/* Add whole blobs in order. */
static int jc_image_blobs(jc_image *m, const jc_blob *blobs, size_t count)
{
    for (size_t i = 0; i < count; i++) {
        const jc_blob *blob = &blobs[i];
        jc_entry e;
        int failed = jc_image_name(m, blob->name, blob->name_bytes, blob->spec);
        memcpy(e.key, blob->key, blob->key_bytes);
        for (uint64_t chunk = 0; !failed && chunk < blob->spec->chunks; chunk++) {
            failed = jc_image_chunk(m, &e, blob->key_bytes, blob->spec, blob->data, chunk);
        }
        if (!failed) {
            failed = jc_image_document(m, &e, blob->key_bytes, blob->name, blob->name_bytes, blob->spec);
        }
        if (failed) {
            return failed;
        }
    }
    return 0;
}

/* Add bytes as they are. */
static int jc_image_append(jc_image *m, const uint8_t *data, size_t n)
{
    uint8_t *place = jc_grow(&m->batch, n);
    if (place == NULL) {
        return ENOMEM;
    }
    if (n) {
        memcpy(place, data, n);
    }
    m->end += n;
    return 0;
}

#endif
