/* The bytes of a zip container, made in order: keys, documents, headers and index. Section 7 of docs/reference/format.md.
 *
 * Everything but the checksums of large payloads is known before a byte is written, so an image is made in one pass: small
 * entries are put together in a buffer, large payloads are copied and summed by the sink, and the few bytes that wait for
 * a sum (a header in front of its payload, a field of the index) are filled in when it is there.
 *
 * No function here touches Python. They return 0 or an errno.
 */
#ifndef JOBCORE_FAST_ZIP_IMAGE_H
#define JOBCORE_FAST_ZIP_IMAGE_H

#include <errno.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "crc32.h"

#define JC_MAX_KEY 200          /* characters of a blob's key; longer ones are made by the caller */
#define JC_MAX_ENTRY_KEY 512    /* with the suffix of a chunk */
#define JC_MAX_HEADER 1024      /* a local header with padding */

/* ---- a growing buffer ---- */

typedef struct {
    uint8_t *data;
    size_t used, room;
} jc_buffer;

/* Room for n more bytes, which count as used; NULL when there is no memory. */
static uint8_t *jc_grow(jc_buffer *b, size_t n)
{
    if (b->room - b->used < n) {
        size_t room = b->room + b->room / 2;
        uint8_t *data;
        room = room < b->used + n ? b->used + n : room;
        room = room < 4096 ? 4096 : room;
        data = realloc(b->data, room);
        if (data == NULL) {
            return NULL;
        }
        b->data = data;
        b->room = room;
    }
    b->used += n;
    return b->data + b->used - n;
}

static int jc_put(jc_buffer *b, const void *data, size_t n)
{
    uint8_t *place = jc_grow(b, n);
    if (place == NULL) {
        return ENOMEM;
    }
    if (n > 0) {
        memcpy(place, data, n);
    }
    return 0;
}

static void jc_buffer_free(jc_buffer *b)
{
    free(b->data);
    memset(b, 0, sizeof *b);
}

static inline uint8_t *jc_little(uint8_t *p, uint64_t value, int bytes)
{
    for (int i = 0; i < bytes; i++) {
        *p++ = (uint8_t)(value >> 8 * i);
    }
    return p;
}

/* ---- keys ---- */

static int jc_is_plain(uint8_t c)
{
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '_' || c == '-' || c == '.';
}

static int jc_is_device(const uint8_t *key, size_t n)
{
    static const char *const names[] = {"con", "prn", "aux", "nul", "com", "lpt"};
    for (int i = 0; i < 6; i++) {
        size_t length = i < 4 ? 3 : 4;
        if (n >= length && memcmp(key, names[i], 3) == 0 && (i < 4 || (key[3] >= '0' && key[3] <= '9'))
            && (n == length || key[length] == '.')) {
            return 1;
        }
    }
    return 0;
}

/* The key of a name, section 1 of the format; its length, or 0 when it is too long to be made here. */
static size_t jc_escape(uint8_t *out, const uint8_t *name, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t whole[3 * JC_MAX_KEY + 8];
    uint8_t *p = whole;
    size_t length;
    if (n == 0 || n > JC_MAX_KEY) {
        return 0;
    }
    for (size_t i = 0; i < n; i++) {
        uint8_t c = name[i];
        if (jc_is_plain(c)) {
            *p++ = c;
        } else if (c >= 'A' && c <= 'Z') {
            *p++ = '~';
            *p++ = (uint8_t)(c + ('a' - 'A'));
        } else {
            *p++ = '=';
            *p++ = (uint8_t)hex[c >> 4];
            *p++ = (uint8_t)hex[c & 15];
        }
    }
    length = (size_t)(p - whole);
    if (jc_is_plain(whole[0])
        && (whole[0] == '.' || (length >= 2 && memcmp(whole, "__", 2) == 0)
            || (length == 9 && memcmp(whole, "zarr.json", 9) == 0) || jc_is_device(whole, length))) {
        memmove(whole + 2, whole, length);
        whole[1] = (uint8_t)hex[whole[2] >> 4];
        whole[2] = (uint8_t)hex[whole[2] & 15];
        whole[0] = '=';
        length += 2;
    }
    if (whole[length - 1] == '.') {
        memcpy(whole + length - 1, "=2e", 3);
        length += 2;
    }
    if (length > JC_MAX_KEY) {
        return 0;
    }
    memcpy(out, whole, length);
    return length;
}

/* ---- JSON ---- */

/* A text with its quotes, as Python's json writes it when it need not be ASCII. */
static int jc_put_text(jc_buffer *b, const uint8_t *text, size_t n)
{
    static const char hex[] = "0123456789abcdef";
    uint8_t *start = jc_grow(b, 6 * n + 2), *p = start;
    if (start == NULL) {
        return ENOMEM;
    }
    *p++ = '"';
    for (size_t i = 0; i < n; i++) {
        uint8_t c = text[i];
        if (c >= 0x20 && c != '"' && c != '\\') {
            *p++ = c;
            continue;
        }
        *p++ = '\\';
        switch (c) {
        case '"':
        case '\\':
            *p++ = c;
            break;
        case '\b':
            *p++ = 'b';
            break;
        case '\f':
            *p++ = 'f';
            break;
        case '\n':
            *p++ = 'n';
            break;
        case '\r':
            *p++ = 'r';
            break;
        case '\t':
            *p++ = 't';
            break;
        default:
            memcpy(p, "u00", 3);
            p[3] = (uint8_t)hex[c >> 4];
            p[4] = (uint8_t)hex[c & 15];
            p += 5;
        }
    }
    *p++ = '"';
    b->used -= 6 * n + 2 - (size_t)(p - start);
    return 0;
}

/* The decimal digits of a number, at the end of the room; how many. */
static size_t jc_digits(uint8_t digits[20], uint64_t value)
{
    size_t n = 0;
    do {
        digits[19 - n++] = (uint8_t)('0' + value % 10);
        value /= 10;
    } while (value != 0);
    return n;
}

static int jc_put_number(jc_buffer *b, uint64_t value)
{
    uint8_t digits[20];
    size_t n = jc_digits(digits, value);
    return jc_put(b, digits + 20 - n, n);
}

/* ---- zip headers ---- */

/* From which value on a field is wide: 0xFFFFFFFF, unless a test wants small files with wide fields. */
typedef struct {
    uint8_t key[JC_MAX_ENTRY_KEY];
    size_t key_bytes;
    uint64_t offset, size;
} jc_entry;

static size_t jc_header_bytes(const jc_entry *e, uint64_t wide)
{
    size_t bare = 30 + e->key_bytes + (e->size >= wide ? 20 : 0) + 4 + 1;
    return bare + (size_t)(-(e->offset + bare) % 64);
}

/* Its length is jc_header_bytes(). */
static void jc_local_header(uint8_t *out, const jc_entry *e, uint32_t crc, uint64_t wide)
{
    size_t total = jc_header_bytes(e, wide);
    int large = e->size >= wide;
    size_t extra = total - 30 - e->key_bytes;
    size_t padding = extra - (large ? 20 : 0) - 4;
    uint8_t *p = out;
    uint64_t field = large ? 0xFFFFFFFFu : e->size;
    memcpy(p, "PK\x03\x04", 4);
    p = jc_little(p + 4, large ? 45 : 20, 2);
    p = jc_little(p, 0, 6);
    p = jc_little(p, 0x0021, 2);
    p = jc_little(p, crc, 4);
    p = jc_little(p, field, 4);
    p = jc_little(p, field, 4);
    p = jc_little(p, e->key_bytes, 2);
    p = jc_little(p, extra, 2);
    memcpy(p, e->key, e->key_bytes);
    p += e->key_bytes;
    if (large) {
        p = jc_little(p, 1, 2);
        p = jc_little(p, 16, 2);
        p = jc_little(p, e->size, 8);
        p = jc_little(p, e->size, 8);
    }
    p = jc_little(p, 0x434A, 2);
    p = jc_little(p, padding, 2);
    memset(p, 0, padding);
}

/* Where the checksum lies in a local and in a central header. */
#define JC_LOCAL_CRC 14
#define JC_CENTRAL_CRC 16

static int jc_put_central(jc_buffer *b, const jc_entry *e, uint32_t crc, uint64_t wide)
{
    int large = e->size >= wide, far = e->offset >= wide;
    size_t extra = large || far ? 4 + (large ? 16u : 0u) + (far ? 8u : 0u) : 0;
    uint64_t field = large ? 0xFFFFFFFFu : e->size;
    uint8_t *p = jc_grow(b, 46 + e->key_bytes + extra);
    if (p == NULL) {
        return ENOMEM;
    }
    memcpy(p, "PK\x01\x02", 4);
    p = jc_little(p + 4, 0x032D, 2);
    p = jc_little(p, extra ? 45 : 20, 2);
    p = jc_little(p, 0, 6);
    p = jc_little(p, 0x0021, 2);
    p = jc_little(p, crc, 4);
    p = jc_little(p, field, 4);
    p = jc_little(p, field, 4);
    p = jc_little(p, e->key_bytes, 2);
    p = jc_little(p, extra, 2);
    p = jc_little(p, 0, 6);
    p = jc_little(p, 0x81A40000u, 4);
    p = jc_little(p, far ? 0xFFFFFFFFu : e->offset, 4);
    memcpy(p, e->key, e->key_bytes);
    p += e->key_bytes;
    if (extra) {
        p = jc_little(p, 1, 2);
        p = jc_little(p, extra - 4, 2);
        if (large) {
            p = jc_little(p, e->size, 8);
            p = jc_little(p, e->size, 8);
        }
        if (far) {
            p = jc_little(p, e->offset, 8);
        }
    }
    return 0;
}

#endif
