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

#include "root_table.h"
#include "zip_sink.h"

#define JC_DIFFERS (-2)             /* bytes are not those that the table implies */

typedef struct {
    const uint8_t *name;
    size_t name_bytes;
    const jc_spec *spec;
    const uint64_t *sizes;  /* stored bytes of each of its chunks, or NULL where they are not encoded */
    uint64_t first;     /* of its chunks, among all chunks */
    uint64_t offset;    /* of its first entry */
    uint64_t key;       /* where its key starts among all keys */
    uint32_t key_bytes;
    uint32_t document_sum;
    uint64_t document_bytes;
} jc_place;

typedef struct {
    jc_place *blobs;
    size_t count, room;
    jc_buffer keys;
    const uint64_t *places;
    const uint32_t *sums;
    uint64_t chunks;
    const uint8_t *encoded; /* of each spec, whether chunks are; NULL where no spec has them */
    const uint64_t *sizes;  /* stored bytes of the encoded chunks of all blobs that are yet to be added */
    uint64_t sized;         /* how many they are */
    uint64_t wide;
    uint64_t end;       /* offset of the root entry */
    jc_buffer text;     /* a name with its quotes; while it is made only */
} jc_layout;

static void jc_layout_free(jc_layout *l)
{
    free(l->blobs);
    jc_buffer_free(&l->keys);
    jc_buffer_free(&l->text);
    memset(l, 0, sizeof *l);
}

static void jc_layout_key(const jc_layout *l, const jc_place *b, jc_entry *e)
{
    memcpy(e->key, l->keys.data + b->key, b->key_bytes);
}

/* The entry of a chunk, given its offset. */
static void jc_layout_chunk(const jc_place *b, jc_entry *e, uint64_t chunk, uint64_t offset)
{
    jc_chunk_key(e, b->key_bytes, b->spec, chunk);
    e->size = b->sizes != NULL ? b->sizes[chunk] : b->spec->chunk_bytes;
    e->offset = offset;
}

static void jc_layout_document(const jc_place *b, jc_entry *e, uint64_t offset)
{
    memcpy(e->key + b->key_bytes, "/zarr.json", 10);
    e->key_bytes = b->key_bytes + 10;
    e->size = b->document_bytes;
    e->offset = offset;
}

/* Length and checksum of a blob's document. */
static int jc_layout_sum(jc_layout *l, jc_place *b)
{
    const jc_spec *spec = b->spec;
    uint32_t sum = jc_crc32_update(0, spec->head, spec->head_bytes);
    l->text.used = 0;
    if (jc_put_text(&l->text, b->name, b->name_bytes)) {
        return ENOMEM;
    }
    sum = jc_crc32_update(sum, l->text.data, l->text.used);
    b->document_sum = jc_crc32_update(sum, spec->tail, spec->tail_bytes);
    b->document_bytes = spec->head_bytes + l->text.used + spec->tail_bytes;
    return 0;
}

/* Whether bytes are the document of a blob; there are as many as it has. `text` is room to work in. */
static int jc_is_document(const jc_place *b, const uint8_t *data, jc_buffer *text)
{
    const jc_spec *spec = b->spec;
    size_t quoted = (size_t)b->document_bytes - spec->head_bytes - spec->tail_bytes;
    const uint8_t *name = data + spec->head_bytes;
    if (memcmp(data, spec->head, spec->head_bytes) != 0 || memcmp(name + quoted, spec->tail, spec->tail_bytes) != 0) {
        return 0;
    }
    if (quoted == b->name_bytes + 2) { /* nothing is escaped */
        return name[0] == '"' && name[quoted - 1] == '"' && memcmp(name + 1, b->name, b->name_bytes) == 0;
    }
    text->used = 0;
    return jc_put_text(text, b->name, b->name_bytes) == 0 && memcmp(name, text->data, quoted) == 0;
}

/* Add a blob; its key was appended to the keys already. JC_DIFFERS when the table's places are not those that follow. */
static int jc_layout_add(jc_layout *l, const uint8_t *name, size_t name_bytes, const jc_spec *spec, size_t key_bytes)
{
    jc_place *b;
    jc_entry e;
    if (l->count == l->room) {
        size_t room = l->room ? 2 * l->room : 64;
        jc_place *blobs = realloc(l->blobs, room * sizeof *blobs);
        if (blobs == NULL) {
            return ENOMEM;
        }
        l->blobs = blobs;
        l->room = room;
    }
    b = &l->blobs[l->count++];
    *b = (jc_place){name, name_bytes, spec, NULL, 0, l->end, l->keys.used - key_bytes, (uint32_t)key_bytes, 0, 0};
    b->first = l->count > 1 ? b[-1].first + b[-1].spec->chunks : 0;
    if (spec->chunks > l->chunks - b->first) {
        return JC_DIFFERS;
    }
    if (l->encoded != NULL && l->encoded[spec->number]) {
        if (spec->chunks > l->sized) {
            return JC_DIFFERS;
        }
        b->sizes = l->sizes;
        l->sizes += spec->chunks;
        l->sized -= spec->chunks;
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
    if (jc_layout_sum(l, b)) {
        return ENOMEM;
    }
    jc_layout_document(b, &e, l->end);
    l->end += jc_header_bytes(&e, l->wide) + e.size;
    return 0;
}

/* A key that is not made of its name here, since that is too long. */
typedef struct {
    size_t blob;
    const uint8_t *text;
    size_t nbytes;
} jc_long_key;

/* Add all blobs. Long keys come in the order of their blobs. */
static int jc_layout_all(jc_layout *l, const jc_name *names, const uint32_t *spec, const jc_spec *specs, size_t count,
                         const jc_long_key *keys, size_t key_count)
{
    for (size_t i = 0; i < count; i++) {
        uint8_t *room = jc_grow(&l->keys, JC_MAX_KEY);
        size_t length;
        int failed;
        if (room == NULL) {
            return ENOMEM;
        }
        if (key_count > 0 && keys->blob == i) {
            length = keys->nbytes;
            memcpy(room, keys->text, length);
            keys++;
            key_count--;
        } else {
            length = jc_escape(room, names[i].text, names[i].nbytes);
        }
        l->keys.used -= JC_MAX_KEY - length;
        failed = jc_layout_add(l, names[i].text, names[i].nbytes, &specs[spec[i]], length);
        if (failed) {
            return failed;
        }
    }
    return 0;
}

/* Compare a central directory with the one that the table implies, but for the root at its end, whose header starts at
 * *at then. */
static int jc_layout_compare(const jc_layout *l, const uint8_t *data, size_t n, size_t *at)
{
    jc_buffer header = {NULL, 0, 0};
    int failed = 0;
    *at = 0;
    for (size_t i = 0; i < l->count && !failed; i++) {
        const jc_place *b = &l->blobs[i];
        uint64_t offset = b->offset;
        jc_entry e;
        jc_layout_key(l, b, &e);
        for (uint64_t chunk = 0; chunk <= b->spec->chunks && !failed; chunk++) {
            if (chunk < b->spec->chunks) {
                jc_layout_chunk(b, &e, chunk, offset);
            } else {
                jc_layout_document(b, &e, offset);
            }
            header.used = 0;
            failed = jc_put_central(
                &header, &e, chunk < b->spec->chunks ? l->sums[b->first + chunk] : b->document_sum, l->wide);
            offset += jc_header_bytes(&e, l->wide) + e.size;
            if (!failed && (header.used > n - *at || memcmp(header.data, data + *at, header.used) != 0)) {
                failed = JC_DIFFERS;
            }
            *at += header.used;
        }
    }
    jc_buffer_free(&header);
    return failed;
}

#endif
